"""Executed notebooks as pages: everything is shown, nothing is loaded or run."""

from __future__ import annotations

import base64
import re

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from klearlib.errors import KlearError
from klearlib.report.executed import render_notebook

PNG = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c63"
        "606060600000000500015ae2d6f10000000049454e44ae426082"
    )
).decode()


def shown(**data):
    """A display output; keys with one underscore stand for the slash of a MIME type."""
    return new_output("display_data", data={key.replace("_", "/", 1): v for key, v in data.items()})


def rendered(tmp_path, *cells):
    source, target = tmp_path / "05_clipping.ipynb", tmp_path / "05_clipping.html"
    notebook = new_notebook(cells=list(cells))
    for index, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{index}"
    nbformat.write(notebook, source)
    assert render_notebook(source, target) == target
    return target.read_text(encoding="utf-8")


def test_cells_and_outputs_are_all_there(tmp_path):
    html = rendered(
        tmp_path,
        new_markdown_cell(
            "# Clipping\n\nThe ratio $r < 1 - \\epsilon_l$ costs \\$5.\n\n$$\\frac{a}{b}$$"
        ),
        new_code_cell(
            "x: int = 1  # <b>",
            outputs=[
                new_output("stream", text="out <i>\n"),
                shown(text_html="<table><tr><td>cell</td></tr></table>", text_plain="plain form"),
                shown(image_png=PNG, text_plain="<Figure>"),
                shown(text_latex="$$x^2$$", text_plain="x squared"),
                new_output("error", ename="E", evalue="no", traceback=["\x1b[31mE\x1b[0m: no"]),
            ],
        ),
    )
    assert "<title>05_clipping</title>" in html and "<h1" in html
    assert html.count("<math") == 3 and "<mfrac>" in html and "<msup>" in html
    assert "\\epsilon" not in re.sub(r'alttext="[^"]*"', "", html) and "$$" not in html
    assert "costs $5" in html
    assert "out &lt;i&gt;" in html and "&lt;b&gt;" in html and "<td>cell</td>" in html
    assert f"data:image/png;base64,{PNG}" in html and "plain form" not in html
    assert "E: no" in re.sub(r"<[^>]+>", "", html)


def test_nothing_is_loaded_or_run(tmp_path):
    html = rendered(
        tmp_path,
        new_markdown_cell("see [the paper](https://example.org/paper) and $x$"),
        new_code_cell(
            "1",
            outputs=[
                shown(application_javascript="alert(1)", text_plain="instead of a script"),
                shown(**{"application_vnd.jupyter.widget-view+json": {}, "text_plain": "a bar"}),
            ],
        ),
    )
    assert "<script" not in html and "alert(1)" not in html
    assert "instead of a script" in html and "a bar" in html
    addresses = re.findall(r"https?://[^\"'\s<>)]+", html)
    assert addresses == ["https://example.org/paper"]
    assert "mathjax" not in html.lower() and "require" not in html


@pytest.mark.parametrize(
    ("markup", "named"),
    [
        ("<script>1</script>", "<script>"),
        ('<img src="https://example.org/a.png">', "src="),
        ("<img src=//example.org/a.png>", "src="),
        ('<iframe src="data:,"></iframe>', "<iframe>"),
        ('<link rel="stylesheet" href="https://example.org/a.css">', "<link>"),
        ('<p onclick="x()">', "onclick="),
        ("<p style='background: url(https://example.org/a.png)'>", "style="),
        ("<style>@import 'https://example.org/a.css';</style>", "style sheet"),
    ],
)
def test_an_output_that_needs_more_than_the_file_is_an_error(tmp_path, markup, named):
    with pytest.raises(KlearError, match=re.escape(named)):
        rendered(tmp_path, new_code_cell("1", outputs=[shown(text_html=markup)]))
    assert not (tmp_path / "05_clipping.html").exists()


def test_addresses_in_code_and_text_are_only_text(tmp_path):
    code = 'url = "https://example.org"  # src="https://example.org/a.js"'
    html = rendered(
        tmp_path,
        new_code_cell(code, outputs=[new_output("stream", text='<script src="https://x.org">')]),
    )
    assert "&lt;script" in html


def test_equal_notebooks_give_equal_bytes(tmp_path):
    cell = new_code_cell("1", outputs=[shown(image_png=PNG), new_output("stream", text="a")])
    assert rendered(tmp_path, cell) == rendered(tmp_path, cell)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"nbformat": 4, "nbformat_minor": 5}'])
def test_what_is_no_notebook_is_one_line(tmp_path, text):
    source = tmp_path / "05_clipping.ipynb"
    source.write_text(text)
    with pytest.raises(KlearError, match="run it again"):
        render_notebook(source, tmp_path / "page.html")
    with pytest.raises(KlearError, match="run it again"):
        render_notebook(tmp_path / "absent.ipynb", tmp_path / "page.html")


def test_a_formula_that_cannot_be_drawn_is_named(tmp_path):
    with pytest.raises(KlearError, match="nosuch"):
        rendered(tmp_path, new_markdown_cell("$\\nosuch{x}$"))
