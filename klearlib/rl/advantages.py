"""Group advantages (Eq. 4) and the zero-advantage filter (5.2.5)."""

from __future__ import annotations

import math

import torch

# Rewards of a group closer together than this, relative to their size, are one reward: the same
# pass rate computed twice in float32 differs by some units in the last place.
_RELATIVE_TOLERANCE = 1e-6
STDS = ("population", "unbiased", "none", "batch", "leave_one_out")


def group_advantages(
    rewards: torch.Tensor,
    *,
    std: str = "population",
    epsilon: float = 0.0,
    keep: torch.Tensor | None = None,
) -> torch.Tensor:
    """A = (reward - mean of the group) / std of the group (Eq. 4).

    Args:
        rewards: float [P, G].
        std: ``"population"`` divides by G (Eq. 4); ``"unbiased"`` by G - 1 as the released code and
            TRL do, which shrinks advantages by 0.935 at G = 8; ``"none"`` leaves A = reward - mean,
            as Dr. GRPO (2503.20783) does; ``"batch"`` divides by the std of reward - mean over all
            groups, as ScaleRL (2510.13786) does; ``"leave_one_out"`` is RLOO (2402.14740), the
            reward less the mean of the others' of its group.
        epsilon: added to the std; 0 in Eq. 4, 1e-6 in the released code, 1e-4 in TRL; of no effect
            where nothing is divided by.
        keep: bool [P, G]; rollouts that are False are left out of mean and std and get 0 (option
            ``drop_truncated``). A group with fewer than two kept rollouts gets 0.

    Returns:
        [P, G] in the dtype of `rewards`. Groups of one reward are exactly 0, whatever rounding did.

    Raises:
        ValueError: not [P, G] with G >= 2, not finite, integer dtype, an unknown `std` or an
            `epsilon` below 0.

    >>> group_advantages(torch.tensor([[1.0, -1.0], [1.0, 1.0]]))
    tensor([[ 1., -1.],
            [ 0.,  0.]])
    """
    if rewards.ndim != 2 or rewards.shape[1] < 2:
        raise ValueError(
            "rewards must be [P, G] with at least 2 responses in a group (Eq. 4 divides by their "
            f"std), got {tuple(rewards.shape)}"
        )
    if not rewards.is_floating_point():
        raise ValueError(f"rewards must be floating point, got {rewards.dtype}: use .float()")
    if not torch.isfinite(rewards).all():
        raise ValueError("rewards must be finite: a reward is NaN or infinite")
    if std not in STDS:
        raise ValueError(f"std must be one of {', '.join(STDS)}, got {std!r}")
    if not 0 <= epsilon < math.inf:
        raise ValueError(f"epsilon must be at least 0 and finite, got {epsilon!r}")
    kept = torch.ones_like(rewards, dtype=torch.bool) if keep is None else keep
    if kept.shape != rewards.shape or kept.dtype != torch.bool:
        raise ValueError(
            f"keep must be bool {tuple(rewards.shape)}, got {kept.dtype} {tuple(kept.shape)}"
        )
    values = rewards.double()  # [P, G], as all below without another shape
    count = kept.sum(dim=1, keepdim=True)  # [P, 1]
    mean = (values * kept).sum(dim=1, keepdim=True) / count.clamp(min=1)
    centred = torch.where(kept, values - mean, 0.0)
    divisor = count - 1 if std == "unbiased" else count
    deviation = (centred.square().sum(dim=1, keepdim=True) / divisor.clamp(min=1)).sqrt() + epsilon
    spread = centred.amax(dim=1, keepdim=True) - centred.amin(dim=1, keepdim=True)
    size = torch.where(kept, values.abs(), 0.0).amax(dim=1, keepdim=True)
    constant = (count < 2) | (spread <= _RELATIVE_TOLERANCE * size)  # [P, 1]
    if std == "batch":
        deviation = (centred.square().sum() / kept.sum().clamp(min=1)).sqrt() + epsilon
    elif std == "none":
        deviation = torch.ones_like(deviation)
    elif std == "leave_one_out":
        deviation = (count - 1) / count.clamp(min=1).double()  # (R_i - mean) G / (G - 1)
    scale = torch.where(constant, torch.ones_like(centred), deviation)
    return torch.where(constant, 0.0, centred / scale).to(rewards.dtype)  # Eq. 4


def nonzero_groups(advantages: torch.Tensor) -> torch.Tensor:
    """The groups that teach anything: bool [P], True where any advantage of the group is not zero.

    The filter of 5.2.5. It does not refill the batch: dropped groups are not replaced.

    Args:
        advantages: [P, G] of `group_advantages`, whose constant groups are exactly 0.

    >>> nonzero_groups(torch.tensor([[1.0, -1.0], [0.0, 0.0]]))
    tensor([ True, False])
    """
    if advantages.ndim != 2:
        raise ValueError(f"advantages must be [P, G], got shape {tuple(advantages.shape)}")
    return (advantages != 0).any(dim=1)


def mixed_accuracy_groups(is_correct: torch.Tensor, *, keep: torch.Tensor) -> torch.Tensor:
    """The released code's filter: bool [P], True where some but not all responses are correct.

    It differs from `nonzero_groups` on soft rewards: it also drops groups whose partial credit
    differs. is_correct: bool [P, G]. keep: bool [P, G], False on rollouts that do not count.
    """
    return (is_correct & keep).any(dim=1) & (~is_correct & keep).any(dim=1)
