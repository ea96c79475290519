"""verl's configuration of small runs, and the folder of a tiny model."""

from pathlib import Path

from omegaconf import DictConfig
from rollout_fakes import settings
from small_cluster import small_cluster

from klearlib.policy.load import save_policy
from klearlib.scale.configuration import compose, overrides

GPPO = {"name": "gppo", "eps_low": 0.2, "eps_high": 0.28}


def tiny_model(folder: Path, policy, tokenizer) -> Path:
    save_policy(policy, tokenizer, folder / "model")
    return folder / "model"


def lines(model: Path, **changes) -> list[str]:
    """The overrides of a small run, some of it otherwise."""
    work = model.parent
    values = {
        "rule": GPPO,
        "settings": settings(benchmarks={"math_a": 30}),
        "cluster": small_cluster(),
        "seed": 3,
        "model": model,
        "world": work / "world",
        "problems": work / "world" / "train.jsonl",
        "checkpoints": work / "checkpoints",
        "resumed": None,
        "updated_steps": 0,
    }
    return overrides(**values | changes)


def composed(model: Path, **changes) -> DictConfig:
    return compose(lines(model, **changes))
