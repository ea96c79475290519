"""Which problems are left by how often a model solves them: the rules on numbers by hand, and the
stage that applies one."""

import json
from dataclasses import asdict

import pytest

from klearlib.curation.pass_rates import (
    PassRate,
    difficulties,
    keep_by_pass_rate,
    rates_by_id,
    rejected_by_pass_rate,
)
from klearlib.data.lines import write_lines
from klearlib.data.problems import read_problems, write_problems
from klearlib.records import Problem, TestCase
from klearlib.run.folder import RunFolder

COUNTS = {"none": 0, "under": 7, "half": 8, "over": 9, "all": 16}
RATES = {name: PassRate(name, 16, count, 0) for name, count in COUNTS.items()}
PROBLEMS = [Problem(name, "?", tests=(TestCase("1", stdin=""),)) for name in COUNTS]


def kept(**rule) -> list[str]:
    reasons = rejected_by_pass_rate(list(COUNTS), RATES, **rule)
    return [name for name, reason in zip(COUNTS, reasons, strict=True) if not reason]


def test_the_text_keeps_above_one_half_and_the_caption_at_least_one_half():
    assert kept(threshold=0.5, keep_equal=False) == ["over", "all"]
    assert kept(threshold=0.5, keep_equal=True) == ["half", "over", "all"]
    assert kept(threshold=0.0, keep_equal=True) == list(COUNTS)
    assert kept(threshold=1.0, keep_equal=False) == []


@pytest.fixture
def stages(tmp_path):
    (tmp_path / "world").mkdir()
    (tmp_path / "rates").mkdir()
    write_problems(PROBLEMS, tmp_path / "world" / "train.jsonl")
    write_lines(map(asdict, RATES.values()), tmp_path / "rates" / "pass_rates.jsonl")
    return {"world": tmp_path / "world", "pass_rates": tmp_path / "rates"}


def filtered(stages, path, **rule) -> tuple[list[Problem], list[dict], dict]:
    """The problems kept, the rejects and the card of one filter."""
    keep_by_pass_rate(RunFolder(path), stages, **rule)
    rejects = [json.loads(line) for line in (path / "rejects.jsonl").read_text().splitlines()]
    return (
        read_problems(path / "train.jsonl"),
        rejects,
        json.loads((path / "card.json").read_text()),
    )


def test_kept_and_rejected_add_up_to_what_was_read(stages, tmp_path):
    problems, rejects, card = filtered(stages, tmp_path / "f", threshold=0.5, keep_equal=False)
    assert problems == PROBLEMS[3:]
    rates = {"none": 0.0, "under": 7 / 16, "half": 0.5}
    assert {row["id"]: row["pass_rate"] for row in rejects} == rates
    assert {row["reason"] for row in rejects} == {"pass rate not above threshold"}
    assert (card["num_read"], card["num_kept"], card["num_rejected"]) == (5, 2, 3)
    with pytest.raises(ValueError, match="no problem has a pass rate above"):
        filtered(stages, tmp_path / "none", threshold=1.0, keep_equal=False)


def test_the_judges_failures_are_no_reason_of_the_filters(stages, tmp_path):
    write_problems(PROBLEMS, stages["world"] / "problems.jsonl")
    rates = RATES | {"under": PassRate("under", 16, 7, 2)}
    write_lines(map(asdict, rates.values()), stages["pass_rates"] / "pass_rates.jsonl")
    rule = {"threshold": 0.5, "keep_equal": True, "problems": "problems.jsonl"}
    problems, rejects, card = filtered(stages, tmp_path / "f", **rule)
    assert problems == PROBLEMS[2:]
    assert {row["id"]: row["reason"] for row in rejects} == {
        "under": "too many responses could not be judged",
        "none": "pass rate below threshold",
    }
    assert card["num_responses_not_judged"] == 2


ANSWERED = {"never": (0, 0), "once": (1, 0), "half": (2, 0), "perhaps": (1, 1), "always": (4, 0)}
REFERENCE = {name: PassRate(name, 4, *count) for name, count in ANSWERED.items()}


@pytest.mark.parametrize(
    "easy_from, expected",
    [
        (0.25, ["hard", "easy", "easy", "easy", "easy"]),
        (0.5, ["hard", "hard", "easy", "unknown", "easy"]),
        (1.0, ["hard", "hard", "hard", "hard", "easy"]),
    ],
)
def test_the_threshold_itself_is_easy_and_a_judges_failure_is_neither(easy_from, expected):
    assert difficulties(list(ANSWERED), REFERENCE, easy_from=easy_from) == expected


@pytest.mark.parametrize("n", [1, 2, 3, 15, 16])
def test_a_majority_is_more_than_half(n):
    rates = {str(count): PassRate(str(count), n, count, 0) for count in range(n + 1)}
    reasons = rejected_by_pass_rate(list(rates), rates, threshold=0.5, keep_equal=False)
    assert [not reason for reason in reasons] == [2 * count > n for count in range(n + 1)]


def test_published_rows_with_a_field_more_are_read():
    rate = PassRate("a", 16, 8, 1)
    assert rates_by_id([{"mean_tests_passed": 0.9, **asdict(rate)}]) == {"a": rate}


def test_what_could_not_be_judged_is_counted_apart_from_what_is_wrong():
    counts = {"a": (3, 2, 1), "b": (3, 1, 2), "c": (4, 1, 1)}
    rates = {name: PassRate(name, *count) for name, count in counts.items()}
    half = {"threshold": 0.5, "keep_equal": False}
    assert rejected_by_pass_rate(list(rates), rates, **half) == [
        "",
        "too many responses could not be judged",
        "pass rate not above threshold",
    ]
