"""The table of coefficients F for every rule, against the printed equations."""

import math

import pytest
import torch
from printed_equations import SPECS, expected_coefficient, printed_gradient

from klearlib.rl.coefficients import (
    CORNERS,
    cispo,
    coefficient,
    corner_masks,
    gppo,
    largest_ratio,
    ppo_clip,
    unclipped,
)
from klearlib.rl.objective import policy_loss
from klearlib.rl.rule_specs import rule_from

RATIOS = [0.5, 0.79, 1, 1.25, 1.3, 2, 12]  # 1.25: between the ends of PPO and of Clip-Higher
CLIP = {"eps_low": 0.2, "eps_high": 0.28}

# rule -> F at RATIOS for A > 0 and for A < 0, typed from the table of the measured peers.
TABLE = {
    "unclipped": ([0.5, 0.79, 1, 1.25, 1.3, 2, 12], [0.5, 0.79, 1, 1.25, 1.3, 2, 12]),
    "clip_higher_dual": ([0.5, 0.79, 1, 1.25, 0, 0, 0], [0, 0, 1, 1.25, 1.3, 2, 0]),
    "clip_higher": ([0.5, 0.79, 1, 1.25, 0, 0, 0], [0, 0, 1, 1.25, 1.3, 2, 12]),
    "gppo": ([0.5, 0.79, 1, 1.25, 1.28, 1.28, 1.28], [0.8, 0.8, 1, 1.25, 1.3, 2, 12]),
    "gppo_general": ([0.5, 0.79, 1, 1.25, 2.56, 2.56, 2.56], [0.4, 0.4, 1, 1.25, 1.3, 2, 12]),
    "gppo_released": ([0.5, 0.79, 1, 1.25, 1.28, 1.28, 1.28], [0.8, 0.8, 1, 1.25, 1.3, 2, 0]),
    "cispo": ([0.8, 0.8, 1, 1.25, 1.28, 1.28, 1.28], [0.8, 0.8, 1, 1.25, 1.28, 1.28, 1.28]),
}


@pytest.mark.parametrize("size", [1.0, 0.3])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("rule", TABLE)
def test_table_of_all_rules(rule, sign, size):
    expected = torch.tensor(TABLE[rule][0 if sign > 0 else 1], dtype=torch.float64)
    ratio = torch.tensor([RATIOS], dtype=torch.float64)
    advantage = torch.tensor([sign * size], dtype=torch.float64)
    found = coefficient(ratio, advantage[:, None], rule_from(SPECS[rule]))
    torch.testing.assert_close(found[0], expected, rtol=1e-12, atol=0)

    logp = ratio.log().requires_grad_()
    loss = policy_loss(
        logp,
        torch.zeros_like(ratio),
        advantage,
        torch.ones_like(ratio, dtype=torch.bool),
        rule=rule_from(SPECS[rule]),
        denominator=1,
    )
    (gradient,) = torch.autograd.grad(loss, logp)
    torch.testing.assert_close(-gradient[0] / advantage, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("rule", TABLE)
def test_coefficient_is_autograd_of_the_printed_equation(rule):
    # 0.03 keeps off the ties at 0.8, 1.28 and 10, where autograd of min and max is arbitrary.
    for ratio in [10 ** (k / 4 + 0.03) for k in range(-24, 25)]:
        for advantage in (-2.0, -0.5, 0.5, 2.0):
            printed = printed_gradient(rule, ratio, advantage)
            by_table = expected_coefficient(rule, ratio, advantage) * advantage
            assert by_table == pytest.approx(printed, rel=1e-9), (ratio, advantage)
            found = coefficient(
                torch.tensor([ratio], dtype=torch.float64),
                torch.tensor([advantage], dtype=torch.float64),
                rule_from(SPECS[rule]),
            )
            assert found.item() * advantage == pytest.approx(printed, rel=1e-9), (ratio, advantage)


def test_corners_partition_the_tokens_outside_the_range():
    ratio = torch.tensor([0.5, 0.5, 0.5, 2.0, 2.0, 2.0, 1.0, 1.2], dtype=torch.float64)
    advantage = torch.tensor([-1.0, 1.0, 0.0, -1.0, 1.0, 0.0, 1.0, -1.0], dtype=torch.float64)
    masks = corner_masks(ratio, advantage, gppo(**CLIP))
    where = {name: mask.nonzero().flatten().tolist() for name, mask in masks.items()}
    assert where == {
        "low_negative": [0],
        "low_positive": [1],
        "high_negative": [3],
        "high_positive": [4],
    }
    assert set(where) == set(CORNERS)
    assert not any(mask.any() for mask in corner_masks(ratio, advantage, unclipped()).values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_huge_ratio_is_capped_and_never_zero(dtype):
    ratio = torch.tensor([math.inf, torch.finfo(dtype).max], dtype=dtype)
    for advantage in (torch.tensor(-1.0, dtype=dtype), torch.tensor(1.0, dtype=dtype)):
        found = coefficient(ratio, advantage, unclipped())
        assert (found == largest_ratio(dtype)).all()
    bounded = coefficient(ratio, torch.tensor(1.0, dtype=dtype), gppo(**CLIP))
    torch.testing.assert_close(bounded, torch.full_like(bounded, 1.28))


def test_smallest_ratio_keeps_the_bounded_gradient_of_gppo():
    zero = torch.tensor([0.0])
    assert coefficient(zero, torch.tensor(-1.0), gppo(**CLIP)).item() == pytest.approx(0.8)
    assert coefficient(zero, torch.tensor(-1.0), ppo_clip(**CLIP)).item() == 0
    assert coefficient(zero, torch.tensor(1.0), cispo(**CLIP)).item() == pytest.approx(0.8)


NO_NUMBERS = (math.nan, math.inf)


@pytest.mark.parametrize(
    ("make", "name", "value"),
    [
        *((make, "eps_low", value) for make in (ppo_clip, gppo, cispo)
          for value in (-0.1, 1.1, math.nan)),
        *((make, "eps_high", value) for make in (ppo_clip, gppo, cispo)
          for value in (-0.1, *NO_NUMBERS)),
        *((make, "dual_clip", value) for make in (ppo_clip, gppo)
          for value in (0.5, 1.28, True, *NO_NUMBERS)),
        *((gppo, name, value) for name in ("beta_low", "beta_high")
          for value in (-1.0, 1e39, 10**400, None, "1", True, *NO_NUMBERS)),
    ],
)  # fmt: skip
def test_a_bad_number_of_a_rule_is_refused(make, name, value):
    with pytest.raises(ValueError, match=name):
        make(**CLIP | {name: value})


@pytest.mark.parametrize(
    "spec",
    [
        {"name": "ppo"},
        {"name": "gppo", "eps_low": 0.2},
        {"name": "unclipped", **CLIP},
        {"name": "gppo", **CLIP, "beta": 1.0},
        {"name": "f", "source": "def f(ratio, advantage): return ratio"},
    ],
)
def test_bad_rule_description_is_refused(spec):
    with pytest.raises(ValueError, match="rule"):
        rule_from(spec)
