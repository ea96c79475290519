"""How fast SFT batches are computed without padding, beside padded, in the same run.

    .venv/bin/python benchmarks/sft_padding.py --repeats 5

Forward and backward pass of whole batches, without the optimiser: by transformers padded to the
longest (one batch), padded in micro-batches of like lengths, and by `klearlib.policy.decoder`; all
under the same budget of tokens but for the first. The layouts take turns and the medians of the
rounds are compared: tokens are those of prompt and response, never padding (that of the decoder is
in its attention alone), and ratio is to the first layout. On a CPU seconds are those of the
process, one thread, so that other work on the machine counts little; on a GPU they are those of the
clock. Lengths are those of mini's chains of thought, and a long tail as long chains have it. The
last columns are the largest relative differences of loss and gradient from the first layout. Writes
benchmarks/results/sft_padding.csv.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from contextlib import nullcontext
from unittest import mock

import torch
from common import arguments_of, keep
from transformers import Qwen3Config, Qwen3ForCausalLM

from klearlib.params import SMOKE, load
from klearlib.policy import reader
from klearlib.policy.batch_plan import BatchPlan
from klearlib.sft.batches import Example
from klearlib.sft.train import BatchSums, batch_gradient

PAD = 0
DECODER = "decoder"
# Median and spread of the logarithm of a response's length, and the longest that is drawn.
LENGTHS = {"mini's chains": (75, 0.25, 160), "long tail": (100, 1.0, 1024)}
NUM_PROMPT = 24


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--micro-batch-tokens", type=int, default=4096)
    parser.add_argument("--attention", default="sdpa")
    arguments = arguments_of(parser, repeats=1, batch_size=4)
    torch.set_num_threads(1)
    model = new_model(SMOKE if arguments.tiny else "mini", arguments.attention)
    rows = [
        row
        for name, (median, spread, longest) in LENGTHS.items()
        for row in compare(model, name, median, spread, longest, arguments)
    ]
    digits = {"loss apart": 9, "gradient apart": 9, "tokens per s": 0}
    keep(rows, "sft_padding", arguments, digits=digits)


def new_model(profile: str, attention: str) -> Qwen3ForCausalLM:
    """The model of a profile, with random weights and room for long rows."""
    world = load(profile, "miniature")
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=world.vocab_size,
        hidden_size=world.hidden_size,
        num_hidden_layers=world.num_layers,
        num_attention_heads=world.num_heads,
        num_key_value_heads=world.num_kv_heads,
        head_dim=world.head_dim,
        intermediate_size=world.intermediate_size,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        attn_implementation=attention,
    )
    return Qwen3ForCausalLM(config).to("cuda" if torch.cuda.is_available() else "cpu").train()


def compare(
    model, name: str, median: int, spread: float, longest: int, arguments: argparse.Namespace
) -> list[dict]:
    """One row for each layout."""
    budget = arguments.micro_batch_tokens
    layouts = {
        "padded, one batch": BatchPlan(None, "fp32"),
        "padded, micro-batches": BatchPlan(budget, "fp32"),
        DECODER: BatchPlan(budget, "fp32"),
    }
    seconds: dict[str, list[float]] = {layout: [] for layout in layouts}
    held: dict[str, int] = dict.fromkeys(layouts, 0)
    positions: dict[str, int] = dict.fromkeys(layouts, 0)
    apart: dict[str, tuple[float, float]] = dict.fromkeys(layouts, (0.0, 0.0))
    for round_number in range(-1, arguments.repeats):  # the first round warms up
        draws = random.Random(f"{name} {round_number}")
        batch = [
            draw_example(draws, median, spread, longest, model.config.vocab_size)
            for _ in range(arguments.batch_size)
        ]
        first = None
        for layout, plan in layouts.items():
            by_transformers = mock.patch.object(reader, "can_decode", return_value=False)
            with nullcontext() if layout == DECODER else by_transformers:
                sums, gradient, taken = one_batch(model, batch, plan)
            first = first or (sums.loss, gradient)
            if round_number < 0:
                continue
            seconds[layout].append(taken / sums.num_held)
            held[layout] += sums.num_held
            positions[layout] += sums.num_positions
            here = (
                abs(sums.loss / first[0] - 1),
                float((gradient - first[1]).norm() / first[1].norm()),
            )
            apart[layout] = tuple(map(max, apart[layout], here))
    rates = {layout: 1 / statistics.median(taken) for layout, taken in seconds.items()}
    return [
        {
            "lengths": name,
            "layout": layout,
            "device": model.device.type,
            "padding": 1 - held[layout] / positions[layout],
            "tokens per s": rates[layout],
            "ratio": rates[layout] / rates["padded, one batch"],
            "loss apart": apart[layout][0],
            "gradient apart": apart[layout][1],
        }
        for layout in layouts
    ]


def draw_example(
    draws: random.Random, median: int, spread: float, longest: int, vocab_size: int
) -> Example:
    length = min(longest, max(1, round(draws.lognormvariate(math.log(median), spread))))
    ids = tuple(draws.randrange(vocab_size) for _ in range(NUM_PROMPT + length))
    return Example(ids=ids, num_prompt=NUM_PROMPT)


def one_batch(
    model, batch: list[Example], plan: BatchPlan
) -> tuple[BatchSums, torch.Tensor, float]:
    """Sums, gradient and seconds of one batch."""
    on_gpu = model.device.type == "cuda"
    clock = time.perf_counter if on_gpu else time.process_time
    began = clock()
    sums = batch_gradient(model, batch, normalizer="sequence", plan=plan, seed=0)
    if on_gpu:
        torch.cuda.synchronize()
    taken = clock() - began
    return sums, torch.cat([p.grad.flatten() for p in model.parameters()]), taken


if __name__ == "__main__":
    main()
