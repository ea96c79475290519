"""The documents against the code: metrics, options, links."""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path

import pytest

from klearlib.experiments.catalogue import names
from klearlib.params import RLOptions

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = ["README.md", "CHANGELOG.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
FIRST_CELL = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)


def test_every_metric_is_explained_once_and_no_other():
    from klearlib.rl.metrics import METRICS, TIMINGS

    tree = ast.parse((ROOT / "klearlib" / "sft" / "fit.py").read_text())
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    supervised = {text for text in texts if isinstance(text, str) and text.startswith("sft/")}
    explained = FIRST_CELL.findall((ROOT / "docs" / "metrics.md").read_text())
    assert len(set(explained)) == len(explained)
    assert set(explained) == METRICS.keys() | TIMINGS.keys() | supervised
    assert "seconds/training" in texts and len(supervised) == 10


def test_every_option_stands_among_the_deviations_with_its_default():
    text = (ROOT / "docs" / "deviations.md").read_text()
    for field in dataclasses.fields(RLOptions):
        assert f"`{field.name}` {field.default}" in text, field.name


def test_the_deviations_are_numbered_as_the_options_say():
    text = (ROOT / "docs" / "deviations.md").read_text()
    rows = re.findall(r"^\| (D\d+) \|", text, re.MULTILINE)
    assert rows == [f"D{number}" for number in range(1, 16)]
    named = {
        word
        for field in dataclasses.fields(RLOptions)
        for word in re.findall(r"\bD\d+\b", field.metadata["help"])
    }
    assert named <= set(rows)


def test_the_readme_lists_every_notebook():
    text = (ROOT / "README.md").read_text()
    for name in names():
        assert re.search(rf"^\| .*{name}.* \|", text, re.MULTILINE), name


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document):
    path = ROOT / document
    for target in re.findall(r"\]\(([^)]+)\)", path.read_text()):
        if not target.startswith(("http", "#")):
            assert (path.parent / target.partition("#")[0]).exists(), target


def test_the_example_of_the_readme_runs(capsys):
    (example,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    exec(compile(example, "README.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    promised = re.findall(r"#.*?(tensor\(.*\))$", example, re.MULTILINE)
    assert printed == promised
