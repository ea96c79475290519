"""The miniature's sources: which data set each has the schema of, and how well it is written; and
raw rows in the columns that are read of these data sets.

The ranks are known because the writers are: from rank to rank more steps are wrong, left out or
needless, and the notation clashes more. What a column says beyond the problem and its responses is
a value that occurs in the data set.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass

from klearlib.miniature.problems import Slips
from klearlib.records import TestCase


@dataclass(frozen=True)
class SourcePlan:
    """One source. `domain` is ``math`` or ``code``; `rank` is 1 for the best of its domain, 0 for
    a pool of problems without responses, which reinforcement learning draws from.

    `dataset` is the name under which `klearlib.data.sources.read_source` reads its schema.
    `slip_share` is the share of single steps with a habit of going wrong, the same habits for all
    writers of a domain, so that a lower rank has all those of the higher ones; `noise` is that of
    `Slips`. `gaps` is the share of steps that are done but not written down, `repeats` the share of
    steps that are written down again (inefficient, never wrong), `notation` a word of
    `writers.NOTATIONS`. Only slips make answers wrong; the other dials make a response harder to
    learn from.
    """

    name: str
    dataset: str
    domain: str
    rank: int
    slip_share: float = 0.0
    noise: float = 0.0
    gaps: float = 0.0
    repeats: float = 0.0
    notation: str = "plain"

    @property
    def file(self) -> str:
        """Its raw file in the folder of the stage ``sources``."""
        return f"{self.name}.jsonl"

    def slips(self, *, habits: int, slip_rate: float) -> Slips:
        """How its writer goes wrong. habits: the seed of the domain's slips. slip_rate: how often a
        habit shows."""
        return Slips(habits, self.slip_share, slip_rate, self.noise)


MATHS_SOURCES = (
    SourcePlan("math_1", "openr1_math", "math", 1, 0.00, 0.010),
    SourcePlan("math_2", "acereason_sft", "math", 2, 0.01, 0.010, repeats=0.02),
    SourcePlan("math_3", "openthoughts3", "math", 3, 0.02, 0.015, repeats=0.03),
    SourcePlan("math_4", "openr1_math", "math", 4, 0.04, 0.020, gaps=0.02, repeats=0.04),
    SourcePlan("math_5", "numinamath_1_5", "math", 5, 0.06, 0.020, gaps=0.03, repeats=0.05),
    SourcePlan("math_6", "acereason_sft", "math", 6, 0.08, 0.025, gaps=0.04, repeats=0.08),
    SourcePlan("math_7", "deepscaler", "math", 7, 0.10, 0.030, gaps=0.05, repeats=0.10),
    SourcePlan("math_8", "openthoughts3", "math", 8, 0.13, 0.030, 0.06, 0.12, "spaced"),
    SourcePlan("math_9", "numinamath_cot", "math", 9, 0.16, 0.040, 0.08, 0.15, "spaced"),
    SourcePlan("math_10", "numinamath_1_5", "math", 10, 0.20, 0.050, 0.10, 0.20, "swapped"),
)
CODE_SOURCES = (
    SourcePlan("code_1", "opencodereasoning", "code", 1, 0.00, 0.010),
    SourcePlan("code_2", "acereason_sft", "code", 2, 0.02, 0.010, repeats=0.01),
    SourcePlan("code_3", "openthoughts3", "code", 3, 0.04, 0.015, gaps=0.01, repeats=0.01),
    SourcePlan("code_4", "opencodereasoning", "code", 4, 0.06, 0.020, gaps=0.02, repeats=0.02),
    SourcePlan("code_5", "acereason_sft", "code", 5, 0.09, 0.025, gaps=0.04, repeats=0.03),
    SourcePlan("code_6", "openthoughts3", "code", 6, 0.12, 0.030, 0.06, 0.04, "spaced"),
)
POOLS = (
    SourcePlan("math_pool", "skywork_or1_math", "math", 0),
    SourcePlan("code_pool", "klear_code", "code", 0),
)
SOURCES = (*MATHS_SOURCES, *CODE_SOURCES, *POOLS)
"""All of them, in the order in which curation reads them: of equal prompts the first stays, which
is the one of the better source."""


def curate_sources(domain: str) -> list[dict]:
    """The sources of a domain as `klearlib.curation.curate` takes them, from its input ``sources``.

    >>> curate_sources("code")[-1]
    {'name': 'klear_code', 'alias': 'code_pool', 'location': 'code_pool.jsonl', 'input': 'sources'}
    """
    return [
        {"name": plan.dataset, "alias": plan.name, "location": plan.file, "input": "sources"}
        for plan in SOURCES
        if plan.domain == domain
    ]


@dataclass(frozen=True)
class RawItem:
    """What a source has on one problem, before it takes a schema.

    `name` is unique in the source; `domain` is ``math`` or ``code``. `answer`,
    `tests` and `responses` may be empty, which makes a broken row where the schema needs them. Each
    of a maths source's `responses` has its truth in `are_correct`, which is empty for programs.
    """

    name: str
    domain: str
    prompt: str
    answer: str = ""
    tests: tuple[TestCase, ...] = ()
    responses: tuple[str, ...] = ()
    are_correct: tuple[bool, ...] = ()

    @property
    def response(self) -> str:
        """The first response, "" where there is none."""
        return "".join(self.responses[:1])


def openr1_math(item: RawItem) -> dict:
    """open-r1/OpenR1-Math-220k: several generations, each with its label."""
    return {
        "problem": item.prompt,
        "answer": item.answer,
        "problem_type": "Number Theory",
        "uuid": _uuid(item.name),
        "is_reasoning_complete": ["</think>" in text for text in item.responses],
        "generations": list(item.responses),
        "correctness_math_verify": list(item.are_correct),
        "correctness_llama": None,
    }


def openthoughts3(item: RawItem) -> dict:
    """open-thoughts/OpenThoughts3-1.2M: one turn of a human and one of the teacher."""
    turns = [{"from": "human", "value": item.prompt}]
    turns += [{"from": "gpt", "value": text} for text in item.responses[:1]]
    return {"domain": item.domain, "conversations": turns}


def numinamath_1_5(item: RawItem) -> dict:
    """AI-MO/NuminaMath-1.5: one solution, and whether problem and solution are valid."""
    return {
        "problem": item.prompt,
        "solution": item.response,
        "answer": item.answer,
        "problem_type": "Number Theory",
        "question_type": "math-word-problem",
        "problem_is_valid": "Yes" if item.prompt else "Incomplete",
        "solution_is_valid": "Yes" if item.responses else "Incomplete",
    }


def numinamath_cot(item: RawItem) -> dict:
    """AI-MO/NuminaMath-CoT: no column of answers, the last box of the solution is the answer."""
    return {"source": "synthetic_math", "problem": item.prompt, "solution": item.response}


def acereason_sft(item: RawItem) -> dict:
    """nvidia/AceReason-1.1-SFT: mathematics and code in one table, no answers."""
    return {"category": item.domain, "input": item.prompt, "output": item.response}


def deepscaler(item: RawItem) -> dict:
    """agentica-org/DeepScaleR-Preview-Dataset: problem, answer, solution."""
    return {"problem": item.prompt, "answer": item.answer, "solution": item.response}


def opencodereasoning(item: RawItem) -> dict:
    """nvidia/OpenCodeReasoning, split_0: one response."""
    return {
        "input": item.prompt,
        "output": item.response,
        "source": "codeforces",
        "license": "cc-by-4.0",
    }


def skywork_or1_math(item: RawItem) -> dict:
    """Skywork/Skywork-OR1-RL-Data, split math: a prompt and its ground truth, a JSON list."""
    golds = [item.answer] if item.answer else []
    return {
        "prompt": [{"role": "user", "content": item.prompt}],
        "reward_model": {"ground_truth": json.dumps(golds)},
    }


def klear_code(item: RawItem) -> dict:
    """Kwai-Klear/KlearReasoner-CodeSub-15K: a prompt and its tests as JSON text."""
    tests = {
        "inputs": [test.stdin for test in item.tests],
        "outputs": [test.expected for test in item.tests],
    }
    return {
        "hash": _uuid(item.name).replace("-", ""),
        "prompt": [{"role": "user", "content": item.prompt}],
        "reward_model": {"ground_truth": json.dumps(tests) if item.tests else ""},
    }


COLUMNS: dict[str, Callable[[RawItem], dict]] = {
    "openr1_math": openr1_math,
    "openthoughts3": openthoughts3,
    "numinamath_1_5": numinamath_1_5,
    "numinamath_cot": numinamath_cot,
    "acereason_sft": acereason_sft,
    "deepscaler": deepscaler,
    "opencodereasoning": opencodereasoning,
    "skywork_or1_math": skywork_or1_math,
    "klear_code": klear_code,
}
"""Each schema by the name under which `klearlib.data.sources` reads it."""


def _uuid(name: str) -> str:
    digest = hashlib.sha256(name.encode()).hexdigest()
    return "-".join(digest[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))
