"""What the vLLM engine asks of its process and when, with a stand-in for the process."""

import importlib.util
import pickle
from array import array
from typing import ClassVar

import pytest
import torch

from klearlib.errors import KlearError, MissingAsset
from klearlib.policy import vllm_engine
from klearlib.policy.compute import local_compute
from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.vllm_engine import VLLMEngine
from klearlib.policy.vllm_process import EngineFailed, EngineLost
from klearlib.records import Problem

PROBLEMS = [Problem(id=f"p{i}", prompt=prompt, answer="1") for i, prompt in enumerate("ab")]
SETTINGS = SamplingSettings(temperature=1.0, top_p=1.0, top_k=0, max_tokens=4, seed=0)


class StandIn:
    """Remembers what it was asked, and answers each request with the token 5."""

    device, reason, started = "cpu", "length", 0
    asked: ClassVar[list] = []
    fails: ClassVar[list] = []  # errors of the next requests

    def __init__(self, arguments, environment):
        type(self).started += 1

    def ask(self, name, *arguments):
        self.asked.append((name, *arguments))
        if name != "sample":
            return None
        prompts, seeds, _ = arguments
        if len(prompts) > 1 and self.fails:
            raise self.fails.pop()
        return [(array("q", [5]), array("d", [-1.0]), self.reason) for each in seeds for _ in each]

    def close(self): ...


@pytest.fixture
def process(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)

    fresh = type("Fresh", (StandIn,), {"asked": [], "fails": []})
    monkeypatch.setattr(vllm_engine, "EngineProcess", fresh)
    return fresh


@pytest.fixture
def start(process, tiny_policy, tiny_tokenizer):
    def engine(**compute) -> VLLMEngine:
        how = local_compute(**{"engine": "vllm"} | compute)
        return VLLMEngine("folder", compute=how, model=tiny_policy, tokenizer=tiny_tokenizer)

    return engine


def names(process) -> list:
    return [(name, *given) if name in ("sleep", "wake") else name for name, *given in process.asked]


def test_weights_come_at_the_start_and_at_each_wake(process, start):
    engine = start()
    assert names(process) == ["load", "sample"]
    engine.sleep()
    engine.wake()
    engine.sample_groups(PROBLEMS, group_size=2, settings=SETTINGS)
    assert names(process)[2:] == ["load", "sample"], "a CPU does not sleep"


def test_a_gpu_sleeps_and_wakes_in_two_parts(process, start, monkeypatch):
    """Room for the keys and values is taken after the weights are in their place."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    engine = start()
    engine.sleep()
    engine.sleep()
    engine.wake()
    engine.wake()
    assert names(process)[2:] == [
        ("sleep", 2),
        ("wake", ["weights"]),
        "load",
        ("wake", ["kv_cache"]),
        "load",
    ]


def test_each_worker_gets_its_own_handles_of_every_weight(process, start, tiny_policy):
    start(tensor_parallel=2)
    ((_, payloads),) = [each for each in process.asked if each[0] == "load"]
    assert len(payloads) == 2
    parameters = dict(tiny_policy.named_parameters())
    for payload in payloads:
        weights = pickle.loads(payload)
        assert [name for name, _ in weights] == list(parameters)
        for name, tensor in weights:
            assert torch.equal(tensor, parameters[name]) and not tensor.requires_grad


def test_every_response_has_a_seed_of_its_own(process, start):
    engine = start()
    engine.sample_groups(PROBLEMS, group_size=3, settings=SETTINGS)
    _, prompts, seeds, _ = process.asked[-1]
    assert [len(group) for group in seeds] == [3, 3] and len(prompts) == 2
    assert len({seed for group in seeds for seed in group}) == 6
    engine.sample_groups(PROBLEMS, group_size=5, settings=SETTINGS)
    assert [group[:3] for group in process.asked[-1][2]] == seeds


@pytest.mark.parametrize("error", [EngineLost("it ended with signal 9"), EngineFailed("no memory")])
def test_a_failed_call_is_sampled_again_with_the_weights_of_now(process, start, error):
    engine = start()
    process.fails += [error, error]
    groups = engine.sample_groups(PROBLEMS, group_size=2, settings=SETTINGS)
    assert [len(group) for group in groups] == [2, 2]
    assert engine.num_restarts == 2 and process.started == 3
    requests = [each for each in process.asked if each[0] == "sample" and len(each[1]) > 1]
    assert requests[0] == requests[1] == requests[2]
    assert names(process) == ["load", "sample", "sample"] * 3


def test_a_call_that_fails_three_times_is_one_line(process, start):
    engine = start()
    process.fails += [EngineLost("it ended with signal 9")] * 3
    with pytest.raises(KlearError, match="vLLM failed 3 times, the last time: it ended") as error:
        engine.sample_groups(PROBLEMS, group_size=2, settings=SETTINGS)
    assert "\n" not in str(error.value) and engine.num_restarts == 2


def test_a_smaller_group_is_an_error(process, start, monkeypatch):
    engine = start()
    whole = process.ask
    monkeypatch.setattr(process, "ask", lambda self, *asked: whole(self, *asked)[:-1])
    with pytest.raises(KlearError, match="vLLM gave 3 responses to 2 groups of 2"):
        engine.sample_groups(PROBLEMS, group_size=2, settings=SETTINGS)


def test_an_aborted_response_is_an_error(process, start, monkeypatch):
    engine = start()
    monkeypatch.setattr(process, "reason", "abort")
    with pytest.raises(KlearError, match="'p0' unfinished: abort"):
        engine.sample_groups(PROBLEMS, group_size=2, settings=SETTINGS)


def test_a_build_for_another_device_is_refused(process, start, monkeypatch):
    monkeypatch.setattr(process, "device", "cuda")
    with pytest.raises(MissingAsset, match="computes on cuda, the model is on cpu: pip install"):
        start()
    assert process.asked == []
