"""Options of a run that change what samples, how fast it learns and what is measured."""

import dataclasses
import math

import pytest
import torch
from printed_equations import SPECS
from rollout_fakes import row, settings
from test_train_resume import assert_same_bytes
from tiny_runs import lines, run
from update_oracle import PASSES, RULE, SETTINGS, gradient, make_rows

from klearlib.errors import Stopped
from klearlib.policy.batch_plan import BatchPlan
from klearlib.rl import schedule, train
from klearlib.rl.coefficients import CORNERS, Rule, coefficient, corner_masks, one
from klearlib.rl.gradient_measures import INSIDE, corner_gradients
from klearlib.rl.metrics import UpdateSums
from klearlib.rl.mismatch import Mismatch
from klearlib.rl.policy_lag import PastWeights

LAGGED = {"policy_lag": 1, "learning_rate": 2e-3, "eval_every": 3}


def test_the_weights_of_lag_steps_ago_sample_and_those_of_now_come_back():
    model = torch.nn.Linear(1, 1, bias=False)
    past, used = PastWeights(model, lag=2), []
    for step in range(5):  # the weight is the number of steps that are done
        model.weight.data.fill_(float(step))
        past.keep()
        with past.in_use():
            used.append(model.weight.item())
        assert model.weight.item() == step
    assert used == [0, 0, 0, 1, 2]


@pytest.fixture(scope="module")
def lagged(inputs, tmp_path_factory):
    path = tmp_path_factory.mktemp("lagged")
    run(path, inputs, **LAGGED)
    return path


def test_a_lag_of_one_step_samples_twice_from_the_start(inputs, tmp_path, lagged):
    fresh, found = run(tmp_path, inputs, **LAGGED | {"policy_lag": 0}), lines(lagged)
    assert found[0]["rollout/reward_mean"] == fresh[0]["rollout/reward_mean"]
    # The first update of step 2 is off-policy: its ratios say so, and are no mismatch of engines.
    assert found[1]["train/kl_k3"] > 2 * fresh[1]["train/kl_k3"]
    assert found[1]["train/mismatch_mean"] is None is found[1]["train/pushed_down_share"]
    assert fresh[1]["train/mismatch_mean"] is not None


@pytest.mark.parametrize("stop", [1, 2])
def test_a_lagged_run_resumes_bit_for_bit(inputs, tmp_path, lagged, stop):
    with pytest.raises(Stopped):
        run(tmp_path, inputs, stop_at=stop, **LAGGED)
    run(tmp_path, inputs, **LAGGED)
    assert_same_bytes(tmp_path, lagged)


def test_warm_up_by_updates_goes_on_where_a_resumed_run_stopped(inputs, tmp_path):
    how = {"warmup_updates": 4, "zero_advantage_filter": "off", "max_new_tokens": 2}
    with pytest.raises(Stopped):
        run(tmp_path, inputs, stop_at=1, **how)
    found = [line["train/learning_rate"] for line in run(tmp_path, inputs, **how)]
    # Three updates a step; the last of each.
    assert found == pytest.approx([2e-4 * 3 / 5, 2e-4, 2e-4])


def test_the_validation_set_after_steps_1_and_2_and_every_so_often():
    chosen = settings(num_steps=9, eval_every=4, validation_every=3)
    found = {step: schedule.measured(chosen, step) for step in range(10)}
    both = ["benchmarks", "validation"]
    assert found == {
        **{0: both, 1: ["validation"], 2: ["validation"], 3: ["validation"], 4: ["benchmarks"]},
        **{5: [], 6: ["validation"], 7: [], 8: ["benchmarks"], 9: both},
    }
    plain = settings(num_steps=9, eval_every=4)
    assert [step for step in range(10) if schedule.measured(plain, step)] == [0, 4, 8, 9]


def in_region(region: str):
    """The rule of the tests, of the tokens of one region alone."""

    def f(ratio, advantage):
        corners = corner_masks(ratio, advantage, RULE)
        here = corners.get(region, ~torch.stack([*corners.values()]).any(0))
        return coefficient(ratio, advantage, RULE) * here

    return Rule(region, RULE.eps_low, RULE.eps_high, function=f)


def test_the_gradients_of_the_corners_are_parts_of_the_update(policy):
    rows = make_rows(policy)
    parts = {each: gradient(policy, rows, rule=in_region(each))[0] for each in (INSIDE, *CORNERS)}
    whole, _ = gradient(policy, rows)
    torch.testing.assert_close(sum(parts.values()), whole, rtol=1e-4, atol=1e-7)
    policy.zero_grad(set_to_none=True)
    plan = BatchPlan(**PASSES | {"micro_batch_tokens": 24})
    found = corner_gradients(policy, rows, rule=RULE, settings=settings(**SETTINGS), plan=plan)
    for name, part in parts.items():
        assert found[f"norm2_{name}"] == pytest.approx(float(part.square().sum()), rel=1e-4)
    for name in CORNERS:
        wanted = torch.nn.functional.cosine_similarity(parts[INSIDE], parts[name], dim=0)
        assert found[f"cosine_{name}"] == pytest.approx(float(wanted), abs=1e-4)
    assert all(weight.grad is None for weight in policy.parameters())


def test_the_corners_of_a_rule_with_weights_are_measured_with_them(new_policy, monkeypatch):
    """No token is outside of its clip range, so the part inside is what the update follows."""
    policy = new_policy(3)
    rows = make_rows(policy)
    monkeypatch.setattr(train, "mini_batches", lambda *_: [rows])
    rule = Rule("thirds", 1.0, math.inf, function=one, weights=lambda r, a, n: 1 / (1 + n % 3))
    still = torch.optim.SGD(policy.parameters(), lr=0.0)
    how = {"settings": settings(**SETTINGS, corner_gradients=True), "plan": BatchPlan(**PASSES)}
    sums = train.train_on(None, policy, still, rule=rule, step=1, measures=True, **how)
    trained = sum(float(each.grad.square().sum()) for each in policy.parameters())
    assert sums.corner_gradients["norm2_inside"] == pytest.approx(trained, rel=1e-4)
    assert sums.mismatch.corrected_tokens == sum(len(each.logp_old) for each in rows)


def test_measuring_the_corners_moves_nothing(inputs, tmp_path, plain, finished):
    (line,) = lines(finished(corner_gradients=True, rule=SPECS["gppo"]))
    (without,) = lines(finished(rule=SPECS["gppo"]))
    assert line["train/gradient_norm2_inside"] > 0
    assert without["train/gradient_norm2_inside"] is None
    measured = {key for key in line if key.startswith("train/gradient_norm2_")}
    measured |= {key for key in line if key.startswith("train/gradient_cosine_")}
    assert {k: v for k, v in line.items() if k not in measured} == {
        k: v for k, v in without.items() if k not in measured
    }


def test_what_a_step_moved_by_hand():
    before = [
        row(torch.arange(5), 2, logp_old=torch.tensor([-1.0, -2.0, -3.0]), advantage=advantage)
        for advantage in (-0.5, 2.0, 0.0)
    ]
    after = [dataclasses.replace(b, logp_old=torch.tensor([-1.5, -1.0, -3.25])) for b in before]
    sums = UpdateSums(Mismatch(max_tokens=8))
    sums.add_moved(after, before)
    assert sums.moved == {"positive": 0.25, "negative": 0.25}
    assert sums.moved_tokens == {"positive": 3, "negative": 3} and sums.pushed_down == 2
