"""The loss of verl's training worker: policy loss + alpha x LM loss on correct responses (Eq. 14),
and what the metrics of a step are made of."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.utils.metric import AggregationType, Metric
from verl.workers.utils.padding import no_padding_2_padding

from klearlib.records import TokenBatch
from klearlib.rl.metrics import MicroBatchStats, UpdateSums
from klearlib.rl.mismatch import NUM_QUARTERS, Mismatch
from klearlib.rl.objective import positive_lm_loss
from klearlib.scale.policy_losses import rule_of


def klear_loss(config, model_output, data, dp_group=None, *, max_tokens: int):
    """The loss of one micro-batch of N rows, as verl's ``TrainingWorker`` calls it.

    Every denominator is that of the whole mini-batch over all ranks, so that the gradient, which
    verl averages over ranks, depends neither on their number nor on the cut into micro-batches.

    Args:
        config: the actor's, whose ``policy_loss`` is a
            `klearlib.scale.policy_losses.KlearPolicyLossConfig`.
        model_output: ``log_probs`` and ``entropy``, nested [N, prompt + response].
        data: the rows with verl's fields and those of `klearlib.scale.layout.row_fields`.
        max_tokens: the token budget of a response.

    Returns:
        The loss to call backward on, and the sums that `add_sums` reads.
    """
    log_prob = no_padding_2_padding(model_output["log_probs"], data).float()  # [N, T]
    entropy = no_padding_2_padding(model_output["entropy"], data).float()  # [N, T]
    dp_size = data["dp_size"]
    config.global_batch_info.update(
        dp_size=dp_size,
        batch_num_tokens=max(data["batch_num_tokens"], 1),
        global_batch_size=int(data["num_rollouts"][0]),
    )
    names = ("response_mask", "old_log_probs", "advantages", "rollout_is_weights", "is_correct")
    counts = ("num_rollouts", "num_positive_tokens", "first_of_step")
    rows = data.select(*names, *counts).to_padded_tensor()
    mask = rows["response_mask"].bool()  # [N, T], False where a row only pads the mini-batch
    losses = config.policy_loss
    policy, _ = get_policy_loss_fn(losses.loss_mode)(  # Eq. 7, times dp_size
        old_log_prob=rows["old_log_probs"],
        log_prob=log_prob,
        advantages=rows["advantages"],
        response_mask=mask,
        loss_agg_mode=config.loss_agg_mode,
        config=config,
        rollout_is_weights=rows["rollout_is_weights"],
    )
    # Eq. 13 over the positive tokens of the whole mini-batch.
    positives = max(int(rows["num_positive_tokens"][0]), 1)
    lm = dp_size * positive_lm_loss(
        log_prob, mask, rows["is_correct"].bool(), denominator=float(positives)
    )
    sums = UpdateSums(Mismatch(max_tokens=max_tokens))
    if mask.any():
        unused = torch.zeros(int(mask.sum()))  # verl took the means
        batch = TokenBatch(  # all [K], the tokens of the mask
            logp_old=rows["old_log_probs"][mask],
            advantage=rows["advantages"].expand_as(mask)[mask],
            place=(mask.cumsum(1) - 1)[mask],  # a row is one rollout
            weight=unused,
            lm_weight=unused,
            correction=rows["rollout_is_weights"][mask],
        )
        stats = MicroBatchStats(
            batch,
            policy_loss=policy.detach() / dp_size,
            lm_loss=lm.detach() / dp_size,
            logp=log_prob.detach()[mask],
            entropy=entropy.detach()[mask],
        )
        sums.add(
            stats,
            rule=rule_of(config),
            log_ratio_clamp=losses.log_ratio_clamp,
            count_mismatch=bool(rows["first_of_step"][0]),
        )
    return policy + losses.alpha * lm, _metrics(sums, dp_size)  # Eq. 14


def _summed(sums: UpdateSums) -> Iterator[tuple[str, dict | list, str | int]]:
    """Every sum over tokens in `sums`: its name in verl's metrics, what holds it, and its key."""
    mismatch = vars(sums.mismatch)
    for name in ("num_tokens", "entropy", "gradient", "policy_loss", "lm_loss", "log_ratio", "k3"):
        yield name, vars(sums), name
    for kind in ("corner_tokens", "corner_gradient", "log_ratio_by_sign", "tokens_by_sign"):
        held = getattr(sums, kind)
        yield from ((f"{kind}/{word}", held, word) for word in held)
    for name in ("num_tokens", "abs_sum", "k3_sum"):
        yield f"mismatch/{name}", mismatch, name
    for kind in ("quarter_abs", "quarter_tokens"):
        yield from ((f"mismatch/{kind}/{i}", mismatch[kind], i) for i in range(NUM_QUARTERS))


def _metrics(sums: UpdateSums, dp_size: int) -> dict[str, Metric]:
    """`sums` as verl adds them up over micro-batches and ranks."""
    kind = AggregationType
    return {
        # verl takes the mean over ranks where the sum is meant.
        **{n: Metric(kind.SUM, float(held[key]) * dp_size) for n, held, key in _summed(sums)},
        "ratio_min": Metric(kind.MIN, sums.ratio_min),
        "ratio_max": Metric(kind.MAX, sums.ratio_max),
        "mismatch/max_abs": Metric(kind.MAX, sums.mismatch.max_abs),
    }


def add_sums(sums: UpdateSums, metrics: dict[str, list[float]]) -> None:
    """Add the updates of one step to `sums`, from what verl's worker returns of them.

    metrics: one value for each update under every name of `klear_loss`, and ``grad_norm``; an
    update whose norm is not finite was skipped.
    """
    metrics = {name: list(map(float, values)) for name, values in metrics.items()}
    for name, held, key in _summed(sums):
        total = sum(metrics[name])
        held[key] += round(total) if isinstance(held[key], int) else total
    sums.mismatch.max_abs = max(sums.mismatch.max_abs, *metrics["mismatch/max_abs"])
    sums.ratio_min = min(sums.ratio_min, *metrics["ratio_min"])
    sums.ratio_max = max(sums.ratio_max, *metrics["ratio_max"])
    finite = [norm for norm in metrics["grad_norm"] if math.isfinite(norm)]
    sums.grad_norms += finite
    sums.skipped_updates += len(metrics["grad_norm"]) - len(finite)
