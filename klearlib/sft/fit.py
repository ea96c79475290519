"""Supervised training with exact resume; the base model is pretrained by the same loop."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from klearlib.errors import ParameterError, Stopped
from klearlib.policy.batch_plan import plan_batches
from klearlib.policy.compute import Compute
from klearlib.policy.load import save_policy
from klearlib.run.seeding import derive_seed
from klearlib.sft.batches import Example, example_order, keep_fitting, keep_whole_turns
from klearlib.sft.gradients import batch_gradient
from klearlib.sft.schedule import cosine_learning_rate, planned_steps, planned_warmup

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder


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
    adam_beta1: float,
    adam_beta2: float,
    num_steps: int | None = None,
    num_epochs: int | None = None,
    warmup_steps: int | None = None,
    drop_longer: bool = False,
    drop_with_control: bool = False,
    max_grad_norm: float = 1.0,
    checkpoint_every: int = 100,
) -> None:
    """Minimise Eq. 8 by AdamW, one batch a step, and write the model to ``folder/model``.

    How a batch is packed and cut into micro-batches changes its loss and gradient by no more than
    rounding: which examples form it, and the denominators, are those of the whole batch.

    Args:
        batch_size: examples of an update.
        num_steps, num_epochs: exactly one of them. Steps take whole batches, epoch after epoch;
            epochs show each example that often, so that the last batch may be smaller (paper: 4).
        learning_rate, final_learning_rate: cosine from one to the other after a linear warm-up
            (the paper: 8e-5 to 4e-5).
        warmup_steps: fewer than the steps; None for a twentieth of them.
        adam_beta1, adam_beta2: decay of AdamW's mean and mean square of the gradient.
        compute: precision, and how a batch is cut: see `klearlib.policy.layout.cut_rows`.
            Where the memory runs out, the batch is computed again in micro-batches of half the
            size, and so is the rest of the run; ``training/memory_halvings`` of timings.jsonl
            counts it.
        drop_longer: leave out examples that are longer than a packed row or than the model's
            positions and count them in ``sft/dropped_examples``. No example is ever cut.
        drop_with_control: leave out, and count there too, examples whose response holds an end
            token or another control token before its last.
        checkpoint_every: steps between checkpoints; a stop that is asked for saves one at once.

    Raises:
        Stopped: a stop was asked for; the state is saved.
        KlearError: an example is too long, a response holds a control token, none is left, or the
            model sees other examples of a packed row, or one example alone is too much for the
            memory.
        ParameterError: a number out of range, or not exactly one of num_steps and num_epochs.
    """
    for name, value in (("batch_size", batch_size), ("checkpoint_every", checkpoint_every)):
        if value < 1:
            raise ParameterError(f"{name} must be at least 1, got {value}")
    examples, num_with_control = keep_whole_turns(
        examples, tokenizer, drop_with_control=drop_with_control
    )
    examples, num_longer = keep_fitting(
        examples,
        max_positions=model.config.max_position_embeddings,
        pack_tokens=compute.pack_tokens,
        drop_longer=drop_longer,
    )
    num_dropped = num_longer + num_with_control
    if num_with_control:
        folder.log(f"left out {num_with_control} examples with a control token in the response")
    if num_longer:
        folder.log(f"left out {num_longer} examples that are too long, {len(examples)} remain")
    num_steps, num_draws = planned_steps(
        len(examples), batch_size=batch_size, num_steps=num_steps, num_epochs=num_epochs
    )
    warmup_steps = planned_warmup(num_steps, warmup_steps)
    plan = plan_batches(model, compute, pad_id=tokenizer.pad_token_id)
    model.train()
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=learning_rate,
        betas=(adam_beta1, adam_beta2),
        weight_decay=0.0,
        fused=True,
    )
    first = 0
    if (saved := folder.load_checkpoint()) is not None:
        state, first = saved
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        plan.micro_batch_tokens = state["micro_batch_tokens"]
    order = itertools.islice(example_order(len(examples), seed=seed), first * batch_size, num_draws)
    folder.progress(first, num_steps)
    for step in range(first, num_steps):
        started = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = cosine_learning_rate(
                step, num_steps, learning_rate, final_learning_rate, warmup_steps
            )
        batch = [examples[index] for index in itertools.islice(order, batch_size)]
        num_halvings = plan.num_halvings
        sums = batch_gradient(
            model,
            batch,
            normalizer=normalizer,
            plan=plan,
            # Only dropout draws from it; so a resumed step draws what the unbroken run's did.
            seed=derive_seed(seed, "dropout", step),
        )
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
        if torch.isfinite(norm):
            optimizer.step()
        folder.append_metrics(
            {
                "step": step + 1,
                "sft/loss": sums.loss,
                "sft/grad_norm": norm.item(),
                "sft/skipped_updates": int(not torch.isfinite(norm)),
                "sft/learning_rate": optimizer.param_groups[0]["lr"],
                "sft/num_tokens": sums.num_tokens,
                "sft/num_examples": len(batch),
                "sft/epoch": min((step + 1) * batch_size, num_draws) / len(examples),
                "sft/num_micro_batches": sums.num_micro_batches,
                "sft/padding_share": 1 - sums.num_held / sums.num_positions,
                "sft/dropped_examples": num_dropped,
            }
        )
        seconds = time.perf_counter() - started
        folder.append_timings(
            {
                "step": step + 1,
                "seconds/training": seconds,
                "tokens_per_second/training": sums.num_tokens / seconds,
                "training/memory_halvings": plan.num_halvings - num_halvings,
            }
        )
        folder.progress(step + 1, num_steps)
        last = step + 1 == num_steps
        if not last and ((step + 1) % checkpoint_every == 0 or folder.stop_requested):
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "micro_batch_tokens": plan.micro_batch_tokens,
            }
            folder.save_checkpoint(state, step + 1)
            if folder.stop_requested:
                raise Stopped(f"stopped after step {step + 1} of {num_steps}; run again to go on")
    if compute.gradient_checkpointing:
        model.gradient_checkpointing_disable()
    save_policy(model, tokenizer, folder.path / "model")
