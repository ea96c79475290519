"""Runs of the stage ``rl`` on verl over a local Ray of this machine's cores, each in a worker
process as the fan-out starts them."""

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path

from rollout_fakes import SETTINGS

from klearlib.data.problems import read_problems, write_problems
from klearlib.run.entry import DONE, LOG, SPEC
from klearlib.run.files import write_json
from klearlib.run.fingerprint import code_fingerprint
from klearlib.run.folder import RunFolder
from klearlib.run.preload import worker_environment
from klearlib.scale.cluster import parted

TARGET = "klearlib.scale.stage:train_rl"
GPPO = {"name": "gppo", "eps_low": 0.2, "eps_high": 0.28}
NUM_PROBLEMS = 4
START_S, MOST_S = 300, 600


def make_inputs(runs: Path, tiny_stages) -> dict[str, str]:
    """The finished stages ``world`` and ``sft`` under `runs`, by their places there.

    The world's few problems are asked in every step, and in the validation set; the last has an
    answer that no response gives.
    """
    chosen = read_problems(tiny_stages.world / "train.jsonl")[:NUM_PROBLEMS]
    chosen[-1] = replace(chosen[-1], answer="1234567")
    world = RunFolder(runs / "world" / "few")
    for name in ("train", "validation"):
        write_problems(chosen, world.path / f"{name}.jsonl")
    world.finish()
    shutil.copytree(tiny_stages.sft / "model", runs / "sft" / "few" / "model")
    RunFolder(runs / "sft" / "few").finish()
    return {"world": "world/few", "sft": "sft/few"}


class Run:
    """One run of the stage: its folder, and the process that works on it.

    Every process that it starts carries a mark in its environment, by which it is found.
    """

    def __init__(self, runs: Path, name: str, inputs, *, cluster, rule=GPPO, seed=0, **changes):
        self.path = runs / "rl" / name
        self.path.mkdir(parents=True)
        self.mark = f"KLEAR_TEST_MARK={uuid.uuid4().hex}"
        spec = {
            "target": TARGET,
            "params": {
                "seed": seed,
                "rule": rule,
                "settings": SETTINGS | changes,
                **dict(zip(("cluster", "resources"), parted(cluster), strict=True)),
            },
            "inputs": inputs,
            "code": code_fingerprint("klearlib.scale.stage"),
        }
        write_json(self.path / SPEC, spec)

    def start(self) -> subprocess.Popen:
        name, _, value = self.mark.partition("=")
        with open(self.path / LOG, "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "klearlib.run.worker", str(self.path / SPEC)],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=worker_environment() | {name: value},
                start_new_session=True,
            )

    def finish(self) -> None:
        process = self.start()
        assert process.wait(MOST_S) == 0, self.log[-5000:]
        assert (self.path / DONE).exists()

    def until_step(self, step: int, process: subprocess.Popen) -> None:
        """Wait until so many steps are logged."""
        end = time.monotonic() + START_S
        while len(self.metrics) < step:
            assert process.poll() is None and time.monotonic() < end, self.log[-5000:]
            time.sleep(0.1)

    @property
    def log(self) -> str:
        return (self.path / LOG).read_text(errors="replace")

    @property
    def metrics(self) -> list[dict]:
        file = self.path / "metrics.jsonl"
        if not file.exists():
            return []
        return [json.loads(line) for line in file.read_text().split("\n")[:-1]]

    def processes(self, title: str = "") -> list[int]:
        """Those alive that carry the mark, of whose command lines `title` is a part."""
        found = []
        for folder in Path("/proc").iterdir():
            try:
                marked = self.mark.encode() in (folder / "environ").read_bytes().split(b"\0")
                if marked and title in (folder / "cmdline").read_bytes().decode():
                    found.append(int(folder.name))
            except (OSError, ValueError):  # no process, gone, or another's
                continue
        return [number for number in found if number != os.getpid()]

    def gone(self) -> bool:
        """Whether all of them have ended, within seconds."""
        end = time.monotonic() + 15
        while self.processes() and time.monotonic() < end:
            time.sleep(0.2)
        return not self.processes()
