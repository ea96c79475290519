"""The base model: a real Qwen3 that learnt its corpus, saved as transformers reads it."""

from dataclasses import asdict

import pytest
import torch
from made_worlds import build, rows
from tiny_world import TINY_MODEL

from klearlib.miniature.base import pretrain
from klearlib.policy.compute import local_compute
from klearlib.policy.load import load_policy
from klearlib.run.folder import RunFolder
from klearlib.sft.train import train_sft

SCHEDULE = {
    "seed": 0,
    "num_steps": 4,
    "batch_size": 4,
    "learning_rate": 1e-3,
    "compute": asdict(local_compute()),
}
ONE_STEP = SCHEDULE | {"num_steps": 1, "batch_size": 8}


@pytest.fixture(scope="module")
def base(tiny_stages):
    return load_policy(tiny_stages.base / "model", device="cpu")


def test_pretraining_learnt_the_corpus(tiny_stages, base):
    model, tokenizer = base
    metrics = rows(tiny_stages.base / "metrics.jsonl")
    assert metrics[-1]["sft/loss"] < 0.6 * metrics[0]["sft/loss"]
    text = rows(tiny_stages.world / "corpus.jsonl")[0]["text"]
    ids = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0, :-1]
    logp = torch.log_softmax(logits, -1).gather(1, ids[0, 1:, None])
    uniform = -torch.tensor(float(len(tokenizer))).log()
    assert logp.mean() > 0.6 * uniform, "the saved weights know no more than a fresh model"


@pytest.fixture(scope="module")
def code_world(tmp_path_factory):
    path = tmp_path_factory.mktemp("few")
    few = dict.fromkeys(("base_examples", "sft_examples", "teacher_examples"), 8)
    build("code", path, {}, **few)
    return path


def num_learnt(tokenizer, rows: list[dict], name: str) -> int:
    texts = [row[name] for row in rows]
    return sum(len(tokenizer(text, add_special_tokens=False)["input_ids"]) + 1 for text in texts)


def test_specifications_are_read_and_not_learnt(code_world, tmp_path):
    pretrain(RunFolder(tmp_path), {"world": code_world}, **ONE_STEP, **TINY_MODEL)
    _, tokenizer = load_policy(tmp_path / "model", device="cpu")
    corpus = rows(code_world / "corpus.jsonl")
    found = rows(tmp_path / "metrics.jsonl")[0]["sft/num_tokens"]
    assert found == num_learnt(tokenizer, corpus, "text")
    for row in corpus:
        assert row["given"].endswith("Print n.\n") and "input()" in row["text"]


def test_the_stage_sft_reads_the_file_that_it_is_told(code_world, tmp_path):
    inputs = {"world": code_world, "base": tmp_path / "base"}
    pretrain(RunFolder(inputs["base"]), inputs, **ONE_STEP, **TINY_MODEL)
    how = ONE_STEP | {"final_learning_rate": 1e-3, "normalizer": "token"}
    _, tokenizer = load_policy(inputs["base"] / "model", device="cpu")
    for name, extra in (("sft", {}), ("teacher", {"examples": "teacher.jsonl"})):
        train_sft(RunFolder(tmp_path / name), inputs, **how, **extra)
        learnt = num_learnt(tokenizer, rows(code_world / f"{name}.jsonl"), "response")
        assert rows(tmp_path / name / "metrics.jsonl")[0]["sft/num_tokens"] == learnt
    weights = [tmp_path / name / "model" / "model.safetensors" for name in ("sft", "teacher")]
    assert weights[0].read_bytes() != weights[1].read_bytes()
