"""Notebook 11 on invented runs and on tiny real ones: arms, rules, verdicts, figures."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from fake_runs import HOW, again, finish, published, verdicts

from klearlib.errors import ParameterError
from klearlib.experiments.beyond_arms import (
    CORNERS,
    NEIGHBOURS,
    RULES,
    STEPS,
    BeyondParams,
    at,
    neighbours,
)
from klearlib.experiments.catalogue import check
from klearlib.experiments.clipping_arms import ClippingParams
from klearlib.experiments.demos import neighbours as demo
from klearlib.experiments.nb05_clipping import Clipping
from klearlib.experiments.nb06_alpha_sweep import AlphaSweep, AlphaSweepParams
from klearlib.experiments.nb11_beyond import Beyond
from klearlib.experiments.rules import require_usable, rule_spec
from klearlib.paper import claim
from klearlib.params import RLOptions
from klearlib.rl.advantages import group_advantages
from klearlib.rl.coefficients import coefficient
from klearlib.rl.rule_specs import rule_from

RATES = [1e-4, 3e-4]
PARAMS = BeyondParams(
    seeds=[0, 1, 2],
    learning_rates=RATES,
    frontier_rates=RATES,
    updates=[1, 4],
    explorations=["E1", "E2", "E4", "E5"],
    **HOW,
)
SHARES = {f"train/token_share_{corner}": 0.1 for corner in ("low_negative", "high_positive")}


def beyond(*explorations: str, **changes) -> Beyond:
    return Beyond(dataclasses.replace(PARAMS, explorations=list(explorations), **changes))


def finished(*explorations: str, ends: dict[str, float], metrics=None, **changes) -> Beyond:
    """All runs done; ends: arm -> share right at the end, 0.5 for others. metrics: (series, seed)
    -> as `finish` takes them."""
    e = beyond(*explorations, **changes)
    names = list(dict.fromkeys(series.rpartition(": ")[2] for series, _ in e.arms))
    for (series, seed), stage in e.arms.items():
        arm = series.rpartition(": ")[2]
        how = {"metrics": metrics(series, seed)} if metrics else {"metrics": lambda step: SHARES}
        place = names.index(arm)
        turned = seed if series.startswith("E2") else (1 + place % 3) * seed + place
        finish(stage, end=ends.get(arm, 0.5), turned=turned, **how)
    return again(e)


def test_corners_and_gppo_are_the_runs_of_the_other_notebooks(project):
    e, how = beyond("E1", "E2", "E4", "E5"), {"learning_rates": RATES, "joint": None}
    grid = Clipping(ClippingParams(seeds=[0, 1, 2], **how, **HOW)).grid
    sweep = AlphaSweep(AlphaSweepParams(seeds=[0], learning_rate=min(RATES), **HOW)).arms
    for rate in RATES:
        keys = {rule: grid[rule, rate, 0].key for rule in RULES}
        assert e.arms[f"{at('E1', rate)}: beta_00", 0].key == keys["clip_higher"]
        assert e.arms[f"{at('E1', rate)}: beta_11", 0].key == keys["gppo"]
        assert e.arms[f"{at('E5', rate)}: gppo", 0].key == keys["gppo"]
        assert [e.arms[f"{at('E2', rate, 4)}: {r}", 0].key for r in RULES] == [*keys.values()]
    assert e.arms["E4: paper", 0].key == sweep["alpha_0.1", 0].key
    released = {stage.key for (series, _), stage in e.arms.items() if series[:2] == "E4"}
    assert len(released) == 3 * (2 + len(STEPS))


def f_of(rule, ratio, advantage):
    spec = rule_spec(rule, eps_low=0.2, eps_high=0.28, options=RLOptions())
    return coefficient(ratio, advantage, rule_from(spec))


def test_the_corners_are_gppos_betas():
    ratio = torch.tensor([0.3, 0.9, 1.1, 3.0], dtype=torch.float64).repeat(2)
    advantage = torch.tensor([-1.0, 2.0], dtype=torch.float64).repeat_interleave(4)
    for arm, rule in CORNERS.items():
        betas = dict(zip(("beta_low", "beta_high"), map(float, arm[-2:]), strict=True))
        found = f_of(rule, ratio, advantage)
        assert torch.equal(found, f_of({"name": "gppo", **betas}, ratio, advantage))
        low, high = 0.8 * betas["beta_low"], 1.28 * betas["beta_high"]
        expected = [low, 0.9, 1.1, 3.0, 0.3, 0.9, 1.1, high]
        assert found.tolist() == pytest.approx(expected, abs=0, rel=1e-12)


def test_each_neighbour_has_the_gradient_of_its_printed_objective(monkeypatch):
    rows = {row["rule"]: row for row in demo.neighbour_gradients(eps_low=0.2, eps_high=0.28)}
    assert list(rows) == list(demo.WEIGHTS)
    assert max(row["largest_error"] for row in rows.values()) < 1e-9
    assert {"clip_higher", *rows} == {*NEIGHBOURS}
    # Each is another objective: one rule's weights do not pass for another's.
    printed = demo.printed_objective
    monkeypatch.setattr(demo, "printed_objective", lambda _, *a, **k: printed("unclipped", *a, **k))
    wrong = demo.neighbour_gradients(eps_low=0.2, eps_high=0.28)
    assert all(row["largest_error"] > 1e-3 for row in wrong if row["rule"] != "unclipped")


def test_masks_and_cuts_of_the_neighbours_by_hand():
    ratio = torch.tensor([0.2, 0.5, 1.0, 1.2, 1.3, 5.0])
    plus, minus = (
        f_of({"name": "aspo", "eps_high": 0.28}, ratio, torch.full((6,), sign))
        for sign in (1.0, -1.0)
    )
    # 1 / r, at most 3, cut above the range; r, at most 3, cut below it.
    assert plus.tolist() == pytest.approx([3, 2, 1, 1 / 1.2, 0, 0])
    assert minus.tolist() == pytest.approx([0, 0, 1, 1.2, 1.3, 3])
    # .09, .01 and .25 push outwards: their mean .117 is above .04, that of the first two .05 too.
    log_ratio = torch.tensor([[0.3, 0.1, -0.5, 0.9, -0.7]], dtype=torch.float64)
    advantage = torch.tensor([[1.0, 1.0, -1.0, -1.0, 1.0]], dtype=torch.float64)
    kept = demo.second_moment_mask(log_ratio, advantage, torch.ones(1, 5, dtype=torch.bool))
    assert kept.tolist() == [[0, 1, 0, 1, 1]]


def test_the_arms_of_dr_grpo_and_tis_have_the_options_that_they_need():
    rule, changed = neighbours()["dr_grpo"]
    options, rewards = RLOptions(**changed), torch.tensor([[1.0, -1.0, -1.5, 1.0]]).double()
    advantage = group_advantages(rewards, std=options.group_std, epsilon=options.group_epsilon)[0]
    weight = f_of(rule, torch.full((4,), 1.1).double(), advantage) * advantage
    assert weight.tolist() == pytest.approx((1.1 * (rewards - rewards.mean())[0]).tolist())
    assert neighbours()["tis"] == (
        "clip_higher",
        {"logp_old": "trainer", "sampler_correction": demo.TIS_CAP},
    )


def test_rules_that_are_functions_pass_the_check_of_own_rules():
    for rule, changed in neighbours().values():
        require_usable(rule, eps_low=0.2, eps_high=0.28, options=RLOptions(**changed))


@pytest.mark.parametrize(
    ("better", "word"),
    [
        (("beta_00", "beta_01"), "supported"),
        (("beta_10", "beta_11"), "contradicted"),
        ((), "no difference"),
    ],
)
def test_e1_is_decided_at_the_largest_rate_by_the_low_corner(project, better, word):
    e = finished("E1", ends=dict.fromkeys(better, 0.75))
    found = verdicts(e)
    assert found["E1"]["verdict"] == word
    assert "At learning rate 0.0003" in found["E1"]["reason"]
    effects = e.table("effects").set_index(["where", "difference"])["value"]
    sign = {"supported": 1, "contradicted": -1, "no difference": 0}[word]
    low = effects["learning rate 0.0003", "without the low corner - with it"]
    assert low == pytest.approx(0.25 * sign, abs=0.02)
    assert abs(effects["learning rate 0.0003", "without the high corner - with it"]) < 0.02
    for other in ("E2", "E3", "E4", "E5"):
        assert found[other]["verdict"] == "not run"
        assert found[other]["reason"].endswith("not asked for (explorations): profile full")


def test_e1_is_not_tested_where_the_corner_is_empty(project):
    empty = SHARES | {"train/token_share_low_negative": 0.0}
    e = finished("E1", ends={}, metrics=lambda series, seed: lambda step: empty)
    assert verdicts(e)["E1"]["verdict"] == "not tested"


def test_e2_finds_the_frontier_and_needs_equal_rules_on_policy(project):
    breaks = [f"{at('E2', 3e-4, 4)}: {rule}" for rule in ("gppo", "cispo")]

    def metrics(series, seed):
        """Norms that are not finite late in the runs that break."""
        return lambda step: {"train/skipped_updates": int(series in breaks and step > 10)}

    e = finished("E2", ends={}, metrics=metrics)
    found = e.evidence()["E2"]
    equal, differ = (check.name for check in claim("E2").checks)
    assert found.checked == {equal: 1.0, differ: 1.0}
    for a, b in found.values.values():
        assert a.tolist() == pytest.approx([np.log10(3e-4)] * 3)
        assert b.tolist() == pytest.approx([-4.0] * 3)
    assert verdicts(e)["E2"]["verdict"] == "undecided"  # three equal differences: p is 2^-3
    table = e.table("frontier").set_index(["rule", "rate", "updates"])
    assert table["stable"].to_dict()["gppo", 3e-4, 4] == 0 and table["stable"].sum() == 10
    assert table["equal"].dropna().tolist() == [1.0] * 6

    # one run of one rule differs in one digit of one step
    file = e.folder(e.arms[f"{at('E2', 1e-4, 1)}: cispo", 0]) / "metrics.jsonl"
    file.write_text(file.read_text()[::-1].replace("5.0", "6.0", 1)[::-1])
    assert verdicts(e)["E2"]["verdict"] == "not tested"
    assert sorted(set(again(e).table("frontier")["equal"].dropna())) == [0.0, 1.0]


def test_on_policy_one_replicate_is_trained_under_every_rule_and_the_others_once():
    arms = beyond("E2").arms
    for seed, number in ((0, 3), (1, 1), (2, 1)):
        for updates, runs in ((1, number), (4, 3)):
            names = [f"{at('E2', 1e-4, updates)}: {rule}" for rule in RULES]
            assert len({arms[name, seed].key for name in names}) == runs


def test_e2_is_not_tested_where_every_run_is_stable(project):
    e = finished("E2", ends={})
    found = verdicts(e)["E2"]
    assert found["verdict"] == "not tested" and "not all stable everywhere" in found["reason"]
    assert "E2 is not tested: replicates in which" in e.says["E2"]


def test_what_wrong_responses_cost_is_held_against_none(project):
    ends = {"easy_habit_0.3": 0.25, "hard_habit_0.3": 0.25, "easy_random_0.3": 0.375}
    effects = finished("E3", ends=ends).table("effects").set_index("difference")["value"]
    expected = {"habit": 0.25, "random": 0.0625}
    for kind, cost in expected.items():
        assert effects[f"cost of 30 % wrong, {kind}"] == pytest.approx(cost, abs=0.02)
    assert effects["cost of habits - of random errors"] == pytest.approx(0.1875, abs=0.02)


def test_e4_and_e5_are_decided_all_together(project):
    e = finished("E4", "E5", ends={"released": 0.25, "unclipped": 0.25, "D6": 0.25})
    found = verdicts(e)
    assert found["E4"]["verdict"] == "supported"
    assert found["E5"]["verdict"] == "no difference"  # unclipped is drawn and decides nothing
    effects = e.table("effects").set_index(["where", "difference"])
    assert effects.loc[("learning rate 0.0001", "paper - D6"), "value"] == pytest.approx(
        0.25, abs=0.02
    )
    assert abs(effects.loc[("learning rate 0.0001", "paper - D1"), "value"]) < 0.02
    assert effects.loc[("learning rate 0.0001", "unclipped - GPPO"), "value"] < -0.1
    assert len(effects) == len(STEPS) + 1 + 2 * len(NEIGHBOURS)
    assert e.table("factors")["arm"].tolist() == ["TIS", "GSPO", "M2PO"] * 2


def test_e3_has_a_teacher_for_each_kind_of_error(project):
    e = finished("E3", ends={"easy_habit_0.3": 0.25, "hard_habit_0.3": 0.25})
    arms = {series for series, _ in e.arms}
    shares = e.correctness.wrong_shares
    assert arms == {
        f"E3: {difficulty}_{kind}_{share:g}"
        for difficulty in ("easy", "hard")
        for kind in ("habit", "random")
        for share in shares
    }
    assert verdicts(e)["E3"]["verdict"] == "supported"
    writers = {}
    for kind in ("habit", "random"):
        stage = e.arms[f"E3: easy_{kind}_0.3", 0]
        chosen = stage.inputs["model"].inputs["examples"]
        teacher = chosen.inputs["responses"].inputs["model"]
        writers[kind] = teacher.inputs["world"].params["writers"]["weak"]
    habit, random = writers["habit"], writers["random"]
    assert habit["slip_share"] > 0 == habit["step_noise"]
    assert random["slip_share"] == 0 < random["step_noise"] < habit["slip_share"]
    assert habit["num_examples"] == random["num_examples"]


def test_the_section_has_every_figure_with_its_verdict(project):
    one = {"learning_rates": [1e-4], "frontier_rates": [1e-4], "seeds": [0, 1]}
    e = finished("E1", "E2", "E3", "E4", "E5", ends={"beta_00": 0.75, "released": 0.25}, **one)
    written = json.loads(published(e)["section.json"])
    captions = {each["name"]: each["caption"] for each in written["figures"]}
    words = {each["claim"]: each["verdict"] for each in written["verdicts"]}
    assert list(captions) == ["e1", "e2", "e3", "e4", "e5"]
    for name, caption in captions.items():
        assert f"{name.upper()} is {words[name.upper()]}: " in caption
    names = {each["name"] for each in written["tables"]}
    tables = {"neighbours", "effects", "frontier", "replicates", "factors"}
    assert names == tables | {"looked_at"}
    empty = beyond("E1", "E2", "E4", "E5", seeds=[7])
    for name in captions:
        texts = [text.get_text() for axis in empty.figure(name).axes for text in axis.texts]
        assert texts == ["not run yet"]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"updates": [1, 3]}, "3 updates cannot have equal shares of 8 problems"),
        ({"updates": [2]}, "updates must hold 1"),
        ({"explorations": ["E4"], "options": {"dual_clip": 10.0}}, "E4 switches dual_clip"),
        ({"explorations": ["E6"]}, "E6"),
    ],
)
def test_parameters_that_contradict_one_another_are_refused(values, says):
    with pytest.raises(ParameterError, match=says):
        check("11_beyond", values)


def test_on_policy_all_rules_leave_the_same_weights_bit_for_bit(tiny_project):
    """Real runs of three rules: at one update a batch they are one, at two they are not."""
    how = {"explorations": ["E2"], "num_steps": 2, "num_problems": 6, "mini_batch_problems": 2}
    how |= {"frontier_rates": [1e-2], "updates": [1, 3], "workers": 1, "eval_every": 2}
    e = Beyond(check("11_beyond", how))
    e.run()
    assert e._equal_seeds(1e-2) == {0: True}
    runs = e.part(at("E2", 1e-2, 3))
    lines = [json.dumps(runs.runs[rule, 0].metrics) for rule in RULES]
    assert len(set(lines)) == 3
