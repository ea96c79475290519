"""Rules and options of the RL loop: each one really changes what it names, and nothing else."""

import pytest
import torch
from metric_names import METRICS
from printed_equations import SPECS
from tiny_runs import lines, run, weights

from klearlib.rl import train

SEVERAL_UPDATES = {"num_steps": 2, "mini_batch_problems": 2}


FIRST = ("clip_higher", "gppo", "unclipped")


@pytest.mark.parametrize(
    "rule", [r if r in FIRST else pytest.param(r, marks=pytest.mark.slow) for r in SPECS]
)
def test_every_rule_trains_on_the_same_first_rollouts(plain, finished, rule):
    found = lines(finished(rule=SPECS[rule], **SEVERAL_UPDATES))
    assert all(line["train/skipped_updates"] == 0 for line in found)
    for key in METRICS:
        if key.startswith("rollout/"):
            assert found[0][key] == lines(plain)[0][key]
    # On the second rollouts more tokens leave the clip range.
    shares = {
        corner: found[1][f"train/gradient_share_{corner}"]
        for corner in ("low_negative", "high_positive", "low_positive", "high_negative")
    }
    assert sum(shares.values()) <= 1
    if rule == "unclipped":
        assert set(shares.values()) == {0}
    elif rule.startswith("clip_higher"):
        assert shares["low_negative"] == shares["high_positive"] == 0
    else:
        assert shares["low_negative"] > 0


def test_rules_lead_to_different_weights(finished):
    ends = [weights(finished(rule=SPECS[name], **SEVERAL_UPDATES)) for name in FIRST]
    for index, one in enumerate(ends):
        assert not any(torch.equal(one, other) for other in ends[index + 1 :])


def test_alpha_adds_the_lm_loss_on_correct_responses(finished):
    (line,) = lines(finished(alpha=0.5))
    assert line["train/positive_tokens"] > 0 and line["train/lm_loss"] > 0
    assert not torch.equal(weights(finished(alpha=0.5)), weights(finished()))
    # One update on all rollouts; groups of one verdict are filtered for both losses.
    (plain_line,) = lines(finished())
    assert line["train/lm_loss"] == plain_line["train/lm_loss"]
    assert line["train/grad_norm"] != plain_line["train/grad_norm"]


def test_a_run_that_goes_on_from_another_draws_the_problems_after_its(
    inputs, tmp_path, monkeypatch
):
    drawn = []
    original = train.form_batch

    def recorded(groups, settings):
        drawn.append([group.problem.id for group in groups])
        return original(groups, settings)

    monkeypatch.setattr(train, "form_batch", recorded)
    how = {"mini_batch_problems": 6, "eval_every": 9}
    run(tmp_path / "whole", inputs, num_steps=2, **how)
    run(tmp_path / "second", inputs, num_steps=1, steps_before=1, **how)
    assert drawn[2] == drawn[1] != drawn[0]


def test_trainer_logprobs_train_the_same_and_report_the_mismatch(finished):
    # One update, so that both ways measure the same tokens.
    folders = [finished(learning_rate=2e-4, **how) for how in ({}, {"logp_old": "trainer"})]
    (sampler,), (trainer,) = map(lines, folders)
    assert torch.allclose(*map(weights, folders), atol=1e-3)
    # logp_old is the trainer's now, but the sampler's difference is still what is reported. It is
    # rounding, of which a pass with a graph has another than one without.
    for key in ("train/mismatch_mean", "train/mismatch_max"):
        assert trainer[key] == pytest.approx(sampler[key], rel=0.5) and trainer[key] > 0


def test_warm_up_is_linear_in_the_step(inputs, tmp_path):
    found = run(tmp_path, inputs, warmup_steps=2, max_new_tokens=1)
    rates = [line["train/learning_rate"] for line in found]
    assert rates == pytest.approx([2e-4 / 3, 4e-4 / 3, 2e-4])


@pytest.mark.parametrize(
    "change",
    [
        {"group_epsilon": 1.0},
        {"weight_decay": 10.0},
        {"max_grad_norm": 1e-9},
        {"format_scores": "released", "format_penalty": 0.0},
        {"format_penalty": 1.0},
        {"temperature": 0.7},
    ],
)
def test_options_reach_the_weights(finished, change):
    assert not torch.equal(weights(finished()), weights(finished(**change)))
