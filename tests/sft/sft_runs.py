"""Supervised runs of milliseconds, and what they left."""

import json

from klearlib.policy.compute import local_compute
from klearlib.run.folder import RunFolder
from klearlib.sft.batches import Example
from klearlib.sft.train import fit

EXAMPLES = [
    Example(ids=tuple((7 * i + 3 * t) % 250 for t in range(5 + i % 4)), num_prompt=2)
    for i in range(10)
]
SCHEDULE = {
    "seed": 4,
    "num_steps": 6,
    "batch_size": 4,
    "learning_rate": 3e-3,
    "final_learning_rate": 1e-3,
    "normalizer": "sequence",
}
EPOCHS = {"num_steps": None, "num_epochs": 2}
LAYOUT = ("precision", "attention", "pack_tokens", "micro_batch_tokens", "gradient_checkpointing")
PACKED = {"pack_tokens": 16, "micro_batch_tokens": 20}


def run(path, policy, tokenizer, *, examples=EXAMPLES, stop_at=None, **changes):
    """One call of `fit`; with `stop_at` a stop is asked for once that many steps are logged.

    changes: of `SCHEDULE`, and fields of `local_compute` that `LAYOUT` names.
    """

    def stop_requested() -> bool:
        return stop_at is not None and len(lines(path)) >= stop_at

    how = {name: changes.pop(name) for name in LAYOUT if name in changes}
    folder = RunFolder(path, stop_requested=stop_requested)
    compute = local_compute(**how)
    fit(folder, policy, tokenizer, examples, compute=compute, **SCHEDULE | changes)


def lines(path, name="metrics.jsonl"):
    file = path / name
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def assert_same_bytes(found, expected):
    for name in ("metrics.jsonl", "model/model.safetensors"):
        assert (found / name).read_bytes() == (expected / name).read_bytes(), name
