"""The test filter's rule on numbers by hand, and the stage that applies it."""

import json

import pytest

from klearlib.curation.filters import keep_by_pass_rate, kept_by_pass_rate
from klearlib.curation.pass_rates import PassRate, read_pass_rates, write_pass_rates
from klearlib.data.problems import read_problems, write_problems
from klearlib.records import Problem, TestCase
from klearlib.run.folder import RunFolder

COUNTS = {"none": 0, "under": 7, "half": 8, "over": 9, "all": 16}
RATES = {name: PassRate(name, 16, count, 0, 0.9) for name, count in COUNTS.items()}
PROBLEMS = [Problem(name, "?", tests=(TestCase("1", stdin=""),)) for name in COUNTS]


def kept(**rule) -> list[str]:
    flags = kept_by_pass_rate(list(COUNTS), RATES, **rule)
    return [name for name, keep in zip(COUNTS, flags, strict=True) if keep]


def test_the_text_keeps_above_one_half_and_the_caption_at_least_one_half():
    assert kept(threshold=0.5, keep_equal=False) == ["over", "all"]
    assert kept(threshold=0.5, keep_equal=True) == ["half", "over", "all"]
    assert kept(threshold=0.0, keep_equal=True) == list(COUNTS)
    assert kept(threshold=1.0, keep_equal=False) == []


@pytest.mark.parametrize("threshold", [-0.1, 1.1, float("nan")])
def test_a_threshold_that_is_no_share_is_refused(threshold):
    with pytest.raises(ValueError, match="threshold must be"):
        kept(threshold=threshold, keep_equal=False)


def test_a_problem_without_a_pass_rate_is_no_silent_drop():
    with pytest.raises(ValueError, match="1 problems have no pass rate, the first is 'new'"):
        kept_by_pass_rate(["half", "new"], RATES, threshold=0.5, keep_equal=False)


@pytest.fixture
def stages(tmp_path):
    (tmp_path / "world").mkdir()
    (tmp_path / "rates").mkdir()
    write_problems(PROBLEMS, tmp_path / "world" / "train.jsonl")
    write_pass_rates(RATES.values(), tmp_path / "rates" / "pass_rates.jsonl")
    return {"world": tmp_path / "world", "pass_rates": tmp_path / "rates"}


def test_kept_and_rejected_add_up_to_what_was_read(stages, tmp_path):
    keep_by_pass_rate(RunFolder(tmp_path / "f"), stages, threshold=0.5, keep_equal=False)
    assert read_problems(tmp_path / "f" / "train.jsonl") == PROBLEMS[3:]
    lines = (tmp_path / "f" / "rejects.jsonl").read_text().splitlines()
    rejects = [json.loads(line) for line in lines]
    assert [(row["id"], row["pass_rate"]) for row in rejects] == [
        ("none", 0.0),
        ("under", 7 / 16),
        ("half", 0.5),
    ]
    assert {row["reason"] for row in rejects} == {"pass rate not above threshold"}
    card = json.loads((tmp_path / "f" / "card.json").read_text())
    assert (card["num_read"], card["num_kept"], card["num_rejected"]) == (5, 2, 3)


def test_a_table_of_problems_is_filtered_as_lines_are(stages, tmp_path):
    write_problems(PROBLEMS, stages["world"] / "problems.jsonl")
    how = {"threshold": 0.5, "keep_equal": True, "problems": "problems.jsonl"}
    keep_by_pass_rate(RunFolder(tmp_path / "f"), stages, **how)
    assert read_problems(tmp_path / "f" / "train.jsonl") == PROBLEMS[2:]


def test_the_judges_failures_are_no_reason_of_the_filters(stages, tmp_path):
    rates = RATES | {"under": PassRate("under", 16, 7, 2, 0.9)}
    write_pass_rates(rates.values(), stages["pass_rates"] / "pass_rates.jsonl")
    keep_by_pass_rate(RunFolder(tmp_path / "f"), stages, threshold=0.5, keep_equal=False)
    lines = (tmp_path / "f" / "rejects.jsonl").read_text().splitlines()
    reasons = {row["id"]: row["reason"] for row in map(json.loads, lines)}
    assert reasons["under"] == "too many responses could not be judged"
    assert reasons["none"] == reasons["half"] == "pass rate not above threshold"
    card = json.loads((tmp_path / "f" / "card.json").read_text())
    assert card["num_responses_not_judged"] == 2


def test_an_empty_pool_is_refused(stages, tmp_path):
    with pytest.raises(ValueError, match="no problem has a pass rate above"):
        keep_by_pass_rate(RunFolder(tmp_path / "f"), stages, threshold=1.0, keep_equal=False)


def test_pass_rates_round_trip_and_name_a_bad_line(tmp_path):
    path = tmp_path / "pass_rates.jsonl"
    write_pass_rates(RATES.values(), path)
    assert read_pass_rates(path) == RATES
    path.write_text(path.read_text() + path.read_text().splitlines()[0] + "\n")
    with pytest.raises(ValueError, match=r"line 6: problem 'none' comes twice"):
        read_pass_rates(path)
    path.write_text('{"id": "a"}\n')
    with pytest.raises(ValueError, match=r"pass_rates\.jsonl line 1 is no pass rate"):
        read_pass_rates(path)
