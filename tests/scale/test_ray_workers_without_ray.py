"""Stages on a Ray cluster as far as a machine without Ray goes: words, plans, one line."""

import ast
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

import klearlib
from klearlib import cli
from klearlib.errors import MissingAsset, ParameterError
from klearlib.experiments.catalogue import check
from klearlib.params.place import place_of
from klearlib.run.pool import run_stages
from klearlib.run.progress import Progress
from klearlib.run.stage import Stage
from klearlib.scale import require
from klearlib.scale.ray_cluster import check_workers, cluster_address, in_words
from klearlib.suite import plan as module
from klearlib.suite.checks import Machine
from klearlib.suite.notebooks import resuming
from klearlib.suite.plan import Plan, describe

LIBRARY = Path(klearlib.__file__).parent
PHONE = Machine(
    gpus=(),
    memory=2 * 10**8,
    cores=1,
    packages=frozenset({"ray"}),
)


@pytest.fixture
def without_ray(monkeypatch):
    monkeypatch.setattr(require, "version", lambda package: None)


@pytest.mark.parametrize("workers", [0, 7, "ray"])
def test_workers(workers):
    assert check_workers(workers) == workers
    assert check("05_clipping", {"workers": workers}).workers == workers


@pytest.mark.parametrize(
    "workers", [-1, True, 1.0, None, "", "4", "Ray", "ray://head:10001", "head:6379", ["ray"]]
)
def test_wrong_workers(workers):
    with pytest.raises(ParameterError, match=r"^05_clipping: workers is .*: give a whole number"):
        check("05_clipping", {"workers": workers})


def test_where_they_are(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert not cluster_address() and in_words() == "a Ray of this machine"
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    assert cluster_address() == "ray://head:10001"
    assert in_words() == "the Ray cluster at ray://head:10001"


def test_without_ray_one_line_says_what_to_install(without_ray, tmp_path):
    stage = Stage("e", "klearlib.errors:KlearError", {})
    with pytest.raises(MissingAsset, match=r"^Ray is not installed: pip install [^\n]*$"):
        run_stages([stage], runs_dir=tmp_path / "runs", workers="ray")
    assert not (tmp_path / "runs").exists()


def test_what_is_done_needs_no_ray(without_ray, tmp_path):
    stage = Stage("e", "klearlib.errors:KlearError", {})
    folder = stage.folder(tmp_path)
    folder.mkdir(parents=True)
    done = {"files": {}, "provenance": {"utc": ""}, "seconds": 1.0}
    (folder / "done.json").write_text(json.dumps(done))
    run_stages([stage], runs_dir=tmp_path, workers="ray", progress=Progress(io.StringIO()))


def test_a_plan_looks_at_no_cluster(monkeypatch, capsys):
    """This machine could not do it, and is not asked to."""
    monkeypatch.setattr(module, "this_machine", lambda: PHONE)
    command = ["plan", "--profile", "gpu", "--only", "05"]
    assert cli.main(command) == 0
    assert "missing: " in capsys.readouterr().out
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    assert cli.main([*command, "--workers", "ray"]) == 0
    told = capsys.readouterr().out
    assert "missing: " not in told
    monkeypatch.delenv("RAY_ADDRESS")
    assert cli.main([*command, "--workers", "ray"]) == 0  # that of this machine
    assert "missing: " in capsys.readouterr().out


def test_without_ray_the_plan_says_so_and_no_run_begins(monkeypatch, capsys):
    bare = replace(PHONE, packages=frozenset(), memory=10**11)
    monkeypatch.setattr(module, "this_machine", lambda: bare)
    command = ["--profile", "mini", "--only", "05", "--workers", "ray", "--force"]
    assert cli.main(["plan", *command]) == 0
    assert capsys.readouterr().out.count("missing: Ray is not installed: pip install ") == 1
    assert cli.main(["run", *command]) == 1
    assert capsys.readouterr().err.startswith("klear: Ray is not installed: pip install ")


def test_the_command_that_goes_on_names_the_cluster():
    resume = resuming(place_of("mini", {}), [], False, "ray")
    assert resume == "klear run --profile mini --workers ray"
    assert describe(Plan([])) == ""


def test_ray_and_verl_are_imported_in_scale_alone():
    for path in LIBRARY.rglob("*.py"):
        if path.parent.name == "scale":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [
                each.name for each in getattr(node, "names", []) if isinstance(node, ast.Import)
            ]
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & {"ray", "verl"}, path
