"""A killed or hanging engine costs time and never a response, and nothing is left behind."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from drawing import GREEDY, PROBLEMS, flat, how
from killing import alive, wait_until

from klearlib.errors import KlearError
from klearlib.policy import vllm_process
from klearlib.policy.compute import local_compute
from klearlib.policy.load import save_policy
from klearlib.policy.sampling import sample_groups
from klearlib.policy.vllm_engine import VLLMEngine
from klearlib.policy.vllm_process import EngineLost
from klearlib.run import pool
from klearlib.run.pool import run_stages
from klearlib.run.progress import Progress
from klearlib.run.stage import Stage

# Seconds of sampling for the tiny model.
MANY = how(max_tokens=300, seed=4)


@pytest.fixture
def folder(new_policy, tiny_tokenizer, tmp_path):
    """A saved policy whose responses end seldom."""
    policy = new_policy(0)
    policy.generation_config.eos_token_id = tiny_tokenizer.eos_token_id
    save_policy(policy, tiny_tokenizer, tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture(scope="module")
def many(opened, new_policy, tiny_tokenizer):
    """An engine whose responses end seldom, for the tests that kill it."""
    policy = new_policy(0)
    policy.generation_config.eos_token_id = tiny_tokenizer.eos_token_id
    return opened(policy)


def test_killed_in_the_middle_the_same_groups_are_whole(many):
    begun = time.monotonic()
    expected = many.sample_groups(PROBLEMS, group_size=40, settings=MANY)
    took = time.monotonic() - begun
    first, before = many._process.pid, many.num_restarts
    killed = []

    def kill():
        os.kill(first, signal.SIGKILL)
        killed.append(time.monotonic())

    timer = threading.Timer(took / 2, kill)
    timer.start()
    begun = time.monotonic()
    found = many.sample_groups(PROBLEMS, group_size=40, settings=MANY)
    timer.join()
    assert 0 < killed[0] - begun < time.monotonic() - begun - took / 2, "it was sampling"
    assert found == expected
    assert many.num_restarts == before + 1 and many._process.pid != first
    assert not alive(first)


def test_killed_between_steps_it_samples_from_the_weights_of_now(many, tiny_tokenizer):
    import torch

    policy = many._model
    with torch.no_grad():
        policy.model.norm.weight.neg_()
    os.kill(many._process.pid, signal.SIGKILL)
    before = many.num_restarts
    many.wake()
    assert many.num_restarts == before + 1
    found = flat(many.sample_groups(PROBLEMS, group_size=1, settings=GREEDY))
    expected = flat(sample_groups(policy, tiny_tokenizer, PROBLEMS, group_size=1, settings=GREEDY))
    assert [r.token_ids for r in found] == [r.token_ids for r in expected]


def test_an_engine_that_says_nothing_is_ended(many, monkeypatch):
    process = many._process
    os.kill(process.pid, signal.SIGSTOP)
    monkeypatch.setattr(vllm_process, "SILENT_S", 0.5)
    with pytest.raises(EngineLost, match=r"said nothing for 0\.5 s"):
        process.ask("sample", [[1]], [[1]], {"max_tokens": 1})
    assert wait_until(lambda: not alive(process.pid))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"max_position_embeddings": 2_500_000}, "raise gpu_memory_share"),
        ({"head_dim": 8}, "give engine: transformers"),
    ],
)
def test_what_vllm_cannot_run_is_one_line(opened, new_policy, changes, words):
    with pytest.raises(KlearError, match=words) as error:
        opened(new_policy(0, **changes))
    assert "\n" not in str(error.value) and len(str(error.value)) < 600


@pytest.fixture
def stages_importable(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.mark.usefixtures("stages_importable")
def test_a_stage_samples_and_leaves_no_process(folder, tmp_path, monkeypatch):
    """In a fork of a process that has torch, as `klear run` starts it."""
    monkeypatch.setattr(pool, "was_preloaded", lambda: True)
    stage = Stage("drawn", "vllm_stages:sample_twice", {"model": str(folder)})
    run_stages([stage], runs_dir=tmp_path / "runs", progress=Progress(io.StringIO()))
    told = json.loads((stage.folder(tmp_path / "runs") / "drawn.json").read_text())
    before, after = told["drawn"]
    assert len(before) == len(after) == len(PROBLEMS) and before != after
    assert not alive(told["process"])
    log = (stage.folder(tmp_path / "runs") / "log.txt").read_text()
    assert "vllm" not in log.lower(), "nothing of vLLM's own is in the log"


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


def test_close_ends_the_process_and_may_be_called_twice(folder):
    engine = VLLMEngine(folder, compute=local_compute(engine="vllm", batch_rows=8))
    engine.wake()
    engine.sleep()
    assert len(engine.sample_groups(PROBLEMS, group_size=2, settings=how())) == len(PROBLEMS)
    process = engine._process.pid
    engine.close()
    engine.close()
    assert not alive(process)
