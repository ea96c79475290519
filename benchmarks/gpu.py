"""What training and sampling cost on one NVIDIA GPU.

    .venv/bin/python benchmarks/gpu.py
    .venv/bin/python benchmarks/gpu.py --engine vllm --only step
    .venv/bin/python benchmarks/gpu.py --tiny

- step: sampling and training of one RL step of the profile's notebook 05, with its compute.yaml and
  a random model of its shape, so that responses end by chance; rewards are made up and mixed in
  every group, so all of them train.
- length: a supervised and an RL update on two sequences of 32,768 tokens for a random model of the
  shape of Qwen3-0.6B, in bf16 with gradient checkpointing. Useful operations are three forward
  passes of each token (`ModelShape.forward_flops`); what checkpointing computes again does not
  count. They are compared with the peak of the card (NVIDIA's data sheets, dense bf16) and with a
  large bf16 product in the same run.
- coverage: K-center of 31,600 of 220,000 points of 384 dimensions. The floor is one reading of all
  points for each pick, at the speed of a copy in the same run; batches of picks may go below it.

Medians of --repeats after one round that warms up; peak GB is what torch allocated at most. Writes
benchmarks/results/gpu.csv. --tiny shows only that the code runs, without a GPU too.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from common import arguments_of, clipping_run, keep
from device_time import (
    copy_rate,
    device_name,
    line,
    median_of,
    new_model,
    new_optimizer,
    product_rate,
)
from gpu_step import step

from klearlib.curation.coverage import k_center_greedy
from klearlib.params import SMOKE
from klearlib.policy.batch_plan import plan_batches
from klearlib.policy.compute import local_compute
from klearlib.policy.shape import ModelShape, shape_of
from klearlib.rl.metrics import UpdateSums
from klearlib.rl.mismatch import Mismatch
from klearlib.rl.rollouts import Row
from klearlib.rl.rule_specs import rule_from
from klearlib.rl.settings import RLSettings
from klearlib.rl.train import update
from klearlib.sft.batches import Example
from klearlib.sft.train import batch_gradient

# Dense bf16 of the SXM cards, operations a second (NVIDIA's data sheets).
PEAKS = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "B200": 2250e12}
QWEN3_06B = ModelShape(28, 1024, 16, 8, 128, 3072, 151_936, True)
TINY = ModelShape(2, 32, 2, 1, 16, 64, 300, True)
GPPO = {"name": "gppo", "eps_low": 0.2, "eps_high": 0.28, "beta_low": 1.0, "beta_high": 1.0}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--profile", default="gpu", help="whose RL step")
    parser.add_argument("--engine", choices=("transformers", "vllm"), help="default: the profile's")
    parser.add_argument("--attention", default="sdpa", help="of the long sequences")
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=list(MEASURES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--results", type=Path)
    arguments = arguments_of(parser, profile=SMOKE, repeats=1)
    if arguments.device == "cuda" and not torch.cuda.is_available():
        if not arguments.tiny:
            print(
                "gpu.py: no NVIDIA GPU that torch sees: use a machine with one, or try the code "
                "with --tiny",
                file=sys.stderr,
            )
            return 1
        print("no GPU: the same code on the CPU")
        arguments.device = "cpu"
    device = {"device": device_name(arguments)}
    rows = [device | row for name in arguments.only for row in MEASURES[name](arguments)]
    keep(rows, "gpu", arguments)
    return 0


def length(arguments: argparse.Namespace) -> list[dict]:
    """A supervised and an RL update on long sequences."""
    shape, tokens = (TINY, 64) if arguments.tiny else (QWEN3_06B, 32_768)
    model = new_model(shape, tokens, arguments.attention, arguments.device)
    compute = local_compute(
        "bf16",
        attention=arguments.attention,
        micro_batch_tokens=tokens,
        gradient_checkpointing=True,
    )
    optimizer, plan = new_optimizer(model), plan_batches(model, compute)
    draws = torch.Generator().manual_seed(0)
    ids = torch.randint(0, shape.vocab_size, (2, tokens), generator=draws)  # [2, L]
    num_prompt = tokens // 16

    def supervised() -> None:
        examples = [Example(row, num_prompt) for row in ids.tolist()]
        batch_gradient(model, examples, normalizer="token", plan=plan, seed=0)
        optimizer.step()

    chosen = clipping_run(arguments.profile).params["settings"]
    settings = RLSettings(**chosen | {"alpha": 0.1, "temperature": 1.0, "max_new_tokens": tokens})
    rows = [
        Row(row, num_prompt, torch.full((tokens - num_prompt,), -5.0), advantage, advantage > 0)
        for row, advantage in zip(ids, (1.0, -1.0), strict=True)
    ]

    def by_rollouts() -> None:
        update(
            model,
            optimizer,
            rows,
            UpdateSums(Mismatch(max_tokens=tokens)),
            rule=rule_from(GPPO),
            settings=settings,
            plan=plan,
            count_mismatch=True,
        )

    useful = 3 * 2 * tokens * shape_of(model.config).forward_flops(context=tokens / 2)
    product = product_rate(arguments)
    lines = []
    for name, run in (("SFT", supervised), ("RL", by_rollouts)):
        taken, peak = median_of(run, arguments)
        found = line(f"{name} update, 2 x {tokens:,} tokens", taken, useful / 1e12, "TFLOP", peak)
        card = next((v for k, v in PEAKS.items() if k in device_name(arguments)), None)
        found["share of the card's peak"] = useful / taken / card if card else None
        found["share of a large product"] = useful / taken / product
        lines.append(found)
    return lines


def coverage(arguments: argparse.Namespace) -> list[dict]:
    """K-center beside one reading of the points for each pick."""
    count, dim, k = (2000, 16, 300) if arguments.tiny else (220_000, 384, 31_600)
    points = np.random.default_rng(0).standard_normal((count, dim), dtype=np.float32)
    taken, peak = median_of(lambda: k_center_greedy(points, k, device=arguments.device), arguments)
    floor = k * points.nbytes / copy_rate(arguments)
    found = line(f"K-center, {k:,} of {count:,} x {dim}", taken, k, "picks", peak)
    return [found | {"floor s": floor, "times the floor": taken / floor}]


MEASURES = {"step": step, "length": length, "coverage": coverage}


if __name__ == "__main__":
    sys.exit(main())
