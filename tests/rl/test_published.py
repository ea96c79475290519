"""Every published rule has the gradient of its printed objective, by the code that trains."""

from dataclasses import replace

import pytest
import torch
from published_objectives import OBJECTIVES, Batch, example

from klearlib.params import RLOptions
from klearlib.rl.advantages import group_advantages
from klearlib.rl.mismatch import Mismatch, corrected, weighted
from klearlib.rl.objective import rl_loss
from klearlib.rl.rollouts import Row, token_batch
from klearlib.rl.rule_specs import MAKERS, check_function, rule_from
from klearlib.rl.rule_table import PUBLISHED

CLIP = {"eps_low": 0.2, "eps_high": 0.28}
PAPER = {
    "unclipped": {"name": "unclipped"},
    **{name: {"name": name, **CLIP} for name in ("clip_higher", "gppo", "cispo")},
}
# Our name of a rule, where its oracle has another.
ORACLES = {"topr": "topr_sequence"}
# The policy that sampled is the one that the ratio is taken of, as where one engine does both.
ONE_ENGINE = ("dppo_tv", "dppo_kl", "opsm")
SEEDS = range(4)


def rows_of(batch: Batch, logp: torch.Tensor, options: RLOptions) -> list[Row]:
    """The responses as the trainer has them, with `logp` as their old log-probabilities."""
    advantages = group_advantages(
        batch.rewards, std=options.group_std, epsilon=options.group_epsilon
    )
    width = batch.rewards.shape[1]
    return [
        Row(
            ids=torch.arange(int(mask.sum()) + 1),
            num_prompt=1,
            logp_old=values[mask].detach(),
            advantage=float(advantages[index // width, index % width]),
            is_correct=False,
            place=(index // width, index % width),
        )
        for index, (values, mask) in enumerate(zip(logp, batch.mask, strict=True))
    ]


def our_gradient(name: str, batch: Batch) -> torch.Tensor:
    spec, changed = PAPER.get(name), {}
    if spec is None:
        spec, changed = PUBLISHED[name].spec, PUBLISHED[name].options
    rule, options = rule_from(spec), RLOptions(**changed)
    rows, counts = rows_of(batch, batch.logp_old, options), Mismatch(max_tokens=batch.max_tokens)
    if (cap := options.sampler_correction) is not None:
        sampled = rows_of(batch, batch.logp_sampler, options)
        rows = corrected(rows, sampled, cap=cap, mismatch=counts)
    if rule.weights is not None:
        now = rows_of(batch, batch.logp, options)
        rows = weighted(rows, now, rule=rule, counts=counts)
    tokens = token_batch(rows, rows, normalizer=options.normalizer, max_tokens=batch.max_tokens)
    loss, *_ = rl_loss(
        batch.logp[batch.mask], tokens, rule=rule, alpha=0.0, entropy=batch.entropy[batch.mask]
    )
    (gradient,) = torch.autograd.grad(-loss, batch.logp)
    return gradient


def printed_gradient(name: str, batch: Batch) -> torch.Tensor:
    (gradient,) = torch.autograd.grad(OBJECTIVES[ORACLES.get(name, name)](batch), batch.logp)
    return gradient * batch.mask


def drawn(name: str, seed: int) -> Batch:
    batch = example(seed)
    return replace(batch, logp_sampler=batch.logp_old) if name in ONE_ENGINE else batch


@pytest.mark.parametrize("name", [*PAPER, *PUBLISHED])
def test_the_gradient_is_that_of_the_printed_objective(name):
    for seed in SEEDS:
        batch = drawn(name, seed)
        found, wanted = our_gradient(name, batch), printed_gradient(name, batch)
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)
        assert wanted.abs().sum() > 0


def test_no_rule_passes_for_another():
    """The batches of the test tell all rules apart: none of two has the other's gradient."""
    names, batches = [*PAPER, *PUBLISHED], [drawn("", seed) for seed in SEEDS]
    found = {n: torch.cat([our_gradient(n, b).flatten() for b in batches]) for n in names}
    for index, one in enumerate(names):
        for other in names[index + 1 :]:
            apart = (found[one] - found[other]).abs().max()
            assert apart > 1e-4, f"{one} and {other}"


@pytest.mark.parametrize("name", PUBLISHED)
def test_it_passes_the_check_of_own_rules(name):
    check_function(rule_from(PUBLISHED[name].spec))


def test_every_maker_is_used_and_every_rule_has_a_source():
    assert {each.name for each in PUBLISHED.values()} | {"cispo", "unclipped", "ppo_clip"} == {
        *MAKERS
    }
    assert all(each.source and each.title for each in PUBLISHED.values())
