"""The house: imports go one way, files are short, and the mathematics has comments."""

from __future__ import annotations

import ast
import functools
import io
import tokenize
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from klearlib.params import root

LIBRARY = Path(__file__).resolve().parents[1] / "klearlib"
LAYERS = (
    ("errors", "own_code", "records", "hub"),
    ("paper",),
    ("run",),
    ("data",),
    ("verify", "policy"),
    ("curation", "evaluate"),
    ("sft",),
    ("rl",),
    ("scale",),
    ("params",),
    ("miniature", "real"),
    ("notebook", "report"),
    ("experiments",),
    ("suite",),
    ("cli",),
)
"""From the lowest: a package imports those of its own layer and of the layers before it."""
BACK = {"run": {"scale"}}
"""The one import against the layers: a pool whose workers are on Ray asks for Ray's places."""


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(LIBRARY.rglob("*.py")):
        parts = path.relative_to(LIBRARY.parent).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


def imported(path: Path) -> set[str]:
    """What a file imports when it runs, inside functions too; not what is for type checkers."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    typing = {
        id(inner)
        for node in (ast.walk(tree) if "TYPE_CHECKING" in text else ())
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    names: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in typing:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


@functools.cache
def graph() -> dict[str, set[str]]:
    known = modules()
    return {
        name: {
            other
            for other in imported(path)
            if other in known and other != name and not name.startswith(f"{other}.")
        }
        for name, path in known.items()
    }


def package(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def test_no_module_imports_itself_by_way_of_others():
    TopologicalSorter(graph()).prepare()  # raises CycleError with the circle


def test_packages_import_downwards():
    place = {name: level for level, names in enumerate(LAYERS) for name in names}
    assert {package(module) for module in modules()} - {""} <= place.keys()
    back: dict[str, set[str]] = {}
    for module, others in graph().items():
        mine = package(module)
        for other in filter(None, map(package, others)):
            if mine and place[other] > place[mine]:
                back.setdefault(mine, set()).add(other)
    assert back == BACK


def test_tests_see_no_results_of_the_checkout():
    """`make reproduce`, then `make test`: what is done there would be skipped here."""
    assert root() != LIBRARY.parent and not (root() / "results").exists()
    assert {path.name for path in root().iterdir()} - {"tmp"} == {"params", "notebooks"}


def test_no_file_is_longer_than_a_concept():
    lengths = {path.name: path.read_text("utf-8").count("\n") for path in modules().values()}
    assert {name: length for name, length in lengths.items() if length > 450} == {}


@pytest.mark.parametrize("folder", ["rl", "policy", "verify"])
def test_four_comments_in_a_hundred_lines(folder):
    """A shape beside a tensor, a reason beside a surprise."""
    text = "".join(path.read_text("utf-8") for path in sorted((LIBRARY / folder).rglob("*.py")))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    told = [t.string for t in tokens if t.type == tokenize.COMMENT]
    count = sum(not comment.startswith(("# noqa", "# fmt")) for comment in told)
    assert count >= 0.04 * text.count("\n")
