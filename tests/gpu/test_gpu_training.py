"""SFT on a GPU or its stand-in: the CPU's losses in fp32, close ones in bf16, float32 weights."""

import json
from dataclasses import asdict

import pytest
import torch
from transformers import AutoModelForCausalLM

from klearlib.policy.compute import local_compute
from klearlib.run.folder import RunFolder
from klearlib.sft import train
from klearlib.sft.train import train_sft

pytestmark = pytest.mark.gpu

HOW = {
    "seed": 0,
    "num_steps": 20,
    "batch_size": 24,
    "learning_rate": 3e-3,
    "final_learning_rate": 1e-3,
    "normalizer": "token",
}


def losses(path, tiny_stages, monkeypatch, device, compute):
    original = train.load_policy

    def placed(*arguments, **how):
        return original(*arguments, **how | {"device": device})

    with monkeypatch.context() as patch:
        patch.setattr(train, "load_policy", placed)
        inputs = {"world": tiny_stages.world, "base": tiny_stages.base}
        train_sft(RunFolder(path), inputs, **HOW, compute=asdict(compute))
    lines = (path / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["sft/loss"] for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("compute", "apart"),
    [
        (local_compute(), 2e-3),
        (local_compute("bf16"), 0.05),
        (local_compute("bf16", gradient_checkpointing=True), 0.05),
        (local_compute("bf16", micro_batch_tokens=0), 0.05),
    ],
    ids=["fp32", "bf16", "bf16 checkpointing", "bf16 by memory"],
)
def test_losses_are_close_to_those_of_a_cpu(
    tiny_stages, tmp_path, monkeypatch, device, compute, apart
):
    expected = losses(tmp_path / "cpu", tiny_stages, monkeypatch, "cpu", local_compute())
    found = losses(tmp_path / "cuda", tiny_stages, monkeypatch, device, compute)
    assert found == pytest.approx(expected, rel=apart)
    assert found[-1] < 0.9 * found[0], "the test needs a loss that falls"


@pytest.mark.slow
def test_weights_stay_float32_under_bf16(tiny_stages, tmp_path, monkeypatch, device):
    losses(tmp_path, tiny_stages, monkeypatch, device, local_compute("bf16"))
    saved = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype="auto")
    assert {weight.dtype for weight in saved.parameters()} == {torch.float32}
