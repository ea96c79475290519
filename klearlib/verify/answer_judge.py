"""The process in which math-verify judges, see `judge_loop`.

A job is ``{"answer": str, "is_boxed": bool, "golds": [str, ...]}``, a reply
``{"reason": str, "extracted": str | None}``.
"""

from __future__ import annotations

import gc
import logging
import os
import re
import resource
import sys
from functools import lru_cache

from klearlib.errors import MissingAsset
from klearlib.verify.judge_loop import serve

MAX_MEMORY_BYTES = 2 << 30
MAX_RELATIVE_ERROR = 1e-9
_PLUS_MINUS = re.compile(r"\\pm(?![A-Za-z])")  # \pmod is another


def judge(job: dict) -> dict:
    """Judge one answer against the golds of which any one may match.

    The reason is ``judge_error`` where math-verify raised, ran out of recursion, or has no
    expression for a gold to compare with: math-verify itself would answer "wrong" then.
    """
    answer, is_boxed, reason = job["answer"], job["is_boxed"], "wrong"
    try:
        found = _parse(answer, is_boxed=is_boxed)
        if not found:
            return {"reason": "no_answer", "extracted": None}
        extracted = answer if is_boxed else next((p for p in found if isinstance(p, str)), None)
        for gold in job["golds"]:
            outcome = _compare(_parse_gold(gold), found)
            if outcome == "correct":
                return {"reason": "correct", "extracted": extracted}
            if outcome == "judge_error":
                reason = "judge_error"
    except MemoryError:
        raise
    except Exception:  # the boundary: a failed judgement is never a "wrong"
        return {"reason": "judge_error", "extracted": None}
    return {"reason": reason, "extracted": extracted}


def _parse(text: str, *, is_boxed: bool) -> list:
    from math_verify import parse

    # Without a time-out math-verify arms no signal: the clock is the pool's.
    if is_boxed:
        text = _expand_plus_minus(text).replace("\\varnothing", "\\emptyset")
        text = f"\\boxed{{{text}}}"
    return parse(text, parsing_timeout=None)


@lru_cache(maxsize=4096)
def _parse_gold(gold: str) -> list:
    return _parse(gold, is_boxed=True)


def _expand_plus_minus(text: str) -> str:
    r"""``a \pm b`` as ``a + b, a - b``, which math-verify cannot read; two signs are left alone."""
    if len(_PLUS_MINUS.findall(text)) != 1 or "," in text or "\\mp" in text:
        return text
    return ", ".join(_PLUS_MINUS.sub(sign, text) for sign in "+-")


def _compare(golds: list, predictions: list) -> str:
    """``correct``, ``wrong`` or ``judge_error`` for one gold; both are parsed forms of one text."""
    from math_verify import verify

    failed = all(isinstance(gold, str) for gold in golds)
    for gold in golds:
        for prediction in predictions:
            try:
                # One pair a call: the first exception would hide the pairs after it.
                equal = verify(
                    gold,
                    prediction,
                    timeout_seconds=None,
                    raise_on_error=True,
                    allow_set_relation_comp=True,  # "x > 3" answers "(3, \\infty)"
                )
                if equal and _same_magnitude(gold, prediction):
                    return "correct"
            except (MemoryError, KeyboardInterrupt):
                raise
            except Exception:  # whatever sympy raises on odd input must not read as "wrong"
                failed = True
    return "judge_error" if failed else "wrong"


def _same_magnitude(gold: object, prediction: object) -> bool:
    """False where two exact numbers only passed because both are tiny.

    math-verify takes a difference below 1e-15 as none, so 1/2^99 passes for 1/2^98. Numbers whose
    relative difference is above `MAX_RELATIVE_ERROR` are equal only if sympy proves it.
    """
    import sympy

    if gold == prediction:  # also infinity, whose difference from itself is no number
        return True
    pair = (gold, prediction)
    if not all(isinstance(e, sympy.Expr) and e.is_number for e in pair):
        return True
    if any(e.has(sympy.Float, sympy.UnevaluatedExpr) for e in pair):
        return True  # rounded decimals and percentages have rules of their own
    a, b = (sympy.N(e.doit(), 30) for e in pair)
    if abs(a - b) <= MAX_RELATIVE_ERROR * max(abs(a), abs(b)):
        return True
    return sympy.simplify(gold - prediction) == 0


def _uses_much_memory() -> bool:
    """Whether sympy's caches, which only grow, have taken half of what this process may have."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            pages = int(statm.read().split()[0])
    except OSError:
        return False
    return pages * os.sysconf("SC_PAGE_SIZE") > MAX_MEMORY_BYTES // 2


def _prepare() -> None:
    logging.disable(logging.CRITICAL)
    try:
        _parse_gold("1")
    except ImportError as error:
        fix = 'pip install "math-verify[antlr4_13_2]==0.9.0"'
        raise MissingAsset(f"answers need math-verify ({error}): {fix}") from None
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # A parser makes many objects that are soon gone; to look through all of sympy for garbage after
    # every few hundred of them takes a tenth of the time.
    gc.freeze()
    gc.set_threshold(100_000, 50, 1000)


if __name__ == "__main__":
    sys.exit(serve(int(sys.argv[1]), judge, prepare=_prepare, is_worn_out=_uses_much_memory))
