"""Counterparts: every table and figure of the paper has one, and a notebook publishes it."""

from __future__ import annotations

import ast
import importlib
import json
import re
from pathlib import Path

import pytest
import report_fakes as fakes
from klearlib.report.counterparts import COUNTERPARTS, counterparts_view
from klearlib.report.readme import readme
from klearlib.report.sections import read_sections
from klearlib.report.sections_view import section_view

from klearlib.paper import FIGURES, NUM_TABLES
from klearlib.report.ledger import ledger

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted((ROOT / "klearlib" / "experiments").glob("*_section.py"))


def published_by(path):
    """The notebook of a section module, and the text keys of its dictionaries."""
    notebook = importlib.import_module(f"klearlib.experiments.{path.stem}").NOTEBOOK
    keys = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Dict):
            keys |= {key.value for key in node.keys if isinstance(key, ast.Constant)}
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            keys.add(getattr(node.slice, "value", None))
    return notebook, keys


def full_set(results):
    """A made-up section of every notebook that has a counterpart, with its figures and tables."""
    wanted = {}
    for each in COUNTERPARTS:
        wanted.setdefault(each.notebook, dict.fromkeys(each.names)).update(
            dict.fromkeys(each.names)
        )
    for notebook, names in wanted.items():
        tables = [{"name": name, "caption": "c"} for name in names if name in ("scores", "table1")]
        figures = [
            {"name": name, "caption": "c", "alt": "a"}
            for name in names
            if name not in ("scores", "table1")
        ]
        content = fakes.section(notebook=notebook, figures=figures, tables=tables, verdicts=[])
        fakes.publish(results, content, figures=False)
    return read_sections(results)


def test_every_table_and_figure_of_the_paper_is_declared_once():
    tables = [f"Table {number}" for number in range(1, NUM_TABLES + 1)]
    assert [each.item for each in COUNTERPARTS] == tables + [f"Fig. {name}" for name in FIGURES]
    assert {each.notebook for each in COUNTERPARTS} <= set(NOTEBOOKS)
    assert all(each.names for each in COUNTERPARTS)


def test_the_names_are_what_the_notebooks_publish():
    published = dict(published_by(path) for path in MODULES)
    for each in COUNTERPARTS:
        assert set(each.names) <= published[each.notebook], each.item


@pytest.mark.parametrize("notebook", sorted({each.notebook for each in COUNTERPARTS}))
def test_the_names_are_in_the_published_results(notebook):
    path = ROOT / "results" / "mini" / notebook / "section.json"
    if not path.is_file():
        pytest.skip(f"results/mini has no {notebook}")
    content = json.loads(path.read_text(encoding="utf-8"))
    there = {item["name"] for item in [*content["figures"], *content["tables"]]}
    for each in COUNTERPARTS:
        assert each.notebook != notebook or set(each.names) <= there, each.item


def test_every_link_leads_to_the_counterpart(tmp_path):
    sections = full_set(tmp_path / "mini")
    view = counterparts_view(sections)
    page = "".join(
        section_view(each, dict.fromkeys((f["name"] for f in each.content["figures"]), "x"))
        for each in sections
    )
    rows = view.split("<tr>")[2:]
    assert len(rows) == len(COUNTERPARTS) and "not run" not in view
    for each, row in zip(COUNTERPARTS, rows, strict=True):
        assert re.findall(r'href="#([^"]+)"', row) == [f"{each.notebook}-{n}" for n in each.names]
        assert f">{each.item}</th>" in row
    for anchor in re.findall(r'href="#([^"]+)"', view):
        assert page.count(f'id="{anchor}"') == 1, anchor


def test_an_absent_section_or_item_is_not_run(tmp_path):
    results = tmp_path / "mini"
    lacking = fakes.section(notebook="07_soft_reward", figures=[], tables=[], verdicts=[])
    figures = [{"name": "fig2", "caption": "c", "alt": "a"}]
    half = fakes.section(status="partial", missing=["seed 2"], figures=figures)
    for content in (lacking, half):
        fakes.publish(results, content, figures=False)
    rows = counterparts_view(read_sections(results)).split("<tr>")[2:]
    said = {each.item: row for each, row in zip(COUNTERPARTS, rows, strict=True)}
    assert "not run (07_soft_reward)" in said["Fig. 3a"]
    assert "not run (10_headline)" in said["Table 1"]
    assert 'href="#05_clipping-fig2"' in said["Fig. 2c"] and "(interim)" in said["Fig. 2c"]
    assert sum("not run" in row for row in rows) == len(COUNTERPARTS) - 3


def test_the_readme_links_to_the_files(tmp_path):
    results = tmp_path / "mini"
    sections = full_set(results)
    text = readme("mini", sections[:-1], ledger([], []), {})
    rows = {row.split(" | ")[0][2:]: row for row in text.splitlines() if row.startswith("| ")}
    links = {item: re.findall(r"\]\(([^)]+)\)", rows[item]) for item in rows}
    assert links["Table 6"] == ["06_alpha_sweep/table6.png", "06_alpha_sweep/scores.md"]
    assert links["Fig. 4"] == ["08_test_filter/fig4.png"]
    assert rows["Table 1"].endswith("| not run (10\\_headline) |")
    for each in COUNTERPARTS:
        assert links[each.item] or each.notebook == "10_headline", each.item
        assert all((results / link).is_file() for link in links[each.item])
