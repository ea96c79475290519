"""Group advantages (Eq. 4) by hand, and groups that teach nothing."""

import math

import pytest
import torch

from klearlib.rl.advantages import group_advantages, mixed_accuracy_groups, nonzero_groups


def by_hand(rewards: list[float], *, divisor: int) -> list[float]:
    mean = sum(rewards) / len(rewards)
    variance = sum((reward - mean) ** 2 for reward in rewards) / divisor
    return [(reward - mean) / math.sqrt(variance) for reward in rewards]


def test_equation_4_by_hand():
    found = group_advantages(torch.tensor([[1.0, -1.0, -1.0, -1.0]], dtype=torch.float64))
    # mean -1/2, population std sqrt(3)/2
    root = math.sqrt(3)
    torch.testing.assert_close(
        found, torch.tensor([[root, -1 / root, -1 / root, -1 / root]]).double()
    )


def test_each_group_by_its_own_mean_and_std():
    generator = torch.Generator().manual_seed(0)
    rewards = torch.randn(7, 5, generator=generator, dtype=torch.float64) * 10 + 3
    found = group_advantages(rewards)
    for row, mine in zip(found.tolist(), rewards.tolist(), strict=True):
        assert row == pytest.approx(by_hand(mine, divisor=5), rel=1e-12)
    torch.testing.assert_close(found.mean(1), torch.zeros(7).double(), rtol=0, atol=1e-12)
    torch.testing.assert_close(found.square().mean(1), torch.ones(7).double())


def test_scale_and_shift_of_the_reward_change_nothing():
    rewards = torch.tensor([[0.0, 0.25, 0.5, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(group_advantages(rewards), group_advantages(2 * rewards - 1))


def test_unbiased_std_shrinks_by_the_root_of_g_minus_1_over_g():
    rewards = torch.tensor([[1.0, -1.0, -1.0, 1.0, 1.0, -1.0, -1.0, -1.0]], dtype=torch.float64)
    population = group_advantages(rewards)
    unbiased = group_advantages(rewards, std="unbiased")
    assert unbiased[0].tolist() == pytest.approx(by_hand(rewards[0].tolist(), divisor=7))
    assert (unbiased / population)[0].tolist() == pytest.approx([0.935414] * 8, abs=1e-6)


def test_epsilon_is_added_to_the_std():
    rewards = torch.tensor([[1.0, -1.0]], dtype=torch.float64)
    found = group_advantages(rewards, epsilon=0.25)
    assert found[0].tolist() == pytest.approx([0.8, -0.8])


@pytest.mark.parametrize("std", ["population", "unbiased"])
@pytest.mark.parametrize("epsilon", [0.0, 1e-6])
@pytest.mark.parametrize("value", [0.0, 1.0, -1.0, 0.1, 1 / 3, 1e-12, 1e9])
def test_constant_groups_are_exactly_zero(value, epsilon, std):
    for dtype in (torch.float32, torch.float64):
        rewards = torch.full((2, 8), value, dtype=dtype)
        found = group_advantages(rewards, std=std, epsilon=epsilon)
        assert torch.equal(found, torch.zeros_like(found))


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
    found = group_advantages(ways[None])
    assert torch.equal(found, torch.zeros_like(found))
    assert not nonzero_groups(found).any()


def test_a_real_difference_is_never_taken_for_rounding():
    # The smallest step of a pass rate over 1,000 tests, beside large common reward.
    rewards = torch.tensor([[0.999, 1.0], [1.0, 0.999]], dtype=torch.float32)
    torch.testing.assert_close(group_advantages(rewards), torch.tensor([[-1.0, 1.0], [1.0, -1.0]]))


@pytest.mark.parametrize("std", ["population", "unbiased"])
def test_left_out_rollouts_change_neither_mean_nor_std(std):
    rewards = torch.tensor([[1.0, -1.0, -1.0, 99.0], [5.0, 1.0, -1.0, 7.0]], dtype=torch.float64)
    keep = torch.tensor([[True, True, True, False], [False, True, True, False]])
    found = group_advantages(rewards, std=std, keep=keep)
    first = by_hand([1.0, -1.0, -1.0], divisor=3 if std == "population" else 2)
    second = by_hand([1.0, -1.0], divisor=2 if std == "population" else 1)
    assert found[0].tolist() == pytest.approx([*first, 0.0])
    assert found[1].tolist() == pytest.approx([0.0, *second, 0.0])


@pytest.mark.parametrize("std", ["population", "unbiased"])
def test_group_with_fewer_than_two_kept_rollouts_is_zero(std):
    rewards = torch.tensor([[1.0, -1.0], [1.0, -1.0]])
    keep = torch.tensor([[True, False], [False, False]])
    assert torch.equal(group_advantages(rewards, std=std, keep=keep), torch.zeros(2, 2))


def test_constant_only_after_leaving_out_is_zero():
    rewards = torch.tensor([[0.3, 0.3, 1.0]])
    keep = torch.tensor([[True, True, False]])
    assert torch.equal(group_advantages(rewards, keep=keep), torch.zeros(1, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_is_that_of_the_rewards(dtype):
    assert group_advantages(torch.tensor([[1.0, -1.0]], dtype=dtype)).dtype == dtype


@pytest.mark.parametrize(
    ("rewards", "options", "words"),
    [
        (torch.tensor([[1.0], [0.0]]), {}, "at least 2"),
        (torch.tensor([1.0, 0.0]), {}, "P, G"),
        (torch.tensor([[1.0, math.nan]]), {}, "finite"),
        (torch.tensor([[1.0, math.inf]]), {}, "finite"),
        (torch.tensor([[1, 0]]), {}, "floating"),
        (torch.tensor([[1.0, 0.0]]), {"std": "sample"}, "std"),
        (torch.tensor([[1.0, 0.0]]), {"keep": torch.tensor([[1, 0]])}, "keep"),
        (torch.tensor([[1.0, 0.0]]), {"keep": torch.tensor([True, False])}, "keep"),
    ],
)
def test_bad_arguments_are_refused(rewards, options, words):
    with pytest.raises(ValueError, match=words):
        group_advantages(rewards, **options)


def test_the_two_filters_differ_on_partial_credit():
    rewards = torch.tensor(
        [
            [1.0, 1.0, 1.0, 1.0],  # all right
            [0.0, 0.0, 0.0, 0.0],  # all wrong
            [0.25, 0.5, 0.0, 0.0],  # none right, different partial credit
            [1.0, 0.5, 0.0, 1.0],  # some right
        ]
    )
    assert nonzero_groups(group_advantages(rewards)).tolist() == [False, False, True, True]
    assert mixed_accuracy_groups(rewards == 1.0).tolist() == [False, False, False, True]


def test_filter_wants_groups():
    with pytest.raises(ValueError, match="P, G"):
        nonzero_groups(torch.tensor([1.0, -1.0]))
