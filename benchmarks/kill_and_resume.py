"""SIGKILL a real training at random moments, resume it, compare every file with an unbroken run.

    .venv/bin/python benchmarks/kill_and_resume.py --profile mini --kills 10

The stages that the run starts from are taken from results/runs (run the profile first). Exit code 0
if weights, metrics and evaluations are the same bytes, 1 if not.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from klearlib.experiments.catalogue import check
from klearlib.experiments.experiment import runs_dir
from klearlib.experiments.nb05_clipping import Clipping
from klearlib.params import load_profile
from klearlib.run.entry import DONE
from klearlib.run.pool import run_stages

# The seconds of a run differ between any two runs; everything else must not.
_NOT_COMPARED = {"timings.jsonl"}


def run_one(profile: str, runs: Path) -> None:
    params = check(Clipping.name, load_profile(profile, Clipping.name))
    run_stages(Clipping(params).stages()[:1], runs_dir=runs, workers=1)


def digests(runs: Path) -> dict[str, str]:
    (done,) = runs.glob(f"rl/*/{DONE}")
    files = json.loads(done.read_text())["files"]
    return {name: entry["sha256"] for name, entry in files.items() if name not in _NOT_COMPARED}


def start(profile: str, runs: Path) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, __file__, "--profile", profile, "--child", str(runs)])


def copy_of_start() -> Path:
    """A runs folder that links to the finished world, base and SFT stages and has no RL run."""
    folder = Path(tempfile.mkdtemp(prefix="klear-kill-"))
    for name in ("world", "base", "sft"):
        (folder / name).symlink_to(runs_dir() / name)
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="mini")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        run_one(arguments.profile, arguments.child)
        return 0
    unbroken = copy_of_start()
    begun = time.monotonic()
    if start(arguments.profile, unbroken).wait():
        return 1
    length = time.monotonic() - begun
    moments, kills, runs, same = random.Random(arguments.seed), 0, 0, True
    while kills < arguments.kills:
        broken = copy_of_start()
        while not list(broken.glob(f"rl/*/{DONE}")):
            process = start(arguments.profile, broken)
            limit = moments.uniform(2, 0.45 * length) if kills < arguments.kills else None
            try:
                process.wait(limit)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                kills += 1
                print(f"kill {kills} after {limit:.1f} s", flush=True)
        runs += 1
        same = same and digests(unbroken) == digests(broken)
    files = len(digests(unbroken))
    print(f"{kills} kills in {runs} runs of {files} files: {'all equal' if same else 'DIFFERENT'}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
