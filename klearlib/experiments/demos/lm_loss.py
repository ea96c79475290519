"""Small exact demonstrations: what alpha adds to a gradient, and what a group without advantage
does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from klearlib.experiments.demos.clipping import printed_objective

if TYPE_CHECKING:
    import torch

    from klearlib.rl.coefficients import Rule

_LENGTHS = (3, 2, 4, 1)
_CORRECT = (True, False, True, False)
# log(pi / pi_old), row by row: inside the clip range and beyond it on both sides.
_LOG_RATIOS = (0.05, -0.4, 0.5, -0.1, 0.6, -0.3, 0.02, 0.4, -0.6, -0.5)
_GROUPS = {"mixed": (1.0, -1.0, -1.0), "solved": (1.0, 1.0, 1.0), "failed": (-1.0, -1.0, -1.0)}
_GROUP_LENGTHS = ((3, 2, 4), (2, 3, 2), (4, 4, 3))


def old_and_shift(
    lengths: Sequence[int], log_ratios: Sequence[float]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """loss_mask, logp_old and log(pi / pi_old), row by row the `log_ratios`: [N, T] each."""
    import torch

    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    old = torch.where(mask, torch.full(mask.shape, -1.5, dtype=torch.float64), 0.0)
    shift = torch.zeros(mask.shape, dtype=torch.float64)
    shift[mask] = torch.tensor(log_ratios, dtype=torch.float64)
    return mask, old, shift


def training_loop_loss(
    logp: torch.Tensor,
    logp_old: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    correct: torch.Tensor,
    *,
    rule: Rule,
    alpha: float,
) -> torch.Tensor:
    """The loss of the rollouts that `mask` leaves, by the functions that `klearlib.rl.train` calls.

    Args:
        logp, logp_old, mask: [N, T]. advantages, correct: [N].
    """
    import torch

    from klearlib.rl.objective import rl_loss
    from klearlib.rl.rollouts import Row, token_batch

    rows = [
        Row(torch.arange(0), 0, old[of_row], float(advantage), bool(is_correct))
        for old, of_row, advantage, is_correct in zip(
            logp_old, mask, advantages, correct, strict=True
        )
        if of_row.any()
    ]
    return rl_loss(logp[mask], token_batch(rows, rows), rule=rule, alpha=alpha)[0]


def alpha_gradients(alphas: Sequence[float], *, eps_low: float, eps_high: float) -> Iterator[dict]:
    """d(loss)/d(log pi) of Eq. 14 on the ten tokens of four responses, two of them correct: a row
    for each alpha.

    Autograd of the printed sum and of the training loop's loss against the closed form -F A / (all
    tokens) - alpha / (tokens of correct responses); `LM_part_split`: where two micro-batches take
    their own denominators (D5).
    """
    import torch

    from klearlib.rl.advantages import group_advantages
    from klearlib.rl.coefficients import coefficient, gppo
    from klearlib.rl.objective import positive_lm_loss

    mask, logp_old, shift = old_and_shift(_LENGTHS, _LOG_RATIOS)
    correct = torch.tensor(_CORRECT)
    rewards = torch.where(correct, 1.0, -1.0).double()
    advantages = group_advantages(rewards[None])[0]
    rule = gppo(eps_low=eps_low, eps_high=eps_high)
    positive = (mask & correct[:, None]).double()
    push = advantages[:, None] * coefficient(shift.exp(), advantages[:, None], rule)
    for alpha in alphas:
        logp = (logp_old + shift).requires_grad_()
        per_token = printed_objective(
            "gppo", logp, logp_old, advantages[:, None], eps_low=eps_low, eps_high=eps_high
        )
        policy = -per_token[mask].sum() / mask.sum()
        printed = policy - alpha * (logp * positive).sum() / positive.sum()
        loop = training_loop_loss(logp, logp_old, advantages, mask, correct, rule=rule, alpha=alpha)
        closed = -push * mask / mask.sum() - alpha * positive / positive.sum()
        split = sum(
            alpha * positive_lm_loss(logp[part], mask[part], correct[part]) / 2
            for part in (slice(0, 2), slice(2, 4))
        )
        found, of_loop, of_split = (
            torch.autograd.grad(value, logp, retain_graph=True, allow_unused=True)[0]
            for value in (printed, loop, split)
        )
        yield {
            "alpha": alpha,
            "tokens": int(mask.sum()),
            "positive_tokens": int(positive.sum()),
            "correct_token": found[0, 0].item(),
            "wrong_token": found[1, 0].item(),
            "LM_part": -alpha / int(positive.sum()),
            "LM_part_split_first": of_split[0, 0].item(),
            "LM_part_split_third": of_split[2, 0].item(),
            "autograd_error": (found - closed).abs().max().item(),
            "training_loop_error": (of_loop - closed).abs().max().item(),
        }


def zero_advantage_gradients(alphas: Sequence[float]) -> Iterator[dict]:
    """d(loss)/d(log pi) of a token of a mixed, a solved and a failed group, with and without the
    filter: a row for each alpha and filter.

    The loss is the training loop's (Eqs. 7, 13, 14) at ratio 1; the closed form is -A / (tokens
    that are left) - alpha / (tokens of correct responses that are left), by hand from the rewards.
    """
    import torch

    from klearlib.rl.advantages import group_advantages, nonzero_groups
    from klearlib.rl.coefficients import gppo

    rewards = torch.tensor(list(_GROUPS.values()), dtype=torch.float64)
    advantages = group_advantages(rewards)
    lengths = torch.tensor(_GROUP_LENGTHS).flatten()
    everything = torch.arange(int(lengths.max())) < lengths[:, None]
    correct = (rewards > 0).flatten()
    # One right answer among three: mean -1/3, population deviation sqrt(8) / 3.
    by_hand = torch.tensor([4.0, -2.0, -2.0, *[0.0] * 6], dtype=torch.float64) / 8**0.5
    rule = gppo(eps_low=0.2, eps_high=0.28)
    for alpha in alphas:
        for name in ("filter", "no filter"):
            kept = nonzero_groups(advantages) | (name != "filter")
            mask = everything & kept.repeat_interleave(rewards.shape[1])[:, None]
            logp = torch.full(mask.shape, -1.0, dtype=torch.float64, requires_grad=True)
            loss = training_loop_loss(
                logp, logp.detach(), advantages.flatten(), mask, correct, rule=rule, alpha=alpha
            )
            (found,) = torch.autograd.grad(loss, logp)
            positive = (mask & correct[:, None]).double()
            closed = -by_hand[:, None] * mask / mask.sum() - alpha * positive / positive.sum()
            yield {
                "alpha": alpha,
                "arm": name,
                "tokens": int(mask.sum()),
                "positive_tokens": int(positive.sum()),
                "mixed_correct": found[0, 0].item(),
                "mixed_wrong": found[1, 0].item(),
                "solved": found[3, 0].item() + 0.0,
                "failed": found[6, 0].item() + 0.0,  # -0.0 becomes 0.0
                "largest_error": (found - closed).abs().max().item(),
            }
