"""Sampling on a GPU or its stand-in: greedy tokens are a CPU's, log-probabilities the trainer's."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from small_models import response_logprobs

from klearlib.data.problems import read_problems
from klearlib.policy.compute import local_compute
from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.engines import open_engine
from klearlib.policy.load import load_policy
from klearlib.policy.sampling import sample_groups

pytestmark = pytest.mark.gpu

DRAWN = SamplingSettings(temperature=1.0, top_p=1.0, top_k=0, max_tokens=40, seed=3)
GREEDY = SamplingSettings(temperature=0.0, top_p=1.0, top_k=0, max_tokens=40, seed=3)


@pytest.fixture(scope="module")
def trained(tiny_stages, device):
    """The tiny SFT checkpoint on both devices: ``cpu`` and ``gpu`` models, ``tokenizer``."""
    path = tiny_stages.sft / "model"
    cpu, tokenizer = load_policy(path, device="cpu")
    return SimpleNamespace(cpu=cpu, gpu=load_policy(path, device=device)[0], tokenizer=tokenizer)


@pytest.fixture(scope="module")
def problems(tiny_stages):
    return read_problems(tiny_stages.world / "math_a.jsonl", expected_size=30)


def test_tensors_of_two_devices_do_not_mix(device):
    with pytest.raises(RuntimeError):
        torch.ones(2, device=device) + torch.ones(2)


def test_greedy_tokens_are_those_of_a_cpu(trained, problems):
    found, expected = (
        sample_groups(model, trained.tokenizer, problems, group_size=1, settings=GREEDY)
        for model in (trained.gpu, trained.cpu)
    )
    same = [a[0].token_ids == b[0].token_ids for a, b in zip(found, expected, strict=True)]
    # Two words may tie to the last digits: then rounding decides.
    assert sum(same) >= len(same) - 1
    for group, other, is_same in zip(found, expected, same, strict=True):
        if is_same:
            assert group[0].logp == pytest.approx(other[0].logp, abs=1e-4)


@pytest.mark.parametrize(
    ("precision", "apart"), [pytest.param("fp32", 1e-3, marks=pytest.mark.slow), ("bf16", 0.3)]
)
def test_log_probabilities_are_the_trainers(trained, problems, precision, apart):
    how = {"group_size": 4, "settings": DRAWN, "precision": precision, "batch_rows": 32}
    groups = sample_groups(trained.gpu, trained.tokenizer, problems, **how)
    lengths = {len(response.token_ids) for group in groups for response in group}
    assert len(lengths) > 3, "the test needs responses that leave the batch at different times"
    differences = []
    for response in (response for group in groups for response in group):
        own = response_logprobs(trained.gpu, response).cpu()
        differences.append((own - torch.tensor(response.logp)).abs())
    assert float(torch.cat(differences).max()) < apart
    assert float(torch.cat(differences).mean()) < apart / 10


@pytest.mark.slow
def test_a_seed_draws_the_same_and_another_seed_others(tiny_stages, problems, device):
    with open_engine(tiny_stages.sft / "model", compute=local_compute("bf16")) as engine:
        draws = [
            engine.sample_groups(problems, group_size=4, settings=settings)
            for settings in (DRAWN, DRAWN, replace(DRAWN, seed=4))
        ]
    assert draws[0] == draws[1] != draws[2]
