"""docs/datasets.md against the adapters."""

import re
from pathlib import Path

import pytest

import klearlib
from klearlib.data.benchmarks import SIZES
from klearlib.data.rows import REASONS
from klearlib.data.sources import SOURCES

PAGE = Path(klearlib.__file__).resolve().parents[1] / "docs" / "datasets.md"


@pytest.mark.parametrize("name", SOURCES)
def test_every_data_set_has_a_row_with_its_hub_id_licence_and_columns(name):
    source = SOURCES[name]
    (line,) = re.findall(rf"^\| .*`{name}`.* \|$", PAGE.read_text().split("## Reasons")[0], re.M)[
        :1
    ]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert source.hub_id in cells[1]
    if source.hub_file is None:
        assert f" / {source.split}" in cells[1] or source.name == "deepcoder"
        assert f"({source.config or 'default'} / " in cells[1] or source.name == "deepcoder"
    if not line.count("as above"):
        for column in source.wanted:
            assert re.search(rf"(?<!\w){column}(?!\w)", cells[2]), column
    assert source.licence in cells[3]


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
