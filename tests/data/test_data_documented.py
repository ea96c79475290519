"""docs/datasets.md against the adapters."""

import re
from pathlib import Path

import klearlib
from klearlib.data.benchmarks import SIZES
from klearlib.data.rows import REASONS

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
