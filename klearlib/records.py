"""The nouns of the suite, as frozen records. Axes: P problems, G group, N = P * G rollouts, T
tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

import numpy as np

from klearlib.errors import KlearError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class TestCase:
    """One test of a code problem. Exactly one of three kinds:

    - `stdin`: what the program reads; `expected` is what it must print;
    - `call`: a JSON array of the positional arguments of the problem's entry point; `expected` is
      the JSON value that it must return;
    - `asserts`: Python statements that call the entry point, by its name or as ``candidate``, and
      raise where it is wrong; `expected` is None.

    >>> TestCase(stdin="3", expected="9").expected
    '9'
    >>> TestCase(call="[[2, 1]]", expected="[1, 2]").kind
    'call'
    """

    __test__ = False  # pytest would collect the name

    expected: str | None = None
    stdin: str | None = None
    call: str | None = None
    asserts: str | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, str | None):
                raise KlearError(f"{name} of a test must be a text, got {type(value).__name__}")
        kinds = [k for k in ("stdin", "call", "asserts") if getattr(self, k) is not None]
        if len(kinds) != 1:
            raise KlearError(
                f"a test needs exactly one of stdin, call and asserts, got {kinds or 'none'}"
            )
        if (self.expected is None) != (self.asserts is not None):
            raise KlearError(
                "a test by stdin or call needs what is expected, one by asserts must not have it"
            )

    @property
    def kind(self) -> str:
        """``stdin``, ``call`` or ``asserts``."""
        return next(k for k in ("stdin", "call", "asserts") if getattr(self, k) is not None)


REASONS = (
    "correct",
    "wrong",
    "not_worked_out",
    "no_answer",
    "bad_format",
    "truncated",
    "timeout",
    "judge_error",
)
"""What a `Verdict` can say. ``not_worked_out``: an expression equal to the gold answer where a
written number was asked for; ``truncated``: the token budget ended the response; ``bad_format``: a
think tag is missing."""

FOUND = ("boxed", "marked", "last")
"""Where an answer stood: in the last box, behind a marker ("the answer is", ``<answer>``, ``=``),
or merely the last number of the last sentence."""

NOT_JUDGED = ("timeout", "judge_error")
"""The reasons of a `Verdict` that are the judge's failures and not the response's."""

OUTCOMES = (
    "passed",
    "wrong_answer",
    "runtime_error",
    "compile_error",
    "time_limit",
    "memory_limit",
    "output_limit",
    "judge_error",
)
"""What one test of a program can give; ``judge_error`` is the judge's own failure."""


@dataclass(frozen=True)
class TestReport:
    """What the tests of one program gave: a word of `OUTCOMES` for each test, in order.

    `pass_rate` is the share of ``passed`` among all tests; a test that the judge could not run
    stays in the denominator. `messages` may say why a test failed, one line each, "" where there is
    nothing to say.

    >>> TestReport.of(["passed", "wrong_answer"]).pass_rate
    0.5
    """

    __test__ = False

    outcomes: tuple[str, ...]
    pass_rate: float
    messages: tuple[str, ...] = ()

    @classmethod
    def of(cls, outcomes: Sequence[str], messages: Sequence[str] = ()) -> TestReport:
        """The report of these outcomes; KlearError for a word that is none of `OUTCOMES`."""
        if unknown := set(outcomes) - set(OUTCOMES):
            words = ", ".join(map(repr, sorted(unknown)))
            raise KlearError(f"no outcome of a test: {words}; there are {', '.join(OUTCOMES)}")
        share = list(outcomes).count("passed") / len(outcomes) if outcomes else 0.0
        return cls(tuple(outcomes), share, tuple(messages))


@dataclass(frozen=True)
class Problem:
    """What the policy is asked and what its answer is judged by: `answer` for mathematics, `tests`
    for code.

    `entry_point` names the function, or the method of a class ``Solution``, that ``call`` and
    ``asserts`` tests call. `preset` says what programs find around them, a name of
    `klearlib.verify.presets.PRESETS`. `date` is the day of the contest (ISO 8601), for benchmark
    windows; `difficulty` is that of the miniature's problems, 0 elsewhere.

    >>> Problem(id="chain-0", prompt="What is 2 + 2?", answer="4").answer
    '4'
    """

    id: str
    prompt: str
    answer: str | tuple[str, ...] | None = None
    tests: tuple[TestCase, ...] = ()
    entry_point: str | None = None
    date: str = ""
    family: str = ""
    difficulty: int = 0
    source: str = ""
    preset: str = "python"

    def __post_init__(self) -> None:
        for name, texts in {"id": [self.id], "prompt": [self.prompt], "answer": self.golds}.items():
            if not all(isinstance(text, str) for text in texts):
                raise KlearError(f"{name} of a problem must be a text, got {texts[0]!r:.80}")

    @property
    def golds(self) -> tuple[str, ...]:
        """The answers of which any may match; () where there is none."""
        if self.answer is None:
            return ()
        return self.answer if isinstance(self.answer, tuple) else (self.answer,)


@dataclass(frozen=True)
class LabelledResponse:
    """A response that a data set or a teacher gives to a problem, as SFT reads it.

    `text` is whole, think tags included. `is_correct` is None where nobody judged it; `teacher`
    names the model that wrote it, "" where that is not known.

    >>> LabelledResponse("<think>2+2=4</think>4", is_correct=True).teacher
    ''
    """

    text: str
    is_correct: bool | None = None
    teacher: str = ""


@dataclass(frozen=True)
class SourceRow:
    """One usable row of a data set: a problem, the responses that came with it, its licence.

    `problem.source` names the data set. `problem.id` is unique in it where the data set has ids of
    its own; else it is a hash of what is asked, and rows that ask the same have the same. `dropped`
    has the reason of each response that cannot be used, a word of `klearlib.data.rows.REASONS`.
    """

    problem: Problem
    responses: tuple[LabelledResponse, ...] = ()
    dropped: tuple[str, ...] = ()
    licence: str = ""


@dataclass(frozen=True)
class Verdict:
    """The verifier's word on one response.

    `reason` is a word of `REASONS`; `extracted` is the answer that was judged, None where there
    was none. `found` says where it stood, a word of `FOUND`, None for programs and where there was
    none.
    `has_think_open` and `has_think_close` say which think tags the response (with its prompt) has.
    `reward` is what a reward function of one's own pays, None where the built-in ones do.
    For code, `correct` means that every test passed, `extracted` is the program, and `report` holds
    what its tests gave (None where there was no program to run).

    >>> Verdict(correct=False, reason="wrong", extracted="5").reason
    'wrong'
    """

    correct: bool
    reason: str
    extracted: str | None = None
    has_think_open: bool = True
    has_think_close: bool = True
    report: TestReport | None = None
    reward: float | None = None
    found: str | None = None


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

    @property
    def num_tokens(self) -> int:
        """Generated tokens, the end token included."""
        return len(self.token_ids)


@dataclass(frozen=True)
class Group:
    """The G rollouts of one problem with their verdicts and rewards."""

    problem: Problem
    responses: tuple[Response, ...]
    verdicts: tuple[Verdict, ...]
    rewards: tuple[float, ...]


@dataclass(frozen=True)
class TokenBatch:
    """K response tokens, rollout after rollout; every field is [K].

    logp_old; advantage; place: long, a token's place in its response from 0 on; weight: its share
    in the mean of the policy loss; lm_weight: its share in the mean over the tokens of correct
    responses (Eq. 13), 0 elsewhere; correction: a constant factor of its policy gradient.
    """

    logp_old: torch.Tensor
    advantage: torch.Tensor
    place: torch.Tensor
    weight: torch.Tensor
    lm_weight: torch.Tensor
    correction: torch.Tensor

    def __getitem__(self, chunk) -> TokenBatch:
        return TokenBatch(*(getattr(self, each.name)[chunk] for each in fields(self)))


@dataclass(frozen=True)
class EvalRecord:
    """All that one evaluation measured: P problems, n responses each. Nothing is averaged yet.

    correct, truncated bool [P, n]; num_tokens int [P, n]; reason str [P, n] (words of `Verdict`).
    pass_rate float [P, n]: the share of its tests that a program passed; for an answer 1 or 0.
    found str [P, n]: where the answer stood, a word of `FOUND`; "" for programs and for none.
    `sampling` is the whole sampling record (temperature, top_p, max_tokens, seed, ...).
    """

    benchmark: str
    problem_ids: tuple[str, ...]
    correct: np.ndarray
    truncated: np.ndarray
    num_tokens: np.ndarray
    reason: np.ndarray
    pass_rate: np.ndarray
    found: np.ndarray
    sampling: dict = field(default_factory=dict)
