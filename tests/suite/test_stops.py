"""The runner is stopped and killed: stages save, nothing is left, the next run ends the same."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from toy_suite import environment, files

from klearlib.suite import notebooks

TIMEOUT_S = 120
SCRIPT = """import toy_suite
from klearlib.run import progress
progress.LINE_EVERY_S = 0.1
toy_suite.main()"""
MAIN = [sys.executable, "-c", SCRIPT, "run", "--profile", "smoke", "--only", "05"]


@contextlib.contextmanager
def started(project: Path, kind: str, *, stderr=None, hangup=signal.SIG_DFL):
    """A runner in a process of its own; yields it and the pid of the stage that it has started."""
    (project / "params/smoke/05_toy.yaml").write_text(f"kind: {kind}\n")
    runner = subprocess.Popen(
        MAIN,
        env=environment(project),
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        preexec_fn=lambda: (
            signal.signal(signal.SIGHUP, hangup),
            signal.signal(signal.SIGQUIT, signal.SIG_DFL),  # a shell may have it ignored
        ),
    )
    pid = None
    try:
        wait_for(lambda: (project / "pids.txt").exists() or runner.poll() is not None)
        pid = int((project / "pids.txt").read_text())
        yield runner, pid
    finally:
        runner.kill()
        runner.wait()
        runner.stdout.close()
        if pid and alive(pid):  # of a failed test
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


STOPS = [
    (signal.SIGTERM, 143),
    (signal.SIGINT, 130),
    pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow),
    pytest.param(signal.SIGQUIT, 131, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("number", "code"), STOPS)
def test_a_stop_lets_stages_save_and_leaves_no_process(project, number, code):
    with started(project, "wait") as (runner, pid):
        runner.send_signal(number)
        printed, _ = runner.communicate(timeout=TIMEOUT_S)
    assert runner.returncode == code
    assert "go on with: klear run --profile smoke --only 05\n" in printed
    assert (project / "saved.txt").exists()
    assert not alive(pid)
    assert {name for name in files(project) if name.startswith("smoke/05")} == {
        "smoke/05_toy/run.log"
    }


def test_a_run_whose_reader_is_gone_saves_and_stops(project):
    with started(project, "wait", stderr=subprocess.PIPE) as (runner, pid):
        for stream in filter(None, (runner.stdout, runner.stderr)):
            stream.close()
        runner.wait(TIMEOUT_S)
    assert runner.returncode == 141
    assert (project / "saved.txt").exists()
    assert not alive(pid)


def test_under_nohup_a_closed_terminal_stops_nothing(project):
    with started(project, "wait", hangup=signal.SIG_IGN) as (runner, _):
        runner.send_signal(signal.SIGHUP)
        runner.send_signal(signal.SIGTERM)
        runner.communicate(timeout=TIMEOUT_S)
    assert runner.returncode == 143


def test_a_second_signal_ends_a_stage_that_does_not_stop(project):
    with started(project, "stay") as (runner, pid):
        runner.send_signal(signal.SIGTERM)
        wait_for(lambda: (project / "saved.txt").exists())
        runner.send_signal(signal.SIGTERM)
        runner.communicate(timeout=TIMEOUT_S)
    assert runner.returncode == 143
    wait_for(lambda: not alive(pid))


def test_a_killed_runner_takes_its_stages_along(project):
    with started(project, "stay") as (runner, pid):
        runner.kill()
        wait_for(lambda: not alive(pid))
    assert not [name for name in files(project) if name.endswith(".ipynb")]


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_with_the_same_bytes(project):
    assert notebooks.run("smoke", ["05"]) == 0
    stages = project / "results/runs"

    def ends() -> dict[str, bytes]:
        names = ("sum.txt", "metrics.jsonl")
        found = [path for path in sorted(stages.rglob("*")) if path.name in names]
        return {str(path.relative_to(stages)): path.read_bytes() for path in found}

    whole, source = ends(), random.Random(0)
    assert len(whole) == 4
    shutil.rmtree(project / "results")
    for _ in range(20):
        runner = subprocess.Popen(
            MAIN, env=environment(project), cwd=project, stdout=subprocess.DEVNULL
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            runner.wait(source.uniform(0.3, 4.0))
        runner.kill()
        runner.wait()
    assert notebooks.run("smoke", ["05"]) == 0
    assert ends() == whole
