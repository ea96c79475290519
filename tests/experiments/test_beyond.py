"""Notebook 11 on invented runs and on tiny real ones: arms, rules, verdicts, figures."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from fake_runs import HOW, again, finish, published, verdicts

from klearlib.errors import ParameterError
from klearlib.experiments.catalogue import check
from klearlib.experiments.clipping_arms import ClippingParams
from klearlib.experiments.nb02_data_correctness import IN_TABLE_2
from klearlib.experiments.nb05_clipping import Clipping
from klearlib.experiments.nb06_alpha_sweep import AlphaSweep, AlphaSweepParams
from klearlib.experiments.nb11_beyond import RULES, STEPS, Beyond, BeyondParams, at
from klearlib.paper import claim

RATES = [1e-4, 3e-4]
PARAMS = BeyondParams(
    seeds=[0, 1, 2],
    learning_rate=min(RATES),
    frontier_rates=RATES,
    updates=[1, 4],
    explorations=["E2", "E4"],
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


def test_arms_are_the_runs_of_the_other_notebooks(project):
    e, how = beyond("E2", "E4"), {"learning_rates": RATES, "code": False}
    grid = Clipping(ClippingParams(seeds=[0, 1, 2], **how, **HOW)).grid
    sweep = AlphaSweep(AlphaSweepParams(seeds=[0], learning_rate=min(RATES), **HOW)).arms
    for rate in RATES:
        keys = [grid[rule, rate, 0].key for rule in RULES]
        assert [e.arms[f"{at('E2', rate, 4)}: {r}", 0].key for r in RULES] == keys
    assert e.arms["E4: paper", 0].key == sweep["alpha_0.1", 0].key
    released = {stage.key for (series, _), stage in e.arms.items() if series[:2] == "E4"}
    assert len(released) == 3 * (2 + len(STEPS))


def test_what_is_not_asked_for_says_so(project):
    found = verdicts(beyond("E2"))
    for other in ("E3", "E4"):
        assert found[other]["verdict"] == "not run"
        assert found[other]["reason"].endswith("not asked for: add it to explorations")


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


def test_e4_is_decided_by_all_steps_together(project):
    e = finished("E4", ends={"released": 0.25, "D6": 0.25})
    assert verdicts(e)["E4"]["verdict"] == "supported"
    effects = e.table("effects").set_index(["where", "difference"])["value"]
    where = "learning rate 0.0001"
    assert effects[where, "paper - D6"] == pytest.approx(0.25, abs=0.02)
    assert abs(effects[where, "paper - D1"]) < 0.02
    assert len(effects) == len(STEPS) + 1


def test_e3_has_a_teacher_for_each_kind_of_error(project):
    e = finished("E3", ends={"easy_habit_0.3": 0.25, "hard_habit_0.3": 0.25})
    arms = {series for series, _ in e.arms}
    assert arms == {
        f"E3: {difficulty}_{kind}_{share:g}"
        for difficulty in ("easy", "hard")
        for kind in ("habit", "random")
        for share in IN_TABLE_2
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
    one = {"frontier_rates": [1e-4], "seeds": [0, 1]}
    e = finished("E2", "E3", "E4", ends={"released": 0.25}, **one)
    written = json.loads(published(e)["section.json"])
    captions = {each["name"]: each["caption"] for each in written["figures"]}
    words = {each["claim"]: each["verdict"] for each in written["verdicts"]}
    assert list(captions) == ["e2", "e3", "e4"]
    for name, caption in captions.items():
        assert f"{name.upper()} is {words[name.upper()]}: " in caption
    names = {each["name"] for each in written["tables"]}
    tables = {"effects", "frontier", "replicates"}
    assert names == tables | {"looked_at"}
    empty = beyond("E2", "E4", seeds=[7])
    for name in captions:
        texts = [text.get_text() for axis in empty.figure(name).axes for text in axis.texts]
        assert texts == ["not run yet"]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"updates": [1, 3]}, "3 updates cannot have equal shares of 8 problems"),
        ({"updates": [2]}, "updates must hold 1"),
        ({"options": {"policy_lag": 1}}, "E2 trains one rule for all at one update"),
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
    runs = e.runs.under(at("E2", 1e-2, 3))
    lines = [json.dumps(runs.runs[rule, 0].metrics) for rule in RULES]
    assert len(set(lines)) == 3
