"""The state of a training run, SFT or RL, from which a resumed one goes on bit for bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klearlib.errors import Stopped

if TYPE_CHECKING:
    import torch

    from klearlib.policy.batch_plan import BatchPlan
    from klearlib.rl.policy_lag import PastWeights
    from klearlib.run.folder import RunFolder


def load_state(
    folder: RunFolder,
    model,
    optimizer: torch.optim.Optimizer,
    plan: BatchPlan,
    past: PastWeights | None = None,
) -> int:
    """Take over the last checkpoint of the run; the number of steps that are done, 0 for none."""
    saved = folder.load_checkpoint()
    if saved is None:
        return 0
    state, done = saved
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    plan.micro_batch_tokens = state["micro_batch_tokens"]
    if past is not None:
        past.load(state["past"])
    return done


def save_if_due(
    folder: RunFolder,
    model,
    optimizer: torch.optim.Optimizer,
    plan: BatchPlan,
    past: PastWeights | None = None,
    *,
    step: int,
    num_steps: int,
    every: int,
) -> None:
    """Save a checkpoint after every `every` steps but the last, and as soon as a stop is asked for,
    which then is raised as Stopped."""
    if step == num_steps or not (step % every == 0 or folder.stop_requested):
        return
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    state |= {"micro_batch_tokens": plan.micro_batch_tokens}
    if past is not None:
        state["past"] = list(past.weights)
    folder.save_checkpoint(state, step)
    if folder.stop_requested:
        raise Stopped(f"stopped after step {step} of {num_steps}; run again to go on")
