"""What the policy wrote: a few rollouts of a step, kept as text beside the metrics."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from klearlib.run.seeding import derive_seed

if TYPE_CHECKING:  # torch; `shortened` is needed without it
    from klearlib.rl.rollouts import RolloutBatch

NUM_PROBLEMS, NUM_RESPONSES = 4, 2
MAX_CHARS = 4000
"""Of a prompt or response; of longer ones the start and the end are kept."""


def draw_samples(batch: RolloutBatch, *, seed: int, step: int) -> list[dict]:
    """The lines of samples.jsonl for one step: `NUM_RESPONSES` responses to each of `NUM_PROBLEMS`
    problems (all if there are fewer) in the order in which they were drawn.

    Which ones follows from (seed, step) alone, by a generator of its own, so no other draw of the
    run moves. `chars` is the length of the response before it is `shortened`.
    """
    generator = random.Random(derive_seed(seed, "samples", step))
    problems = generator.sample(range(len(batch.groups)), min(NUM_PROBLEMS, len(batch.groups)))
    lines = []
    for index in sorted(problems):
        group = batch.groups[index]
        count = len(group.responses)
        for number in sorted(generator.sample(range(count), min(NUM_RESPONSES, count))):
            response, verdict = group.responses[number], group.verdicts[number]
            lines.append(
                {
                    "step": step,
                    "problem": group.problem.id,
                    "response": number,
                    "prompt": shortened(group.problem.prompt, max_chars=MAX_CHARS),
                    "text": shortened(response.text, max_chars=MAX_CHARS),
                    "chars": len(response.text),
                    "tokens": len(response.token_ids),
                    "truncated": response.truncated,
                    "reason": verdict.reason,
                    "found": verdict.found or "",
                    "reward": group.rewards[number],
                    "advantage": float(batch.advantages[index, number]),
                }
            )
    return lines


def shortened(text: str, *, max_chars: int) -> str:
    """`text`, or the start and end of a longer one and between them how much is left out.

    >>> shortened("0123456789", max_chars=8)
    '012345 [... 2 of 10 characters left out ...] 89'
    """
    if len(text) <= max_chars:
        return text
    head, left_out = max_chars * 3 // 4, len(text) - max_chars
    mark = f" [... {left_out} of {len(text)} characters left out ...] "
    return text[:head] + mark + text[len(text) - (max_chars - head) :]
