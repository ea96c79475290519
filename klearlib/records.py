"""The nouns of the suite, as frozen records. Axes: P problems, G group, N = P * G rollouts, T
tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class TestCase:
    """One test of a code problem: standard input and output, or a call's arguments and its result.

    >>> TestCase(stdin="3", expected="9").expected
    '9'
    """

    __test__ = False  # pytest would collect the name

    expected: str
    stdin: str | None = None
    call: str | None = None


@dataclass(frozen=True)
class Problem:
    """What the policy is asked and what its answer is judged by.

    >>> Problem(id="chain-0", prompt="What is 2 + 2?", answer="4").answer
    '4'
    """

    id: str
    prompt: str
    answer: str | tuple[str, ...] | None = None
    tests: tuple[TestCase, ...] = ()
    family: str = ""
    difficulty: int = 0
    source: str = ""


@dataclass(frozen=True)
class Verdict:
    """The verifier's word on one response.

    `reason` is one of ``correct``, ``wrong``, ``no_answer``, ``bad_format``, ``timeout``,
    ``judge_error``; `extracted` is the answer that was judged, None where there was none.
    `has_think_open` and `has_think_close` say which think tags the response (with its prompt) has.

    >>> Verdict(correct=False, reason="wrong", extracted="5").reason
    'wrong'
    """

    correct: bool
    reason: str
    extracted: str | None = None
    has_think_open: bool = True
    has_think_close: bool = True


@dataclass(frozen=True)
class Response:
    """One sampled continuation: its tokens with the sampler's log-probabilities.

    `prompt` is the rendered chat prompt, whose template may already hold the opening think tag.
    `token_ids` and `logp` have one entry per generated token, the end token included;
    `truncated` is True where the token budget ended it and not an end token.
    """

    problem_id: str
    prompt: str
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logp: tuple[float, ...]
    text: str
    truncated: bool


@dataclass(frozen=True)
class Group:
    """The G rollouts of one problem with their verdicts and rewards."""

    problem: Problem
    responses: tuple[Response, ...]
    verdicts: tuple[Verdict, ...]
    rewards: tuple[float, ...]


@dataclass(frozen=True)
class TokenBatch:
    """Right-padded token rows. Position t of the [N, T] fields belongs to the prediction of
    ``input_ids[:, t + 1]``, so they are one column shorter than `input_ids`.

    input_ids [N, T+1] long, loss_mask [N, T] bool (True on response tokens), logp_old [N, T],
    advantages [N], is_correct [N] bool.
    """

    input_ids: torch.Tensor
    loss_mask: torch.Tensor
    logp_old: torch.Tensor
    advantages: torch.Tensor
    is_correct: torch.Tensor


@dataclass(frozen=True)
class EvalRecord:
    """All that one evaluation measured: P problems, n responses each. Nothing is averaged yet.

    correct, truncated bool [P, n]; num_tokens int [P, n]; reason str [P, n] (words of `Verdict`).
    `sampling` is the whole sampling record (temperature, top_p, max_tokens, seed, ...).
    """

    benchmark: str
    problem_ids: tuple[str, ...]
    correct: np.ndarray
    truncated: np.ndarray
    num_tokens: np.ndarray
    reason: np.ndarray
    sampling: dict = field(default_factory=dict)
