"""Executed notebooks as pages: everything is shown, nothing is loaded or run."""

from __future__ import annotations

import base64
import json
import re
from html.parser import HTMLParser

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


REMOTE = "https://example.org/a"
ACTIVE = [
    "<script>alert(1)</script>",
    "<scr<script>ipt>alert(1)</script>",
    "<svg><script>alert(1)</script></svg>",
    "<svg><style>@import 'https://example.org/a'</style><image href='https://example.org/a'/></svg>",
    '<math><mtext><table><mglyph><style><!--</style><img title="--><img src onerror=alert(1)>">',
    f'<img src="{REMOTE}"><img src=//example.org/a><img srcset="{REMOTE} 2x">',
    f"<video poster={REMOTE}></video><audio src={REMOTE}></audio><track src={REMOTE}>",
    '<img src="data:text/html;base64,PHNjcmlwdD4="><img src=x onerror=alert(1)>',
    f'<iframe src="{REMOTE}"></iframe><object data="{REMOTE}"></object><embed src="{REMOTE}">',
    f'<link rel="stylesheet" href="{REMOTE}"><base href="{REMOTE}">',
    f'<meta http-equiv="refresh" content="0; url={REMOTE}">',
    f'<form action="{REMOTE}"><input name=a><button formaction="{REMOTE}">b</button></form>',
    '<p onclick="alert(1)" onfocus=alert(1) autofocus>p</p>',
    f"<p style='background: url({REMOTE}); background-image: image-set(\"{REMOTE}\" 1x)'>p</p>",
    f"<p style='color: u\\72l({REMOTE}); list-style: url({REMOTE}); --a: url({REMOTE})'>p</p>",
    f"<style>@import '{REMOTE}'; p {{ background: url({REMOTE}) }}</style>",
    '<a href="javascript:alert(1)">a</a><a href=" java&#x0A;script:alert(1)">a</a>',
    '<a href="data:text/html,<script>alert(1)</script>">a</a><a href="vbscript:alert(1)">a</a>',
    f'<table background="{REMOTE}"><td background="{REMOTE}">x</td></table>',
]


class Page(HTMLParser):
    """The tags of a page's cells with their attributes, as a browser gets them."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.names, self.values = set(), set(), []
        self.feed(html.partition('<main class="notebook">')[2].partition("</main>")[0])

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.names |= {name for name, _ in attrs}
        self.values += [(name, value or "") for name, value in attrs]


@pytest.mark.parametrize("markup", ACTIVE)
@pytest.mark.parametrize("kind", ["text_html", "text_markdown", "cell"])
def test_markup_is_shown_and_neither_runs_nor_loads_nor_sends(tmp_path, markup, kind):
    if kind == "cell":
        html = rendered(tmp_path, new_markdown_cell(f"before {markup}"))
    else:
        html = rendered(tmp_path, new_code_cell("1", outputs=[shown(**{kind: markup})]))
    page = Page(html)
    allowed = "div span p pre img a table tbody tr td math mtext br h1 h2 strong em code"
    assert page.tags <= set(allowed.split())
    assert page.names <= {"class", "id", "href", "src", "style", "title", "alt"}
    for name, value in page.values:
        assert name != "src" and (name != "href" or re.match("https?:|#", value)), (name, value)
        styles = {each.partition(":")[0] for each in value.split(";") if each}
        assert name != "style" or styles <= {"color"}  # which loads nothing, whatever it says


@pytest.mark.parametrize(
    "text",
    [
        "[a](javascript:alert(1))",
        "[a](<java\tscript:alert(1)>)",
        "[a](data:text/html;base64,PHNjcmlwdD4=)",
        "![a](https://example.org/a.png)",
        "![a](a.png 'x')",
        "<javascript:alert(1)>",
    ],
)
def test_links_of_markdown_lead_nowhere_else(tmp_path, text):
    page = Page(rendered(tmp_path, new_markdown_cell(text)))
    assert not [value for name, value in page.values if name in ("src", "href")]


def test_a_drawing_is_an_image_which_runs_and_loads_nothing(tmp_path):
    svg = '<svg xmlns="http://www.w3.org/2000/svg"><image href="https://example.org/a"/></svg>'
    page = Page(rendered(tmp_path, new_code_cell("1", outputs=[shown(**{"image_svg+xml": svg})])))
    ((_, source),) = [value for value in page.values if value[0] == "src"]
    assert base64.b64decode(source.partition(",")[2]).decode() == svg
    assert not page.tags & {"svg", "image"}


def test_tables_links_and_styles_of_results_stay(tmp_path):
    markup = (
        '<table class="a"><thead><tr><th scope="col" style="text-align: left;">x</th></tr></thead>'
        '<tbody><tr><td colspan="2">1<wbr>0</td></tr></tbody></table>'
        '<details class="b"><summary>s</summary><a href="05_clipping.html#x">n</a> '
        '<a href="https://example.org/a?b=c&amp;d">p</a> <a href="mailto:a@example.org">m</a>'
        "</details>"
    )
    html = rendered(tmp_path, new_code_cell("1", outputs=[shown(text_html=markup)]))
    assert markup in html


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"nbformat": 4, "nbformat_minor": 5}'])
def test_what_is_no_notebook_is_one_line(tmp_path, text):
    source = tmp_path / "05_clipping.ipynb"
    source.write_text(text)
    with pytest.raises(KlearError, match="run it again"):
        render_notebook(source, tmp_path / "page.html")
    with pytest.raises(KlearError, match="run it again"):
        render_notebook(tmp_path / "absent.ipynb", tmp_path / "page.html")


@pytest.mark.parametrize(
    "cell",
    [
        {"cell_type": "markdown", "source": "![x](attachment:a.png)", "attachments": {"b": {}}},
        {"cell_type": "code", "source": 5},
        {"cell_type": "markdown", "source": "\ud800"},
    ],
    ids=["attachment", "source", "half a character"],
)
def test_a_cell_that_cannot_be_rendered_is_one_line(tmp_path, cell):
    base = {"metadata": {}, "id": "a"} | (
        {"outputs": [], "execution_count": None} if cell["cell_type"] == "code" else {}
    )
    source = tmp_path / "05_clipping.ipynb"
    source.write_text(
        json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [base | cell]})
    )
    with pytest.raises(KlearError, match=r"cannot be read as a notebook .*run it again"):
        render_notebook(source, tmp_path / "page.html")


def test_a_formula_that_cannot_be_drawn_is_named(tmp_path):
    with pytest.raises(KlearError, match="nosuch"):
        rendered(tmp_path, new_markdown_cell("$\\nosuch{x}$"))
