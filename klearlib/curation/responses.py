"""n responses of a model to every problem, judged: what teachers write and references solve."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.curation.labels import labelled
from klearlib.curation.pass_rates import RATES, pass_rate_of
from klearlib.data.lines import write_lines
from klearlib.data.marks import prefilled
from klearlib.data.problems import read_problems
from klearlib.data.tables import Sample, SampleWriter
from klearlib.errors import Stopped
from klearlib.policy.compute import Compute
from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.engines import open_engine
from klearlib.records import REASONS, Response
from klearlib.run.files import write_json
from klearlib.run.seeding import derive_seed
from klearlib.verify.groups import judge_responses

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder

RESPONSES = "responses.parquet"
CARD = "card.json"

_CHUNK = 64  # problems that are sampled and judged together


def respond(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    seed: int,
    problems: str,
    teacher: str,
    num_responses: int,
    temperature: float,
    top_p: float,
    max_new_tokens: int,
    test_timeout_s: float,
    test_memory_mb: int,
    compute: dict,
    think_tags: str = "required",
) -> None:
    """Stage ``responses``: `num_responses` responses of ``inputs["model"]/model`` to every problem
    of the file `problems` of ``inputs["problems"]``, judged by that problem's own tests or answer,
    as RL judges its rollouts: one that the token budget ended is wrong.

    Writes responses.parquet (a `tables.Sample` for each response, in the order of the problems),
    pass_rates.jsonl (a `PassRate` for each problem) and card.json. Problems are sampled and judged
    64 at a time. A run that was stopped or killed starts anew.

    Args:
        teacher: the model's name, for the samples. num_responses: up to 16 in the paper.
        temperature, top_p, max_new_tokens: of the sampling, see `SamplingSettings`.
        test_timeout_s, test_memory_mb: limits of one test of a program.
        compute: the fields of `klearlib.policy.compute.Compute`.
        think_tags: ``"required"``, or ``"optional"``: responses are judged with or without them.

    Raises:
        Stopped: a stop was asked for.
        KlearError: no problems, or a number out of range.
    """
    known = read_problems(inputs["problems"] / problems)
    total = len(known)
    rates, num_truncated = [], 0
    by_reason: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
    start = 0

    def count(sampled: int, _: int) -> None:
        folder.progress(start * num_responses + sampled, total * num_responses)

    settings = SamplingSettings(
        temperature=temperature, top_p=top_p, top_k=0, max_tokens=max_new_tokens, seed=0
    )
    model = inputs["model"] / "model"
    with (
        SampleWriter(folder.path / RESPONSES) as table,
        open_engine(model, compute=Compute(**compute), on_sampled=count) as engine,
    ):
        for start in range(0, total, _CHUNK):
            if start and folder.stop_requested:
                raise Stopped(f"stopped after {start} of {total} problems; run again to start anew")
            count(0, 0)
            chosen = known[start : start + _CHUNK]
            seeded = replace(settings, seed=derive_seed(seed, "responses", teacher, start))
            groups = engine.sample_groups(chosen, group_size=num_responses, settings=seeded)
            judged = judge_responses(
                chosen,
                groups,
                test_timeout_s=test_timeout_s,
                test_memory_mb=test_memory_mb,
                require_think=think_tags == "required",
            )
            for problem, group, verdicts in zip(chosen, groups, judged, strict=True):
                rates.append(pass_rate_of(problem.id, verdicts))
                for response, verdict in zip(group, verdicts, strict=True):
                    text = whole_text(response)
                    sample = Sample(problem.id, problem.prompt, text, problem.source, teacher)
                    table.add(labelled(sample, verdict))
                    by_reason[verdict.reason] += 1
                    num_truncated += response.truncated
    folder.progress(total * num_responses, total * num_responses)
    write_lines(map(asdict, rates), folder.path / RATES)
    card = {
        "teacher": teacher,
        "num_problems": total,
        "num_responses": by_reason.total(),
        "num_by_reason": by_reason,
        "num_truncated": num_truncated,
    }
    write_json(folder.path / CARD, card)


def whole_text(response: Response) -> str:
    """A response's text with the opening think tag, also where the chat template wrote it."""
    opened = prefilled(response.prompt)
    return (opened[0] if opened else "") + response.text
