"""Raw rows in the columns of the data sets that the paper names: one function for each schema.

Columns and their types are those of the data sets' cards; what a column says beyond the problem and
its responses (types, tags, urls) is filled with values that occur in the data set.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass

from klearlib.records import TestCase


@dataclass(frozen=True)
class RawItem:
    """What a source has on one problem, before it takes a schema.

    `name` is unique in the source and ends in a number; `domain` is ``math`` or ``code``. `answer`,
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
    difficulty: int = 0


def openr1_math(item: RawItem) -> dict:
    """open-r1/OpenR1-Math-220k: several generations, each with its label."""
    messages = [_message("user", item.prompt), _message("assistant", item.responses[0])]
    return {
        "problem": item.prompt,
        "solution": _after_thought(item.responses[0]),
        "answer": item.answer,
        "problem_type": "Number Theory",
        "question_type": "math-word-problem",
        "source": "olympiads",
        "uuid": _uuid(item.name),
        "is_reasoning_complete": ["</think>" in text for text in item.responses],
        "generations": list(item.responses),
        "correctness_math_verify": list(item.are_correct),
        "correctness_llama": None,
        "finish_reasons": None,
        "correctness_count": sum(item.are_correct),
        "messages": messages,
    }


def openthoughts3(item: RawItem) -> dict:
    """open-thoughts/OpenThoughts3-1.2M: one turn of a human and one of the teacher. difficulty is
    null for mathematics."""
    turns = [{"from": "human", "value": item.prompt}]
    turns += [{"from": "gpt", "value": text} for text in item.responses[:1]]
    is_code = item.domain == "code"
    return {
        "difficulty": item.difficulty if is_code else None,
        "source": "stackexchange_codegolf" if is_code else "ai2-adapt-dev/openmath-2-math",
        "domain": "code" if is_code else "math",
        "conversations": turns,
    }


def numinamath_1_5(item: RawItem) -> dict:
    """AI-MO/NuminaMath-1.5: one solution, and whether problem and solution are valid."""
    return {
        "problem": item.prompt,
        "solution": "".join(item.responses[:1]),
        "answer": item.answer,
        "problem_type": "Number Theory",
        "question_type": "math-word-problem",
        "problem_is_valid": "Yes" if item.prompt else "Incomplete",
        "solution_is_valid": "Yes" if item.responses else "Incomplete",
        "source": "olympiads",
        "synthetic": False,
    }


def numinamath_cot(item: RawItem) -> dict:
    """AI-MO/NuminaMath-CoT: no column of answers, the last box of the solution is the answer."""
    solution = "".join(item.responses[:1])
    return {
        "source": "synthetic_math",
        "problem": item.prompt,
        "solution": solution,
        "messages": [_message("user", item.prompt), _message("assistant", solution)],
    }


def acereason_sft(item: RawItem) -> dict:
    """nvidia/AceReason-1.1-SFT: mathematics and code in one table, no answers."""
    is_code = item.domain == "code"
    return {
        "category": item.domain,
        "source": "leetcode" if is_code else "numina_math",
        "input": item.prompt,
        "output": "".join(item.responses[:1]),
    }


def deepscaler(item: RawItem) -> dict:
    """agentica-org/DeepScaleR-Preview-Dataset: problem, answer, solution."""
    return {
        "problem": item.prompt,
        "answer": item.answer,
        "solution": "".join(item.responses[:1]),
    }


def opencodereasoning(item: RawItem) -> dict:
    """nvidia/OpenCodeReasoning, split_0: one response, whose program is repeated in solution."""
    output = "".join(item.responses[:1])
    return {
        "id": _uuid(item.name).replace("-", ""),
        "input": item.prompt,
        "output": output,
        "source": "codeforces",
        "license": "cc-by-4.0",
        "dataset": "code_contests",
        "split": "train",
        "difficulty": str(item.difficulty),
        "solution": output.rpartition("```python\n")[2].removesuffix("\n```"),
    }


def skywork_or1_math(item: RawItem) -> dict:
    """Skywork/Skywork-OR1-RL-Data, split math: a prompt and its ground truth, a JSON list."""
    golds = [item.answer] if item.answer else []
    return {
        "data_source": "train-math-numinamath1.5_olympiads",
        "prompt": [_message("user", item.prompt)],
        "ability": "math",
        "reward_model": {
            "ground_truth": json.dumps(golds),
            "style": "rule",
        },
        "extra_info": {
            "index": int(item.name.rpartition("-")[2]),
            "model_difficulty": {
                f"DeepSeek-R1-Distill-Qwen-{size}B": item.difficulty for size in ("1.5", "7", "32")
            },
        },
    }


def klear_code(item: RawItem) -> dict:
    """Kwai-Klear/KlearReasoner-CodeSub-15K: a prompt and its tests as JSON text."""
    tests = {
        "inputs": [test.stdin for test in item.tests],
        "outputs": [test.expected for test in item.tests],
    }
    return {
        "hash": _uuid(item.name).replace("-", ""),
        "ability": "code",
        "data_source": "coder1_longcot",
        "prompt": [_message("user", item.prompt)],
        "reward_model": {"ground_truth": json.dumps(tests) if item.tests else "", "style": "rule"},
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


def _message(role: str, text: str) -> dict:
    return {"content": text, "role": role}


def _after_thought(response: str) -> str:
    return response.rpartition("</think>")[2].strip()


def _uuid(name: str) -> str:
    digest = hashlib.sha256(name.encode()).hexdigest()
    return "-".join(digest[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))
