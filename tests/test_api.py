"""The calls that stay valid (docs/architecture.md) and what `make api` writes of them."""

from __future__ import annotations

import re
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def calls() -> list[tuple[str, str, str]]:
    """(module, function, arguments) of each call that docs/architecture.md promises."""
    text = (ROOT / "docs/architecture.md").read_text()
    block = text.split("<!-- calls -->")[1].split("<!-- end of calls -->")[0]
    return re.findall(r"^([\w.]+)\.(\w+)\((.*)\)$", block, re.M)


def listed() -> list[str]:
    """The modules that `make api` shows."""
    text = (ROOT / "Makefile").read_text()
    prefix, words = re.search(r"^API = \$\(addprefix (.*?),(.*?)\)$", text, re.M | re.S).groups()
    return [prefix + word for word in words.replace("\\", "").split()]


def test_every_promised_call_is_documented_and_shown_by_make_api():
    assert len(calls()) == 26
    assert {module for module, _, _ in calls()} - set(listed()) == {"klearlib"}
    for module, name, _ in calls():
        assert getattr(import_module(module), name).__doc__, f"{module}.{name}"


@pytest.mark.parametrize(("module", "name", "arguments"), calls())
def test_a_promised_call_is_valid(module, name, arguments):
    """Same names, order, kinds and defaults; whatever else a function takes has a default."""
    promised = signature(eval(f"lambda {arguments}: None")).parameters
    has = signature(getattr(import_module(module), name)).parameters

    def places(parameters) -> list[str]:
        return [each.name for each in parameters.values() if each.kind != Parameter.KEYWORD_ONLY]

    assert places(has)[: len(places(promised))] == places(promised)
    for each in promised.values():
        assert (each.kind, each.default) == (has[each.name].kind, has[each.name].default)
    more = [each for each in has.values() if each.name not in promised]
    assert all(
        each.default is not Parameter.empty or each.kind == Parameter.VAR_KEYWORD for each in more
    )


def test_the_pages_show_them(tmp_path):
    pdoc = pytest.importorskip("pdoc", reason="an extra: pip install -e '.[api]'")
    pdoc.render.configure(docformat="google")
    pdoc.pdoc(*listed(), output_directory=tmp_path)
    for module, name, _ in calls()[1:]:
        page = (tmp_path / f"{module.replace('.', '/')}.html").read_text()
        text = re.search(rf'<section id="{name}">(.*?)</section>', page, re.S).group(1)
        assert 'class="docstring"' in text, f"{module}.{name}"
