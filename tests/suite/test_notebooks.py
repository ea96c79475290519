"""The runner of notebooks on toy stages and tiny notebooks: exit codes, cache, nothing
half-written."""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import toy_suite
from toy_suite import TOY, environment, files, put, ran

from klearlib.errors import DamagedEntry, KlearError, MissingAsset, ParameterError
from klearlib.suite import checks, notebooks, plan
from klearlib.suite.plan import Plan

SECTION = """(out / "section.json").write_text('{"status": "complete", "missing": []}')"""
KILLED = "import os\nos.kill(os.getpid(), 9)"


@pytest.fixture
def reports(monkeypatch):
    """The section of 05 at each build of the report, which itself is replaced."""
    seen: list[str] = []

    def build_report(results: Path, _) -> Path:
        section = results / "05_toy" / "section.json"
        seen.append(section.read_text() if section.exists() else "")
        return results / "report.html"

    monkeypatch.setattr("klearlib.report.page.build_report", build_report)
    return seen


def why(**options) -> dict[str, str]:
    """Of each notebook the reason to run it, "" where it is cached."""
    return {each.name: each.why for each in notebooks.plan("smoke", **options)}


def test_runs_then_is_cached_then_runs_what_changed(project, reports, capsys, monkeypatch):
    # A kernelspec that cannot start must not matter: the kernel is this interpreter.
    spec = project / "jupyter" / "kernels" / "python3"
    spec.mkdir(parents=True)
    broken = {"argv": ["/bin/false"], "display_name": "x", "language": "python"}
    (spec / "kernel.json").write_text(json.dumps(broken))
    monkeypatch.setenv("JUPYTER_PATH", str(project / "jupyter"))
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "0")

    put(project, "05_toy", TOY, SECTION)
    assert notebooks.run("smoke", workers=2) == 0
    assert ran(project) == ["05", "00"]  # the overview gathers, so it is the last
    here = json.loads((project / "results/smoke/05_toy/here.json").read_text())
    assert here == {
        "python": sys.executable,
        "cwd": str(project),
        "steps": 3,
        "workers": 2,
        "transport": "tcp",
        "stages": 2,
        "out": str(project / "results/smoke"),
    }
    printed = capsys.readouterr().out
    assert "[05] done: results/smoke/05_toy.ipynb\n" in printed
    assert "\ncomputed: 1 first, 1 second\ntook " in printed
    assert printed.endswith("\nreport: results/smoke/report.html\n")
    assert "hello" in (project / "results/smoke/05_toy/run.log").read_text()
    executed = (project / "results/smoke/05_toy.ipynb").read_text()
    assert "hello" in executed
    assert str(project) not in json.dumps(json.loads(executed)["metadata"])
    assert files(project) == {
        "smoke/.lock",
        "smoke/00_gather.ipynb",
        "smoke/00_gather/cache.json",
        "smoke/00_gather/run.log",
        "smoke/05_toy.ipynb",
        "smoke/05_toy/cache.json",
        "smoke/05_toy/here.json",
        "smoke/05_toy/run.log",
        "smoke/05_toy/section.json",
    }

    # The number of workers cannot change a result.
    assert set(why(workers=1).values()) == {""}
    built = len(reports)
    assert notebooks.run("smoke") == 0
    assert ran(project) == ["05", "00"]
    assert len(reports) == built + 1
    assert "\nnothing changed since the last run\ntook " in capsys.readouterr().out

    changes = {
        "smoke/05_toy/here.json is missing": lambda: Path("05_toy/here.json").unlink(),
        "smoke/05_toy.ipynb is missing": lambda: Path("05_toy.ipynb").unlink(),
        "cache.json is damaged": lambda: Path("05_toy/cache.json").write_text("{"),
        "cells changed": lambda: put(project, "05_toy", TOY, "1"),
        "parameters changed": lambda: (project / "params/smoke/05_toy.yaml").write_text(
            "num_steps: 5"
        ),
        "library changed": lambda: monkeypatch.setattr(
            "klearlib.suite.cache.code_fingerprint", lambda module, without: "other"
        ),
    }
    saved = shutil.copytree(project, project.parent / "saved")
    (project / "results/smoke/05_toy/section.json").write_text('{"status": "complete"}')
    assert why() == {"05_toy": "", "00_gather": "gathered results changed"}
    for expected, change in changes.items():
        shutil.rmtree(project)
        shutil.copytree(saved, project)
        with contextlib.chdir(project / "results" / "smoke"):
            change()
        found = why()
        assert found["05_toy"] == expected.removeprefix("smoke/")
        assert found["00_gather"] in ("gathers results that change", found["05_toy"])
    assert why(force=True)["05_toy"] == "forced"


def test_a_fault_of_the_report_costs_no_result_and_what_is_cached_imports_nothing_heavy(
    project, monkeypatch, capsys
):
    def fail(results: Path, _) -> Path:
        raise KlearError("a section is damaged")

    monkeypatch.setattr("klearlib.report.page.build_report", fail)
    assert notebooks.run("smoke", ["00"]) == 1
    assert "the report could not be built: a section is damaged" in capsys.readouterr().out
    assert why(only=["00"])["00_gather"] == ""
    heavy = "{'torch', 'papermill', 'pandas', 'matplotlib', 'transformers'}"
    code = f"""import sys, toy_suite
from klearlib.cli import main
toy_suite.install()
code = main(["run", "--profile", "smoke", "--only", "00"])
print(code, {heavy} & set(sys.modules))"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(project), capture_output=True, text=True
    )
    assert done.stdout.endswith("\n0 set()\n"), done.stdout + done.stderr
    assert ran(project) == ["00"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("num_step: 3", "05_toy: unknown parameter 'num_step': did you mean 'num_steps'?"),
        ("rates: [1e-4]", "write 0.0001 without quotes"),
    ],
)
def test_a_wrong_parameter_stops_before_any_kernel(project, reports, text, message):
    (project / "params/smoke/05_toy.yaml").write_text(text)
    with pytest.raises(ParameterError) as caught:
        notebooks.run("smoke")
    assert message in str(caught.value)
    assert (ran(project), files(project), reports) == ([], set(), [])


def test_parameter_files_and_notebooks_belong_together(project):
    (project / "notebooks/05_toy.ipynb").unlink()
    with pytest.raises(ParameterError, match=r"05_toy\.ipynb is not a notebook .*No such file"):
        notebooks.plan("smoke")
    (project / "params/smoke/05_toi.yaml").write_text("")
    with pytest.raises(ParameterError, match="did you mean '05_toy'"):
        notebooks.plan("smoke", ["05_toi"])


DAMAGE = {
    "cut off": lambda text: text[: len(text) // 2],
    "not UTF-8": lambda text: text.replace("hello", "h\xe9llo"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_notebook_is_named(project, damage):
    path = project / "notebooks/05_toy.ipynb"
    path.write_text(damage(path.read_text()), encoding="latin1")
    with pytest.raises(ParameterError) as caught:
        notebooks.plan("smoke")
    message = str(caught.value)
    assert message.startswith(f"{path} is not a notebook (")
    assert message.endswith("): restore it from version control")
    assert "\n" not in message


@pytest.mark.parametrize("worlds", [("miniature",), ()])
def test_a_profile_without_the_world_that_a_notebook_needs(project, monkeypatch, worlds):
    monkeypatch.setattr(toy_suite.ToyParams, "worlds", worlds)
    assert why()["05_toy"]
    (project / "params/smoke/worlds.yaml").unlink()
    if worlds:
        with pytest.raises(ParameterError, match="'smoke' has no miniature"):
            notebooks.plan("smoke")
        assert list(notebooks.plan("smoke", ["00"]))
    else:
        assert why()["05_toy"]


def test_a_damaged_cache_runs_again(project):
    folder = project / "results/smoke/05_toy"
    folder.mkdir(parents=True)
    (folder / "cache.json").write_text("{")
    assert why()["05_toy"] == "cache.json is damaged"


def test_only(project):
    for words in (["05"], ["5"], ["05_toy"]):
        assert [each.name for each in notebooks.plan("smoke", words)] == ["05_toy"]
    assert len(notebooks.plan("smoke", ["05", "0"])) == 2
    with pytest.raises(ParameterError, match="has no notebook '06'; there are: 05_toy, 00"):
        notebooks.plan("smoke", ["06"])


def test_the_stages_of_a_run_are_made_once(project, monkeypatch):
    made, stages = [], toy_suite.Toy.stages
    monkeypatch.setattr(toy_suite.Toy, "stages", lambda e: made.append(e.name) or stages(e))
    planned = plan.weighed("smoke", plan.plan("smoke"))
    notebooks._Suite(planned.todo, project / "results/smoke", "")
    assert made == ["05_toy"]


def test_a_failing_cell_is_shown_and_the_last_good_result_stays(project, reports, capsys):
    executed = project / "results/smoke/05_toy.ipynb"
    executed.parent.mkdir(parents=True)
    executed.write_text("good")
    put(project, "05_toy", "print('before')", "a = 1\nraise OSError('no room')")
    # With keep_going the code is still that of the failure, and what gathers waits for it.
    assert notebooks.run("smoke", keep_going=True) == 1
    printed = capsys.readouterr().out
    assert "[05] cell In [4] failed: OSError: no room\n" in printed
    assert "[05]     a = 1\n[05]     raise OSError('no room')\n" in printed
    assert "[05] log: results/smoke/05_toy/run.log\n" in printed
    again = "go on with: klear run --profile smoke --keep-going\n"
    assert f"[05] {again}" in printed
    assert printed.endswith(f"klear: some notebooks failed; {again}")
    assert "\x1b" not in printed
    assert ran(project) == []
    assert executed.read_text() == "good"
    assert "no room" in executed.with_name("05_toy.failed.ipynb").read_text()
    assert not list(executed.parent.glob(".*.ipynb"))

    put(project, "05_toy", TOY)
    assert notebooks.run("smoke", ["05"]) == 0
    assert not executed.with_name("05_toy.failed.ipynb").exists()


def test_a_users_mistake_in_a_cell_is_one_line(project, reports, capsys):
    put(project, "00_gather", "from klearlib.errors import *\nraise ParameterError('correct it')")
    assert notebooks.run("smoke", ["00"]) == 2
    printed = capsys.readouterr().out
    assert "failed: ParameterError: correct it\n" in printed
    assert "Traceback" not in printed


def test_a_killed_kernel_is_no_success(project, reports, capsys):
    put(project, "05_toy", TOY, KILLED)
    assert notebooks.run("smoke", ["05"]) == 138
    assert "the kernel died" in capsys.readouterr().out
    assert why()["05_toy"] == "not run here yet"
    assert not [name for name in files(project) if name.endswith(".ipynb")]


def test_what_is_done_is_published_while_stages_go_on_and_is_not_cached(
    project, reports, monkeypatch
):
    put(project, "05_toy", TOY, SECTION.replace("complete", "partial"))
    monkeypatch.setattr(notebooks, "PUBLISH_EVERY_S", 0.0)
    monkeypatch.setattr(notebooks, "PUBLISH", "toy_suite:publish")
    (project / "params/smoke/05_toy.yaml").write_text("kind: linger\n")
    assert notebooks.run("smoke", ["05"]) == 0
    states = [json.loads(text)["missing"] if text else None for text in reports]
    assert states[0] is None
    assert ["second"] in states
    assert why()["05_toy"]  # its section is partial


def test_a_failed_stage_fails_its_notebook_alone(project, reports, capsys):
    (project / "params/smoke/05_toy.yaml").write_text("kind: break_off\n")
    assert notebooks.run("smoke") == 1
    printed = capsys.readouterr().out
    assert "[05]" in printed and "no room" in printed
    assert "go on with: klear run --profile smoke\n" in printed
    assert ran(project) == []


@pytest.mark.parametrize("keep_going", [False, True])
def test_a_failed_stage_takes_along_the_stages_behind_it(project, reports, capsys, keep_going):
    (project / "params/smoke/05_toy.yaml").write_text("kind: break_off, walk\n")
    assert notebooks.run("smoke", keep_going=keep_going) == 1
    printed = capsys.readouterr().out
    assert "[05]" in printed and "no room" in printed and "go on with: klear run" in printed


def test_what_fails_beside_the_stages_is_no_success(project, reports, monkeypatch):
    def run_stages(*_, **__):
        raise DamagedEntry("results/runs/world/0 is damaged: delete it")

    monkeypatch.setattr(notebooks, "run_stages", run_stages)
    with pytest.raises(DamagedEntry, match="delete it"):
        notebooks.run("smoke")


def test_a_cluster_is_taken_whatever_the_overview_has(project, reports, monkeypatch):
    asked = []
    monkeypatch.setattr(notebooks, "weighed", lambda profile, planned: Plan(planned))
    monkeypatch.setattr(notebooks, "run_stages", lambda *_, workers, **__: asked.append(workers))
    assert "00_gather" in why() and notebooks.run("smoke", workers="ray") == 0
    assert asked == ["ray"]


def test_a_lost_stage_from_which_another_was_made_is_computed_again(project, reports, monkeypatch):
    """Tables read of it, and would have an empty cell."""
    both = toy_suite.Toy.stages
    monkeypatch.setattr(toy_suite.Toy, "stages", lambda self: both(self)[1:])
    put(project, "05_toy", TOY, SECTION)
    assert notebooks.run("smoke", only=["05"]) == 0
    (lost,) = (project / "results/runs/first").iterdir()
    before = (lost / "sum.txt").read_text()
    shutil.rmtree(lost)
    assert notebooks.run("smoke", only=["05"], force=True) == 0
    assert (lost / "sum.txt").read_text() == before


def test_two_runs_of_one_profile_do_not_mix(project, reports):
    (project / "results/smoke").mkdir(parents=True)
    with open(project / "results/smoke/.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(KlearError, match="another klear run is using results/smoke"):
            notebooks.run("smoke")
    assert ran(project) == []


def test_missing_assets_stop_the_run(project, reports, monkeypatch):
    lack = "model a/b is not on this machine: hf download a/b"
    monkeypatch.setattr(checks, "missing_of", lambda profile, stages: [lack])
    assert f"missing: {lack}" in plan.describe(plan.weighed("smoke", plan.plan("smoke")))
    with pytest.raises(MissingAsset, match="hf download a/b"):
        notebooks.run("smoke")
    assert ran(project) == []
