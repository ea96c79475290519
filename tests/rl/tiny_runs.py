"""RL runs of seconds on the tiny world, and what they left."""

import json
from dataclasses import asdict

import torch
from printed_equations import SPECS
from rollout_fakes import SETTINGS

from klearlib.evaluate.record_files import load_record
from klearlib.policy.compute import local_compute
from klearlib.policy.load import load_policy
from klearlib.rl.train import train_rl
from klearlib.run.folder import RunFolder

# What the fixture `plain` ran, beside the settings of `rollout_fakes`.
PLAIN = {"benchmarks": {"math_a": 30, "math_b": 30}, "deciding": {"math_decide": 6}}
ONE_UPDATE = {"num_steps": 1, "mini_batch_problems": 6, "learning_rate": 1e-3}
# Over four worlds and three problems fifteen such steps gained 0.2 at least, 25 steps 0.4.
ONE_PROBLEM = {
    "num_problems": 1,
    "mini_batch_problems": 1,
    "group_size": 64,
    "learning_rate": 1e-3,
    "num_validation": 1,
    "validation_responses": 200,
}


def lines(path, name="metrics.jsonl"):
    file = path / name
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def run(path, inputs, *, rule=SPECS["gppo"], seed=0, stop_at=None, compute=None, **changes):
    """One call of `train_rl`; with `stop_at`, stopped when that many steps are logged.

    compute: fields of `local_compute`, several micro-batches an update unless they say otherwise.
    """

    def stop_requested() -> bool:
        return stop_at is not None and len(lines(path)) >= stop_at

    folder = RunFolder(path, stop_requested=stop_requested)
    train_rl(
        folder,
        inputs,
        seed=seed,
        rule=rule,
        settings=SETTINGS | changes,
        compute=asdict(local_compute(**{"micro_batch_tokens": 400} | (compute or {}))),
    )
    return lines(path)


def with_one_problem(inputs, world):
    """The inputs of a run whose world, made here, has the first problem to train on alone."""
    world.mkdir()
    first = (inputs["world"] / "train.jsonl").read_text().splitlines(keepends=True)[0]
    for name in ("train", "validation"):
        (world / f"{name}.jsonl").write_text(first)
    return inputs | {"world": world}


def gain(path) -> float:
    """By how much the rate correct on the validation set rose."""
    records = [load_record(file) for file in sorted((path / "evaluations").iterdir())]
    before, after = (float(record.correct.mean()) for record in records)
    return after - before


def weights(path) -> torch.Tensor:
    model, _ = load_policy(path / "model", device="cpu")
    return torch.cat([p.detach().flatten() for p in model.parameters()])
