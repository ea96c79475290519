"""SIGKILL one process of `klear run` at a random moment, end the same command, compare every byte.

    make reproduce PROFILE=smoke
    .venv/bin/python benchmarks/kills.py --number 100 --seed 0

Notebooks of every kind run with the changes below, from the stages of results/runs that are done,
each first undisturbed. For each kill a kind of process is drawn, evenly, and a moment of the time
that it is there. The command is started anew, one process of that kind is killed, and what is left
of the command ends by itself; then no process and no lock may be left, and the same command must
end with the results of the undisturbed run. What a sandbox runs is not killed: how a program ends
is its verdict.

Each kill adds a line to benchmarks/results/kills.csv, and the next call goes on after the last one.
Exit code 1 if one left a difference, a process or a lock. Linux only.
--tiny plans the notebooks, and kills a process of one small stage in their place.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import ctypes
import hashlib
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import psutil
from common import arguments_of
from compare_results import content, published

from klearlib.experiments.experiment import runs_dir
from klearlib.experiments.registered import RULES
from klearlib.params import SMOKE, root
from klearlib.run.entry import DONE, LOCK, LOG, PROGRESS, TIMINGS
from klearlib.run.files import read_json, write_json, write_text
from klearlib.run.stage import is_locked

CLONE = Path(__file__).resolve().parents[1]
NOTEBOOKS = {  # number -> what differs from the profile, so that a short part is computed anew
    "01": ("num_responses=3", "stop_list=2"),
    "03": ("seeds=[7]", "num_epochs=2"),
    "05": ("seeds=[7]", "rules=[gppo]", "code=false", "options={checkpoint_every: 1}"),
    "07": ("seeds=[7]", "num_problems=4", "options={checkpoint_every: 1}"),
}
TINY = """from common import clipping_run
from klearlib.run.pool import run_stages
run_stages([clipping_run("smoke").inputs["world"]], runs_dir="results/runs")
"""
KINDS = {  # by a word of the command line
    "clipping_run": "runner",
    "klearlib.cli": "runner",
    "klearlib.run.forkserver": "fork server",
    "klearlib.run.worker": "worker",
    "klearlib.run.task": "notebook",
    "klearlib.suite.kernel": "kernel",
    "klearlib.verify.answer_judge": "answer judge",
    "klearlib.verify.program_judge": "program judge",
    "multiprocessing.spawn": "overlap worker",
    "multiprocessing.resource_tracker": "overlap worker",
}
FORKS = {"fork server": "worker", "worker": "guard", "notebook": "guard"}  # by the parent's kind
TIMED = {DONE, LOG, LOCK, PROGRESS, TIMINGS, RULES}  # with the stages, and no two runs share them
COLUMNS = ("notebook", "killed", "second", "exit", "exit_again", "differences", "left", "locks")
END_S, POLL_S, HANGS_S = 60.0, 0.1, 900.0
_PR_SET_CHILD_SUBREAPER = 36


class Run:
    """One `klear run` of a notebook, or another command of Python, in a project of its own."""

    def __init__(self, number: str, command: list[str], folder: Path):
        self.number, self.command = number, command
        self.folder, self.results = folder, folder / "results"
        self.process: subprocess.Popen | None = None

    def make(self) -> None:
        """The project, with the stages that are done in this one."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        for name in ("notebooks", "params"):
            (self.folder / name).symlink_to(root() / name)
        for done in runs_dir().glob(f"*/*/{DONE}"):
            link = self.results / "runs" / done.parent.relative_to(runs_dir())
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(done.parent)

    def start(self) -> None:
        paths = os.pathsep.join([str(CLONE), str(CLONE / "benchmarks")])
        environment = {**os.environ, "KLEAR_ROOT": str(self.folder), "PYTHONPATH": paths}
        with open(self.folder / "run.log", "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", *self.command],
                cwd=self.folder,
                env=environment | {"CUDA_VISIBLE_DEVICES": ""},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def end(self) -> int:
        return self.process.wait(HANGS_S)

    def processes(self) -> Iterator[tuple[str, psutil.Process]]:
        """The living processes of a known kind while it runs, each with its kind."""
        kinds: dict[int, str] = {}
        for each in self.descendants():  # a parent before its children
            try:
                words, parent = " ".join(each.cmdline()), each.ppid()
            except psutil.Error:  # it ended
                continue
            if parent == os.getpid() and each.pid != self.process.pid:
                continue  # its parent is dead, of which it will die in a moment
            kind = next((KINDS[word] for word in KINDS if word in words), "")
            if kind in (kinds.get(parent), "fork server"):  # a fork has its parent's command line
                kind = FORKS.get(kinds.get(parent), kind)
            kinds[each.pid] = kind
            if kind:
                yield kind, each

    def descendants(self) -> list[psutil.Process]:
        """The living processes that came of it: this one is the reaper of those whose parent died,
        and as such reaps them."""
        living = []
        for each in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error, ChildProcessError):  # it ended
                if each.status() != psutil.STATUS_ZOMBIE:
                    living.append(each)
                elif each.ppid() == os.getpid() and each.pid != self.process.pid:
                    os.waitpid(each.pid, os.WNOHANG)
        return living

    def left(self) -> int:
        """Processes that are still there after a minute, which a full machine may need to end them;
        they are killed then."""
        deadline = time.monotonic() + END_S
        while (found := self.descendants()) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        for each in found:
            print("left:", each, file=sys.stderr)
            each.kill()
        return len(found)

    def spans(self) -> dict[str, tuple[float, float]]:
        """Run to the end; the seconds from the start between which each kind of process is seen."""
        self.make()
        began, seen = time.monotonic(), {}
        self.start()
        while self.process.poll() is None:
            second = time.monotonic() - began
            for kind, _ in self.processes():
                seen[kind] = (seen.get(kind, (second,))[0], second)
            time.sleep(POLL_S)
        if self.process.returncode or "worker" not in seen:
            raise SystemExit(f"the undisturbed run failed: see {self.folder / 'run.log'}")
        return seen

    def kill(self, kind: str, delay_s: float, draw: random.Random) -> tuple[str, float] | None:
        """Start, and `delay_s` after the first process of `kind` kill one of them, of another kind
        where none of that is there any more. The kind, and the seconds from the start; None where
        the run ended before."""
        began, due = time.monotonic(), math.inf
        self.start()
        while self.process.poll() is None:
            living, now = list(self.processes()), time.monotonic()
            kinds = sorted({each for each, _ in living})
            if kind in kinds:
                due = min(due, now + delay_s)
            if living and now >= due:
                kind = kind if kind in kinds else draw.choice(kinds)
                draw.choice([process for each, process in living if each == kind]).kill()
                return kind, round(now - began, 1)
            time.sleep(POLL_S)
        return None

    def locks(self) -> int:
        """Locks that a process holds."""
        files = [*self.results.rglob(LOCK), *self.results.rglob(".lock")]
        return sum(is_locked(file) for file in files)


def klear(command: str, *numbers: str) -> list[str]:
    """`klear` for these notebooks, with what differs from the profile."""
    changes = dict.fromkeys(each for number in numbers for each in NOTEBOOKS[number])
    sets = [word for change in changes for word in ("--set", change)]
    chosen = ["--profile", SMOKE, "--only", *numbers, "--out", "results/changed", *sets]
    return ["-m", "klearlib.cli", command, *chosen]


def outcome(results: Path) -> dict[str, object]:
    """What is compared, by the path in `results`: every byte of the stages' files, the published
    ones as `compare_results` reads them, of all others that they are there."""
    found: dict[str, object] = {}
    for path in results.rglob("*"):
        if path.is_file():
            timed = path.name in TIMED or (results / "runs") not in path.parents
            digest = None if timed else hashlib.sha256(path.read_bytes()).hexdigest()
            found[str(path.relative_to(results))] = digest
    for folder in results.iterdir():
        found |= {f"{folder.name}/{name}": content(at) for name, at in published(folder).items()}
    return found


def differences(first: dict[str, object], second: dict[str, object]) -> list[str]:
    """The paths that one lacks, or whose contents differ."""
    missing = object()
    names = sorted(first.keys() | second.keys())
    return [name for name in names if first.get(name, missing) != second.get(name, missing)]


def one_kill(whole: Run, spans: dict, folder: Path, draw: random.Random) -> dict | None:
    """Kill, go on, compare: a line of the table; None where it ended before."""
    kind = draw.choice(sorted(spans))
    first, last = spans[kind]
    run = Run(whole.number, whole.command, folder)
    run.make()
    killed = run.kill(kind, draw.uniform(0, last - first), draw)
    line = {"notebook": whole.number, "exit": run.end(), "left": run.left(), "locks": run.locks()}
    if killed is None:
        return None
    line["killed"], line["second"] = killed
    run.start()
    line["exit_again"] = run.end()
    line["left"] += run.left()
    differ = differences(outcome(whole.results), outcome(run.results))
    print(*differ, sep="\n", end="", file=sys.stderr)
    return line | {"locks": line["locks"] + run.locks(), "differences": len(differ)}


def is_good(line) -> bool:
    return not any(int(line[name]) for name in ("exit_again", "differences", "left", "locks"))


def summary(lines: pd.DataFrame) -> pd.DataFrame:
    """The lines of kills.csv by notebook and kind, and in all."""
    lines = lines.assign(
        identical=(lines["exit_again"] == 0) & (lines["differences"] == 0), kills=1
    )
    columns = ["kills", "identical", "left", "locks"]
    table = lines.groupby(["notebook", "killed"])[columns].sum().reset_index()
    return pd.concat(
        [table, pd.DataFrame([{"notebook": "all", "killed": "", **lines[columns].sum()}])]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--number", type=int, default=100, help="kills in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=600, help="after which none is begun")
    parser.add_argument("--folder", type=Path, help="keeps the undisturbed runs for the next call")
    arguments = arguments_of(parser, number=1)
    commands = {number: klear("run", number) for number in NOTEBOOKS}
    if arguments.tiny:
        for number in NOTEBOOKS:
            subprocess.run([sys.executable, *klear("plan", number)], check=True)
        commands = {"world": ["-c", TINY]}
    ends = time.monotonic() + 60 * arguments.minutes
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    place = arguments.folder or Path(tempfile.mkdtemp(prefix="klear-kills-"))
    place.mkdir(exist_ok=True)
    table = arguments.results / "kills.csv"
    if not table.exists():
        write_text(table, ",".join(COLUMNS) + "\n", make_folder=True)
    while True:
        lines = pd.read_csv(table, dtype={"notebook": str})
        count = len(lines)
        if count >= arguments.number or time.monotonic() > ends:
            break
        number = list(commands)[count % len(commands)]
        whole = Run(number, commands[number], place / f"undisturbed-{number}")
        if not (known := whole.folder / "spans.json").exists():
            write_json(known, whole.spans())
        draw, folder = random.Random(f"{arguments.seed} {count}"), place / str(count)
        while (line := one_kill(whole, read_json(known), folder, draw)) is None:
            print("it ended before the moment of the kill: another moment", flush=True)
        with open(table, "a", encoding="utf-8", newline="") as file:
            csv.DictWriter(file, COLUMNS, lineterminator="\n").writerow(line)
        print(count + 1, *line.items(), flush=True)
        if is_good(line):
            shutil.rmtree(folder)
    print(summary(lines).to_string(index=False))
    are_good = lines.apply(is_good, axis=1).all()
    if are_good and arguments.folder is None:
        shutil.rmtree(place)
    return 0 if are_good else 1


if __name__ == "__main__":
    sys.exit(main())
