r"""How right answers are judged, beside math-verify alone, on sets older than the judge.

    .venv/bin/python benchmarks/answer_judges.py

The table of `tests/verify/answers.csv` (right: paid and unpaid as it says), golds of real kinds
under harmless changes of style (right: all are paid), and the answers of other golds (right: none
is paid). "Alone" is `math_verify.verify(parse(gold), parse(response))` with its own time-outs; a
time-out or an exception pays nothing. Writes benchmarks/results/answer_judges.csv.
"""

from __future__ import annotations

import argparse
import csv
import logging
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import math_verify
from common import arguments_of, keep

from klearlib.verify.answers import verify_answers
from klearlib.verify.pool import close_pool

TESTS = Path(__file__).resolve().parents[1] / "tests" / "verify"
sys.path.insert(0, str(TESTS))
from answer_sets import stranger_pairs, style_pairs  # noqa: E402

Case = tuple[str, str, bool]
"""A gold, a response, and whether it is to be paid."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strangers", type=int, default=200_000, help="pairs, by klear")
    parser.add_argument("--strangers-alone", type=int, default=2000, help="pairs, by math-verify")
    parser.add_argument("--most", type=int, default=10**9, help="cases of the other sets")
    arguments = arguments_of(parser, strangers=20, strangers_alone=5, most=20)
    logging.disable(logging.WARNING)  # math-verify warns of every call
    chooser = random.Random(0)
    with (TESTS / "answers.csv").open(encoding="utf-8") as table:
        rows = list(csv.DictReader(table))
    cases = [(row["gold"], row["response"], row["verdict"] == "correct") for row in rows]
    style = [(gold, response, True) for _, gold, response in style_pairs()]
    strangers = [(gold, response, False) for _, gold, response in stranger_pairs()]
    chooser.shuffle(strangers)
    sets = {
        "table, to be paid": [case for case in cases if case[2]],
        "table, not to be paid": [case for case in cases if not case[2]],
        "style": style,
    }
    found = [
        line(name, chosen := chooser.sample(given, min(len(given), arguments.most)), chosen)
        for name, given in sets.items()
    ]
    found.append(
        line(
            "strangers",
            strangers[: arguments.strangers],
            strangers[: arguments.strangers_alone],
        )
    )
    close_pool()
    keep(found, "answer_judges", arguments)


def line(name: str, ours: Sequence[Case], alone: Sequence[Case]) -> dict:
    """One row of the table: how many cases are judged right."""
    verdicts = verify_answers(
        [f"<think></think> {response}" for _, response, _ in ours], [gold for gold, _, _ in ours]
    )
    num_ours = sum(v.correct == paid for v, (_, _, paid) in zip(verdicts, ours, strict=True))
    num_alone = sum(paid_alone(gold, response) == paid for gold, response, paid in alone)
    return {
        "set": name,
        "cases, ours": len(ours),
        "ours right": num_ours,
        "ours, percent": 100 * num_ours / len(ours),
        "cases, alone": len(alone),
        "math-verify alone right": num_alone,
        "alone, percent": 100 * num_alone / len(alone),
    }


def paid_alone(gold: str, response: str) -> bool:
    try:
        return math_verify.verify(
            math_verify.parse(f"\\boxed{{{gold}}}"), math_verify.parse(response)
        )
    except Exception:  # whatever it raises, it pays nothing
        return False


if __name__ == "__main__":
    main()
