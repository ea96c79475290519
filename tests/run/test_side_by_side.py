"""Notebooks side by side in real processes: what they share, how they fail, stop and are killed."""

from __future__ import annotations

import contextlib
import errno
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
from klearlib.run.side_by_side import Stops, Task, run_side_by_side
from tiny_project import environment, files, make, ran

from klearlib.errors import KlearError
from klearlib.run import executor, side_by_side
from klearlib.run.pool import run_stages
from klearlib.run.progress import Progress
from klearlib.run.stage import Stage

HERE = str(Path(__file__).parent)
FIRST, SECOND, THIRD = "05_clipping", "07_soft_reward", "08_test_filter"

NOTE = """import os, sys, time
from pathlib import Path
def note(word):
    with open("ran.txt", "a") as file: file.write(word + "\\n")
def meet(me, other, timeout_s=30):
    Path(f"{me}.part").write_text(str(os.getpid()))
    os.replace(f"{me}.part", f"{me}.here")
    while not Path(f"{other}.here").exists():
        assert (timeout_s := timeout_s - 0.05) > 0, "alone"
        time.sleep(0.05)
"""
SHARES = (
    NOTE
    + f"""sys.path.insert(0, {HERE!r})
from klearlib.run.pool import run_stages
from klearlib.run.stage import Stage
params = {{"file": str(Path("stage.txt").absolute()), "sleep_s": 1.0}}
meet(ME, OTHER)
run_stages([Stage("c", "toy_stages:count_runs", params)], runs_dir="results/runs", workers=2)
note(ME)"""
)
WAITS = (
    NOTE
    + """meet(ME, OTHER)
try:
    time.sleep(300)
except KeyboardInterrupt:
    note("saved")
    raise"""
)
WALKS = (
    NOTE
    + f"""sys.path.insert(0, {HERE!r})
from klearlib.run.pool import run_stages
from klearlib.run.stage import Stage
params = {{"seed": SEED, "num_steps": 60, "step_s": 0.05}}
run_stages([Stage("walk", "toy_stages:walk", params)], runs_dir="results/runs", poll_s=0.05)"""
)


def pair(source: str) -> dict[str, str]:
    """Two notebooks that wait for each other, so that none can run alone."""
    names = ("one", "two")
    return {
        name: f"ME, OTHER = {me!r}, {other!r}\n{source}"
        for name, me, other in zip((FIRST, SECOND), names, names[::-1], strict=True)
    }


@contextlib.contextmanager
def runner(project: Path, *words: str):
    """`klear run` in a process of its own; nothing that it started is left after the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "klearlib.cli", "run", "--jobs", "2", *words],
        env=environment(project),
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        assert wait_until(lambda: not descendants(project)), descendants(project)


def descendants(project: Path) -> dict[int, str]:
    """What runs anywhere with this project as its own, by process."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            known = (folder / "environ").read_bytes().split(b"\0")
            if f"KLEAR_ROOT={project}".encode() in known and alive(int(folder.name)):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found[int(folder.name)] = command
    found.pop(os.getpid(), None)
    return found


def processes(project: Path, module: str) -> list[int]:
    return sorted(pid for pid, command in descendants(project).items() if module in command)


def finish(process: subprocess.Popen) -> tuple[int, str]:
    printed, _ = process.communicate(timeout=60)
    return process.returncode, printed


def test_two_share_a_stage_that_runs_once(tmp_path):
    overview = NOTE + "note('gathered')"
    make(tmp_path, pair(SHARES) | {"00_overview": overview})
    with runner(tmp_path) as process:
        code, printed = finish(process)
    assert code == 0, printed
    assert (tmp_path / "stage.txt").read_text() == "ran\n"
    assert sorted(ran(tmp_path)[:2]) == ["one", "two"]
    assert ran(tmp_path)[2:] == ["gathered"]
    assert printed.index("[00] started") > printed.rindex("done in", 0, printed.index("[00]"))
    assert "klear: 1 of 3 notebooks done, about " in printed
    assert "klear: 3 of 3 notebooks done\n" in printed
    assert not list((tmp_path / "results/smoke").glob(".*.ipynb"))


def test_a_stop_reaches_both(tmp_path):
    make(tmp_path, pair(WAITS))
    with runner(tmp_path) as process:
        assert wait_until(lambda: len(list(tmp_path.glob("*.here"))) == 2, 40)
        time.sleep(0.5)  # until both have found each other
        process.send_signal(signal.SIGINT)
        got, printed = finish(process)
        assert not descendants(tmp_path)
    assert got == 130
    assert ran(tmp_path) == ["saved", "saved"]
    assert printed.endswith("go on with: klear run --profile smoke --jobs 2\n")
    assert "notebooks done" not in printed
    assert {name for name in files(tmp_path) if name.endswith((".ipynb", ".json"))} <= {
        "smoke/claims.json"
    }


def test_more_signals_end_what_does_not_stop(tmp_path):
    stubborn = WAITS.replace("    raise", "    time.sleep(300)")
    make(tmp_path, pair(stubborn))
    with runner(tmp_path) as process:
        assert wait_until(lambda: len(list(tmp_path.glob("*.here"))) == 2, 40)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        assert wait_until(lambda: ran(tmp_path) == ["saved", "saved"])
        process.send_signal(signal.SIGINT)
        code, _ = finish(process)
        assert not descendants(tmp_path)
    assert code == 130


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("klearlib.run.kernel_process", "the kernel died"),
        ("klearlib.run.executor", "the process that executes the notebook was killed by SIGKILL"),
    ],
)
def test_a_killed_process_costs_one_notebook(tmp_path, module, line):
    goes_on = NOTE + "meet('two', 'one')\nmeet('two', 'killed')\nnote('two')"
    sources = pair(WAITS) | {SECOND: goes_on, THIRD: NOTE + "note('three')"}
    make(tmp_path, sources)
    with runner(tmp_path, "--keep-going") as process:
        assert wait_until(lambda: len(list(tmp_path.glob("*.here"))) == 2, 40)
        kernel = int((tmp_path / "one.here").read_text())
        stat = Path(f"/proc/{kernel}/stat").read_text()
        executor = int(stat.rpartition(")")[2].split()[1])
        assert executor in processes(tmp_path, "klearlib.run.executor")
        os.kill(kernel if "kernel" in module else executor, signal.SIGKILL)
        assert wait_until(lambda: not alive(kernel), 1.0)
        (tmp_path / "killed.here").touch()
        code, printed = finish(process)
    assert code == 138
    assert f"[05] {line}" in printed
    assert "go on with: klear run --profile smoke --keep-going --jobs 2\n" in printed
    assert sorted(ran(tmp_path)) == ["three", "two"]
    assert "klear: 2 of 3 notebooks done, 1 failed\n" in printed


def test_a_failure_lets_the_other_finish_and_starts_no_third(tmp_path):
    fails = NOTE + "meet('one', 'two')\nraise OSError('no room')"
    goes_on = NOTE + "meet('two', 'one')\nmeet('two', 'failed')\nnote('two')"
    make(tmp_path, {FIRST: fails, SECOND: goes_on, THIRD: NOTE + "note('three')"})
    with runner(tmp_path) as process:
        failed = tmp_path / "results/smoke" / f"{FIRST}.failed.ipynb"
        assert wait_until(failed.exists, 40)
        (tmp_path / "failed.here").touch()
        code, printed = finish(process)
    assert (code, ran(tmp_path)) == (1, ["two"])
    assert "failed: OSError: no room\n" in printed
    assert "klear: 1 of 3 notebooks done, 1 failed, about " in printed


def test_killed_at_any_moment_it_goes_on_where_it_was(tmp_path):
    sources = {FIRST: "SEED = 1\n" + WALKS, SECOND: "SEED = 2\n" + WALKS}
    make(tmp_path, sources)
    checkpoints = tmp_path / "results" / "runs" / "walk"

    with runner(tmp_path) as process:
        assert wait_until(lambda: len(list(checkpoints.glob("*/checkpoint.json"))) == 2, 40)
        process.kill()
        assert wait_until(lambda: not descendants(tmp_path), 2.0)
    with runner(tmp_path) as process:
        code, printed = finish(process)
    assert code == 0, printed
    for log in checkpoints.glob("*/log.txt"):
        starts = [int(line.split()[-1]) for line in log.read_text().splitlines() if "start" in line]
        assert len(starts) == 2 and 0 == starts[0] < starts[1], starts
    stages = [
        Stage("walk", "toy_stages:walk", {"seed": seed, "num_steps": 60, "step_s": 0.05})
        for seed in (1, 2)
    ]
    run_stages(stages, runs_dir=tmp_path / "whole", progress=Progress(io.StringIO()))
    for stage in stages:
        for name in ("metrics.jsonl", "end.json"):
            resumed, whole = (
                stage.folder(runs) / name for runs in (checkpoints.parent, tmp_path / "whole")
            )
            assert resumed.read_bytes() == whole.read_bytes()


def test_a_stop_in_the_second_notebook_of_a_process(tmp_path):
    """nbclient takes and gives back the signals of its process with each notebook."""
    sources = pair(WAITS)
    make(tmp_path, {"03_teacher_ablation": "1", FIRST: sources[FIRST]})
    (tmp_path / "two.here").touch()
    with runner(tmp_path, "--jobs", "1") as process:
        assert wait_until((tmp_path / "one.here").exists, 40)
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        code, printed = finish(process)
    assert (code, ran(tmp_path)) == (143, ["saved"])
    assert "[03] done in" in printed


def test_a_closed_terminal_stops_both(tmp_path):
    make(tmp_path, pair(WAITS))
    with runner(tmp_path) as process:
        assert wait_until(lambda: len(list(tmp_path.glob("*.here"))) == 2, 40)
        time.sleep(0.5)
        process.stdout.close()
        for log in (tmp_path / "results/smoke").glob("*/run.log"):
            with open(log, "a") as file:
                file.write("a line that nobody reads\n")
        assert process.wait(30) != 0
        assert not descendants(tmp_path)
    assert ran(tmp_path) == ["saved", "saved"]


class StandIn:
    """An executor that does at once what its notebook says."""

    most = now = 0

    def __init__(self, variables):
        self.has_ended, self.codes = False, []
        self.reader, self.writer = os.pipe()

    def fileno(self):
        return self.reader

    def ask(self, request):
        StandIn.now += 1
        StandIn.most = max(StandIn.most, StandIn.now)
        self.codes.append(request["code"])
        os.write(self.writer, b"x")

    def answer(self):
        if not self.codes:
            return None
        StandIn.now -= 1
        os.read(self.reader, 1)
        return {"code": self.codes.pop(), "lines": ["why"], "seconds": 1.0}

    def stop(self):
        self.has_ended = True

    def close(self):
        os.close(self.reader)
        os.close(self.writer)


@pytest.mark.parametrize(
    ("codes", "keep_going", "expected", "started"),
    [
        ([0, 0, 0, 0], False, 0, 4),
        ([0, 2, 1, 0], False, 2, 2),
        ([0, 2, 1, 0], True, 2, 4),
    ],
)
def test_order_codes_and_account(
    tmp_path, monkeypatch, capsys, codes, keep_going, expected, started
):
    monkeypatch.setattr(side_by_side, "Executor", StandIn)
    StandIn.most = 0
    begun = []
    (tmp_path / "log").touch()

    def task(index, code):
        def begin():
            begun.append(index)
            return {"code": code}

        return Task(f"[{index}]", tmp_path / "log", begin, lambda s: f"done in {s:.0f} s")

    tasks = [task(index, code) for index, code in enumerate(codes)]
    with Stops() as stops:
        got = run_side_by_side(tasks, jobs=1, keep_going=keep_going, stops=stops, num_cached=2)
    assert (got, begun, StandIn.most) == (expected, list(range(started)), 1)
    printed = capsys.readouterr().out
    assert "klear: 3 of 6 notebooks done, about 1 s left\n" in printed
    assert ("[1] why\n" in printed) == (codes[1] != 0)


@pytest.mark.parametrize("where", ["begin", "log", "end"])
@pytest.mark.parametrize("error", [KlearError("mended by hand"), OSError(errno.ENOSPC, "full")])
def test_what_cannot_begin_or_end_is_a_failure_of_its_notebook(
    tmp_path, monkeypatch, capsys, where, error
):
    monkeypatch.setattr(side_by_side, "Executor", StandIn)
    (tmp_path / "log").touch()

    def fails(*_):
        raise error

    def begin():
        return {"code": 0}

    def end(_seconds):
        return "done"

    log = tmp_path / ("none" if where == "log" else "log")
    first = Task(
        "[1]",
        log,
        fails if where == "begin" else begin,
        fails if where == "end" else end,
        after_failure=("go on",),
    )
    with Stops() as stops:
        tasks = [first, Task("[2]", tmp_path / "log", begin, end)]
        assert run_side_by_side(tasks, jobs=1, keep_going=True, stops=stops) == 1
    printed = capsys.readouterr().out
    full = isinstance(error, OSError)
    assert (f"no space left for {log}" if full else str(error)) in printed or where == "log"
    assert "[1] go on\n" in printed and "[2] done\n" in printed
    assert "klear: 1 of 2 notebooks done, 1 failed\n" in printed


def test_what_is_told_fits_into_a_message():
    lines = [f"{number} " + "\x01" * 5000 for number in range(500)]
    told = executor._that_fit(lines)
    assert told[0].startswith("0 ") and told[-1].startswith("499 ")
    assert len(json.dumps({"lines": told}, ensure_ascii=False).encode()) < executor.MAX_MESSAGE
    assert executor._that_fit(["a", "b"]) == ["a", "b"]


def test_an_executor_that_does_not_end_is_killed(monkeypatch):
    monkeypatch.setattr(executor, "END_S", 0.2)
    stuck = executor.Executor({})
    os.kill(stuck.pid, signal.SIGSTOP)
    stuck.close()
    assert stuck.has_ended
