"""The code world's files: windows by date, planted flaws that are what the truth says, clean
benchmarks."""

from collections import Counter
from random import Random

import pytest
from code_reader import output_of
from made_worlds import printed, rows

from klearlib.data.problems import read_problems
from klearlib.data.windows import in_window
from klearlib.miniature.code_problems import draw, make_tests
from klearlib.miniature.code_world import (
    BENCHMARKS,
    FLAWS,
    WINDOWS,
    count_wrong,
    flawed_tests,
)
from klearlib.miniature.problems import Slips

SIZES = {"train": 80, "validation": 12, "contest": 240, "code_a": 30, "code_b": 30}


@pytest.fixture(scope="module")
def world(worlds):
    return worlds("code")


@pytest.fixture(scope="module")
def found(world):
    """The problems of each file."""
    return {
        name: read_problems(world / f"{name}.jsonl", expected_size=SIZES[name]) for name in SIZES
    }


def num_wrong(problem) -> int:
    return sum(test.expected != output_of(problem.prompt, test.stdin) for test in problem.tests)


def test_sizes_and_tests(world, found):
    for problem in (problem for part in found.values() for problem in part):
        assert len(problem.tests) == 16 == len({test.stdin for test in problem.tests})
        assert problem.answer is None and problem.difficulty <= 4
    sizes = {name: len(rows(world / f"{name}.jsonl")) for name in ("corpus", "sft", "teacher")}
    assert sizes == {"corpus": 40, "sft": 120, "teacher": 120}


def test_windows_are_disjoint_and_dated_right(found):
    assert WINDOWS == {
        "code_a": ("2024-08-01", "2025-02-01"),
        "code_b": ("2025-02-01", "2025-05-01"),
    }
    contest = {problem.id: problem for problem in found["contest"]}
    for name, (start, end) in WINDOWS.items():
        for problem in found[name]:
            assert start <= problem.date <= end
            assert contest[problem.id] == problem
            assert problem.difficulty >= 3
    first, second = ({problem.prompt for problem in found[name]} for name in BENCHMARKS)
    assert len(first) == len(second) == 30 and not first & second


def test_days_on_the_edges_fall_where_they_should(found):
    days = {name: {problem.date for problem in found[name]} for name in SIZES}
    edges = {"2024-07-31", "2024-08-01", "2025-02-01", "2025-02-02", "2025-05-01", "2025-05-02"}
    assert edges <= days["contest"]
    assert days["code_a"] & edges == {"2024-08-01", "2025-02-01"}
    # The day that both windows hold counts to the earlier one.
    assert days["code_b"] & edges == {"2025-02-02", "2025-05-01"}
    on_the_day = [p for p in found["contest"] if p.date == "2025-02-01"]
    assert not {p.id for p in on_the_day} & {p.id for p in found["code_b"]}
    outside = [
        p for p in found["contest"] if not any(in_window(p.date, *w) for w in WINDOWS.values())
    ]
    assert outside and days["train"] == days["validation"] == {""}


def test_truth_is_exact_and_only_training_problems_are_flawed(world, found):
    for name in SIZES.keys() - {"train"}:
        assert not any(map(num_wrong, found[name]))
    truth = {row["id"]: row for row in rows(world / "truth.jsonl")}
    assert list(truth) == [problem.id for problem in found["train"]]
    for problem in found["train"]:
        row = truth[problem.id]
        assert row["num_wrong_tests"] == num_wrong(problem)
        assert row["is_flawed"] is bool(row["flaw"]) is (row["num_wrong_tests"] > 0)
    flaws = Counter(row["flaw"] for row in truth.values())
    assert flaws == {"": 60} | dict.fromkeys(FLAWS, 5)


def share_wrong(world, name: str) -> float:
    """Responses whose program prints something wrong."""
    wrong = 0
    found = rows(world / f"{name}.jsonl")
    for row in found:
        prompt = row.get("prompt") or row["given"].strip()
        text = row.get("response") or f"```python\n{row['text'][row['text'].index('n = ') :]}\n```"
        program = text.partition("```python\n")[2].removesuffix("\n```")
        wrong += any(
            printed(program, stdin) != output_of(prompt, stdin)
            for stdin in (["a", "b"] if prompt.startswith("n is") else map(str, range(60)))
        )
    return wrong / len(found)


def test_pretraining_is_right_and_the_teacher_errs_less_than_the_sft_responses(world):
    assert share_wrong(world, "corpus") == 0
    teacher, sft = share_wrong(world, "teacher"), share_wrong(world, "sft")
    assert 0 < teacher < 0.6 * sft < 0.6


@pytest.mark.parametrize("flaw", FLAWS)
def test_each_flaw_is_what_it_says(flaw):
    drafts = draw(Random(5), 60, difficulties=range(3, 7), held_out_part=False, seen=set())
    slips, random = Slips(7, 0.0, 0.0, 0.0), Random(2)
    for draft in drafts[:30]:
        right = make_tests(draft, num_tests=16)
        tests = flawed_tests(draft, right, drafts, flaw=flaw, slips=slips, random=random)
        assert len(tests) == 16 and 1 <= count_wrong(draft, tests) <= 16
        if flaw == "other":
            origins = [make_tests(other, num_tests=16) for other in drafts if other is not draft]
            assert tests in origins
            continue
        assert [test.stdin for test in tests] == [test.stdin for test in right]
        shifts = [int(t.expected) - int(r.expected) for t, r in zip(tests, right, strict=True)]
        if flaw == "outputs":
            assert 2 <= sum(map(bool, shifts)) <= 8
            assert {abs(shift) for shift in shifts} <= {0, 1, 2, 3}
        if flaw == "branch":
            reached = [draft.reached(test.stdin) for test in tests]
            wrong = {test.stdin for test, shift in zip(tests, shifts, strict=True) if shift}
            assert set(shifts) == {0, 1}
            assert any(
                wrong == {t.stdin for t, r in zip(tests, reached, strict=True) if index in r}
                for index in range(len(draft.branches))
            )


def test_flaws_that_cannot_be_planted_are_refused():
    drafts = draw(Random(0), 3, difficulties=range(3, 4), held_out_part=False, seen=set())
    tests = make_tests(drafts[0], num_tests=16)
    with pytest.raises(ValueError, match="raise the number of training problems"):
        flawed_tests(drafts[0], tests, drafts, flaw="other", slips=None, random=Random(0))
