"""Group advantages (Eq. 4) by hand, and groups that teach nothing."""

import math

import pytest
import torch

from klearlib.rl.advantages import STDS, group_advantages, nonzero_groups


def by_hand(rewards: list[float], *, divisor: int, epsilon: float = 0.0) -> list[float]:
    mean = sum(rewards) / len(rewards)
    variance = sum((reward - mean) ** 2 for reward in rewards) / divisor
    return [(reward - mean) / (math.sqrt(variance) + epsilon) for reward in rewards]


@pytest.mark.parametrize(("std", "divisor"), [("population", 5), ("unbiased", 4)])
@pytest.mark.parametrize("epsilon", [0.0, 0.25])
def test_equation_4_each_group_by_its_own_mean_and_std(std, divisor, epsilon):
    draws = torch.Generator().manual_seed(0)
    rewards = torch.randn(7, 5, generator=draws, dtype=torch.float64) * 10 + 3
    found = group_advantages(rewards, std=std, epsilon=epsilon)
    for row, mine in zip(found.tolist(), rewards.tolist(), strict=True):
        assert row == pytest.approx(by_hand(mine, divisor=divisor, epsilon=epsilon), rel=1e-12)


def test_without_a_deviation_advantages_are_plain_differences():
    """Dr. GRPO's: A = reward - mean, whatever epsilon is."""
    rewards = torch.tensor([[1.0, -1.0, -1.5, 1.0], [0.25, 0.75, 0.5, 0.5]], dtype=torch.float64)
    for epsilon in (0.0, 1e-6, 1e12):
        found = group_advantages(rewards, std="none", epsilon=epsilon)
        assert found.tolist() == [[1.125, -0.875, -1.375, 1.125], [-0.25, 0.25, 0.0, 0.0]]
    keep = torch.tensor([[1, 1, 0, 1], [0, 1, 0, 0]]).bool()
    found = group_advantages(rewards, std="none", keep=keep)
    torch.testing.assert_close(found, torch.tensor([[2, -4, 0, 2], [0] * 4]).double() / 3)


def test_the_deviation_of_the_batch_and_the_mean_of_the_others():
    rewards = torch.tensor([[1.0, -1.0, 0.0], [4.0, 1.0, 1.0], [2.0, 2.0, 2.0]]).double()
    centred = torch.tensor([[1.0, -1.0, 0.0], [2.0, -1.0, -1.0], [0.0, 0.0, 0.0]]).double()
    scaled = group_advantages(rewards, std="batch", epsilon=0.5)
    torch.testing.assert_close(scaled, centred / (math.sqrt(8 / 9) + 0.5))
    others = group_advantages(rewards, std="leave_one_out")
    assert others.tolist() == [[1.5, -1.5, 0.0], [3.0, -1.5, -1.5], [0.0, 0.0, 0.0]]
    keep = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 0, 0]]).bool()
    found = group_advantages(rewards, std="leave_one_out", keep=keep)
    assert found.tolist() == [[2.0, -2.0, 0.0], [3.0, -1.5, -1.5], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize("std", STDS)
@pytest.mark.parametrize("epsilon", [0.0, 1e-6])
@pytest.mark.parametrize("value", [0.0, -1.0, 1 / 3, 1e-12, 1e9])
def test_constant_groups_are_exactly_zero(value, epsilon, std):
    for dtype in (torch.float32, torch.float64):
        rewards = torch.full((2, 8), value, dtype=dtype)
        found = group_advantages(rewards, std=std, epsilon=epsilon)
        assert torch.equal(found, torch.zeros_like(rewards)) and found.dtype == dtype


def test_one_pass_rate_computed_in_different_ways_is_constant():
    one = torch.tensor(1.0)
    ways = torch.stack(
        [
            one / 10,
            1 - one * 0.9,
            (one * 0.1 + one * 0.2) - one * 0.2,
            torch.tensor(3.0) * 0.1 / 3,
            torch.tensor(0.7) / 7,
            sum([torch.tensor(1.0) / 160] * 16),
        ]
    )
    assert len(set(ways.tolist())) > 1, "the test needs values that rounding made different"
    for std in ("population", "none"):
        found = group_advantages(ways[None], std=std)
        assert torch.equal(found, torch.zeros_like(found))
        assert not nonzero_groups(found).any()


def test_a_real_difference_is_never_taken_for_rounding():
    # The smallest step of a pass rate over 1,000 tests, beside large common reward.
    rewards = torch.tensor([[0.999, 1.0], [1.0, 0.999]], dtype=torch.float32)
    torch.testing.assert_close(group_advantages(rewards), torch.tensor([[-1.0, 1.0], [1.0, -1.0]]))


@pytest.mark.parametrize(("std", "less"), [("population", 0), ("unbiased", 1)])
def test_left_out_rollouts_change_neither_mean_nor_std(std, less):
    """A group of fewer than two others, or of equal ones, is zero."""
    rewards = torch.tensor(
        [[1.0, -1.0, -1.0, 99.0], [5.0, 1.0, -1.0, 7.0], [1, -1, 2, 3], [0.3, 0.3, 1.0, 0.3]],
        dtype=torch.float64,
    )
    keep = torch.tensor([[1, 1, 1, 0], [0, 1, 1, 0], [0, 1, 0, 0], [1, 1, 0, 1]]).bool()
    found = group_advantages(rewards, std=std, keep=keep).tolist()
    assert found[0] == pytest.approx([*by_hand([1.0, -1.0, -1.0], divisor=3 - less), 0.0])
    assert found[1] == pytest.approx([0.0, *by_hand([1.0, -1.0], divisor=2 - less), 0.0])
    assert found[2] == found[3] == [0.0] * 4


@pytest.mark.parametrize(
    ("rewards", "options", "words"),
    [
        ([[1.0], [0.0]], {}, "at least 2"),
        ([[1.0, math.nan]], {}, "finite"),
        ([[1.0, 0.0]], {"std": "sample"}, "std"),
        ([[1.0, 0.0]], {"epsilon": -1.0}, "epsilon"),
        ([[1.0, 0.0]], {"keep": torch.tensor([True, False])}, "keep"),
    ],
)
def test_bad_arguments_are_refused(rewards, options, words):
    with pytest.raises(ValueError, match=words):
        group_advantages(torch.tensor(rewards), **options)
