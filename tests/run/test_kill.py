"""A stage killed at any moment and resumed ends with the bytes of one that never was."""

import itertools
import json
import os
import random
import signal

import pytest
from killing import fork_server, run_worker, wait_until, write_spec

from klearlib.run.entry import DONE, SPEC, read_metrics
from klearlib.run.stage import Stage

VARYING = {"done.json", "spec.json", "log.txt", "lock", "progress.json", "timings.jsonl"}


def _result(folder):
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    return {name: content for name, content in files.items() if name not in VARYING}


@pytest.fixture(scope="module")
def processes():
    return fork_server()


def _run(processes, spec, kill_before=None):
    process = processes.Process(target=run_worker, args=(str(spec), kill_before))
    process.start()
    process.join()
    return process.exitcode


def test_killed_before_each_operation_on_its_files(processes, tmp_path):
    stage = Stage("walk", "toy_stages:walk", {"seed": 1, "num_steps": 2, "every": 1})
    whole = write_spec(stage, tmp_path / "whole")
    assert _run(processes, whole) == 0
    expected = _result(whole.parent)
    assert set(expected) == {"metrics.jsonl", "end.json"}
    assert len(expected["metrics.jsonl"].splitlines()) == 2

    for kill_before in itertools.count():
        spec = write_spec(stage, tmp_path / f"killed{kill_before}")
        code = _run(processes, spec, kill_before)
        assert code in (-9, 0)
        if code == 0:
            break
        if not (spec.parent / DONE).exists():
            assert _run(processes, spec) == 0
            assert _result(spec.parent) == expected, f"killed before operation {kill_before}"
        assert len(read_metrics(spec.parent)) == 2
        assert all("time/process" in line for line in read_metrics(spec.parent))
    assert kill_before > 30  # else the operations were not seen


def test_killed_at_ten_random_moments(processes, tmp_path):
    params = {"seed": 2, "num_steps": 60, "every": 4, "step_s": 0.003}
    stage = Stage("walk", "toy_stages:walk", params)
    whole = write_spec(stage, tmp_path / "whole")
    assert _run(processes, whole) == 0

    moments, num_kills, starts, number = random.Random(3), 0, set(), 0
    while num_kills < 10:
        spec = write_spec(stage, tmp_path / f"killed{number}")
        log = spec.parent / "log.txt"
        num_starts = len(_starts(log))
        process = processes.Process(target=run_worker, args=(str(spec),))
        process.start()
        assert wait_until(lambda log=log, seen=num_starts: len(_starts(log)) > seen)
        process.join(moments.uniform(0.0, 0.1))
        if process.exitcode is None:
            num_kills += 1
            os.kill(process.pid, signal.SIGKILL)
        process.join()
        number += num_kills % 4 == 0 or (spec.parent / DONE).exists()  # else it goes on there
    for folder in tmp_path.glob("killed*/walk/*"):
        assert _run(processes, folder / SPEC) == 0
        assert _result(folder) == _result(whole.parent)
        starts.update(_starts(folder / "log.txt"))
    assert len(starts) > 1, "each kill came before the first checkpoint"


def _starts(log):
    lines = log.read_text().splitlines() if log.exists() else []
    return [int(line.split()[-1]) for line in lines if "starts at step" in line]


def test_walk_is_the_walk_of_its_seed(processes, tmp_path):
    """The oracle of the above, computed without any of the machinery."""
    spec = write_spec(Stage("walk", "toy_stages:walk", {"seed": 5, "num_steps": 7}), tmp_path)
    assert _run(processes, spec) == 0
    draws, position = random.Random(5), 0.0
    for _ in range(7):
        position = 0.9 * position + draws.gauss(0.0, 1.0)
    assert json.loads((spec.parent / "end.json").read_text()) == position
