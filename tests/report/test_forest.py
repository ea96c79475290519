"""The forest plot of all claims: its geometry by hand, and the kinds of test in one order."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from klearlib.paper.schema import TESTS
from klearlib.report.forest import REACH, forest_svg
from klearlib.report.render import KINDS

SVG = "{http://www.w3.org/2000/svg}"


def entry(claim, test, *differences, verdict="supported"):
    """differences: (name, at, low, high, margin)"""
    names = ("name", "difference", "low", "high", "margin")
    compared = [dict(zip(names, each, strict=True)) for each in differences]
    measured = "; ".join(
        f"{d[0]}: {100 * d[1]:+.1f} points [x] (3 replicates)" for d in differences
    )
    return {
        **{"claim": claim, "test": test, "verdict": verdict},
        **{"comparisons": compared, "measured": measured},
    }


def test_marks_stand_at_their_multiple_of_the_margin():
    wide, narrow = ("a - b", 0.10, 0.05, 0.15, 0.05), ("c - d", -0.01, -0.50, 0.02, 0.02)
    text = forest_svg([entry("C5", "planted", wide), entry("C1", "fair", narrow)])
    drawing = ElementTree.fromstring(text)
    circles = [each.attrib for each in drawing.iter(f"{SVG}circle")]
    zero, tick = (float(re.search(rf'x="([\d.]+)"[^>]*>{t}</text>', text)[1]) for t in ("0", "4"))
    per_margin = (tick - zero) / 4
    places = [(float(each["cx"]) - zero) / per_margin for each in circles]
    assert places == pytest.approx([-0.5, 2.0], abs=0.02)  # fair first
    assert [each["fill"] == "#ffffff" for each in circles] == [True, False]
    lines = [each.attrib for each in drawing.iter(f"{SVG}line") if each.get("stroke-width") == "2"]
    ends = [[(float(each[x]) - zero) / per_margin for x in ("x1", "x2")] for each in lines]
    assert ends == [pytest.approx([-REACH, 1.0], abs=0.02), pytest.approx([1.0, 3.0], abs=0.02)]
    assert text.count("<path") == 1  # what goes on
    assert text.index("C1 c - d") < text.index("-1.0 points [x]") < text.index("C5 a - b")


def test_what_has_no_interval_or_too_many_differences():
    alone = entry("C1", "fair", ("a - b", 0.01, None, None, 0.02), verdict="undecided")
    many = entry("E5", "fair", *((f"{name} - b", 0.0, -0.1, 0.1, 0.02) for name in "cdef"))
    text = forest_svg([alone, many, entry("C2", "fair", verdict="not run")])
    assert text.count("<circle") == 1 and "E5 4 differences" in text and "C2" not in text
    assert forest_svg([entry("C14", "identity")]) is None
    assert "<script" not in forest_svg([entry("C1", "fair", ("<script>", 0.1, 0.0, 0.2, 0.1))])


def test_every_kind_of_test_is_named_once():
    assert {*KINDS} == {*TESTS}
    page = Path(__file__).resolve().parents[2] / "docs" / "statistics.md"
    table = page.read_text("utf-8").partition("## Kinds of test")[2].partition("\n## ")[0]
    assert {*re.findall(r"^\| ([\w -]+?) \|", table, re.M)} - {"test"} == {*KINDS}
