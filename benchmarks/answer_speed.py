r"""How fast answers are judged, beside math-verify alone in the same run.

    .venv/bin/python benchmarks/answer_speed.py --repeats 5

"Alone" is one process that parses the gold and the answer and verifies the pair, with math-verify's
own time-outs off. Ours is `verify_answers`, with its think tags, its boxes and its processes.
Rounds of both alternate, every round has answers of its own (sympy remembers what it has seen), and
the medians of the rounds are compared. Half of the answers are right.

Integers come one to a gold. LaTeX answers (surds, fractions, intervals, sets, pairs of roots,
factorials, matrices, units) come one to a gold as well, and in groups of 8 that share one, as in
RL. Writes benchmarks/results/answer_speed.csv.
"""

from __future__ import annotations

import argparse
import logging
import random
import statistics
import time
from collections.abc import Callable, Iterator

import math_verify
from common import arguments_of, keep

from klearlib.verify.answers import verify_answers
from klearlib.verify.pool import close_pool

Pair = tuple[str, str]
_MATRIX = "\\begin{%smatrix} %d & %d \\\\ %d & %d \\end{%smatrix}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--integers", type=int, default=1000, help="per round")
    parser.add_argument("--latex", type=int, default=240, help="per round")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--warm-up", type=int, default=300, help="per process, before the clock")
    arguments = arguments_of(parser, repeats=1, integers=20, latex=8, workers=[1], warm_up=10)
    logging.disable(logging.WARNING)  # math-verify warns of every call without its time-out
    tasks = [
        ("integers", integer_pairs, arguments.integers, [1]),
        ("LaTeX, a gold each", latex_pairs, arguments.latex, arguments.workers),
        ("LaTeX, groups of 8", latex_groups, arguments.latex, arguments.workers),
    ]
    rows = [
        row
        for name, draw, num_answers, workers in tasks
        for row in compare(name, draw, num_answers, workers, arguments.repeats, arguments.warm_up)
    ]
    close_pool()
    keep(rows, "answer_speed", arguments)


def compare(
    name: str,
    draw: Callable[[random.Random], Iterator[Pair]],
    num_answers: int,
    workers: list[int],
    repeats: int,
    warm_up: int,
) -> list[dict]:
    """One row for each number of workers."""
    alone_s: list[float] = []
    ours_s: dict[int, list[float]] = {number: [] for number in workers}
    num_differences = 0
    judge_alone(draw_pairs(draw, warm_up, name))
    for number in workers:
        close_pool()  # its processes may be more than `number`
        judge_ours(draw_pairs(draw, warm_up * number, name), number)
        for round_number in range(repeats):
            pairs = draw_pairs(draw, num_answers, f"{name} {number} {round_number}")
            start = time.perf_counter()
            alone = judge_alone(pairs)
            between = time.perf_counter()
            ours = judge_ours(pairs, number)
            ours_s[number].append(time.perf_counter() - between)
            alone_s.append(between - start)
            num_differences += sum(a != b for a, b in zip(alone, ours, strict=True))
    alone_rate = num_answers / statistics.median(alone_s)
    rows = []
    for number in workers:
        rate = num_answers / statistics.median(ours_s[number])
        rows.append(
            {
                "answers": name,
                "number": num_answers,
                "workers": number,
                "math-verify alone per s": alone_rate,
                "ours per s": rate,
                "ratio": rate / alone_rate,
                "verdicts that differ": num_differences,
            }
        )
    return rows


def draw_pairs(draw: Callable[[random.Random], Iterator[Pair]], num: int, seed: str) -> list[Pair]:
    stream = draw(random.Random(seed))
    return [next(stream) for _ in range(num)]


def judge_alone(pairs: list[Pair]) -> list[bool]:
    return [
        math_verify.verify(
            math_verify.parse(f"\\boxed{{{gold}}}", parsing_timeout=None),
            math_verify.parse(f"\\boxed{{{answer}}}", parsing_timeout=None),
            timeout_seconds=None,
        )
        for answer, gold in pairs
    ]


def judge_ours(pairs: list[Pair], workers: int) -> list[bool]:
    responses = [f"<think>So.</think> It is \\boxed{{{answer}}}." for answer, _ in pairs]
    verdicts = verify_answers(responses, [gold for _, gold in pairs], workers=workers)
    return [verdict.correct for verdict in verdicts]


def integer_pairs(rng: random.Random) -> Iterator[Pair]:
    while True:
        value = rng.randint(-99_999, 99_999)
        yield str(value), str(value)
        yield str(value + rng.randint(1, 9)), str(value)


def latex_pairs(rng: random.Random) -> Iterator[Pair]:
    while True:
        for answer, gold, other_gold in spellings(rng):
            yield answer, gold
            yield answer, other_gold


def latex_groups(rng: random.Random) -> Iterator[Pair]:
    """Groups of 8 answers, no two the same text, to one gold; about half of them are right."""
    while True:
        for answer, gold, _ in spellings(rng):
            for k in range(8):
                zero = f" + {k} - {k}" if "," not in answer and "matrix" not in answer else ""
                blanks = "\\," * (k + 1) if not zero else ""
                yield (f"{answer}{zero}{blanks}", gold) if k % 2 else (f"{gold} + {k + 1}", gold)


def spellings(rng: random.Random) -> Iterator[tuple[str, str, str]]:
    """An answer, a gold that it equals, and one that it does not; one triple of each kind."""
    a, b, c, d = (rng.randint(2, 40) for _ in range(4))
    yield f"\\sqrt{{{a * a * b}}}", f"{a}\\sqrt{{{b}}}", f"{a + 1}\\sqrt{{{b}}}"
    yield (
        f"\\frac{{{a}+\\sqrt{{{b}}}}}{{{c}}}",
        f"\\frac{{{a}}}{{{c}}}+\\frac{{\\sqrt{{{b}}}}}{{{c}}}",
        f"\\frac{{{a}-\\sqrt{{{b}}}}}{{{c}}}",
    )
    yield (
        f"\\frac{{{a * d}}}{{{b * d}\\pi}}",
        f"\\frac{{{a}}}{{{b}\\pi}}",
        f"\\frac{{{a}}}{{{b + 1}\\pi}}",
    )
    yield f"[{a}, {a + b})", f"\\left[{a}, {a + b}\\right)", f"({a}, {a + b})"
    yield f"\\{{{a}, {a + b}, -{c}\\}}", f"\\{{-{c}, {a}, {a + b}\\}}", f"\\{{{c}, {a}, {a + b}\\}}"
    yield (
        f"{a}-\\sqrt{{{b}}}, {a}+\\sqrt{{{b}}}",
        f"{a}+\\sqrt{{{b}}}, {a}-\\sqrt{{{b}}}",
        f"{a}+\\sqrt{{{b}}}, -{a}-\\sqrt{{{b}}}",
    )
    yield f"2^{{{a}}}\\cdot {b}!", f"{b}!\\cdot 2^{{{a}}}", f"2^{{{a + 1}}}\\cdot {b}!"
    yield (
        _MATRIX % ("p", a, b, c, d, "p"),
        _MATRIX % ("b", a, b, c, d, "b"),
        _MATRIX % ("p", b + 1, a, c, d, "p"),
    )
    yield f"{a}\\sqrt{{{b}}}\\text{{ cm}}", f"{a}\\sqrt{{{b}}}", f"{a}\\sqrt{{{b + 1}}}"
    yield (
        f"(x+{a})(x-{b})",
        f"x^2 + {a - b}x - {a * b}".replace("+ -", "- "),
        f"(x-{a})(x+{b + 50})",
    )


if __name__ == "__main__":
    main()
