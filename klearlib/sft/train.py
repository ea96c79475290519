"""Supervised training: the stage ``sft``, its loop, and the gradient of a batch (Eq. 8).

The base model is pretrained by the same loop.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import torch

from klearlib.data.lines import read_lines
from klearlib.policy.batch_plan import BatchPlan, plan_batches
from klearlib.policy.compute import Compute
from klearlib.policy.load import load_policy, save_policy, stretched
from klearlib.policy.reader import in_chunks
from klearlib.run.seeding import derive_seed
from klearlib.sft import batches
from klearlib.sft.batches import Example
from klearlib.sft.checkpoints import load_state, save_if_due
from klearlib.sft.objective import log_likelihood_loss, shares

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder

SAMPLES = "examples.parquet"
BETAS, MAX_GRAD_NORM = (0.9, 0.95), 1.0  # of AdamW; docs/deviations.md has them
WARMUP_SHARE = 20  # one in so many steps warms up


def train_sft(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    seed: int,
    compute: dict,
    examples: str = "sft.jsonl",
    **how,
) -> None:
    """Stage ``sft``: fine-tunes ``inputs["base"]/model`` and writes ``model/``, in the Hugging Face
    format, metrics.jsonl and timings.jsonl.

    It learns the samples of ``inputs["examples"]/examples.parquet`` (see `klearlib.data.tables`) if
    that input is given, and otherwise the file `examples` of ``inputs["world"]``: rows of prompt
    and response. A run that was killed anywhere and resumed equals the unbroken one bit for bit on
    a CPU; if the memory decided the budget of a micro-batch, from the next checkpoint on.

    compute: the fields of `klearlib.policy.compute.Compute`. how: the other arguments of `fit`,
    whose errors are raised too (the paper: 4 epochs, 8e-5 to 4e-5). Raises MissingAsset for no such
    file, or an attention that is not installed.
    """
    computing = Compute(**compute)
    model, tokenizer = load_policy(inputs["base"] / "model", attention=computing.attention)
    path = inputs["examples"] / SAMPLES if "examples" in inputs else inputs["world"] / examples
    turns = [
        batches.chat_example(tokenizer, prompt, response) for prompt, response in read_turns(path)
    ]
    fit(folder, model, tokenizer, turns, seed=derive_seed(seed, "sft"), compute=computing, **how)


def fit(
    folder: RunFolder,
    model,
    tokenizer,
    examples: Sequence[Example],
    *,
    seed: int,
    batch_size: int,
    learning_rate: float,
    final_learning_rate: float,
    normalizer: str,
    compute: Compute,
    num_steps: int | None = None,
    num_epochs: int | None = None,
    checkpoint_every: int = 100,
    yarn: dict | None = None,
) -> None:
    """Minimise Eq. 8 by AdamW, one batch a step, and write the model to ``folder/model``.

    Examples that are longer than `pack_tokens` or than the model's positions, and those whose
    response holds a control token before its last, are left out and counted in
    ``sft/dropped_examples``. No example is ever cut.

    How a batch is cut into micro-batches changes its loss and gradient by no more than rounding:
    the denominators are those of the whole batch.

    Args:
        batch_size: examples of an update.
        num_steps, num_epochs: exactly one of them. Steps take whole batches, epoch after epoch;
            epochs show each example that often, so that the last batch may be smaller (paper: 4).
        learning_rate, final_learning_rate: cosine from one to the other after a linear warm-up
            over a twentieth of the steps (the paper: 8e-5 to 4e-5).
        compute: precision, and how a batch is cut: see `klearlib.policy.batch_plan.BatchPlan`.
            If the memory runs out, the batch is computed again in micro-batches of half the size,
            and so is the rest of the run; ``training/memory_halvings`` of timings.jsonl counts it.
        checkpoint_every: see `klearlib.sft.checkpoints.save_if_due`.
        yarn: ``share`` of the batches, at random, are read under YaRN of ``factor`` and
            ``original``, see `klearlib.policy.load.with_yarn`; None for none.

    Raises:
        Stopped: a stop was asked for; the state is saved.
        KlearError: no example is left, or one alone is too much for the memory.
    """
    most = min(model.config.max_position_embeddings, compute.pack_tokens or math.inf)
    examples, left_out = batches.usable(examples, tokenizer, max_tokens=most)
    for fault, number in left_out.items():
        folder.warn(f"left out {number} examples {fault}, {len(examples)} remain")
    num_steps, num_draws = planned_steps(
        len(examples), batch_size=batch_size, num_steps=num_steps, num_epochs=num_epochs
    )
    warmup_steps = num_steps // WARMUP_SHARE
    plan = plan_batches(model, compute)
    model.train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=learning_rate, betas=BETAS, weight_decay=0.0, fused=True
    )
    first = load_state(folder, model, optimizer, plan)
    order = batches.example_order(len(examples), seed=seed)
    order = itertools.islice(order, first * batch_size, num_draws)
    folder.progress(first, num_steps)
    for step in range(first, num_steps):
        started = time.perf_counter()
        rates = learning_rate, final_learning_rate
        for group in optimizer.param_groups:
            group["lr"] = cosine_learning_rate(step, num_steps, *rates, warmup_steps)
        batch = [examples[index] for index in itertools.islice(order, batch_size)]
        num_halvings = plan.num_halvings
        with _positions(model, yarn, Random(derive_seed(seed, "positions", step))):
            # Only dropout draws from it; so a resumed step draws what the unbroken run's did.
            own = derive_seed(seed, "dropout", step)
            how = {"normalizer": normalizer, "plan": plan, "seed": own}
            loss, num_tokens = batch_gradient(model, batch, **how)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
        if torch.isfinite(norm):
            optimizer.step()
        folder.append_metrics(
            {
                "step": step + 1,
                "sft/loss": loss,
                "sft/grad_norm": norm.item(),
                "sft/skipped_updates": int(not torch.isfinite(norm)),
                "sft/learning_rate": optimizer.param_groups[0]["lr"],
                "sft/num_tokens": num_tokens,
                "sft/num_examples": len(batch),
                "sft/epoch": min((step + 1) * batch_size, num_draws) / len(examples),
                "sft/dropped_examples": left_out.total(),
            }
        )
        seconds = time.perf_counter() - started
        timings = {"step": step + 1, "seconds/training": seconds}
        timings["tokens_per_second/training"] = num_tokens / seconds
        timings["training/memory_halvings"] = plan.num_halvings - num_halvings
        folder.append_timings(timings)
        folder.progress(step + 1, num_steps, f"loss {loss:.3f}, gradient {norm.item():.2f}")
        how = {"step": step + 1, "num_steps": num_steps, "every": checkpoint_every}
        save_if_due(folder, model, optimizer, plan, **how)
    save_policy(model, tokenizer, folder.path / "model")


def planned_steps(
    num_examples: int, *, batch_size: int, num_steps: int | None, num_epochs: int | None
) -> tuple[int, int]:
    """Updates, and examples drawn for them. Exactly one of num_steps and num_epochs is given.

    >>> planned_steps(10, batch_size=8, num_steps=None, num_epochs=2)
    (3, 20)
    """
    if num_steps is not None:
        return num_steps, num_steps * batch_size
    num_draws = num_epochs * num_examples
    return math.ceil(num_draws / batch_size), num_draws


def cosine_learning_rate(
    step: int, num_steps: int, start: float, end: float, warmup_steps: int
) -> float:
    """Of step 0 .. num_steps - 1: linear warm-up to `start`, then cosine to `end`."""
    if step < warmup_steps:
        return start * (step + 1) / warmup_steps
    share = (step - warmup_steps) / max(1, num_steps - 1 - warmup_steps)
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * min(1.0, share)))


def _positions(model, yarn: dict | None, random: Random):
    """How a batch reads its positions: under YaRN, or as the model does."""
    if yarn is None or random.random() >= yarn["share"]:
        return nullcontext()
    return stretched(model, yarn["factor"], original=yarn["original"])


def batch_gradient(
    model, examples: Sequence[Example], *, normalizer: str, plan: BatchPlan, seed: int
) -> tuple[float, int]:
    """Make the `grad` of the weights that of a batch's loss, in parts that fit into the memory:
    minus the log-likelihood of the response tokens, weighed by `shares` of the whole batch, however
    it is cut. Returns the loss and the number of response tokens. Raises KlearError if one example
    alone does not fit."""
    num_tokens = sum(len(each.ids) - each.num_prompt for each in examples)
    denominator = num_tokens if normalizer == "token" else len(examples)

    def attempt() -> float:
        torch.manual_seed(seed)
        model.zero_grad(set_to_none=True)
        total, reader = 0.0, plan.reader(model)
        for part in plan.cut(examples):
            lengths = torch.tensor([len(each.ids) - each.num_prompt for each in part])  # [N]
            weight = shares(lengths, normalizer=normalizer, denominator=denominator)  # [K]
            weight = weight.to(model.device, torch.float32)
            for chunk, logp, _ in in_chunks(reader, part, with_entropy=False):
                loss = log_likelihood_loss(logp, weight[chunk])  # Eq. 8
                loss.backward()
                total += loss.detach().double()
        return float(total)

    return plan.fitting(attempt, sequences=examples), num_tokens


def read_turns(path: Path) -> Iterator[tuple[str, str]]:
    """Prompt and response of each row, in order: of a parquet file of samples or of JSON lines that
    a stage wrote. Raises MissingAsset for no such file."""
    if path.suffix == ".parquet":
        from klearlib.data.tables import read_rows

        rows = read_rows(path, columns=["prompt", "response"])
    else:
        rows = read_lines(path)
    return ((row["prompt"], row["response"]) for row in rows)
