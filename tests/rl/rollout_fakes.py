"""Groups, rows and settings made by hand, for the tests of rl/."""

from dataclasses import asdict, fields

import torch

from klearlib.params import RLOptions
from klearlib.records import Group, Problem, Response, Verdict
from klearlib.rl.rollouts import Row
from klearlib.rl.settings import RLSettings

# The paper's way in everything that is an option.
_OPTIONS = asdict(RLOptions())
SETTINGS = {each.name: _OPTIONS[each.name] for each in fields(RLSettings) if each.name in _OPTIONS}
SETTINGS |= {
    "logp_old": "sampler",
    "num_steps": 3,
    "num_problems": 6,
    "group_size": 8,
    "mini_batch_problems": 2,
    "learning_rate": 2e-4,
    "alpha": 0.0,
    "max_new_tokens": 40,
    "eval_every": 2,
    "eval_responses": 1,
    "validation_responses": 2,
    "benchmarks": {},
    "deciding": {},
    "num_validation": 6,
    "code_reward": "soft",
    "checkpoint_every": 100,
    "steps_before": 0,
}


def settings(**changes) -> RLSettings:
    return RLSettings(**SETTINGS | changes)


def group(
    index: int,
    rewards: list[float],
    *,
    correct: list[bool] | None = None,
    truncated: list[bool] | None = None,
    lengths: list[int] | None = None,
) -> Group:
    """A group whose token ids and log-probabilities say where they come from.

    Response j of group i has the tokens 1000 i + 100 j + 0, 1, 2, ... and the log-probabilities
    -(i + j / 10 + t / 1000).
    """
    size = len(rewards)
    correct = [reward == 1.0 for reward in rewards] if correct is None else correct
    truncated = [False] * size if truncated is None else truncated
    lengths = [2 + j for j in range(size)] if lengths is None else lengths
    prompt_ids = tuple(range(7, 10 + index))
    responses = tuple(
        Response(
            problem_id=f"p{index}",
            prompt="?",
            prompt_ids=prompt_ids,
            token_ids=tuple(1000 * index + 100 * j + t for t in range(lengths[j])),
            logp=tuple(-(index + j / 10 + t / 1000) for t in range(lengths[j])),
            text="",
            truncated=truncated[j],
        )
        for j in range(size)
    )
    verdicts = tuple(Verdict(right, "correct" if right else "wrong") for right in correct)
    return Group(Problem(f"p{index}", "?", "1"), responses, verdicts, tuple(rewards))


def row(ids, num_prompt, *, logp_old=None, advantage=1.0, is_correct=True, **more) -> Row:
    """`ids`, `logp_old` and `correction` are any sequences of numbers."""
    length = len(ids) - num_prompt
    logp_old = (-1.0,) * length if logp_old is None else logp_old
    if "correction" in more:
        more["correction"] = torch.as_tensor(more["correction"]).float()
    tensors = torch.as_tensor(ids), num_prompt, torch.as_tensor(logp_old).float()
    return Row(*tensors, advantage, is_correct, **more)


def contents(row: Row) -> dict:
    """The fields of a row in plain Python: rows themselves are not compared."""
    return {
        name: value.tolist() if isinstance(value, torch.Tensor) else value
        for name, value in vars(row).items()
    }
