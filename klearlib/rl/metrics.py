"""The metrics of one RL step, as docs/metrics.md defines them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import pstdev

import torch

from klearlib.records import FOUND, NOT_JUDGED, OUTCOMES, TokenBatch
from klearlib.rl.coefficients import CORNERS, Rule, corner_masks
from klearlib.rl.gradient_measures import INSIDE
from klearlib.rl.mismatch import NUM_QUARTERS, Mismatch, log_ratio
from klearlib.rl.objective import token_weights
from klearlib.rl.rollouts import RolloutBatch, Row

SIGNS = ("positive", "negative")
"""Of an advantage."""
GRADIENT_PARTS = tuple(
    [f"norm2_{each}" for each in (INSIDE, *CORNERS)] + [f"cosine_{each}" for each in CORNERS]
)


@dataclass(frozen=True)
class MicroBatchStats:
    """What K tokens of a mini-batch gave, without a graph."""

    batch: TokenBatch
    policy_loss: torch.Tensor  # [], their share of it
    lm_loss: torch.Tensor  # [], before alpha
    logp: torch.Tensor  # float32 [K]
    entropy: torch.Tensor  # float32 [K], in nats


@dataclass
class UpdateSums:
    """Sums over the tokens of one or more updates; `step_metrics` takes the means, once."""

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
    # Over tokens: of log r and of r - 1 - log r, and of log r by the sign of A, with their counts.
    log_ratio: float = 0.0
    k3: float = 0.0
    log_ratio_by_sign: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SIGNS, 0.0))
    tokens_by_sign: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SIGNS, 0))
    # After the last update, against before the first: by the sign of A, and how many fell.
    moved: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SIGNS, 0.0))
    moved_tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SIGNS, 0))
    pushed_down: int = 0
    corner_gradients: dict[str, float | None] = field(default_factory=dict)
    # Of the last update; tensors are not compared by ==.
    last: tuple[list[Row], list[MicroBatchStats]] | None = field(default=None, compare=False)

    def add(
        self,
        stats: MicroBatchStats,
        *,
        rule: Rule,
        log_ratio_clamp: float | None,
        count_mismatch: bool,
    ) -> None:
        """Count K tokens.

        count_mismatch: `logp_old` is the sampler's and the weights are still those that sampled, so
        that logp - logp_old is the mismatch between sampler and trainer.
        """
        batch = stats.batch
        distance = stats.logp - batch.logp_old  # log r [K]
        ratio = distance.exp()
        # |F A| is the size of a token's gradient with respect to its own log-probability.
        tokens = (stats.logp, batch.logp_old, batch.advantage, batch.correction)
        how = {"rule": rule, "log_ratio_clamp": log_ratio_clamp, "entropy": stats.entropy}
        push = token_weights(*tokens, **how)  # [K]
        gradient = push.abs().double()
        corners = corner_masks(ratio, batch.advantage, rule)  # name -> bool [K]
        signs = [batch.advantage > 0, batch.advantage < 0]  # as `SIGNS`, bool [K] each
        exact = distance.double()
        totals = [
            stats.policy_loss,
            stats.lm_loss,
            stats.entropy.double().sum(),
            gradient.sum(),
            ratio.min(),
            ratio.max(),
            exact.sum(),
            (exact.expm1() - exact).sum(),
            *(exact[each].sum() for each in signs),
            *(each.sum() for each in signs),
            *(inside.sum() for inside in corners.values()),
            *(gradient[inside].sum() for inside in corners.values()),
        ]
        # One transfer from the device for all of them.
        policy, lm, entropy, total, low, high, log_r, k3, *rest = torch.stack(
            [each.double() for each in totals]
        ).tolist()
        of_signs, of_corners = rest[: 2 * len(SIGNS)], rest[2 * len(SIGNS) :]
        self.policy_loss += policy
        self.lm_loss += lm
        self.entropy += entropy
        self.gradient += total
        self.ratio_min, self.ratio_max = min(self.ratio_min, low), max(self.ratio_max, high)
        self.num_tokens += len(distance)
        self.log_ratio += log_r
        self.k3 += k3
        for index, sign in enumerate(SIGNS):
            self.log_ratio_by_sign[sign] += of_signs[index]
            self.tokens_by_sign[sign] += int(of_signs[len(SIGNS) + index])
        for index, corner in enumerate(corners):
            self.corner_tokens[corner] += int(of_corners[index])
            self.corner_gradient[corner] += of_corners[len(corners) + index]
        if count_mismatch:
            self.mismatch.add(distance, batch.place)

    def add_moved(self, after: Sequence[Row], before: Sequence[Row]) -> None:
        """Count how far the log-probabilities of a mini-batch went in all updates of a step."""
        for new, old in zip(after, before, strict=True):
            change, sign = log_ratio(new, old), SIGNS[old.advantage < 0]
            if old.advantage:
                self.moved[sign] += float(change.sum())
                self.moved_tokens[sign] += len(change)
                self.pushed_down += int((change < 0).sum()) if old.advantage < 0 else 0


def step_metrics(
    batch: RolloutBatch, sums: UpdateSums, *, step: int, learning_rate: float
) -> dict[str, float | int | None]:
    """The line of metrics.jsonl for one step; None where nothing was there to be averaged."""
    responses = [r for group in batch.groups for r in group.responses]
    verdicts = [v for group in batch.groups for v in group.verdicts]
    rewards = [r for group in batch.groups for r in group.rewards]
    rates = [sum(v.correct for v in g.verdicts) / len(g.verdicts) for g in batch.groups]  # [P]
    reasons = [v.reason for v in verdicts]
    places = Counter(v.found for v in verdicts if v.correct and v.found)
    lengths = [len(r.token_ids) for r in responses]  # [N]
    programs = [v for g in batch.groups if g.problem.tests for v in g.verdicts]
    outcomes = Counter(o for v in programs if v.report is not None for o in v.report.outcomes)
    num_updates = len(sums.grad_norms) + sums.skipped_updates
    mismatch = sums.mismatch
    line = {
        "step": step,
        "rollout/reward_mean": _mean(rewards),
        "rollout/reward_mean_trained": _mean(_trained_rewards(batch)),
        "rollout/reward_std": pstdev(rewards),
        "rollout/reward_std_in_group": _mean([pstdev(g.rewards) for g in batch.groups]),
        "rollout/correct_rate": _mean([v.correct for v in verdicts]),
        "rollout/groups_all_correct": _mean([rate == 1 for rate in rates]),
        "rollout/groups_all_wrong": _mean([rate == 0 for rate in rates]),
        "rollout/groups_mixed": _mean([0 < rate < 1 for rate in rates]),
        "rollout/advantage_abs_mean": float(batch.advantages.abs().mean()),
        "rollout/groups_trained": int(batch.kept_groups.sum()),
        "rollout/response_tokens_mean": _mean(lengths),
        "rollout/response_tokens_max": max(lengths),
        "rollout/truncated_rate": _mean([r.truncated for r in responses]),
        "rollout/bad_format_rate": _mean(
            [not (v.has_think_open and v.has_think_close) for v in verdicts]
        ),
        "rollout/no_answer_rate": _mean([reason == "no_answer" for reason in reasons]),
        "rollout/not_worked_out_rate": _mean([reason == "not_worked_out" for reason in reasons]),
        **{f"rollout/right_{each}_rate": _ratio(places[each], places.total()) for each in FOUND},
        "rollout/judge_failures": sum(reason in NOT_JUDGED for reason in reasons),
        "rollout/pass_rate_mean": _mean(
            [v.report.pass_rate if v.report is not None else 0.0 for v in programs]
        ),
        "train/num_updates": len(sums.grad_norms),
        "train/skipped_updates": sums.skipped_updates,
        "train/num_tokens": sums.num_tokens,
        "train/positive_tokens": sums.num_positive_tokens,
        "train/learning_rate": learning_rate,
        "train/policy_loss": _ratio(sums.policy_loss, num_updates),
        "train/lm_loss": _ratio(sums.lm_loss, num_updates),
        "train/entropy": _ratio(sums.entropy, sums.num_tokens),
        "train/grad_norm": _mean(sums.grad_norms),
        "train/grad_norm_max": max(sums.grad_norms, default=None),
        "train/ratio_min": sums.ratio_min if sums.num_tokens else None,
        "train/ratio_max": sums.ratio_max if sums.num_tokens else None,
        "train/mismatch_mean": _ratio(mismatch.abs_sum, mismatch.num_tokens),
        "train/mismatch_max": mismatch.max_abs if mismatch.num_tokens else None,
        "train/mismatch_k3": _ratio(mismatch.k3_sum, mismatch.num_tokens),
        "train/correction_mean": _ratio(mismatch.factor_sum, mismatch.corrected_tokens),
        "train/correction_capped_share": _ratio(mismatch.capped_tokens, mismatch.corrected_tokens),
    }
    for index in range(NUM_QUARTERS):
        line[f"train/mismatch_mean_quarter_{index + 1}"] = _ratio(
            mismatch.quarter_abs[index], mismatch.quarter_tokens[index]
        )
    line["train/kl_k1"] = _ratio(-sums.log_ratio, sums.num_tokens)
    line["train/kl_k3"] = _ratio(sums.k3, sums.num_tokens)
    for sign in SIGNS:
        count = sums.tokens_by_sign[sign]
        line[f"train/log_ratio_{sign}"] = _ratio(sums.log_ratio_by_sign[sign], count)
        line[f"train/moved_{sign}"] = _ratio(sums.moved[sign], sums.moved_tokens[sign])
    line["train/pushed_down_share"] = _ratio(sums.pushed_down, sums.moved_tokens["negative"])
    for part in GRADIENT_PARTS:
        line[f"train/gradient_{part}"] = sums.corner_gradients.get(part)
    for corner in CORNERS:
        line[f"train/token_share_{corner}"] = _ratio(sums.corner_tokens[corner], sums.num_tokens)
        line[f"train/gradient_share_{corner}"] = _ratio(sums.corner_gradient[corner], sums.gradient)
    line["tests/num_run"] = outcomes.total()
    for outcome in OUTCOMES:
        line[f"tests/{outcome}_rate"] = _ratio(outcomes[outcome], outcomes.total())
    return line


def learnt(line: Mapping[str, float | None]) -> str:
    """What a step's line says of learning, for people.

    >>> learnt({"rollout/reward_mean": -0.25, "train/grad_norm": None})
    'reward -0.25'
    """
    norm = line["train/grad_norm"]
    reward = f"reward {line['rollout/reward_mean']:.2f}"
    return reward if norm is None else f"{reward}, gradient {norm:.2f}"


def step_timings(
    step: int,
    seconds: Sequence[float],
    *,
    num_sampled: int,
    num_trained: int,
    memory_halvings: int = 0,
) -> dict[str, float | int]:
    """The line of timings.jsonl for one step; `seconds` of sampling, verifying, training and
    evaluating."""
    phases = ("sampling", "verifying", "training", "evaluating")
    return {
        "step": step,
        **{f"seconds/{phase}": each for phase, each in zip(phases, seconds, strict=True)},
        "tokens_per_second/sampling": num_sampled / seconds[0],
        "tokens_per_second/training": num_trained / seconds[2],
        "training/memory_halvings": memory_halvings,
    }


def _trained_rewards(batch: RolloutBatch) -> list[float]:
    return [
        reward
        for index in batch.kept_groups.nonzero().flatten().tolist()
        for number, reward in enumerate(batch.groups[index].rewards)
        if batch.kept_rollouts[index, number]
    ]


def _mean(values: list) -> float | None:
    return sum(values) / len(values) if values else None


def _ratio(total: float, count: float) -> float | None:
    return total / count if count else None
