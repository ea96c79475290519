"""Tasks beside stages: order, places, failures, stops, and that no process is left."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from killing import alive, wait_until

from klearlib.errors import KlearError, StageFailed
from klearlib.run import job, pool, preload
from klearlib.run.job import TaskFailed
from klearlib.run.pool import run_stages
from klearlib.run.preload import NewProcess
from klearlib.run.progress import Progress
from klearlib.run.stage import Stage, is_done
from klearlib.run.task import Task
from klearlib.scale import ray_places


def _walk(seed, num_steps=2, **fields):
    params = {"seed": seed, "num_steps": num_steps, "every": 1000}
    return Stage("walk", "toy_stages:walk", params, **fields)


@pytest.fixture(autouse=True)
def no_fork_server(monkeypatch):
    monkeypatch.setattr(preload, "preload", lambda **_: None)


@pytest.fixture
def note(tmp_path):
    """A function that makes a task that leaves its word in a file, and what is in that."""

    def make(word, needs=(), **arguments):
        arguments = {"file": str(tmp_path / "notes"), "word": word, **arguments}
        return Task(word, "toy_stages:note", arguments, tmp_path / "logs" / word, needs)

    make.words = lambda: (tmp_path / "notes").read_text().split()
    return make


def _run(stages, tmp_path, **options):
    stream = io.StringIO()
    failures = run_stages(stages, runs_dir=tmp_path / "runs", progress=Progress(stream), **options)
    return failures, [line[9:] for line in stream.getvalue().splitlines()]


def test_tasks_come_after_what_they_need_and_before_what_waits(tmp_path, note):
    base, other = _walk(0), _walk(1)
    first = note("first", [base])
    second = note("second", [first, other])
    told = []

    def on_done(item):
        told.append(item)
        return [note("added", [base])] if item is base else None

    failures, lines = _run([base], tmp_path, tasks=[second, first], workers=1, on_done=on_done)
    assert failures == []
    names = [getattr(item, "title", item.name) for item in told]
    assert names.index("first") < names.index("second") == len(names) - 1
    assert names[0] == "walk" and set(names[1:3]) == {"first", "added"}  # before the other walk
    assert sorted(note.words()) == ["added", "first", "second"]
    assert is_done(other, tmp_path / "runs")  # no stage of the call, but needed
    assert (tmp_path / "logs" / "first").read_text() == "notes first\n"
    assert lines[-1].startswith("2 of 2 stages and 3 of 3 tasks done, ")
    _, lines = _run([], tmp_path, tasks=[note("again", [base])], on_done=told.append)
    assert lines[-1].startswith("1 of 1 stages and 1 of 1 tasks done, ")
    _, lines = _run([], tmp_path, tasks=[note("alone")])
    assert lines[1].endswith("  alone, 0:00 elapsed")
    assert lines[-1].startswith("1 of 1 tasks done, ")


def test_its_process(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    file = tmp_path / "seen.json"
    _run([], tmp_path, tasks=[Task("t", "toy_stages:look_around", {"file": str(file)}, file)])
    seen = json.loads(file.read_text().splitlines()[-1])
    assert seen.pop("environment").keys().isdisjoint({"PYTHONHASHSEED", "KLEAR_PARENT_PID"})
    assert seen == {
        "parent": os.getpid(),
        "leads": True,
        "main": True,
        "stdin": "/dev/null",
        "gpus": "3,5",
    }


@pytest.mark.parametrize(("gpus", "most"), [([], 1), (["0"], 2)])
def test_places(tmp_path, monkeypatch, note, gpus, most):
    """On cores a task takes one; beside stages on GPUs it takes none, two at a time."""
    monkeypatch.setattr(pool, "gpus", lambda: gpus)
    running = []

    class Watch(Progress):
        def show(self, rows, num_workers, *, last=False):
            running.append(
                tuple(sum(r.state == "running" and r.is_task == t for r in rows) for t in (0, 1))
            )

    stages = [Stage("w", "toy_stages:count_runs", {"file": str(tmp_path / "f"), "sleep_s": 0.6})]
    tasks = [note(f"t{i}", sleep_s=0.3) for i in range(4)]
    run_stages(stages, runs_dir=tmp_path / "runs", tasks=tasks, workers=1, progress=Watch())
    assert max(num for _, num in running) == most
    assert any(all(both) for both in running) == bool(gpus)
    assert sorted(note.words()) == ["t0", "t1", "t2", "t3"]


def test_places_of_a_cluster(tmp_path, monkeypatch, note):
    """Through the words of `RayPlaces`: tasks run beside the stages."""
    made, shown = [], []

    class Places:
        shares_cores, count = False, 1

        def __init__(self):
            made.append("connected")

        def start(self, slot, spec_file, log, environment, *, spans):
            return NewProcess("klearlib.run.worker", str(spec_file), log, environment)

        def close(self):
            made.append("closed")

    class Watch(Progress):
        def show(self, rows, num_workers, *, last=False):
            shown.append([row.state for row in rows])

    monkeypatch.setattr(ray_places, "RayPlaces", Places)
    stage = Stage("c", "toy_stages:count_runs", {"file": str(tmp_path / "ran"), "sleep_s": 1.5})
    runs = tmp_path / "runs"
    run_stages([stage], runs_dir=runs, workers="ray", tasks=[note("beside")], progress=Watch())
    assert made == ["connected", "closed"]
    assert ["running", "running"] in shown
    assert is_done(stage, runs)


@pytest.mark.parametrize(
    ("how", "exit_code", "lines", "in_log"),
    [
        ("lines", 138, ["cell In [2] failed", "    1 / 0"], ""),
        ("asset", 1, ["no model toy-8b: download it, then run again"], ""),
        ("bug", 1, ["RuntimeError: the toy broke"], "Traceback"),
        (
            "full disk",
            1,
            ["no space left for a.ipynb: free some disk space, then run again (it resumes)"],
            "",
        ),
        ("exit", 7, ["exit code 7; its last lines:", "its last word"], "its last word"),
        (
            "kill",
            138,
            ["its process was killed by SIGKILL (often: out of memory); finished stages are kept"],
            "",
        ),
    ],
)
def test_failures(tmp_path, how, exit_code, lines, in_log):
    log = tmp_path / "log"
    task = Task("notebook 05", "toy_stages:fail_task", {"how": how}, log)
    with pytest.raises(TaskFailed) as caught:
        _run([], tmp_path, tasks=[task])
    error = caught.value
    assert (error.exit_code, error.lines) == (exit_code, lines)
    assert str(error) == f"notebook 05 failed: {lines[0]} (log: {log})"
    assert isinstance(error, KlearError)
    assert in_log in log.read_text()
    assert [file.name for file in tmp_path.iterdir()] == ["log"]


def test_with_keep_going_only_what_needs_a_failure_is_left_out(tmp_path, note):
    failing = Stage("f", "toy_stages:fail", {"how": "asset"})
    after = _walk(1, inputs={"base": failing})
    last = _walk(2, inputs={"base": after})
    fails = Task("fails", "toy_stages:fail_task", {"how": "lines"}, tmp_path / "log")
    skipped = [note("needs the stage", [failing])]
    skipped.append(note("needs the task", [skipped[0]]))
    late = note("late", [failing])
    goes_on = note("on", [_walk(0)])
    tasks = [fails, *skipped, note("after", [fails]), goes_on]
    seen = []
    failures, lines = _run(
        [failing, last],
        tmp_path,
        tasks=tasks,
        workers=1,
        keep_going=True,
        on_failed=seen.append,
        on_done=lambda item: [late] if item is goes_on else None,
    )
    assert seen == failures
    by_name = {failure.item.name: failure for failure in failures}
    assert set(by_name) == {"f", "fails"}
    assert by_name["f"].item is failing
    assert by_name["f"].skipped == [after, skipped[0], last, skipped[1], late]
    assert isinstance(by_name["f"].error, StageFailed) and by_name["f"].error.exit_code == 1
    assert not after.folder(tmp_path / "runs").exists()
    assert [task.name for task in by_name["fails"].skipped] == ["after"]
    fault = by_name["fails"].error
    assert (fault.exit_code, fault.lines[0]) == (138, "cell In [2] failed")
    assert note.words() == ["on"]
    assert ", 2 failed, " in lines[-1]


def test_a_failure_stops_the_others(tmp_path, note):
    file = tmp_path / "state"
    waits = Task("waits", "toy_stages:stop_well", {"file": str(file)}, tmp_path / "waits")
    begun = Stage("w", "toy_stages:wait_for", {"file": str(file)})
    failing = Stage("f", "toy_stages:fail", {"how": "asset"}, {"begun": begun})
    never, failed = note("never", [failing]), []
    with pytest.raises(StageFailed) as caught:
        _run([failing], tmp_path, tasks=[waits, never], workers=2, on_failed=failed.append)
    assert [each.error for each in failed] == [caught.value]
    assert file.read_text() == "stopped"
    assert not (tmp_path / "notes").exists()


SCRIPT = """
import sys
from pathlib import Path
sys.path[:0] = {path!r}
from klearlib.run.pool import run_stages
from klearlib.run.task import Task
task = Task("t", "toy_stages:stop_well", {{"file": {file!r}}}, Path({log!r}))
run_stages([], runs_dir={runs!r}, tasks=[task])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_the_caller(tmp_path, number):
    file = tmp_path / "pids"
    path = [str(Path(__file__).parent), *sys.path]
    code = SCRIPT.format(
        path=path, file=str(file), log=str(tmp_path / "log"), runs=str(tmp_path / "runs")
    )
    caller = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    assert wait_until(file.exists)
    task, child = (int(pid) for pid in file.read_text().split())
    caller.send_signal(number)
    assert caller.wait(20) != 0
    assert wait_until(lambda: not alive(task) and not alive(child), 5.0)
    assert (file.read_text() == "stopped") == (number == signal.SIGINT)


def test_a_stop_that_comes_while_a_process_starts_loses_none(tmp_path, monkeypatch):
    file = tmp_path / "pids"
    known, started = job.NewProcess, []

    def start(*arguments):
        started.append(known(*arguments))
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
        return started[0]

    monkeypatch.setattr(job, "NewProcess", start)
    task = Task("t", "toy_stages:stop_well", {"file": str(file)}, tmp_path / "log")
    with pytest.raises(KeyboardInterrupt):
        _run([], tmp_path, tasks=[task])
    assert started[0].returncode is not None
