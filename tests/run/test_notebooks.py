"""The notebook runner against tiny notebooks: exit codes, cache, signals, nothing half-written."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest
from tiny_project import environment, files, make, put, ran

from klearlib.errors import KlearError, MissingAsset, ParameterError
from klearlib.experiments.catalogue import experiment_of
from klearlib.suite import notebooks, reporting

REPOSITORY = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60

OVERVIEW = """from pathlib import Path
with open("ran.txt", "a") as file: file.write("00\\n")"""
CLIPPING = """import json, os, sys
from pathlib import Path
from ipykernel.connect import get_connection_info
out = Path("results") / profile / "05_clipping"
out.mkdir(parents=True, exist_ok=True)
with open("ran.txt", "a") as file: file.write("05\\n")
with open(os.environ["KLEAR_PROGRESS_LOG"], "a") as log: log.write("step 1/2\\n")
here = {"python": sys.executable, "cwd": os.getcwd(), "steps": num_steps, "workers": workers}
here |= {"transport": json.loads(get_connection_info())["transport"]}
(out / "here.json").write_text(json.dumps(here))
print("hello")"""
SECTION = """(out / "section.json").write_text('{"status": "complete"}')"""
KILLED = "import os\nos.kill(os.getpid(), 9)"
WAITS = """import os, subprocess, time
from pathlib import Path
child = subprocess.Popen(["sleep", "300"])
Path("pids.tmp").write_text(f"{os.getpid()} {child.pid}")
os.replace("pids.tmp", "pids.txt")
try:
    time.sleep(300)
except KeyboardInterrupt:
    Path("saved.txt").write_text("saved")
    raise"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with notebooks 00 and 05, in this process, with a report that counts its builds."""
    make(tmp_path, {"00_overview": OVERVIEW, "05_clipping": CLIPPING})
    (tmp_path / "params" / "smoke" / "05_clipping.yaml").write_text("num_steps: 3\n")
    monkeypatch.setenv("KLEAR_ROOT", str(tmp_path))
    return tmp_path


@pytest.fixture
def reports(monkeypatch):
    """The section of 05 at each build of the report, which itself is replaced."""
    seen: list[str] = []

    def build_report(results: Path, _) -> Path:
        section = results / "05_clipping" / "section.json"
        seen.append(section.read_text() if section.exists() else "")
        return results / "report.html"

    page = types.ModuleType("klearlib.report.page")
    page.build_report = build_report
    monkeypatch.setitem(sys.modules, "klearlib.report.page", page)
    return seen


def state_of(**options) -> dict[str, tuple[str, str]]:
    return {each.notebook: (each.state, each.why) for each in notebooks.plan("smoke", **options)}


def test_runs_then_is_cached_then_runs_what_changed(project, reports, capsys, monkeypatch):
    # A kernelspec that cannot start must not matter: the kernel is this interpreter.
    spec = project / "jupyter" / "kernels" / "python3"
    spec.mkdir(parents=True)
    broken = {"argv": ["/bin/false"], "display_name": "x", "language": "python"}
    (spec / "kernel.json").write_text(json.dumps(broken))
    monkeypatch.setenv("JUPYTER_PATH", str(project / "jupyter"))
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "0")

    assert notebooks.run("smoke", workers=2) == 0
    assert ran(project) == ["05", "00"]  # the overview gathers, so it is the last
    here = json.loads((project / "results/smoke/05_clipping/here.json").read_text())
    assert here == {
        "python": sys.executable,
        "cwd": str(project),
        "steps": 3,
        "workers": 2,
        "transport": "tcp",
    }
    printed = capsys.readouterr().out
    assert "[05] step 1/2\n" in printed
    assert "[05] hello\n" in printed
    executed = (project / "results/smoke/05_clipping.ipynb").read_text()
    assert "hello" in executed
    assert str(project) not in json.dumps(json.loads(executed)["metadata"])
    assert files(project) == {
        "smoke/.lock",
        "smoke/00_overview.html",
        "smoke/00_overview.ipynb",
        "smoke/00_overview/cache.json",
        "smoke/00_overview/run.log",
        "smoke/05_clipping.html",
        "smoke/05_clipping.ipynb",
        "smoke/05_clipping/cache.json",
        "smoke/05_clipping/here.json",
        "smoke/05_clipping/run.log",
    }

    # The number of workers cannot change a result.
    assert set(state_of(workers=1).values()) == {("cached", "")}
    built = len(reports)
    assert notebooks.run("smoke") == 0
    assert ran(project) == ["05", "00"]
    assert len(reports) == built + 1

    changes = {
        "smoke/05_clipping/here.json is missing": lambda: Path("05_clipping/here.json").unlink(),
        "smoke/05_clipping/here.json was changed": lambda: Path("05_clipping/here.json").write_text(
            "{}"
        ),
        "smoke/05_clipping.ipynb is missing": lambda: Path("05_clipping.ipynb").unlink(),
        "cache.json is damaged": lambda: Path("05_clipping/cache.json").write_text("{"),
        "cells changed": lambda: put(project, "05_clipping", CLIPPING, "1"),
        "parameters changed": lambda: (project / "params/smoke/05_clipping.yaml").write_text(
            "num_steps: 5"
        ),
        "library changed": lambda: monkeypatch.setattr(
            "klearlib.suite.cache.library_fingerprint", lambda modules: "other"
        ),
    }
    saved = shutil.copytree(project, project.parent / "saved")
    for why, change in changes.items():
        shutil.rmtree(project)
        shutil.copytree(saved, project)
        with contextlib.chdir(project / "results" / "smoke"):
            change()
        expected = ("will run", why.removeprefix("smoke/"))
        states = state_of()
        assert states["05_clipping"] == expected, why
        gathers = ("will run", "gathers results that change")
        assert states["00_overview"] in (gathers, expected), why
    monkeypatch.undo()
    monkeypatch.setenv("KLEAR_ROOT", str(project))
    assert state_of(force=True)["05_clipping"] == ("will run", "forced")


def test_a_cached_run_is_quick_and_imports_nothing_heavy(project):
    assert notebooks.run("smoke", ["00"]) == 0
    heavy = "{'torch', 'papermill', 'pandas', 'matplotlib', 'transformers'}"
    code = f"""import sys
from klearlib.cli import main
code = main(["run", "--only", "00"])
print(code, {heavy} & set(sys.modules))"""
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(project), capture_output=True, text=True
    )
    assert done.stdout.endswith("\n0 set()\n"), done.stdout + done.stderr
    assert time.monotonic() - begun < 5  # 0.4 s on an idle core
    assert ran(project) == ["00"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("num_step: 3", "05_clipping: unknown parameter 'num_step': did you mean 'num_steps'?"),
        ("learning_rates: [1e-4]", "write 1.0e-4"),
    ],
)
def test_a_wrong_parameter_stops_before_any_kernel(project, reports, text, message):
    (project / "params/smoke/05_clipping.yaml").write_text(text)
    with pytest.raises(ParameterError) as caught:
        notebooks.run("smoke")
    assert message in str(caught.value)
    assert (ran(project), files(project), reports) == ([], set(), [])


def test_parameter_files_and_notebooks_belong_together(project):
    (project / "notebooks/05_clipping.ipynb").unlink()
    with pytest.raises(ParameterError, match="has no notebook notebooks/05_clipping"):
        notebooks.plan("smoke")
    (project / "params/smoke/05_cliping.yaml").write_text("")
    with pytest.raises(ParameterError, match="did you mean '05_clipping'"):
        notebooks.plan("smoke", ["05_cliping"])


DAMAGE = {
    "cut off": lambda text: text[: len(text) // 2],
    "empty": lambda text: "",
    "list": lambda text: "[]",
    "no cells": lambda text: '{"metadata": {}}',
    "no metadata": lambda text: '{"cells": []}',
    "metadata is no object": lambda text: '{"cells": [], "metadata": []}',
    "cell without type": lambda text: '{"cells": [{"source": ""}], "metadata": {}}',
    "cell without source": lambda text: '{"cells": [{"cell_type": "code"}], "metadata": {}}',
    "cell is text": lambda text: '{"cells": ["a = 1"], "metadata": {}}',
    "estimate": lambda text: '{"cells": [], "metadata": {"klear": {"estimate_s": {"smoke": "1"}}}}',
    "estimates": lambda text: '{"cells": [], "metadata": {"klear": {"estimate_s": 3}}}',
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_notebook_is_named(project, damage):
    path = project / "notebooks/05_clipping.ipynb"
    path.write_text(damage(path.read_text()))
    with pytest.raises(ParameterError) as caught:
        notebooks.plan("smoke")
    message = str(caught.value)
    assert message.startswith(f"{path} is no notebook (")
    assert message.endswith("): restore it from version control")
    assert "\n" not in message


@pytest.mark.parametrize("seconds", [0, -1.5, float("inf"), float("nan")])
def test_an_estimate_that_is_no_time_is_named(project, seconds):
    path = project / "notebooks/05_clipping.ipynb"
    notebook = json.loads(path.read_text())
    notebook["metadata"]["klear"] = {"estimate_s": {"smoke": seconds}}
    path.write_text(json.dumps(notebook))
    with pytest.raises(ParameterError, match="estimate_s of 'smoke' must be above 0, got"):
        notebooks.plan("smoke")


def test_notebook_that_is_not_utf8(project):
    path = project / "notebooks/05_clipping.ipynb"
    path.write_bytes(path.read_bytes().replace(b"hello", b"h\xe9llo"))
    with pytest.raises(ParameterError, match=r"05_clipping\.ipynb is no notebook"):
        notebooks.plan("smoke")


@pytest.mark.parametrize("worlds", [("miniature",), ()])
def test_a_profile_without_the_world_that_a_notebook_needs(project, monkeypatch, worlds):
    monkeypatch.setattr(experiment_of("05_clipping").Params, "worlds", worlds)
    assert state_of()["05_clipping"][0] == "will run"
    (project / "params/smoke/worlds.yaml").unlink()
    if worlds:
        with pytest.raises(ParameterError, match="'smoke' has no miniature in params/smoke/wo"):
            notebooks.plan("smoke")
        assert list(notebooks.plan("smoke", ["00"]))
    else:
        assert state_of()["05_clipping"][0] == "will run"


@pytest.mark.parametrize("entry", ["[]", '{"digests": [], "artefacts": {}}', '{"digests": {}}'])
def test_a_damaged_cache_runs_again(project, entry):
    folder = project / "results/smoke/05_clipping"
    folder.mkdir(parents=True)
    (folder / "cache.json").write_text(entry)
    assert state_of()["05_clipping"] == ("will run", "cache.json is damaged")


def test_only(project):
    for words in (["05"], ["5"], ["05_clipping"]):
        assert [each.notebook for each in notebooks.plan("smoke", words)] == ["05_clipping"]
    assert len(notebooks.plan("smoke", ["05", "0"])) == 2
    with pytest.raises(ParameterError, match="has no notebook '06'; there are: 05_clipping, 00"):
        notebooks.plan("smoke", ["06"])


def test_a_failing_cell_is_shown_and_the_last_good_result_stays(project, reports, capsys):
    executed = project / "results/smoke/05_clipping.ipynb"
    executed.parent.mkdir(parents=True)
    executed.write_text("good")
    put(project, "05_clipping", "print('before')", "a = 1\nraise OSError('no room')")
    assert notebooks.run("smoke") == 1
    printed = capsys.readouterr().out
    assert "[05] cell In [4] failed: OSError: no room\n" in printed
    assert "[05]     a = 1\n[05]     raise OSError('no room')\n" in printed
    assert "[05] before\n" in printed
    assert "[05] log: results/smoke/05_clipping/run.log\n" in printed
    assert "[05] go on with: klear run --profile smoke\n" in printed
    assert "\x1b" not in printed
    assert ran(project) == []
    assert executed.read_text() == "good"
    assert "no room" in executed.with_name("05_clipping.failed.ipynb").read_text()
    assert not list(executed.parent.glob(".*.ipynb"))

    # The others run with keep_going, and the code is still that of the failure.
    assert notebooks.run("smoke", keep_going=True) == 1
    assert ran(project) == ["00"]
    put(project, "05_clipping", CLIPPING)
    assert notebooks.run("smoke") == 0
    assert ran(project) == ["00", "05", "00"]
    assert not executed.with_name("05_clipping.failed.ipynb").exists()


def test_a_users_mistake_in_a_cell_is_one_line(project, reports, capsys):
    put(project, "00_overview", "from klearlib.errors import *\nraise ParameterError('mend it')")
    assert notebooks.run("smoke", ["00"]) == 2
    printed = capsys.readouterr().out
    assert "failed: ParameterError: mend it\n" in printed
    assert "Traceback" not in printed


def test_a_killed_kernel_is_no_success(project, reports, capsys):
    put(project, "05_clipping", CLIPPING, KILLED)
    assert notebooks.run("smoke", ["05"]) == 138
    assert "the kernel died" in capsys.readouterr().out
    assert state_of()["05_clipping"] == ("will run", "not run here yet")
    assert not [name for name in files(project) if name.endswith(".ipynb")]


def test_a_partial_section_is_not_cached(project, reports):
    put(project, "05_clipping", CLIPPING, SECTION.replace("complete", "partial"))
    assert notebooks.run("smoke", ["05"]) == 0
    assert state_of()["05_clipping"][0] == "will run"


def test_the_report_follows_while_results_come_in(project, reports, monkeypatch):
    monkeypatch.setattr(reporting, "POLL_S", 0.05)
    partial = SECTION.replace("complete", "partial") + "\nimport time; time.sleep(0.6)"
    put(project, "05_clipping", CLIPPING, partial, SECTION)
    assert notebooks.run("smoke", ["05"]) == 0
    states = [json.loads(text)["status"] if text else "" for text in reports]
    assert states[0] == ""
    assert "partial" in states
    assert states[-1] == "complete"


def test_a_fault_of_the_report_costs_no_result(project, reports, monkeypatch, capsys):
    def fail(results: Path, _) -> Path:
        raise KlearError("a section is damaged")

    monkeypatch.setattr(sys.modules["klearlib.report.page"], "build_report", fail)
    assert notebooks.run("smoke", ["00"]) == 1
    assert "the report could not be built: a section is damaged" in capsys.readouterr().out
    assert state_of(only=["00"])["00_overview"] == ("cached", "")


def test_two_runs_of_one_profile_do_not_mix(project, reports):
    (project / "results/smoke").mkdir(parents=True)
    with open(project / "results/smoke/.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(KlearError, match="another klear run works on profile 'smoke'"):
            notebooks.run("smoke")
    assert ran(project) == []


def test_missing_assets_stop_the_run(project, reports, monkeypatch):
    lack = "model a/b is not on this machine: hf download a/b"
    monkeypatch.setattr(notebooks, "missing_assets", lambda params: [lack])
    assert f"missing: {lack}" in notebooks.describe(notebooks.plan("smoke"))
    with pytest.raises(MissingAsset, match="hf download a/b"):
        notebooks.run("smoke")
    assert ran(project) == []


@contextlib.contextmanager
def started(project: Path):
    """A runner in a process of its own, whose kernel waits with a child; yields it and all pids."""
    put(project, "05_clipping", WAITS)
    command = [sys.executable, "-m", "klearlib.cli", "run", "--only", "05"]
    runner = subprocess.Popen(
        command, env=environment(project), cwd=project, stdout=subprocess.PIPE, text=True
    )
    pids: list[int] = []
    try:
        wait_for(lambda: (project / "pids.txt").exists() or runner.poll() is not None)
        pids += [int(word) for word in (project / "pids.txt").read_text().split()]
        yield runner, pids
    finally:
        runner.kill()
        runner.wait()
        runner.stdout.close()
        for pid in filter(alive, pids):  # of a failed test
            os.kill(pid, signal.SIGKILL)


def wait_for(condition) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stop_lets_the_cell_save_and_leaves_no_process(project, number, code):
    with started(project) as (runner, pids):
        runner.send_signal(number)
        printed, _ = runner.communicate(timeout=TIMEOUT_S)
    assert runner.returncode == code
    assert "go on with: klear run --profile smoke --only 05\n" in printed
    assert (project / "saved.txt").exists()
    assert not any(map(alive, pids))
    assert {name for name in files(project) if name.startswith("smoke/05")} == {
        "smoke/05_clipping/run.log"
    }
    assert not list((project / "results/smoke").glob(".*.ipynb"))


def test_a_second_signal_ends_a_kernel_that_does_not_stop(project, monkeypatch):
    stubborn = WAITS.replace("    raise", "    time.sleep(300)")
    monkeypatch.setitem(globals(), "WAITS", stubborn)
    with started(project) as (runner, pids):
        runner.send_signal(signal.SIGTERM)
        wait_for(lambda: (project / "saved.txt").exists())
        runner.send_signal(signal.SIGTERM)
        runner.communicate(timeout=TIMEOUT_S)
    assert runner.returncode == 143
    wait_for(lambda: not any(map(alive, pids)))


def test_a_killed_runner_takes_its_kernel_along(project):
    with started(project) as (runner, pids):
        runner.kill()
        wait_for(lambda: not alive(pids[0]))
        os.kill(
            pids[1], signal.SIGKILL
        )  # a plain child outlives the kernel; klear's workers do not
    assert not [name for name in files(project) if name.endswith(".ipynb")]
    put(project, "05_clipping", CLIPPING)
    assert notebooks.run("smoke", ["05"]) == 0


def test_the_overview_runs_again_when_what_it_gathers_has_changed(project, reports):
    put(project, "05_clipping", CLIPPING, SECTION)
    assert notebooks.run("smoke") == 0
    assert set(state_of().values()) == {("cached", "")}
    section = project / "results/smoke/05_clipping/section.json"
    section.write_text('{"status": "complete", "changed": 1}')
    assert state_of(only=["00"])["00_overview"] == ("will run", "gathered results changed")
