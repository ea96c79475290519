"""The benchmarks: their size is asserted, their windows are LiveCodeBench's; the real files, and
the page of them."""

import re
from pathlib import Path

import pytest
from raw_rows import ROWS, livecodebench_row, messages
from shared_data import shared

import klearlib
from klearlib.data.benchmarks import SIZES, read_benchmark
from klearlib.data.rows import REASONS
from klearlib.data.sources import read_source
from klearlib.data.windows import in_window
from klearlib.errors import KlearError


def aime(count):
    return [ROWS["aime_2024"] | {"id": n, "problem": f"What is {n}?"} for n in range(count)]


@pytest.mark.parametrize("name", [name for name, size in SIZES.items() if size == 30])
def test_another_size_is_another_benchmark(name):
    assert len(read_benchmark(name, aime(30)).problems) == 30
    assert len(read_benchmark(name, aime(3), expected_size=3).problems) == 3
    for count in (29, 31):
        with pytest.raises(KlearError, match=f"{name} must have 30 problems, got {count}"):
            read_benchmark(name, aime(count))


def test_a_row_that_gives_no_problem_is_an_error_and_no_smaller_benchmark():
    rows = [*aime(29), {**aime(1)[0], "id": 99, "answer": ""}]
    with pytest.raises(KlearError, match="1 rows without a usable problem, the first is row 29"):
        read_benchmark("aime_2024", rows, expected_size=29)
    with pytest.raises(KlearError, match="has the id of row 3"):
        read_benchmark("aime_2024", [*aime(29), aime(4)[3]])
    own = [{"problem": "1 + 1?", "answer": "2"}] * 2
    with pytest.raises(KlearError, match="mine has 1 duplicate problem ids"):
        read_benchmark("mine", own, source="rows")
    with pytest.raises(KlearError, match="no benchmark 'aime'"):
        read_benchmark("aime", aime(30))


@pytest.mark.parametrize(
    ("row", "answer"),
    [
        ({"problem": "?", "answer": "073"}, "73"),
        ({"problem": "?", "answer": 73}, "73"),
        ({"problem": "?", "answer": 73.0}, "73"),
        ({"problem": "?", "answer": "000"}, "0"),
        ({"question": "?", "answer": "73"}, "73"),
        ({"problem": "?", "answer": "73", "solution": "so \\boxed{5}"}, "73"),
        ({"messages": messages("?"), "id": 1, "solution": "\\boxed{2^{25} 26!}"}, "2^{25} 26!"),
        ({"problem": "?", "answer": "\\sqrt{2}, -1"}, "\\sqrt{2}, -1"),
        ({"problem": "?", "answer": "0.5"}, "0.5"),
        ({"meta": {"problem": "?", "solution": "016"}, "messages": messages("other")}, "16"),
    ],
)
def test_contests_in_the_columns_of_their_copies(row, answer):
    (problem,) = read_benchmark("hmmt_feb_2025", [row], expected_size=1).problems
    assert (problem.prompt, problem.answer) == ("?", answer)


DAYS = {
    "2024-07-31T23:59:59": "",
    "2024-08-01T00:00:00": "v5",
    "2025-01-31T20:00:00": "v5",
    "2025-02-01T00:00:00": "v5 v6",
    "2025-02-01T19:30:00": "v6",
    "2025-05-01T00:00:00": "v6",
    "2025-05-01T08:00:00": "",
}


def test_the_windows_of_livecodebench_share_one_midnight():
    rows = [livecodebench_row(number, day) for number, day in enumerate(DAYS)]
    for name in ("v5", "v6"):
        size = sum(name in windows for windows in DAYS.values())
        found = read_benchmark(f"livecodebench_{name}", rows, expected_size=size)
        wanted = [day for day, windows in DAYS.items() if name in windows]
        assert [problem.date for problem in found.problems] == wanted
        assert f"livecodebench_{name}: {size} problems of 7" in found.summary
        assert wanted[0][:10] in found.summary and wanted[-1][:10] in found.summary
    with pytest.raises(KlearError, match="must have 279 problems, got 3 from 7 rows"):
        read_benchmark("livecodebench_v5", rows)
    assert len(read_benchmark("livecodebench_v6", rows).problems) == 3
    with pytest.raises(KlearError, match="no problems among 1 rows"):
        read_benchmark("livecodebench_v6", rows[:1])


@pytest.mark.parametrize("year", [2024, 2025])
def test_the_released_files_of_aime(year):
    problems = read_benchmark(f"aime_{year}", shared(f"aime{year - 2000}.jsonl")).problems
    assert all(0 <= int(p.answer) <= 999 and p.answer == str(int(p.answer)) for p in problems)
    assert len({problem.id for problem in problems}) == 30


def test_the_file_of_gsm8k():
    reader = read_source("gsm8k", shared("gsm8k_train.jsonl"))
    problems = [row.problem for row in reader]
    assert (reader.num_read, reader.num_kept, reader.rejects) == (7473, 7473, [])
    assert len({p.prompt for p in problems}) == len({p.id for p in problems})
    assert problems[0].answer == "72" and not any(set("#, ") & set(p.answer) for p in problems)


WINDOW = ("2024-08-01", "2025-02-01")


@pytest.mark.parametrize(
    ("day", "inside"),
    [
        ("2024-08-01", True), ("2025-02-01", True), ("2025-02-01T00:00:00+00:00", True),
        ("2025-02-01T00:00:01", False), ("2025-02-01 19:30:00", False),
    ],
)  # fmt: skip
def test_dates_are_read_in_every_form(day, inside):
    assert in_window(day, *WINDOW) is inside


@pytest.mark.parametrize("day", ["", "2025", "2025-02", "2025-02-30", "01.02.2025", None, 7])
def test_what_is_no_date_is_refused(day):
    with pytest.raises(KlearError, match="is not a date: write it as 2025-02-01"):
        in_window(day, *WINDOW)
    with pytest.raises(KlearError, match="is not a date"):
        in_window("2025-01-01", day, "2025-02-01")


PAGE = Path(klearlib.__file__).resolve().parents[1] / "docs" / "datasets.md"


def test_every_benchmark_and_reason_is_there():
    text = PAGE.read_text()
    for name, size in SIZES.items():
        (line,) = re.findall(rf"^\| `{name}` \| (?:`|the same).*$", text, re.M)
        assert f"| {size or 'counted'} |" in line
    reasons = [
        word.strip()
        for first in re.findall(r"^\| ([a-z_, ]+) \|", text.split("## Reasons")[1], re.M)
        for word in first.split(",")
        if word.strip() != "reason"
    ]
    assert sorted(reasons) == sorted(REASONS)
