"""SIGKILL a real training at random moments, resume it, compare every file with an unbroken run.

    .venv/bin/python benchmarks/kill_and_resume.py --profile mini --kills 10

The stages that the run starts from are made, or taken from results/runs. Exit code 0 if weights,
metrics and evaluations are the same bytes, 1 if not. --tiny makes a small world in place of the
training.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import arguments_of, clipping_run, copy_of_start, digests

from klearlib.experiments.experiment import runs_dir
from klearlib.params import SMOKE
from klearlib.run.entry import DONE
from klearlib.run.pool import run_stages
from klearlib.run.stage import Stage


def stage_of(arguments: argparse.Namespace) -> Stage:
    run = clipping_run(arguments.profile)
    return run if arguments.stage == run.name else run.inputs[arguments.stage]


def start(arguments: argparse.Namespace, runs: Path) -> subprocess.Popen:
    words = ["--profile", arguments.profile, "--stage", arguments.stage, "--child", str(runs)]
    return subprocess.Popen([sys.executable, __file__, *words])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="mini")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stage", choices=("rl", "sft", "world"), default="rl")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = arguments_of(parser, profile=SMOKE, kills=1, stage="world")
    stage = stage_of(arguments)
    if arguments.child:
        run_stages([stage], runs_dir=arguments.child, workers=1)
        return 0
    run_stages([*stage.inputs.values()], runs_dir=runs_dir())
    with tempfile.TemporaryDirectory(prefix="klear-kill-") as place:
        return compare(arguments, stage, place)


def compare(arguments: argparse.Namespace, stage: Stage, place: str) -> int:
    unbroken = copy_of_start(place, stage)
    expected = stage.folder(unbroken) / DONE
    begun = time.monotonic()
    if start(arguments, unbroken).wait():
        return 1
    length = time.monotonic() - begun
    moments, kills, runs, same = random.Random(arguments.seed), 0, 0, True
    while kills < arguments.kills:
        broken = copy_of_start(place, stage)
        done = stage.folder(broken) / DONE
        while not done.exists():
            process = start(arguments, broken)
            limit = moments.uniform(2, 0.45 * length) if kills < arguments.kills else None
            try:
                process.wait(limit)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                kills += 1
                print(f"kill {kills} after {limit:.1f} s", flush=True)
        runs += 1
        same = same and digests(expected) == digests(done)
    files = len(digests(expected))
    print(f"{kills} kills in {runs} runs of {files} files: {'all equal' if same else 'DIFFERENT'}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
