"""Notebook 12 on invented runs, and its statistics by hand."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pytest
from fake_runs import HOW, again, finish, published, verdicts

from klearlib.errors import ParameterError
from klearlib.experiments.catalogue import check
from klearlib.experiments.clipping_arms import ClippingParams
from klearlib.experiments.experiment import runs_dir
from klearlib.experiments.nb05_clipping import Clipping
from klearlib.experiments.nb12_rules import Rules
from klearlib.experiments.own_rates import at_own_rates, own_rates, swap_p, useful_rates
from klearlib.experiments.results import Results
from klearlib.experiments.rule_grid import PARTS
from klearlib.experiments.rules import at_rate
from klearlib.experiments.tidy import Run
from klearlib.params import load, root
from klearlib.params.place import differences
from klearlib.rl import left_out
from klearlib.run.folder import RunFolder

RATES = [1e-4, 2e-4, 4e-4]
VARIANT = {"rules": ["clip_higher", "gppo"], "seeds": [0, 1]}
VALUES = HOW | {
    "rules": ["clip_higher", "gppo", "gppo_ratio_low", "gppo_no_low"],
    "more_rules": ["gspo", "tis"],
    "seeds": [0, 1, 2, 3, 4, 5],
    "learning_rates": RATES,
    "common_rates": RATES[:2],
    "variants": {"old rollouts": VARIANT | {"options": {"policy_lag": 2}}},
}
LEFT_OUT_METRICS = ("moved_negative", "moved_low", "entropy", "grad_norm")
CORNER = {"train/token_share_low_negative": 0.1}


@pytest.fixture
def decides(project, monkeypatch):
    """Smoke that decides, by six seeds."""
    statistics = dataclasses.replace(
        Rules(check("12_rules", VALUES)).statistics, decides=True, maths_rl=VALUES["seeds"]
    )
    monkeypatch.setattr(Rules, "statistics", statistics)


def rules(**changes) -> Rules:
    return Rules(check("12_rules", VALUES | changes))


def finish_rules(e: Rules, ends: dict[str, float], validation=None) -> Rules:
    """All runs done; ends: rule -> share right at the end of its runs at the larger common rate,
    0.5 elsewhere. validation: (rule, rate) -> the same on the validation set."""
    for place, ((series, seed), stage) in enumerate(e.arms.items()):
        rule = series.rpartition(": ")[2]
        at = float(series.partition(": ")[0].split()[-1])
        score = ends.get(rule, 0.5) if at == RATES[1] else 0.5
        end = {"math_a": score, "validation": (validation or {}).get((rule, at), 0.5)}
        finish(stage, end=end, turned=seed + place % 2, metrics=lambda step: CORNER)
    for (_, seed), stage in e.variant_arms.items():
        finish(stage, end=0.5, turned=seed)
    return again(e)


def test_what_is_registered_first_runs_first_and_is_the_runs_of_notebook_05(project):
    e = rules()
    first = list(e.arms)[: 4 * 6]
    assert {rate for series, _ in first if (rate := series.split()[2])} == {"0.0002:"}
    assert len(e.arms) == 6 * (4 * 3 + 2 * 2) and len({s.key for s in e.arms.values()}) == 96
    how = {"seeds": [0], "learning_rates": RATES, "code": False, **HOW}
    grid = Clipping(ClippingParams(**how)).grid
    for rate, rule in itertools.product(RATES, ("gppo", "clip_higher")):
        assert e.arms[at_rate(rate, rule), 0].key == grid[rule, rate, 0].key
    settings = {rule: e.arms[at_rate(1e-4, rule), 0].params["settings"] for rule in e.rules}
    assert settings["gspo"]["normalizer"] == "sequence"
    assert settings["tis"]["sampler_correction"] == 2.0
    lagged = e.variant_arms["old rollouts: gppo", 1].params["settings"]
    assert lagged["policy_lag"] == 2 and lagged["learning_rate"] == RATES[1]
    assert len(e.variant_arms) == 4


def test_the_low_corner_is_decided_at_the_largest_common_rate_and_e8_after_e1(decides):
    low = {"gppo": 0.25, "gppo_ratio_low": 0.75, "gppo_no_low": 0.75}
    found = verdicts(finish_rules(rules(), low))
    assert found["E1"]["verdict"] == "supported"
    assert "At learning rate 0.0002" in found["E1"]["reason"]
    assert found["E8"]["verdict"] == "supported"
    assert found["E8"]["comparisons"][0]["margin"] == 0.05
    assert "rules has no" in found["E5"]["reason"]


def test_without_a_harm_there_is_nothing_for_e8_to_explain(decides):
    found = verdicts(finish_rules(rules(), {}))
    assert found["E1"]["verdict"] == "no difference"
    assert found["E8"]["verdict"] == "not run" and "E1 is no difference" in found["E8"]["reason"]


def test_every_rule_is_compared_at_its_own_rate(decides):
    """GPPO is bad at 2e-4 and its validation says so; GSPO's says the contrary of its score."""
    told = {("gppo", 1e-4): 0.75, ("gspo", 2e-4): 0.75}
    e = finish_rules(rules(), {"gppo": 0.25, "gspo": 0.25}, told)
    table = e.table("rules").set_index("rule")
    assert table.loc["GPPO", "own_rate"] == "0.0001" and table.loc["GSPO", "own_rate"] == "0.0002"
    assert abs(table.loc["GPPO", "difference"]) < 3
    assert table.loc["GSPO", "difference"] == pytest.approx(-25, abs=3)
    assert table.loc["GSPO", "verdict"] == "lower" and table.loc["GSPO", "better"] == 0
    assert table.loc["GSPO", "p_swap"] <= 2 / 64 < table.loc["GPPO", "p_swap"]
    assert table.loc["TIS (A/A)", "verdict"] == "A/A pair"
    assert np.isnan(table.loc["TIS (A/A)", "p_holm"])
    assert table.loc["GSPO", "p_holm"] >= table.loc["GSPO", "p"]
    common = e.table("common").set_index("rule")
    assert common.loc["GPPO", "difference"] == pytest.approx(-12.5, abs=2)  # bad at one of two
    assert common.loc["Clip-Higher", "window"] == 2 and np.isnan(common.loc["GSPO", "window"])
    assert common.loc["GPPO", "window"] == 0  # its best, on either side of 2e-4
    assert table.loc["GSPO", "p_swap_holm"] >= table.loc["GSPO", "p_swap"]
    assert np.isnan(table.loc["TIS (A/A)", "p_swap_holm"])
    rows = e.table("rates")
    assert len(rows) == 4 * 3 + 2 * 2 and rows["seeds"].eq(6).all()
    at = rows.set_index(["rule", "learning_rate"])["difference"]
    assert abs(at["GPPO", "0.0001"]) < 3 and np.isnan(at["Clip-Higher", "0.0002"])
    assert at["GPPO", "0.0002"] == pytest.approx(-25, abs=3)
    assert at["GPPO", "0.0001"] + at["GPPO", "0.0002"] == pytest.approx(
        2 * common.loc["GPPO", "difference"]
    )
    corner = e.table("low_corner").set_index(["difference", "learning_rate"])["value"]
    assert corner["GPPO, F = r low - GPPO", "0.0002"] == pytest.approx(25, abs=3)
    assert abs(corner["GPPO, F = r low - GPPO", "0.0001"]) < 3 and len(corner) == 2 * 3
    variants = e.table("variants").set_index("rule")
    assert variants.loc["GPPO", "minus_grid"] > 5 and np.isnan(
        variants.loc["Clip-Higher", "minus_clip_higher"]
    )


def test_a_run_that_falls_on_validation_has_collapsed(decides):
    fell = {("gppo", RATES[1]): 0.125}
    common = finish_rules(rules(), {}, fell).table("common").set_index("rule")
    assert common.loc["GPPO", "collapsed"] == 1 and common.loc["Clip-Higher", "collapsed"] == 0
    assert common.loc["GPPO", "p_collapse"] == pytest.approx(2 / 2**6)


def test_the_section_has_its_figures(decides):
    measured = {"by corner": VARIANT | {"options": {"corner_gradients": True}}}
    e = rules(variants=measured)
    for (_, seed), stage in e.left_out_arms.items():
        folder = RunFolder(stage.folder(runs_dir()))
        folder.load_checkpoint()
        scores = {name: 0.1 * place + 0.01 * seed * place for place, name in enumerate(PARTS)}
        others = {f"{metric}/{name}": None for metric in LEFT_OUT_METRICS for name in PARTS}
        line = {f"score/{name}": value for name, value in scores.items()}
        folder.append_metrics({"step": 1, "score/before": 0.5} | line | others)
        folder.finish()
    e = finish_rules(e, {})
    written = json.loads(published(e)["section.json"])
    names = ["coefficients", "windows", "forest", "profile", "mechanism"]
    assert [each["name"] for each in written["figures"]] == names
    tables = {"rules", "common", "rates", "variants", "replicates", "looked_at"}
    assert {each["name"] for each in written["tables"]} == tables | {"left_out", "low_corner"}
    left_out = e.table("left_out").set_index("left_out")
    assert left_out["seeds"].eq(2).all() and np.isnan(left_out.loc["nothing", "minus_nothing"])
    assert left_out.loc["r low, A < 0", "minus_nothing"] == pytest.approx(10.5)  # 10 and 11
    assert left_out.loc["the floor: F = r low", "minus_nothing"] == pytest.approx(52.5)
    assert len(e.figure("mechanism").axes) == 4


def test_what_was_written_is_counted_by_kind():
    line = {"step": 1, "prompt": "44 - 40 = ?", "text": "44 - 40 = 4.", "reason": "correct"}
    late = [
        line | {"step": 20, "text": text, "reason": reason}
        for text, reason in (
            ("Answer: 40", "wrong"),  # a number of the problem
            ("Answer: 4.0", "wrong"),
            ("44 - 40", "not_worked_out"),
            ("44 - 40 = 4 and", "truncated"),
            ("A marvel!", "wrong"),
            ("40", "no_answer"),
        )
    ]
    runs = Results({("gppo", 0): Run("k", {}, [], {}, [line, *late])})
    assert runs.sample_kinds(0) == {"right": 1}
    found = runs.sample_kinds(-1)
    assert found == {"wrong": 1, "restated": 2, "truncated": 1, "nonsense": 2}
    assert Results({("gppo", 0): Run("k", {}, [], {}, [])}).sample_kinds(-1) == {}
    thousands = line | {"prompt": "1,500 - 4?", "text": "1500", "reason": "wrong"}
    assert Results({("gppo", 0): Run("k", {}, [], {}, [thousands])}).sample_kinds(0) == {
        "restated": 1
    }
    negative = thousands | {"text": "-4"}
    assert Results({("gppo", 0): Run("k", {}, [], {}, [negative])}).sample_kinds(0) == {"wrong": 1}


def test_a_real_model_is_shown_beside_the_miniature(project, monkeypatch):
    e = finish_rules(rules(variants={"slow": VARIANT | {"learning_rate": 5e-5}}), {})
    assert "beside" not in [each.name for each in e._shown("figure")]
    monkeypatch.setattr("klearlib.experiments.rule_pictures.is_real", lambda profile: True)
    folder = root() / "results" / "full" / e.name
    folder.mkdir(parents=True)
    e.table("rates").assign(seeds=16).to_csv(folder / "rates.csv", index=False)
    e = again(e)
    assert "beside" in [each.name for each in e._shown("figure")]
    miniature, here = e.figure("beside").axes
    titles = [axis.get_title(loc="left") for axis in (miniature, here)]
    assert titles == ["miniature, n = 16", "here, n = 2-6"]
    row = e.table("rates").query("rule == 'GPPO'").astype({"learning_rate": float})
    mark, (bars,) = here.containers[1].lines[0], here.containers[1].lines[2]
    low, high = np.array([path[:, 1] for path in bars.get_segments()]).T
    for drawn, column in ((mark.get_ydata(), "score"), (low, "low"), (high, "high")):
        drawn = np.asarray(drawn, dtype=float)[-3:]
        np.testing.assert_allclose(drawn, 100 * row[column].astype(float))
    widest = [len(axis.containers[0].lines[0].get_xdata()) for axis in (miniature, here)]
    assert widest == [3, 4]  # the variant's rate too


def test_secondary_comparisons_of_a_real_model_share_one_correction(decides, monkeypatch):
    monkeypatch.setattr("klearlib.experiments.rule_pictures.is_real", lambda profile: True)
    slow = {"rules": ["clip_higher", "gppo", "gppo_ratio_low"], "learning_rate": 5e-5}
    old = VALUES["variants"]["old rollouts"]  # differs in more than the rate
    e = finish_rules(rules(variants={"slow": slow, "old": old}), {"gppo_ratio_low": 0.75})
    table = e.table("secondary").set_index(["difference", "learning_rate"])
    assert len(table) == 4 and table["seeds"].eq(6).all()
    row = table.loc["GPPO, F = r low - Clip-Higher", "0.0002"]
    assert row["value"] == pytest.approx(25, abs=3) and row["verdict"] == "higher"
    assert row["p_holm"] == pytest.approx(4 * row["p"])  # the smallest of four
    assert table["p_holm"].drop(row.name).gt(0.05).all()


def test_corners_are_left_out_after_the_run_at_the_smallest_common_rate(project):
    assert not rules().left_out_arms
    measured = {"by corner": VARIANT | {"options": {"corner_gradients": True}}}
    e = rules(variants=measured)
    assert list(e.left_out_arms) == [("gppo", 0), ("gppo", 1)]
    stage = e.left_out_arms["gppo", 1]
    assert stage.inputs["rl"].key == e.arms[at_rate(RATES[0], "gppo"), 1].key
    assert stage.params["learning_rate"] == RATES[-1]
    assert set(PARTS) == set(left_out.PARTS)
    assert stage.params["settings"]["learning_rate"] == RATES[0]
    assert not rules(variants=measured, rules=["clip_higher", "gppo_no_low"]).left_out_arms


def test_cells_of_figures_and_tables_show_what_is_not_run_yet(project):
    e = rules()
    for name in ("windows", "forest", "profile", "mechanism"):
        assert [t.get_text() for a in e.figure(name).axes for t in a.texts] == ["not run yet"]
    assert e.figure("coefficients").axes
    for name in ("rules", "common", "rates", "variants"):
        assert e.table(name).empty and len(e.table(name).columns) > 6


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"common_rates": [3e-4]}, "common_rates has 0.0003"),
        ({"variants": {"a": VARIANT | {"seeds": [9]}}}, "variants: a: seeds has 9"),
        ({"more_rules": ["gppo"]}, "names more than one rule"),
        ({"more_rules": [{"name": "sapo", "label": "gspo"}]}, "'gspo' names more than one rule"),
        (
            {"mini_batch_problems": 8, "rules": ["clip_higher", "gppo"], "more_rules": []},
            "all clipping rules are equal",
        ),
        ({"variants": {"a": VARIANT | {"option": {}}}}, "option"),
    ],
)
def test_parameters_that_contradict_one_another_are_refused(values, says):
    with pytest.raises(ParameterError, match=says):
        rules(**values)


def test_the_defaults_are_those_of_smoke():
    """What a cell gives and what a profile without a file has are one: `results/smoke` is its."""
    given = json.loads(json.dumps(dataclasses.asdict(Rules.Params())))
    assert check("12_rules", given) == Rules.Params() == Rules.params_of("smoke")
    e = Rules(check("12_rules", {"variants": {"lag": Rules.Params().variants["lag"]}}))
    assert not differences("12_rules", e.params) and len(e.variant_arms) == 2


def test_full_has_the_registered_rules():
    e = Rules(Rules.params_of("full"))
    rules = {rule for claim in ("E1", "E5", "E8") for rule in check_arms(claim)}
    assert rules | {"tis"} == set(e.rules) and len(rules) == 18
    assert e.deciding_seeds == list(range(200, 216)) == e.params.seeds
    assert load("full", "statistics").tuning == []


def check_arms(claim_id: str) -> tuple[str, ...]:
    from klearlib.paper import claim

    return claim(claim_id).arms


# the statistics, by hand


def test_a_seed_has_the_rate_that_the_others_choose():
    right = np.array([[9, 0, 0, 1], [0, 3, 3, 1]])  # without seed 0 the second has more
    assert own_rates(right).tolist() == [1, 0, 0, 0]
    scores = np.array([[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8]])
    assert at_own_rates(scores, right).tolist() == [0.5, 0.2, 0.3, 0.4]


def test_swapped_replicates_choose_their_rates_anew():
    rng = np.random.default_rng(3)
    scores, right = rng.normal(size=(2, 3, 5)), rng.integers(0, 100, (2, 3, 5))
    found = []
    for swap in itertools.product((False, True), repeat=5):
        a, b = scores.copy(), right.copy()
        for seed in np.flatnonzero(swap):
            a[:, :, seed], b[:, :, seed] = scores[::-1, :, seed], right[::-1, :, seed]
        means = []
        for rule in (0, 1):
            own = []
            for seed in range(5):
                others = [b[rule, rate].sum() - b[rule, rate, seed] for rate in range(3)]
                own.append(a[rule, others.index(max(others)), seed])
            means.append(np.mean(own))
        found.append(abs(means[0] - means[1]))
    expected = np.mean([each >= found[0] - 1e-12 for each in found])
    assert swap_p(scores, right) == pytest.approx(expected)


def test_equal_rules_are_told_apart_no_more_often_than_the_level_says():
    rng = np.random.default_rng(0)
    low = sum(
        swap_p(rng.normal(size=(2, 2, 8)), rng.integers(0, 50, (2, 2, 8))) <= 0.05
        for _ in range(400)
    )
    assert low <= 0.05 * 400 + 3 * np.sqrt(0.05 * 0.95 * 400)


def test_the_window_is_what_touches_the_best():
    means = np.array([0.70, 0.60, 0.69, 0.71, 0.70])
    near = useful_rates(means, margin=0.02)
    assert near.tolist() == [False, False, True, True, True]
    assert useful_rates(means[:1], margin=0.02).tolist() == [True]
