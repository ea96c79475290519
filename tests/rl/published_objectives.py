"""Objectives of published clipping and weighting rules, in float64, whose gradient by autograd is
the oracle of klearlib's coefficients. Nothing here comes from klearlib.

Each function gives J of every token [N, T], to be maximised, in the form that the code or paper in
its docstring prints: a clamp stays a clamp, a detached weight detached. Left out: the clamp of
log r to +-20, an epsilon beside a standard deviation, and KL and entropy terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """One optimiser mini-batch of N = P G responses, in the order of `rewards` [P, G]: all others
    are [N, T], `logp` with graph. max_tokens: the most that a response may have."""

    logp: Tensor
    logp_old: Tensor
    logp_sampler: Tensor
    entropy: Tensor
    mask: Tensor
    rewards: Tensor
    max_tokens: int

    @property
    def log_ratio(self) -> Tensor:
        return self.logp - self.logp_old

    @property
    def ratio(self) -> Tensor:
        return torch.exp(self.log_ratio)

    def total(self, values: Tensor) -> Tensor:  # of each response, [N, 1]
        return torch.where(self.mask, values, 0.0).sum(1, keepdim=True)

    def average(self, values: Tensor) -> Tensor:
        return self.total(values) / self.mask.sum(1, keepdim=True)


def centred(batch: Batch) -> Tensor:
    """2503.20783, as all advantages [P, G]. Read: sail-sg/understand-r1-zero train_zero_math.py."""
    return batch.rewards - batch.rewards.mean(1, keepdim=True)


def standardised(batch: Batch) -> Tensor:
    """By the population deviation of the group, 0 where all rewards agree."""
    deviation = batch.rewards.std(1, keepdim=True, correction=0)
    return torch.where(deviation > 0, centred(batch) / deviation, 0.0)


def leave_one_out(batch: Batch) -> Tensor:
    """2402.14740. Read: OpenRLHF experience_maker.py, verl core_algos.py, trl rloo_trainer.py."""
    others = batch.rewards.sum(1, keepdim=True) - batch.rewards
    return batch.rewards - others / (batch.rewards.shape[1] - 1)


MEANS: dict[str, Callable[[Batch, Tensor], Tensor]] = {
    "token": lambda batch, values: batch.total(values).sum() / batch.mask.sum(),
    "sequence": lambda batch, values: batch.average(values).mean(),
    "sequence_sum": lambda batch, values: batch.total(values).mean(),
    "budget": lambda batch, values: batch.total(values).mean() / batch.max_tokens,
}


def objective(
    per_token: Callable[..., Tensor], mean: str = "token", advantage=standardised, **values
) -> Callable[[Batch], Tensor]:
    """The scalar J of a batch from a function of this module and the numbers of its rule."""
    return lambda batch: MEANS[mean](
        batch, per_token(batch, advantage(batch).reshape(-1, 1), **values)
    )


def clip(batch: Batch, adv: Tensor, *, low, high, cap=None, ratio=None) -> Tensor:
    """1707.06347, with two bounds 2503.14476, with a cap for A < 0 (dual clip) 1912.09729. Read:
    verl-project/verl verl/trainer/ppo/core_algos.py, huggingface/trl trl/trainer/grpo_trainer.py,
    OpenRLHF/OpenRLHF openrlhf/models/loss.py."""
    ratio = batch.ratio if ratio is None else ratio
    result = torch.minimum(ratio * adv, torch.clamp(ratio, low, high) * adv)
    return _capped(result, adv, cap)


def _capped(result: Tensor, adv: Tensor, cap: float | None) -> Tensor:
    return result if cap is None else torch.where(adv < 0, result.maximum(cap * adv), result)


def _either(condition: Tensor, yes: float, no: float) -> Tensor:
    """torch.where of two numbers, in float64."""
    return torch.where(condition, *torch.tensor([yes, no], dtype=torch.float64))


def gppo(batch: Batch, adv: Tensor, *, low=None, high) -> Tensor:
    """2508.07629. Read: Kwai-Klear/KlearReasoner verl/trainer/ppo/core_algos.py
    (compute_gppo_loss), whose cap 10 for A < 0 is not in the paper and not here. Without low the
    low corner is the bare surrogate: klear's own."""
    unit = batch.ratio / batch.ratio.detach()  # 1, with the gradient of log pi
    kept = torch.clamp(batch.ratio, None if low is None else low * unit, high * unit)
    return torch.minimum(batch.ratio * adv, kept * adv)


def gppo_beta(batch: Batch, adv: Tensor, *, low, high, beta_low, beta_high, cap=None) -> Tensor:
    """2509.20712 and the general form of 2508.07629. Read: Kwai-Klear/CE-GPPO
    verl/trainer/ppo/core_algos.py (compute_gppo_loss_general_beta), recipe/dapo/*beta1*.sh."""
    unit = batch.ratio / batch.ratio.detach()
    result = torch.where((adv < 0) & (batch.ratio < low), beta_low * low * unit, batch.ratio)
    result = torch.where((adv > 0) & (batch.ratio > high), beta_high * high * unit, result) * adv
    return _capped(result, adv, cap)


def cispo(batch: Batch, adv: Tensor, *, low=None, high) -> Tensor:
    """2506.13585, with cap 5 2510.13786 (ScaleRL); no code of the authors. Two-sided: verl
    core_algos.py, SkyRL ppo_utils.py, slime ppo_utils.py. One-sided: trl and modelscope/ms-swift
    grpo_trainer.py, open-instruct grpo_utils.py; trl docs/source/paper_index.md for the 5."""
    return torch.clamp(batch.ratio, low, high).detach() * adv * batch.logp


def aspo(batch: Batch, adv: Tensor, *, eps, cap) -> Tensor:
    """2510.06062, with one eps for all tokens. Read: wizard-III/Archer2.0 core_algos.py
    (compute_policy_loss_archer) and dp_actor.py."""
    up, down = torch.clamp(batch.ratio, max=1 + eps), torch.clamp(batch.ratio, min=1 - eps)
    capped = cap * adv * batch.logp
    flipped = torch.where(1 / up > cap, capped, (up / up.detach()) / up.detach() * adv)
    return torch.where(adv < 0, torch.where(down > cap, capped, down * adv), flipped)


def gspo(batch: Batch, adv: Tensor, *, low, high) -> Tensor:
    """2507.18071, and LUSPO (2602.05261) with a sum over tokens; no code of the authors. Read: trl
    grpo_trainer.py, OpenRLHF models/loss.py."""
    ratio = torch.exp(batch.average(batch.log_ratio))
    return clip(batch, adv, low=low, high=high, ratio=ratio)


def gmpo(batch: Batch, adv: Tensor, *, c) -> Tensor:
    """2507.20673. Read: callsys/GMPO train_zero_math_gmpo.py, scripts/qwen2.5-math-7b-gmpo.sh."""
    sign = _either(adv >= 0, -1.0, 1.0)
    turned = sign * batch.log_ratio
    kept = sign * torch.maximum(turned, torch.clamp(turned, -c, c))
    return torch.exp(batch.average(kept)) * adv


def sapo(batch: Batch, adv: Tensor, *, tau_positive, tau_negative) -> Tensor:
    """2511.20347; no code of the authors. Read: verl core_algos.py, trl and ms-swift
    grpo_trainer.py, AReaL areal/utils/functional/functional.py."""
    tau = _either(adv > 0, tau_positive, tau_negative)
    return torch.sigmoid(tau * (batch.ratio - 1)) * 4 / tau * adv


def dgpo(batch: Batch, adv: Tensor, *, low, high, n, m) -> Tensor:
    """2603.14389. Read: VenomRose-Juri/DGPO-RL core_algos.py (compute_policy_loss), README.md."""
    now, old = batch.logp, batch.logp_old
    left = torch.exp(now + n * now.detach() - (n + 1) * old) / low**n
    right = torch.exp(now - old * (m - 1) / m - now.detach() / m + math.log(high) / m)
    result = torch.where((adv < 0) & (batch.ratio < low), left, batch.ratio)
    return torch.where((adv > 0) & (batch.ratio > high), right, result) * adv


def topr(batch: Batch, adv: Tensor, *, whole) -> Tensor:
    """2503.14286. By token: alibaba/ROLL agentic_actor_pg_worker.py (sign of score), Trinity-RFT's
    documentation (of A). Whole: eq. 8 as ROLL quotes it; neither code nor paper could be read."""
    ratio = torch.exp(batch.total(batch.log_ratio)) if whole else batch.ratio
    return torch.where(adv > 0, 1.0, torch.clamp(ratio, 0, 1)).detach() * adv * batch.logp


def tis(batch: Batch, adv: Tensor, *, low, high, correction) -> Tensor:
    """Yao et al. 2025 ("Your efficient RL framework ..."). Read: yaof20/verl core_algos.py, of the
    authors; verl rollout_corr_helper.py (threshold 2), OpenRLHF models/loss.py."""
    weight = torch.clamp(torch.exp(batch.logp_old - batch.logp_sampler), max=correction)
    return clip(batch, adv, low=low, high=high) * weight.detach()


def dppo(batch: Batch, adv: Tensor, *, delta, cap, divergence, anchor="logp_sampler") -> Tensor:
    """2602.04879. Read: sail-sg/Stable-RL core_algos.py (compute_policy_loss_with_mask), anchored
    on the sampler. verl's dppo_tv and dppo_kl have anchor "logp_old" and cap 20."""
    log_q = getattr(batch, anchor)
    p, q = torch.exp(batch.logp), torch.exp(log_q)
    if divergence == "tv":
        outside_up, outside_down = p - q > delta, p - q < -delta
    else:
        rest = torch.log((1 - q + 1e-8) / (1 - p + 1e-8))
        far = q * (log_q - batch.logp) + (1 - q) * rest > delta
        outside_up, outside_down = far & (p > q), far & (p < q)
    keep = ~torch.where(adv > 0, outside_up, outside_down)
    weight = torch.clamp(torch.exp(batch.logp - log_q), max=cap) * keep
    return weight.detach() * adv * batch.logp


def dcpo(batch: Batch, adv: Tensor, *, eps_low, eps_high, cap) -> Tensor:
    """2509.02333, its range. Read: lime-RL/DCPO core_algos.py ("dynamic"), README.md."""
    q = torch.exp(batch.logp_old)
    low = (1 + torch.sqrt(torch.clamp(1 - 4 * eps_low / q, min=0))) / 2
    high = torch.clamp((1 + torch.sqrt(1 + 4 * eps_high / q)) / 2, 0, cap)
    return clip(batch, adv, low=low, high=high, cap=cap)


def bapo(batch: Batch, adv: Tensor, *, low, high, step, target, cap) -> Tensor:
    """2510.18927. Read: WooooDyy/BAPO recipe/bapo (policy_loss.py, the configuration and script),
    README.md. low, high: where each bound starts and ends."""
    ratio = batch.ratio.detach()

    def balance(lowest: float, highest: float) -> float:
        weight = torch.where(adv >= 0, ratio.clamp(max=highest), ratio.clamp(min=lowest))
        share = torch.where(batch.mask, weight * adv, 0.0)
        negative = -share.clamp(max=0).sum().item()
        return share.clamp(min=0).sum().item() / (negative + 1e-8) if negative > 0 else math.inf

    (floor, last_floor), (ceiling, last_ceiling) = low, high
    while balance(floor, ceiling) < target and floor < last_floor:
        floor = min(floor + step, last_floor)
    while balance(floor, ceiling) < target and ceiling < last_ceiling:
        ceiling = min(ceiling + step, last_ceiling)
    return clip(batch, adv, low=floor, high=ceiling, cap=cap)


def vespo(batch: Batch, adv: Tensor, *, positive, negative) -> Tensor:
    """2602.10693. Read: FloyedShen/VESPO recipe/vespo/code/core_algos.py; trl get_gamma_weights.
    positive, negative: k and lambda. The optional sampler correction of W is not here."""
    log_whole = torch.clamp(batch.total(torch.clamp(batch.log_ratio, -20, 20)), -20, 20)
    k, rate = (_either(adv >= 0, *pair) for pair in zip(positive, negative, strict=True))
    log_phi = rate + k * log_whole.clamp(min=math.log(1e-8)) - rate * torch.exp(log_whole)
    return torch.exp(log_phi).detach() * adv * batch.logp


def _outward(batch: Batch, adv: Tensor) -> tuple[Tensor, Tensor]:
    """M2PO: which tokens have left 1 in the direction of A, and (log r)^2."""
    log_ratio = batch.log_ratio.detach()
    return (log_ratio * adv > 0) & batch.mask, log_ratio**2


def m2po(batch: Batch, adv: Tensor, *, budget) -> Tensor:
    """2510.01161, the largest dropped. Read: AReaL areal/trainer/ppo/actor.py (of the proximal
    policy) and docs/en/algorithms/m2po.md (of pi, as here), both of all tokens; here of the outward
    ones, the set of `m2po_capped`."""
    out, square = _outward(batch, adv)
    ascending = square[out].sort().values
    fits = ascending.cumsum(0) / torch.arange(1, len(ascending) + 1) < budget
    largest = ascending[fits].max() if fits.any() else -1.0
    return (~out | (square <= largest)) * batch.ratio * adv


def m2po_capped(batch: Batch, adv: Tensor, *, budget, floor_low=0.0, floor_high=0.0) -> Tensor:
    """2510.01161. Read: Infini-AI-Lab/M2PO core_algos.py (compute_m2po_policy_loss and what it
    calls), dp_actor.py, train-scripts. There the floors, narrowest offsets from 1, are off."""
    out, square = _outward(batch, adv)
    ascending = square[out].sort().values
    count, low, high = len(ascending), 0.0, 100000.0
    if count and ascending.mean() > budget:
        capped = ascending.cumsum(0) + ascending * torch.arange(count - 1, -1, -1)
        tau = math.sqrt(max(ascending[capped < budget * count].tolist(), default=0.0)) + 1e-9
        low, high = math.exp(-tau), math.exp(tau)  # 1e-9: the token of the bound is inside
    return clip(batch, adv, low=min(low, 1 - floor_low), high=max(high, 1 + floor_high))


def opsm(batch: Batch, adv: Tensor, *, low, high, delta) -> Tensor:
    """2512.02556 (DeepSeek-V3.2); no code of the authors. Read: trl get_off_policy_mask and
    docs/source/paper_index.md (delta), ms-swift grpo_trainer.py, slime ppo_utils.py."""
    far = batch.average(batch.logp_sampler - batch.logp.detach()) > delta
    return clip(batch, adv, low=low, high=high) * ~((adv < 0) & far)


PPO, HIGHER = {"low": 0.8, "high": 1.2}, {"low": 0.8, "high": 1.28}

OBJECTIVES: dict[str, Callable[[Batch], Tensor]] = {
    "ppo": objective(clip, **PPO),
    "clip_higher": objective(clip, **HIGHER),
    "dual_clip": objective(clip, **HIGHER, cap=3.0),
    "unclipped": objective(lambda batch, adv: batch.ratio * adv),
    "gppo": objective(gppo, **HIGHER),
    "gppo_no_low": objective(gppo_beta, **HIGHER, beta_low=0.0, beta_high=1.0),
    "gppo_ratio_low": objective(gppo, high=1.28),
    "ce_gppo": objective(gppo_beta, **PPO, beta_low=0.5, beta_high=1.0, cap=10.0),
    "cispo": objective(cispo, **HIGHER),
    "cispo_one_sided": objective(cispo, high=1.28),
    "cispo_cap_5": objective(cispo, high=5.0),
    "aspo": objective(aspo, eps=0.2, cap=3.0),
    "dr_grpo": objective(clip, "budget", centred, **PPO),
    "gspo": objective(gspo, "sequence", low=1 - 3e-4, high=1 + 4e-4),
    "luspo": objective(gspo, "sequence_sum", low=1 - 2e-3, high=1 + 2.5e-3),
    "gmpo": objective(gmpo, "sequence", c=0.4),
    "sapo": objective(sapo, "sequence", tau_positive=1.0, tau_negative=1.05),
    "dgpo": objective(dgpo, **PPO, n=1, m=2),
    "topr_token": objective(topr, whole=False),
    "topr_sequence": objective(topr, "sequence_sum", whole=True),
    "tis": objective(tis, **HIGHER, correction=2.0),
    "dppo_tv": objective(dppo, delta=0.15, cap=10.0, divergence="tv"),
    "dppo_kl": objective(dppo, delta=0.05, cap=10.0, divergence="kl"),
    "dcpo": objective(dcpo, eps_low=0.16, eps_high=0.2, cap=10.0),
    "bapo": objective(bapo, low=(0.6, 0.9), high=(1.2, 3.0), step=0.05, target=1.0, cap=3.0),
    "vespo": objective(vespo, positive=(2.0, 3.0), negative=(3.0, 2.0)),
    "m2po": objective(m2po, budget=0.04),
    "m2po_capped": objective(m2po_capped, budget=0.04),
    "opsm": objective(opsm, **HIGHER, delta=0.5),
    "rloo": objective(lambda batch, adv: adv * batch.logp, "sequence_sum", leave_one_out),
}


def example(seed: int = 0, P: int = 3, G: int = 4, T: int = 9) -> Batch:
    """P >= 3 groups, the second of equal rewards, G >= 4, T >= 8, lengths from 2 to T. Most ratios
    are near 1; rows 0 (A > 0) and 1 (A < 0) go far to both sides, row 2 (A < 0) far down, and the
    mean log-ratio of rows 3 (A > 0) and -1 (A < 0) is 1e-4 from 0. Padding is not empty."""
    draw = torch.Generator().manual_seed(seed + 1)  # at 0 no two rules but GSPO's agree

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(*shape, generator=draw, dtype=torch.float64)

    rewards = uniform(0.0, 1.0, P, G)
    rewards[0, :4] = torch.tensor([1.0, 0.0, 0.0, 1.0], dtype=torch.float64)
    rewards[1], rewards[-1, -1] = 1.0, -0.5
    lengths = torch.randint(2, T + 1, (P * G, 1), generator=draw)
    lengths[:3] = T
    mask = torch.arange(T) < lengths  # [N, T]
    log_ratio = uniform(-0.3, 0.3, P * G, T) * uniform(0.0, 1.0, P * G, T)
    far = torch.tensor([0.215, 0.5, 1.3, 2.6, -0.335, -0.5, -1.3, -2.6], dtype=torch.float64)
    log_ratio[:2, :8] = far * uniform(0.94, 1.06, 2, 8)
    log_ratio[1, 0] = 0.9
    log_ratio[2, ::2] -= 1.8
    for row, mean in ((3, -1e-4), (-1, 1e-4)):
        log_ratio[row] += mean - log_ratio[row][mask[row]].mean()
    off = uniform(-0.2, 0.2, P * G, T)
    off[:, 1::4] *= 5  # log(pi_old / pi_sampler), some of it above log 2
    logp_old = -torch.maximum(log_ratio, -off).clamp(min=0) - uniform(0.02, 2.5, P * G, T)
    logp = (logp_old + log_ratio).requires_grad_()
    entropy = uniform(0.02, 3.0, P * G, T)
    entropy[:2, [0, 4]] += 3
    return Batch(logp, logp_old, logp_old - off, entropy, mask, rewards, max_tokens=T + 3)
