"""A killed engine ends the stage in one line, and nothing is left behind."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from engine_contract import PROBLEMS, how
from killing import alive, wait_until

from klearlib.errors import KlearError
from klearlib.policy.load import save_policy
from klearlib.run.pool import run_stages
from klearlib.run.progress import Progress
from klearlib.run.stage import Stage

# Seconds of sampling for the tiny model, where responses end seldom.
MANY = how(max_tokens=400, seed=4)


@pytest.fixture
def folder(policy, tiny_tokenizer, tmp_path):
    save_policy(policy, tiny_tokenizer, tmp_path / "model")
    return tmp_path / "model"


def test_one_that_dies_while_it_samples_is_one_line(opened, policy, tiny_tokenizer, monkeypatch):
    engine = opened(policy)
    monkeypatch.setattr(engine, "_ends", {tiny_tokenizer.eos_token_id})
    timer = threading.Timer(0.5, os.kill, (engine._process.pid, signal.SIGKILL))
    timer.start()
    with pytest.raises(KlearError, match=r"^vLLM failed \(it exited with code -9; .* resume$"):
        engine.sample_groups(PROBLEMS, group_size=200, settings=MANY)
    timer.join()
    assert not alive(engine._process.pid)


@pytest.fixture
def stages_importable(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.mark.usefixtures("stages_importable")
def test_a_stage_samples_and_leaves_no_process(folder, tmp_path):
    """In a fork of a process that has torch, as `klear run` starts it."""
    stage = Stage("drawn", "vllm_stages:sample_twice", {"model": str(folder)})
    run_stages([stage], runs_dir=tmp_path / "runs", progress=Progress(io.StringIO()))
    told = json.loads((stage.folder(tmp_path / "runs") / "drawn.json").read_text())
    before, after = told["drawn"]
    assert len(before) == len(after) == len(PROBLEMS) and before != after
    assert not alive(told["process"])


@pytest.mark.usefixtures("stages_importable")
def test_a_killed_stage_takes_its_engine_along(folder, tmp_path):
    """Without the stage's guard: the engine itself ends with the process that started it."""
    file = tmp_path / "processes"
    program = "import sys, vllm_stages; vllm_stages.sample_for_ever(None, {}, model=sys.argv[1], "
    program += "file=sys.argv[2])"
    paths = [str(Path(__file__).parent), *sys.path]
    running = subprocess.Popen(
        [sys.executable, "-c", program, str(folder), str(file)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )
    try:
        assert wait_until(file.exists, timeout_s=120)
        stage, engine = map(int, file.read_text().split())
        assert stage == running.pid and alive(engine)
    finally:
        running.kill()
        running.wait()
    assert wait_until(lambda: not alive(engine))
