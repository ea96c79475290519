"""Rules from a text of Python: what is refused and why, and that F is what trains."""

from __future__ import annotations

import pytest
import torch

from klearlib.rl.coefficients import Rule, coefficient, corner_masks, gppo, ppo_clip
from klearlib.rl.objective import policy_loss
from klearlib.rl.rule_specs import check_function, rule_from

CLIP = {"eps_low": 0.2, "eps_high": 0.28}
GOOD = """
from __future__ import annotations

from dataclasses import dataclass

import torch

from klearlib.rl.coefficients import Rule

corners = Rule("half", eps_low=0.1, eps_high=0.3, low_negative=0.4, high_positive=0.64)


@dataclass
class Numbers:
    low: float = 0.5


def plain(ratio, advantage):
    return torch.where(advantage > 0, ratio.clamp(max=2.0), ratio.clamp(min=Numbers().low, max=9.0))


def gppo(ratio, advantage, *, eps_low, eps_high, beta=1.0):
    low = torch.where((ratio < 1 - eps_low) & (advantage < 0), beta * (1 - eps_low), ratio)
    return torch.where((ratio > 1 + eps_high) & (advantage > 0), beta * (1 + eps_high), low)


clamped = lambda r, a: r.clamp_(0.8, 1.28)
"""


def own(name: str, source: str = GOOD, **values) -> Rule:
    return rule_from({"name": name, "source": source, **CLIP, **values})


@pytest.mark.parametrize("name", ["plain", "gppo", "clamped"])
def test_a_good_function_passes(name):
    check_function(own(name))


def test_f_of_a_function_is_the_gradient_of_the_loss():
    ratio = torch.tensor([[0.3, 0.9, 1.1], [2.5, 0.4, 30.0]], dtype=torch.float64)
    advantage = torch.tensor([-2.0, 1.0], dtype=torch.float64)
    logp = ratio.log().requires_grad_()
    loss = policy_loss(
        logp, torch.zeros_like(ratio), advantage, torch.ones_like(ratio), rule=own("plain")
    )
    (gradient,) = torch.autograd.grad(loss, logp)
    expected = torch.tensor([[0.5, 0.9, 1.1], [2.0, 0.4, 2.0]], dtype=torch.float64)
    torch.testing.assert_close(-gradient * 6 / advantage[:, None], expected)


def test_a_function_gets_the_clip_range_and_values_of_its_own():
    ratio = torch.tensor([0.5, 0.75, 1.0, 1.5, 3.0])
    for advantage in (torch.tensor(1.0), torch.tensor(-1.0)):
        wanted = coefficient(ratio, advantage, gppo(**CLIP, beta_low=0.5, beta_high=0.5))
        assert torch.equal(coefficient(ratio, advantage, own("gppo", beta=0.5)), wanted)
    # The corners in which the metrics count its tokens are those of the clip range too.
    assert corner_masks(ratio, torch.tensor(-1.0), own("plain"))["low_negative"].sum() == 2


OF_TOKEN = """
import torch

from klearlib.rl.coefficients import as_loss


def trust(ratio, advantage, *, logp, logp_old, entropy, eps_high):
    # DPPO's kind: by the change of the probability, and more of it where the entropy is high.
    moved = (logp.exp() - logp_old.exp()).abs()
    return torch.where(moved > eps_high, torch.zeros_like(ratio), ratio * (1 + entropy))


@as_loss
def clipped(ratio, advantage, *, eps_low, eps_high):
    bounded = ratio.clamp(1 - eps_low, 1 + eps_high)
    return -torch.min(ratio * advantage, bounded * advantage)


@as_loss
def squared(ratio, advantage, *, logp_old):
    return -advantage * ratio.log().clamp(-5, 5).sin() * logp_old.exp()


def certain(ratio, advantage, *, logp):
    return ratio.clamp(max=9.0) * (1 + (-logp).sqrt())


@as_loss
def likelihood(ratio, advantage):
    return -advantage * ratio.log()


@as_loss
def summed(ratio, advantage):
    return (ratio * advantage).sum()
"""


def of_the_loss(rule: Rule, logp_old, ratio, advantage, entropy):
    """F of a row of tokens [T] by autograd of the loss that trains."""
    logp = (logp_old + ratio.log()).requires_grad_()
    rows = (logp[None], logp_old[None], advantage[None], torch.ones_like(logp)[None])
    loss = policy_loss(*rows, rule=rule, denominator=1.0, entropy=entropy[None])
    (gradient,) = torch.autograd.grad(loss, logp)
    return -gradient / advantage


def test_a_function_gets_log_probabilities_and_entropy_of_each_token():
    check_function(own("trust", OF_TOKEN))
    ratio = torch.tensor([1.5, 1.5, 0.5], dtype=torch.float64)
    old = torch.tensor([0.6, 0.01, 0.1], dtype=torch.float64).log()
    advantage = torch.tensor([1.0, 1.0, -2.0], dtype=torch.float64)
    entropy = torch.tensor([0.5, 2.0, 0.0], dtype=torch.float64)
    found = of_the_loss(own("trust", OF_TOKEN), old, ratio, advantage, entropy)
    expected = torch.tensor([0.0, 4.5, 0.5], dtype=torch.float64)  # moved by .3, .005, .05
    torch.testing.assert_close(found, expected)


def test_a_loss_is_differentiated():
    """Clip-Higher written as its printed loss has Clip-Higher's F."""
    rule = own("clipped", OF_TOKEN)
    check_function(rule)
    ratio = torch.tensor([0.3, 0.9, 1.1, 2.5] * 2, dtype=torch.float64)
    advantage = torch.tensor([-1.5] * 4 + [0.5] * 4, dtype=torch.float64)
    old = torch.full_like(ratio, -1.0)
    found = of_the_loss(rule, old, ratio, advantage, torch.ones_like(ratio))
    torch.testing.assert_close(found, coefficient(ratio, advantage, ppo_clip(**CLIP)))
    check_function(own("certain", OF_TOKEN))  # no probability above 1 is tried
    likelihood = own("likelihood", OF_TOKEN)  # nor the logarithm of 0
    check_function(likelihood)
    torch.testing.assert_close(coefficient(ratio, advantage, likelihood), torch.ones_like(ratio))
    # F = r cos(log r) / r * pi_old; where A is 0 nothing is pushed, and nothing divided.
    curved = own("squared", OF_TOKEN)
    found = of_the_loss(curved, old, ratio, advantage, torch.ones_like(ratio))
    torch.testing.assert_close(found, ratio.log().cos() * old.exp())
    zero = coefficient(ratio, torch.zeros(()).double(), curved, logp_old=old)
    assert torch.equal(zero, torch.zeros_like(ratio))


def test_what_a_token_has_is_given_by_nobody_and_missed_by_name():
    with pytest.raises(ValueError, match="entropy is filled in per token"):
        own("trust", OF_TOKEN, entropy=1.0)
    ratio = torch.tensor([1.0])
    with pytest.raises(
        ValueError, match="rule trust needs per-token logp, logp_old, entropy: pass logp="
    ):
        coefficient(ratio, ratio, own("trust", OF_TOKEN))
    with pytest.raises(
        ValueError, match=r"a loss must return a tensor \(900,\), a value per token"
    ):
        check_function(own("summed", OF_TOKEN))


def test_a_rule_of_a_file_has_its_own_numbers():
    assert own("corners") == Rule("half", 0.1, 0.3, low_negative=0.4, high_positive=0.64)


def test_extreme_ratios_reach_a_function_capped():
    huge = torch.tensor([torch.inf, torch.finfo(torch.float32).max])
    found = coefficient(huge, torch.tensor(1.0), own("f", "def f(r, a): return r + 0 * a"))
    assert torch.isfinite(found).all()


BAD = {
    "return ratio[:1]": r"F must return torch.float32 \(900,\) like the ratio, got .* \(1,\)",
    "return ratio.to(torch.float16)": "got torch.float16",
    "return 1 / ratio": "F is inf at ratio 0, advantage -3: bound it",
    "return ratio ** 2": r"F is \S+ at ratio 1\.84e\+19",
    "return ratio / ratio.mean()": "F of a token depends on other tokens",
    "return torch.rand_like(ratio)": "from call to call",
    "return ratio if ratio > 1 else advantage": "ratios from 0 to 1.8e.19: line 2: RuntimeError",
    "assert ratio.max() < 100; return ratio": "F fails on ratios .*: line 2: AssertionError$",
    "raise SystemExit(3)": "F fails on ratios from .*: line 2: SystemExit: 3",
}


@pytest.mark.parametrize("body", BAD)
def test_a_function_that_is_no_rule_is_refused_in_one_line(body):
    rule = own("f", f"import torch\ndef f(ratio, advantage): {body}")
    with pytest.raises(ValueError, match=BAD[body]) as caught:
        check_function(rule)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def f(:", "line 1: invalid syntax"),
        ("import sys\nsys.exit(3)", "line 2: SystemExit: 3"),
        ("def half(r, a): return r\n_g = half", "the file has no rule 'f'; its rules: half. "),
        ("def f(ratio): return ratio", "must take ratio and advantage.*too many"),
        ("def f(ratio, advantage, x): return ratio", "must take ratio.*'x'"),
        (
            "from klearlib.rl.coefficients import Rule\nf = Rule('f', eps_low=-3, eps_high=0.3)",
            r"line 2: ValueError: eps_low must be a number in \[0, 1\], got -3",
        ),
    ],
)
def test_a_text_without_the_rule_is_refused_in_one_line(source, words):
    with pytest.raises(ValueError, match=words) as caught:
        own("f", source)
    assert "\n" not in str(caught.value)


def test_values_that_a_function_does_not_take_are_refused():
    with pytest.raises(ValueError, match="unexpected keyword argument 'sharp'"):
        own("gppo", sharp=1.0)


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"low_negative": float("inf")}, r"low_negative must be a number in \[-1e\+18, 1e\+18\]"),
        ({"high_positive": "1.28"}, "high_positive must be a number in .* got '1.28'"),
        ({"function": 5}, r"function must take \(ratio, advantage\)"),
        ({"function": abs, "loss": abs}, "given by a function, so loss must be None"),
    ],
)
def test_a_rule_refuses_bad_numbers(numbers, words):
    with pytest.raises(ValueError, match=words):
        Rule("mine", **CLIP | numbers)
