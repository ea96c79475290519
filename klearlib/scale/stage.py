"""Stage ``rl`` on verl: the driver of one run; only it writes the run folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.errors import KlearError, Stopped
from klearlib.rl.alarms import Alarms
from klearlib.rl.metrics import learnt
from klearlib.rl.rule_specs import rule_from
from klearlib.rl.schedule import keep_evaluation
from klearlib.rl.settings import RLSettings
from klearlib.run.entry import read_metrics
from klearlib.scale import driver
from klearlib.scale.cluster import Cluster, require_own_parts
from klearlib.scale.require import require_verl

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder

WORK, CHECKPOINTS = "verl", "checkpoints"
"""Folder inside the run's, for what verl reads and saves until the run is done, and in it verl's
own checkpoints."""
CONFIGURATION = "verl.yaml"
_WEIGHTS = ("*.safetensors", "*.safetensors.index.json")


def train_rl(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    seed: int,
    rule: dict,
    settings: dict,
    cluster: dict,
    resources: dict,
) -> None:
    """The run of `klearlib.rl.train.train_rl`, made by verl on the Ray cluster that RAY_ADDRESS
    names, or on a Ray of its own.

    Inputs and results are the same, with an additional ``verl.yaml``, the whole configuration of
    verl. The problems of each step are the same too; rollouts are other draws from the same policy.
    A checkpoint is verl's own and is committed with the metrics up to its step: a run that was
    stopped or lost continues from there.

    Args:
        seed, rule, settings: see `klearlib.rl.train.train_rl`.
        cluster, resources: the fields of `klearlib.scale.cluster.Cluster` in the run's key, and the
            others.

    Raises:
        Stopped: a stop was asked for; the state is saved.
        MissingAsset: verl or Ray is not installed.
        KlearError: the cluster is too small, or the run ended with an error; the log has the rest.
    """
    require_verl()
    rule_from(rule)  # to report a wrong rule before anything starts
    chosen, cluster = RLSettings(**settings), Cluster(**cluster | resources)
    require_own_parts(chosen)
    cluster.require_fits(max_new_tokens=chosen.max_new_tokens)
    saved = folder.load_checkpoint()
    done = 0 if saved is None else saved[1]
    work, model = folder.path / WORK, folder.path / "model"
    if done < chosen.num_steps:
        how = {"seed": seed, "rule": rule, "settings": chosen, "cluster": cluster}
        _train(folder, inputs, done, **how)
    if not model.is_dir():
        place = _checkpoint(work, chosen.num_steps, folder, num_gpus=cluster.num_gpus)
        _keep_model(place / "actor" / "huggingface", inputs["sft"] / "model", model)
    shutil.rmtree(work, ignore_errors=True)
    folder.progress(chosen.num_steps, chosen.num_steps)


def _train(folder, inputs, done, *, settings: RLSettings, cluster: Cluster, **how) -> None:
    """The steps after `done`, whose results go into `folder`. how: seed and rule."""
    driver.prepare(cluster)
    # Loaded already, but the key of a result follows import statements alone.
    from omegaconf import OmegaConf

    import klearlib.scale.trainer  # noqa: F401
    from klearlib.scale.configuration import compose, overrides

    work = folder.path / WORK
    resumed = _checkpoint(work, done, folder, num_gpus=cluster.num_gpus) if done else None
    work.mkdir(parents=True, exist_ok=True)
    _keep_only(work / CHECKPOINTS, done)
    lines = read_metrics(folder.path)
    given = overrides(
        settings=settings,
        cluster=cluster,
        model=inputs["sft"] / "model",
        world=inputs["world"],
        problems=inputs.get("pool", inputs["world"]) / "train.jsonl",
        checkpoints=work / CHECKPOINTS,
        resumed=resumed,
        updated_steps=sum(line["train/num_tokens"] > 0 for line in lines),
        **how,
    )
    config = compose(given)
    OmegaConf.save(config, folder.path / CONFIGURATION, resolve=True)
    folder.log(f"verl's configuration, whole in {CONFIGURATION}, is its own with these overrides:")
    print("\n".join(given), flush=True)

    steps = {"num_steps": settings.num_steps, "has_range": rule_from(how["rule"]).has_range}
    alarms = Alarms(lines, **steps)

    def take(kind: str, content) -> None:
        if kind == driver.EVALUATION:
            step, name, record = content
            keep_evaluation(folder, name, record, step=step)
        elif kind == driver.STEP:
            line, timings, samples = content
            if samples:
                folder.append_samples(samples)
            folder.append_metrics(line)
            folder.append_timings(timings)
            for warning in alarms.see(line):
                folder.warn(warning)
            folder.progress(line["step"], settings.num_steps, learnt(line))
        elif kind == driver.SAVED:
            folder.save_checkpoint({"folder": f"global_step_{content}"}, content)
            _keep_only(work / CHECKPOINTS, content)
        elif kind == driver.STOPPED:
            steps = f"{content} of {settings.num_steps}"
            raise Stopped(f"stopped after step {steps}; run again to go on")

    folder.progress(done, settings.num_steps)
    runs_dir, asked = folder.path.parent.parent, lambda: folder.stop_requested
    with driver.alone(runs_dir, stop_requested=asked), driver.connected(config, cluster):
        driver.run_trainer(config, take=take, stop_requested=asked)


def _checkpoint(work: Path, step: int, folder: RunFolder, *, num_gpus: int) -> Path:
    """verl's checkpoint after a step. KlearError if another number of GPUs saved it: these cannot
    read its shards."""
    place = work / CHECKPOINTS / f"global_step_{step}"
    described = (place / "actor" / "fsdp_config.json").read_text(encoding="utf-8")
    saved = json.loads(described)["world_size"]
    if saved != num_gpus:
        raise KlearError(
            f"the run was saved after step {step} by {saved} GPUs and compute.yaml's verl now has "
            f"{num_gpus}: set them back to {saved}, or delete {folder.path} to start anew"
        )
    return place


def _keep_only(checkpoints: Path, step: int) -> None:
    """Remove all of verl's checkpoints except that of a step; verl forgets those of other
    processes."""
    for place in checkpoints.glob("global_step_*"):
        if place.name != f"global_step_{step}":
            shutil.rmtree(place)


def _keep_model(trained: Path, start: Path, model: Path) -> None:
    """Make `model` from the weights that verl saved and everything else that the model came with:
    verl writes its own attention and precision into the config."""
    for file in start.iterdir():
        if file.is_file() and not any(file.match(kind) for kind in _WEIGHTS):
            shutil.copyfile(file, trained / file.name)
    trained.rename(model)  # so that it exists whole or not at all
