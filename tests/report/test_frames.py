"""What a notebook shows of a DataFrame is what the report shows of the published table."""

from __future__ import annotations

import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell

from klearlib.report import frames
from klearlib.report.tables import read_csv, write_table

FRAME = pd.DataFrame(
    {
        "rule": ["<b>", "a|b"],
        "seeds": [1, 20],
        "score": [0.123456, float("nan")],
        "note": [None, "said"],
    }
)


def test_html_has_rounded_numbers_no_index_and_no_nan(tmp_path):
    write_table(FRAME, tmp_path, "t", digits=2)
    html = frames.frame_html(FRAME, digits=2)
    assert html.count("<tr>") == 3 and "nan" not in html.lower() and "&lt;b&gt;" in html
    for row in read_csv(tmp_path / "t.csv").for_people(digits=2):
        for text in filter(None, row):
            assert f">{text.replace('<b>', '&lt;b&gt;')}</" in html
    assert '<td class="right">0.12</td>' in html
    assert '<td style="text-align: left; white-space: nowrap">said' in html
    long = frames.frame_html(pd.DataFrame({"a_<b": ["one word " * 5]}), digits=2)
    assert '<th scope="row" style="text-align: left">one word' in long and "a_<wbr>&lt;b<" in long


def test_text_is_the_published_markdown(tmp_path):
    frame = FRAME.drop(columns="note")
    paths = write_table(frame, tmp_path, "t", digits=2)
    assert frames.frame_text(frame, digits=2) + "\n" == paths["md"].read_text()


def test_an_index_that_says_something_is_shown_and_no_column_is_hidden():
    wide = pd.DataFrame({f"c{i}": [i] for i in range(40)}, index=pd.Index(["here"], name="row"))
    html = frames.frame_html(wide, digits=2)
    assert html.count('<th scope="col"') == 41 and ">here<" in html and ">c39<" in html


def test_a_long_frame_is_cut_in_the_middle_and_says_so():
    html = frames.frame_html(pd.DataFrame({"n": range(1000)}), digits=2)
    assert ">29<" in html and ">30<" not in html and ">969<" not in html and ">970<" in html
    assert "1000 rows" in html
    whole = frames.frame_html(pd.DataFrame({"n": range(frames.MAX_ROWS)}), digits=2)
    assert "rows" not in whole and whole.count("<tr>") == frames.MAX_ROWS + 1


def test_a_notebook_shows_every_frame_so(monkeypatch):
    shell = InteractiveShell()
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    frames.show_frames(digits=1)
    shown, _ = shell.display_formatter.format(FRAME)
    assert shown["text/html"] == frames.frame_html(FRAME, digits=1)
    assert shown["text/plain"] == frames.frame_text(FRAME, digits=1)
    monkeypatch.setattr("IPython.get_ipython", lambda: None)
    frames.show_frames(digits=1)


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, pd.Timestamp("2026-01-01"), True])
def test_any_value_can_be_shown(value):
    assert ">" + str(value).split()[0].strip("'") in frames.frame_html(
        pd.DataFrame({"v": pd.Series([value], dtype=object)}), digits=2
    ).replace("&#39;", "'")
