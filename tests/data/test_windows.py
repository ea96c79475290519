"""Benchmark windows: both ends belong to them, and what is no date is refused."""

import pytest

from klearlib.data.windows import LIVECODEBENCH_V5, LIVECODEBENCH_V6, in_window
from klearlib.errors import KlearError

WINDOW = ("2024-08-01", "2025-02-01")


@pytest.mark.parametrize(
    ("day", "inside"),
    [
        ("2024-07-31", False), ("2024-08-01", True), ("2024-08-01T00:00:00", True),
        ("2024-12-31", True), ("2025-02-01", True), ("2025-02-01T00:00:00", True),
        ("2025-02-01T00:00:00+00:00", True), ("2025-02-01T00:00:01", False),
        ("2025-02-01 19:30:00", False), ("2025-02-02", False),
    ],
)  # fmt: skip
def test_both_ends_are_inside(day, inside):
    assert in_window(day, *WINDOW) is inside


def test_the_papers_windows_share_one_day_and_a_day_is_a_window():
    assert (WINDOW, LIVECODEBENCH_V6) == (LIVECODEBENCH_V5, ("2025-02-01", "2025-05-01"))
    assert in_window("2024-02-29", "2024-02-29", "2024-02-29")


@pytest.mark.parametrize("day", ["", "2025", "2025-02", "2025-02-30", "01.02.2025", None, 7])
def test_what_is_no_date_is_refused(day):
    with pytest.raises(KlearError, match="is not a date: write it as 2025-02-01"):
        in_window(day, *WINDOW)
    with pytest.raises(KlearError, match="is not a date"):
        in_window("2025-01-01", day, "2025-02-01")
