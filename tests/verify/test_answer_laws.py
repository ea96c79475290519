r"""The table of answers and the three laws that hold for every gold.

`answers.csv` is the judge's specification: kind, gold, response (what stands behind the think
tags), verdict. The laws: what only styles an answer leaves it right; the answer of another gold is
wrong; and two written numbers are equal whichever is the gold.
"""

import csv
import random
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest
from answer_sets import CHANGES, KIND, NUMBERS, stranger_pairs, style_pairs

from klearlib.records import FOUND, REASONS
from klearlib.verify.answers import verify_answer, verify_answers

with Path(__file__).with_name("answers.csv").open(encoding="utf-8") as table:
    ROWS = list(csv.DictReader(table))


def judge(pairs, **how):
    """The verdicts on pairs of gold and response."""
    golds, responses = zip(*pairs, strict=True)
    return verify_answers([f"<think>x</think> {each}" for each in responses], golds, **how)


def test_the_table():
    assert len({(row["gold"], row["response"]) for row in ROWS}) == len(ROWS) > 1000
    verdicts = judge([(row["gold"], row["response"]) for row in ROWS])
    wrong = [
        (row["gold"], row["response"], row["verdict"], verdict.reason)
        for row, verdict in zip(ROWS, verdicts, strict=True)
        if verdict.reason != row["verdict"]
    ]
    assert wrong == []
    assert {verdict.found for verdict in verdicts} == {*FOUND, None}
    assert all((verdict.found is None) == (verdict.reason == "no_answer") for verdict in verdicts)
    assert {row["verdict"] for row in ROWS} < {*REASONS}


def test_an_expression_is_paid_where_equivalent_forms_are_asked():
    rows = [row for row in ROWS if row["verdict"] == "not_worked_out"]
    verdicts = judge([(row["gold"], row["response"]) for row in rows], answer_form="equivalent")
    assert Counter(verdict.reason for verdict in verdicts) == {"correct": len(rows)}


def test_style_changes_no_verdict():
    pairs = list(style_pairs())
    assert len(pairs) > 2000
    verdicts = judge([(gold, response) for _, gold, response in pairs])
    wrong = [pair for pair, verdict in zip(pairs, verdicts, strict=True) if not verdict.correct]
    assert wrong == []


@pytest.mark.parametrize("share", [400, pytest.param(1, marks=pytest.mark.slow)])
def test_the_answer_of_another_gold_is_wrong(share):
    pairs = list(stranger_pairs())
    assert len(pairs) > 200_000
    if share > 1:
        pairs = random.Random(0).sample(pairs, len(pairs) // share)
    verdicts = judge([(gold, response) for _, gold, response in pairs])
    paid = [pair for pair, verdict in zip(pairs, verdicts, strict=True) if verdict.correct]
    assert paid == []
    assert {verdict.reason for verdict in verdicts} <= {"wrong", "not_worked_out"}


def test_written_numbers_are_equal_both_ways():
    numbers = [gold for gold in KIND if KIND[gold] in NUMBERS]
    numbers += ["3.50", r"\frac{7}{2}", "3 1/2", "350%", "0.333333", "0.3333333", "1e2", "100.0"]
    pairs = list(combinations(numbers, 2))
    there = judge([(a, rf"\boxed{{{b}}}") for a, b in pairs])
    back = judge([(b, rf"\boxed{{{a}}}") for a, b in pairs])
    assert [v.correct for v in there] == [v.correct for v in back]
    assert sum(v.correct for v in there) > 10


@pytest.mark.parametrize(
    ("response", "extracted", "found"),
    [
        (r"First \boxed{3}, then \boxed{44}.", "44", "boxed"),
        ("<answer>44</answer>", "44", "marked"),
        ("The answer is 44, since 7 + 37 gives it.", "44", "marked"),
        ("7 + 37 = 44.", "7 + 37 = 44", "marked"),
        ("She has 44 apples.", "44 apples", "last"),
        ("so it is $44$", "44", "last"),
    ],
)
def test_where_an_answer_stood(response, extracted, found):
    verdict = verify_answer(response, "44", require_think=False)
    assert (verdict.reason, verdict.extracted, verdict.found) == ("correct", extracted, found)


def test_every_change_is_tried():
    assert {name for name, _, _ in style_pairs()} == {*CHANGES}
