"""How good the checkpoint is that RL starts from, with other slips than the profile's.

    .venv/bin/python benchmarks/start.py --profile mini --slips 0.25,0.55,0.01 0,0,0.12

Each value of --slips is slip_share,slip_rate,step_noise of the miniature. World, base model and SFT
checkpoint are made (or taken from the cache) for each; then the validation set is answered at
temperatures 1 and 0.6. Writes benchmarks/results/start_<profile>.csv.
"""

from __future__ import annotations

import argparse
import dataclasses

import torch
from common import arguments_of, finish, keep

from klearlib.data.problems import read_problems
from klearlib.evaluate.harness import evaluate
from klearlib.evaluate.scores import avg_at_n
from klearlib.experiments.experiment import runs_dir
from klearlib.miniature.stages import start_stages
from klearlib.params import LOCAL, SMOKE, RLOptions, load
from klearlib.policy.compute import local_compute
from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.engines import TransformersEngine
from klearlib.policy.load import load_policy

_SETTINGS = {"temperature 1": (1.0, 1.0), "temperature 0.6, top_p 0.95": (0.6, 0.95)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="mini")
    parser.add_argument("--slips", nargs="+", default=["0.25,0.55,0.01", "0,0,0.12"])
    parser.add_argument("--responses", type=int, default=4)
    arguments = arguments_of(parser, profile=SMOKE, slips=["0,0,0.12"], responses=1)
    worlds = []
    for text in arguments.slips:
        share, rate, noise = map(float, text.split(","))
        world = load(arguments.profile, "miniature")
        worlds.append(
            dataclasses.replace(world, slip_share=share, slip_rate=rate, step_noise=noise)
        )
    compute = dataclasses.asdict(load(arguments.profile, LOCAL))
    stages = [start_stages(world, compute=compute) for world in worlds]
    torch.set_num_threads(1)
    finish([made["sft"] for made in stages], arguments)
    rows = [
        measures(world, made, arguments.responses)
        for world, made in zip(worlds, stages, strict=True)
    ]
    keep(rows, f"start_{arguments.profile}", arguments)


def measures(world, stages, num_responses: int) -> dict:
    model, tokenizer = load_policy(stages["sft"].folder(runs_dir()) / "model", device="cpu")
    engine = TransformersEngine(model, tokenizer, local_compute())
    problems = read_problems(stages["world"].folder(runs_dir()) / "validation.jsonl")
    row = {name: getattr(world, name) for name in ("slip_share", "slip_rate", "step_noise")}
    row["parameters"] = sum(p.numel() for p in model.parameters())
    limits = RLOptions()
    for name, (temperature, top_p) in _SETTINGS.items():
        settings = SamplingSettings(
            temperature=temperature, top_p=top_p, top_k=0, max_tokens=world.max_new_tokens, seed=0
        )
        record = evaluate(
            engine,
            problems,
            benchmark="validation",
            num_responses=num_responses,
            settings=settings,
            test_timeout_s=limits.test_timeout_s,
            test_memory_mb=limits.test_memory_mb,
        )
        row[name] = avg_at_n(record.correct)
        if temperature == 1:
            rate = record.correct.mean(axis=1)
            row["groups mixed"] = float(((rate > 0) & (rate < 1)).mean())
    return row


if __name__ == "__main__":
    main()
