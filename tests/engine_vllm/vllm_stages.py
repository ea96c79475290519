"""Stages that sample by vLLM, for the tests of its processes."""

import json
import os
import time

import torch
from engine_contract import GREEDY, PROBLEMS, flat, how

from klearlib.policy.compute import local_compute
from klearlib.policy.engines import open_engine
from klearlib.policy.load import load_policy


def sample_twice(folder, inputs, *, model):
    """Greedy tokens before and after an update of the trainer's model."""
    torch.ones(1000).sum()
    policy, tokenizer = load_policy(model, device="cpu")
    compute = local_compute(engine="vllm", batch_rows=64)
    drawn = []
    with open_engine(model, compute=compute, model=policy, tokenizer=tokenizer) as engine:
        for _ in range(2):
            engine.wake()
            groups = engine.sample_groups(PROBLEMS, group_size=1, settings=GREEDY)
            engine.sleep()
            drawn.append([response.token_ids for response in flat(groups)])
            with torch.no_grad():
                policy.model.norm.weight.neg_()
        process = engine._process.pid
    (folder.path / "drawn.json").write_text(json.dumps({"drawn": drawn, "process": process}))


def sample_for_ever(folder, inputs, *, model, file):
    """Writes its own process and the engine's, and samples until it is killed."""
    policy, tokenizer = load_policy(model, device="cpu")
    compute = local_compute(engine="vllm", batch_rows=64)
    with open_engine(model, compute=compute, model=policy, tokenizer=tokenizer) as engine:
        with open(file + ".part", "w") as handle:
            handle.write(f"{os.getpid()} {engine._process.pid}")
        os.rename(file + ".part", file)
        while time.monotonic():
            engine.sample_groups(PROBLEMS, group_size=64, settings=how(max_tokens=400))
