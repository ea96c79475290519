"""The process in which math-verify judges, see `judge_loop`.

A job is ``{"answer": str, "golds": [str, ...], "is_written": bool}``, all plain texts; a reply is
``{"reason": str}``.
"""

from __future__ import annotations

import gc
import logging
import os
import re
import resource
import sys
from collections.abc import Callable
from fractions import Fraction
from functools import cache, lru_cache, partial

from klearlib.errors import MissingAsset
from klearlib.verify.judge_loop import serve
from klearlib.verify.match import BEST_FIRST, Bounds, match

MAX_MEMORY_BYTES = 2 << 30
MAX_DIFFERENCE = 1e-20  # of exact numbers, in proportion: more, and they are not equal
MAX_NOISE = 1e-12  # of a decimal that is a whole number, which rounds nothing
MAX_ROUNDING = 1e-6  # of a decimal and what it rounds
_TEXT = re.compile(r"\\text\{[^{}]*\}")  # equal on both sides, see `match`
_TRIGONOMETRIC = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)")
_DEGREES = re.compile(r"(\d+(?:\.\d+)?)\^\{\\circ\}")
_BLANK_IN_PRODUCT = re.compile(r"(?<=\d) (?=[A-Za-z])")


def judge(job: dict) -> dict:
    """Judge one answer against the golds of which any one may match.

    The reason is ``judge_error`` where math-verify raised, ran out of recursion, or has no
    expression for a gold to compare with: math-verify itself would answer "wrong" then.
    """
    reasons = set()
    try:
        for gold in job["golds"]:
            reasons.add(
                match(gold, job["answer"], is_written=job["is_written"], symbolic=_symbolic)
            )
    except MemoryError:
        raise
    except Exception:  # the boundary: a failed judgement is never a "wrong"
        reasons.add("judge_error")
    return {"reason": min(reasons, key=BEST_FIRST.index)}


@cache
def _reader() -> Callable[[str], list]:
    """math-verify's, which left alone takes R for r, and 16t for 16 with a unit."""
    from latex2sympy2_extended import NormalizationConfig
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, parser

    parser.latex2sympy = partial(
        parser.latex2sympy, conversion_config=ConversionConfig(lowercase_symbols=False)
    )
    latex = NormalizationConfig(units=False, malformed_operators=True, nits=True)
    forms = [LatexExtractionConfig(normalization_config=latex), ExprExtractionConfig()]
    # Without a time-out math-verify arms no signal: the clock is the pool's.
    return partial(parse, extraction_config=forms, parsing_timeout=None)


@lru_cache(maxsize=4096)
def _parse(text: str) -> list:
    text = _BLANK_IN_PRODUCT.sub("", _TEXT.sub("", text)).replace("\0", "")
    if _TRIGONOMETRIC.search(text):
        text = _DEGREES.sub(r"(\\frac{\1\\pi}{180})", text)
    return _reader()(f"\\boxed{{{text}}}")


def _symbolic(gold_text: str | Bounds, answer_text: str) -> str:
    """``correct``, ``wrong`` or ``judge_error`` for two expressions, or for bounds and a number."""
    from math_verify import verify

    if not isinstance(gold_text, str):
        return _is_between(*gold_text, answer_text)
    if "=" in gold_text and "=" in answer_text:
        return _same_equation(gold_text, answer_text)
    golds, answers = _parse(gold_text), _parse(answer_text)
    failed = all(isinstance(gold, str) for gold in golds)
    for gold in golds:
        for answer in answers:
            if isinstance(answer, str) or isinstance(gold, str):
                continue  # as texts they were compared before
            try:
                equal = _same_value(gold, answer)
                if equal is None:
                    # One pair a call: the first exception would hide the pairs after it.
                    equal = verify(gold, answer, timeout_seconds=None, raise_on_error=True)
                if equal:
                    return "correct"
            except (MemoryError, KeyboardInterrupt):
                raise
            except Exception:  # whatever sympy raises on odd input must not read as "wrong"
                failed = True
    return "judge_error" if failed else "wrong"


def _is_between(low: Fraction, high: Fraction, exact_text: str) -> str:
    """Whether an exact value is what a decimal with these bounds rounds."""
    import sympy

    for exact in _parse(exact_text):
        if isinstance(exact, sympy.Expr) and exact.is_number:
            value = sympy.N(exact, 30)
            is_close = value.is_real and sympy.Rational(low) <= value <= sympy.Rational(high)
            return "correct" if is_close else "wrong"
    return "wrong"


def _same_equation(gold_text: str, answer_text: str) -> str:
    """Whether two equations have one solution set, by their left sides minus their right sides: one
    is the other times a number."""
    import sympy

    differences = []
    for text in (gold_text, answer_text):
        sides = [
            [each for each in _parse(side) if isinstance(each, sympy.Expr)]
            for side in text.split("=")
        ]
        if len(sides) != 2 or not all(sides):
            return "judge_error" if text is gold_text else "wrong"
        differences.append(sides[0][0] - sides[1][0])
    if any(sympy.simplify(each) == 0 for each in differences):
        return "wrong"
    quotient = sympy.simplify(differences[1] / differences[0])
    return "correct" if quotient.is_number and quotient.is_finite and quotient != 0 else "wrong"


def _same_value(gold: object, answer: object) -> bool | None:
    """Whether two numbers are one, None for math-verify to say: exact numbers that are close, and
    all that is no number.

    math-verify takes a difference below 1e-15 as none, so 1/2^99 passes for 1/2^98, and rounds
    decimals to six places, so 1e-7 passes for 2e-7; its ``i`` is a symbol like any other; and to
    see that log_2 3 is not 2^100 it takes minutes.
    """
    import sympy

    if gold == answer:
        return True
    if not all(isinstance(e, sympy.Expr) for e in (gold, answer)):
        return None
    a, b = (e.subs({s: sympy.I for s in e.free_symbols if s.name == "i"}) for e in (gold, answer))
    if not (a.is_number and b.is_number):
        return None
    values = sympy.N(a, 30), sympy.N(b, 30)
    if not all(value.is_finite for value in values):
        has_no_value = values[1].has(sympy.nan, sympy.zoo, sympy.oo)  # 1/0
        return False if values[0].is_finite and has_no_value else None
    difference, size = abs(sympy.N(a - b, 30)), max(map(abs, values))
    if a.has(sympy.Float) or b.has(sympy.Float):
        is_whole = any(float(value).is_integer() for value in values if value.is_real)
        return bool(difference <= (MAX_NOISE if is_whole else MAX_ROUNDING) * size)
    if size < MAX_DIFFERENCE and not all(values):  # sin(pi) against 0 leaves digits of rounding
        return sympy.simplify(a - b) == 0
    if difference > MAX_DIFFERENCE * size:
        return False
    if not (a.has(sympy.I) or b.has(sympy.I)):
        return None
    return bool(abs(sympy.N(a - b, 120)) <= MAX_DIFFERENCE**5 * size)


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
        _parse("1")
    except ImportError as error:
        fix = 'pip install "math-verify[antlr4_13_2]==0.9.0"'
        raise MissingAsset(f"judging answers needs math-verify ({error}): {fix}") from None
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # A parser makes many objects that are soon gone; to look through all of sympy for garbage after
    # every few hundred of them takes a tenth of the time.
    gc.freeze()
    gc.set_threshold(100_000, 50, 1000)


if __name__ == "__main__":
    sys.exit(serve(judge, prepare=_prepare, is_worn_out=_uses_much_memory))
