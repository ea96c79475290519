"""The paper's benchmarks as problems; a benchmark of another size than the known one is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from klearlib.data.problems import refuse_doubled
from klearlib.data.sources import read_source
from klearlib.data.windows import LIVECODEBENCH_V5, LIVECODEBENCH_V6
from klearlib.errors import KlearError
from klearlib.records import Problem

SIZES: dict[str, int | None] = {
    "aime_2024": 30,
    "aime_2025": 30,
    "hmmt_feb_2025": 30,
    "livecodebench_v5": 279,
    "livecodebench_v6": None,
}
"""The number of problems of each benchmark. Of LiveCodeBench V6, sources name 131 to 175: what the
dates give is counted and said, not checked."""

WINDOWS = {"livecodebench_v5": LIVECODEBENCH_V5, "livecodebench_v6": LIVECODEBENCH_V6}
"""Those that are a window of `livecodebench`; the others are data sets of their own name."""


def source_of(name: str, declared: str | None = None) -> str:
    """The data set that a benchmark is read from; `declared`: that of one which is not the
    paper's."""
    return "livecodebench" if name in WINDOWS else declared or name


@dataclass(frozen=True)
class Benchmark:
    """The problems of a benchmark, and in one line what they are out of."""

    name: str
    problems: tuple[Problem, ...]
    summary: str


def read_benchmark(
    name: str,
    location: Path | str | list[Mapping] | None = None,
    *,
    expected_size: int | None = None,
    source: str | None = None,
    split: str | None = None,
    config: str | None = None,
) -> Benchmark:
    """The problems of a benchmark; every row must be usable, but for those outside a window.

    Args:
        name: a name of `SIZES`, or any with a `source`.
        location, split, config: as of `sources.read_source`.
        expected_size: the number of problems that there must be; None for that of `SIZES`, or for
            any where none is known.
        source: the data set whose schema a benchmark that is not the paper's has.

    Raises:
        KlearError: an unknown name, a row that gives no problem, another number of problems: a
            score over them would look like a score.

    >>> rows = [{"problem": "1 + 1?", "answer": "002"}]
    >>> read_benchmark("aime_2024", rows, expected_size=1).summary
    'aime_2024: 1 problems'
    """
    if name not in SIZES and source is None:
        raise KlearError(f"no benchmark {name!r}: use one of {', '.join(SIZES)}")
    window = WINDOWS.get(name)
    alias, data_set = None if source is None else name, source_of(name, source)
    reader = read_source(data_set, location, window=window, split=split, config=config, alias=alias)
    problems = [row.problem for row in reader]
    faults = [reject for reject in reader.rejects if reject.reason != "outside_window"]
    if faults:
        raise KlearError(
            f"{name} has {len(faults)} rows without a usable problem, the first is row "
            f"{faults[0].row}: {faults[0].detail}"
        )
    size = SIZES.get(name) if expected_size is None else expected_size
    if size is not None and len(problems) != size:
        raise KlearError(
            f"{name} must have {size} problems, got {len(problems)} from {reader.num_read} rows: "
            "fetch the whole data set, or give expected_size for a part of it"
        )
    refuse_doubled(name, problems)
    if not problems:
        raise KlearError(f"{name} has no problems among {reader.num_read} rows")
    summary = f"{name}: {len(problems)} problems"
    if window:
        days = sorted(problem.date[:10] for problem in problems)
        summary += (
            f" of {reader.num_read}, contests from {days[0]} to {days[-1]} "
            f"(window {window[0]} to {window[1]})"
        )
    return Benchmark(name, tuple(problems), summary)
