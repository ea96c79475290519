"""The engine in this process samples as the sampler does, from the weights of the moment."""

import dataclasses

import pytest
import torch

from klearlib.errors import ParameterError
from klearlib.policy.compute import local_compute
from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.engines import TransformersEngine, open_engine
from klearlib.policy.load import load_policy, save_policy
from klearlib.policy.sampling import sample_groups
from klearlib.records import Problem

PROBLEMS = [Problem(f"p{i}", f"What is {i} + 1?", str(i + 1)) for i in range(3)]
SETTINGS = SamplingSettings(temperature=1.0, top_p=1.0, top_k=0, max_tokens=10, seed=4)
GROUPS = {"group_size": 2, "settings": SETTINGS}
GREEDY = dataclasses.replace(SETTINGS, temperature=0.0, max_tokens=1)


@pytest.fixture
def path(new_policy, tiny_tokenizer, tmp_path):
    save_policy(new_policy(0), tiny_tokenizer, tmp_path / "model")
    return tmp_path / "model"


def test_it_samples_as_the_sampler_does(path):
    model, tokenizer = load_policy(path, device="cpu")
    with torch.no_grad():  # numbers of bfloat16, as those of published models
        for weight in model.parameters():
            weight.copy_(weight.bfloat16())
    save_policy(model, tokenizer, path)
    logp = []
    for how in (
        {"precision": "fp32", "batch_rows": 2},
        {"precision": "fp32", "batch_rows": 1024},
        {"precision": "bf16", "batch_rows": 1024},
    ):
        expected = sample_groups(model, tokenizer, PROBLEMS, **GROUPS, **how)
        with open_engine(path, compute=local_compute(**how)) as engine:
            assert engine.sample_groups(PROBLEMS, **GROUPS) == expected
            ((first,),) = engine.sample_groups(PROBLEMS[:1], group_size=1, settings=GREEDY)
            setting = {"engine": "transformers", "precision": how["precision"]}
            assert engine.setting == setting
        logp.append(first.logp[0])
    # Of the most probable first token, so that both precisions look at the same one.
    assert logp[0] == logp[1]
    assert logp[2] != logp[1] and logp[2] == pytest.approx(logp[1], abs=0.1)


def test_it_samples_from_the_trainers_weights_of_the_moment(path):
    model, tokenizer = load_policy(path, device="cpu")
    with open_engine(path, compute=local_compute(), model=model, tokenizer=tokenizer) as engine:
        assert engine.tokenizer is tokenizer
        before = engine.sample_groups(PROBLEMS, **GROUPS)
        engine.sleep()
        model.train()
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(0.5)
        engine.wake()
        assert not model.training
        after = engine.sample_groups(PROBLEMS, **GROUPS)
    assert after != before
    assert after == sample_groups(model, tokenizer, PROBLEMS, **GROUPS)


def test_yarn_and_attention_reach_the_model_that_it_loads(path):
    longer = dataclasses.replace(SETTINGS, max_tokens=300)  # the model has 256 positions
    with open_engine(path, compute=local_compute(attention="eager"), yarn_factor=2.5) as engine:
        assert engine._model.config._attn_implementation == "eager"
        engine.sample_groups(PROBLEMS[:1], group_size=1, settings=longer)
    with pytest.raises(ParameterError, match="yarn_factor must be above 1"):
        open_engine(path, compute=local_compute(), yarn_factor=1.0).__enter__()


def test_it_is_closed_whatever_happens(path, monkeypatch):
    closed = []
    monkeypatch.setattr(TransformersEngine, "close", lambda self: closed.append(1))
    with pytest.raises(RuntimeError, match="boom"), open_engine(path, compute=local_compute()):
        raise RuntimeError("boom")
    assert closed == [1]
