"""The optimiser updates of one RL step: mini-batches, losses, gradients, and what they show."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from klearlib.policy.passes import Passes
from klearlib.policy.reader import in_chunks
from klearlib.records import TokenBatch
from klearlib.rl.coefficients import CORNERS, Rule, corner_masks
from klearlib.rl.mismatch import Mismatch, corrected, observe
from klearlib.rl.objective import token_losses, token_weights
from klearlib.rl.rollouts import RolloutBatch, Row, mini_batches
from klearlib.rl.settings import RLSettings
from klearlib.sft.objective import shares


@dataclass
class UpdateSums:
    """Sums over the tokens of one or more updates; means are taken once, by
    `metrics.step_metrics`."""

    mismatch: Mismatch
    num_tokens: int = 0
    num_positive_tokens: int = 0
    entropy: float = 0.0
    ratio_min: float = float("inf")
    ratio_max: float = 0.0
    corner_tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CORNERS, 0))
    corner_gradient: dict[str, float] = field(default_factory=lambda: dict.fromkeys(CORNERS, 0.0))
    gradient: float = 0.0
    policy_loss: float = 0.0
    lm_loss: float = 0.0
    grad_norms: list[float] = field(default_factory=list)
    skipped_updates: int = 0
    memory_halvings: int = 0

    def add(self, seen: Seen, *, rule: Rule, log_ratio_clamp: float | None, sampled: bool) -> None:
        """Count K tokens. sampled: `logp_old` is the sampler's and the weights are still those that
        sampled, so that logp - logp_old is the mismatch between sampler and trainer."""
        batch = seen.batch
        log_ratio = seen.logp - batch.logp_old
        ratio = log_ratio.exp()
        # |F A| is the size of a token's gradient with respect to its own log-probability.
        gradient = token_weights(
            log_ratio, batch.advantage, batch.correction, rule=rule, log_ratio_clamp=log_ratio_clamp
        )
        gradient = gradient.abs().double()
        corners = corner_masks(ratio, batch.advantage, rule)
        totals = [
            seen.policy_loss,
            seen.lm_loss,
            seen.entropy.double().sum(),
            gradient.sum(),
            ratio.min(),
            ratio.max(),
            *(inside.sum() for inside in corners.values()),
            *(gradient[inside].sum() for inside in corners.values()),
        ]
        # One transfer from the device for all of them.
        policy, lm, entropy, total, low, high, *of_corners = torch.stack(
            [each.double() for each in totals]
        ).tolist()
        self.policy_loss += policy
        self.lm_loss += lm
        self.entropy += entropy
        self.gradient += total
        self.ratio_min, self.ratio_max = min(self.ratio_min, low), max(self.ratio_max, high)
        self.num_tokens += len(log_ratio)
        for index, corner in enumerate(corners):
            self.corner_tokens[corner] += int(of_corners[index])
            self.corner_gradient[corner] += of_corners[len(corners) + index]
        if sampled:
            self.mismatch.add(log_ratio, batch.place)


@dataclass(frozen=True)
class Seen:
    """What K tokens gave: their share of the two losses, logp and entropy [K]."""

    batch: TokenBatch
    policy_loss: torch.Tensor
    lm_loss: torch.Tensor
    logp: torch.Tensor
    entropy: torch.Tensor


def train_on(
    batch: RolloutBatch,
    model,
    optimizer: torch.optim.Optimizer,
    *,
    rule: Rule,
    settings: RLSettings,
    passes: Passes,
    step: int,
) -> UpdateSums:
    """All optimiser updates on the rollouts of `step`, which counts from 1, and what they saw.

    With ``logp_old`` trainer the old log-probabilities of the whole batch are computed before the
    first update, while the weights are those that sampled.
    """
    sums, num_halvings = UpdateSums(Mismatch(settings.max_new_tokens)), passes.num_halvings
    sampled = parts = mini_batches(
        batch, mini_batch_problems=settings.mini_batch_problems, positives=settings.positives
    )
    if settings.logp_old == "trainer":
        temperature = settings.temperature
        parts = [
            trainer_logprobs(model, rows, temperature=temperature, passes=passes)
            for rows in sampled
        ]
        for rows, before in zip(parts, sampled, strict=True):
            observe(sums.mismatch, rows, before)
        if (cap := settings.sampler_correction) is not None:
            parts = [
                corrected(rows, before, cap=cap, mismatch=sums.mismatch)
                for rows, before in zip(parts, sampled, strict=True)
            ]
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(settings, step)
    for index, rows in enumerate(parts):
        first = index == 0 and settings.logp_old == "sampler"
        update(
            model, optimizer, rows, sums, rule=rule, settings=settings, passes=passes, sampled=first
        )
    sums.memory_halvings = passes.num_halvings - num_halvings
    return sums


def learning_rate(settings: RLSettings, step: int) -> float:
    """Of all updates on the rollouts of `step`, which counts from 1: linear warm-up, then
    constant."""
    return settings.learning_rate * min(1.0, step / (settings.warmup_steps + 1))


def update(
    model,
    optimizer: torch.optim.Optimizer,
    rows: Sequence[Row],
    sums: UpdateSums,
    *,
    rule: Rule,
    settings: RLSettings,
    passes: Passes,
    sampled: bool,
) -> None:
    """Minimise policy loss + alpha x LM loss (Eq. 14) by one step; adds to `sums`.

    A gradient that is not finite skips the step, and the skip is counted.

    Args:
        rows: a mini-batch. passes: how it is cut and computed. Where the memory runs out, the
            gradient so far is thrown away and made again in smaller parts.
        sampled: see `UpdateSums.add`.

    Raises:
        KlearError: out of memory with a single row, or with parts that may not become smaller.
    """
    num_words = model.get_output_embeddings().weight.shape[0]

    def add_gradients() -> list[Seen]:
        optimizer.zero_grad(set_to_none=True)
        seen = []
        with passes.reading(model) as reader:
            for part, batch in micro_batches(rows, settings, passes, device=model.device):
                for chunk, logp, entropy in in_chunks(
                    reader, part, num_words=num_words, temperature=settings.temperature
                ):
                    policy, lm = token_losses(
                        logp, batch[chunk], rule=rule, log_ratio_clamp=settings.log_ratio_clamp
                    )
                    (policy + settings.alpha * lm).backward()
                    losses = policy.detach(), lm.detach()
                    seen.append(Seen(batch[chunk], *losses, logp.detach(), entropy))
        return seen

    for seen in passes.fitting(add_gradients, sequences=rows):
        sums.add(seen, rule=rule, log_ratio_clamp=settings.log_ratio_clamp, sampled=sampled)
    sums.num_positive_tokens += num_positive_tokens(rows)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
    if torch.isfinite(norm):
        sums.grad_norms.append(norm.item())
        optimizer.step()
    else:
        sums.skipped_updates += 1


def micro_batches(
    rows: Sequence[Row], settings: RLSettings, passes: Passes, *, device
) -> list[tuple[list[list[Row]], TokenBatch]]:
    """The micro-batches of a mini-batch: rows as the model reads them, and their response tokens.

    A token's share in either mean is that in the whole mini-batch, so that the gradient does not
    depend on the cut. ``"micro_batch"`` takes the mean of each micro-batch and the mean of these
    means, as the released code does.
    """
    made = []
    parts = passes.cut(rows)
    for part in parts:
        flat = [row for line in part for row in line]
        lengths = torch.tensor([len(row.logp_old) for row in flat])
        of_policy = flat if settings.loss_denominator == "micro_batch" else rows
        of_lm = flat if settings.lm_normalizer == "micro_batch" else rows
        count = num_tokens(of_policy) if settings.normalizer == "token" else len(of_policy)
        weight = shares(lengths, normalizer=settings.normalizer, denominator=count)
        lm_weight = torch.tensor([float(row.is_correct) for row in flat]).repeat_interleave(lengths)
        lm_weight /= max(1, num_positive_tokens(of_lm))
        batch = TokenBatch(
            logp_old=torch.tensor([value for row in flat for value in row.logp_old]),
            advantage=torch.tensor([row.advantage for row in flat]).repeat_interleave(lengths),
            place=torch.cat([torch.arange(length) for length in lengths]),
            weight=(weight / (len(parts) if of_policy is flat else 1)).float(),
            lm_weight=lm_weight / (len(parts) if of_lm is flat else 1),
            correction=torch.tensor(
                [x for row in flat for x in row.correction or (1.0,) * len(row.logp_old)]
            ),
        )
        tensors = (getattr(batch, each.name).to(device) for each in dataclasses.fields(batch))
        made.append((part, TokenBatch(*tensors)))
    return made


@torch.no_grad()
def trainer_logprobs(
    model, rows: Sequence[Row], *, temperature: float, passes: Passes
) -> list[Row]:
    """The same rows with `logp_old` computed by the trainer's forward pass (semantics.md D14)."""
    num_words = model.get_output_embeddings().weight.shape[0]

    def compute() -> dict[int, Row]:
        renewed = {}
        with passes.reading(model) as reader:
            for part in passes.cut(rows):
                chunks = in_chunks(
                    reader, part, num_words=num_words, temperature=temperature, with_entropy=False
                )
                values = iter(torch.cat([logp for _, logp, _ in chunks]).tolist())
                for row in (row for line in part for row in line):
                    found = tuple(next(values) for _ in row.logp_old)
                    renewed[id(row)] = dataclasses.replace(row, logp_old=found)
        return renewed

    renewed = passes.fitting(compute, sequences=rows)
    return [renewed[id(row)] for row in rows]


def num_tokens(rows: Sequence[Row]) -> int:
    """Response tokens of these rollouts."""
    return sum(len(row.logp_old) for row in rows)


def num_positive_tokens(rows: Sequence[Row]) -> int:
    """Response tokens of the correct ones among them."""
    return num_tokens([row for row in rows if row.is_correct])
