"""Tables: what people read is rounded, what machines read is not, and both survive any text."""

from __future__ import annotations

import html
import math
import re

import mistune
import numpy as np
import pandas as pd
import pytest

from klearlib.report.tables import (
    interval_text,
    number_text,
    plain,
    read_csv,
    write_table,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.51234, "0.512"),
        (-0.0006, "-0.001"),
        (0.0004, "4.0e-04"),
        (0.0, "0.000"),
        (12, "12"),
        (np.int64(12), "12"),
        (np.float64(0.5), "0.500"),
        (True, "True"),
        ("GPPO", "GPPO"),
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "–"),
    ],
)
def test_numbers_for_people(value, expected):
    assert number_text(value) == expected


def test_interval_text():
    assert interval_text(61.2, 58.04, 64.36) == "61.2 (58.0 to 64.4)"
    assert interval_text(61.2, math.nan, math.nan) == "61.2 (no interval)"
    assert interval_text(61.2, -math.inf, math.inf) == "61.2 (no interval)"
    assert interval_text(math.nan, 0, 1) == "–"


def test_a_csv_keeps_every_digit_and_people_see_rounded_numbers(tmp_path):
    frame = pd.DataFrame({"rule": ["gppo"], "score": [1 / 3], "seeds": [3], "norm": [0.0712345]})
    path = write_table(frame, tmp_path / "new" / "scores.csv")
    assert pd.read_csv(path)["score"][0] == 1 / 3
    table = read_csv(path)
    assert table.header == ["rule", "score", "seeds", "norm"]
    assert table.numeric == [False, True, True, True]
    assert table.for_people() == [["gppo", "0.333", "3", "0.071"]]
    assert [*path.parent.iterdir()] == [path]


SHOWN = mistune.create_markdown(plugins=["table", "strikethrough", "math"])
TEXTS = [
    *("a | b", "\\", "\\|", "a \\ b|", "<b> & *x*", "x: 1", "|", "", "`code`", "a~~b~~", "#1"),
    *("max_steps", "_a_ __b__", "a_b_ _c", "[here](https://x.example)", "![x](y)"),
    *("&lt; &amp;amp;", "<!-- x", "$x$ and $y$", "1. a", "- a", "+ a", "-", "> a", "-0.5"),
]


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_survives_the_csv_and_is_shown_as_it_is_in_markdown(tmp_path, text):
    frame = pd.DataFrame({"note": [text, "second"], text or "name": ["x", text]})
    table = read_csv(write_table(frame, tmp_path / "notes.csv"))
    assert table.header == ["note", text or "name"]
    assert table.for_people() == [[text, "x"], ["second", text]]
    (cell,) = re.findall(r"<td>(.*?)</td>", SHOWN(f"| note |\n| --- |\n| {plain(text)} |\n"))
    assert html.unescape(cell) == text
    for start in ("", "- "):  # alone, and as an item of a list
        alone = re.sub(r"</?(?:p|ul|li)>", "", SHOWN(start + plain(text)))
        assert html.unescape(alone).strip() == text


def test_a_carriage_return_ends_no_row(tmp_path):
    frame = pd.DataFrame({"arm": ["a\rb", "<\rimg src=x>"], "v": [1.0, 2.0]})
    table = read_csv(write_table(frame, tmp_path / "x.csv"))
    assert table.rows == [["a b", "1.0"], ["< img src=x>", "2.0"]]


@pytest.mark.parametrize("mark", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_what_only_python_takes_for_a_line_end_ends_no_row(tmp_path, mark):
    path = write_table(pd.DataFrame({"text": [f"a{mark}b"], "n": [1]}), tmp_path / "texts.csv")
    assert read_csv(path).rows == [[f"a{mark}b", "1"]]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_line_break_stays_inside_its_cell(end):
    assert plain(f"a{end}b") == "a b"


def test_numbers_of_a_csv_are_rounded_and_words_are_not(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b,c,d\n1,0.12345,x,\n-2,inf,0.12345,\n,,,\n")
    table = read_csv(path)
    assert table.numeric == [True, True, False, True]
    assert table.for_people() == [
        ["1", "0.123", "x", "–"],
        ["-2", "–", "0.12345", "–"],
        ["–", "–", "", "–"],
    ]
