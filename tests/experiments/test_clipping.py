"""Notebook 05 on invented runs: its rules and learning rates, what tables and verdicts say."""

from __future__ import annotations

import dataclasses
import shutil

import numpy as np
import pytest
from fake_runs import HOW, again, finish, finish_all, section, verdicts
from metric_names import METRICS

from klearlib.errors import ParameterError
from klearlib.experiments import objectives as demo
from klearlib.experiments.catalogue import check
from klearlib.experiments.clipping_arms import ClippingParams
from klearlib.experiments.nb05_clipping import Clipping
from klearlib.experiments.nb07_soft_reward import SoftReward
from klearlib.experiments.rules import read_rules

PARAMS = ClippingParams(seeds=[0, 1, 2], code=False, **HOW)
RATES = [1e-3, 1e-4, 3e-4]
GRID = ClippingParams(**HOW, seeds=[0, 1], learning_rates=RATES, code=False)
TUNING = [100, 101, 102, 103]
RULES = PARAMS.rules
ENDS = dict.fromkeys(RULES, 0.5)
# Rule -> rate -> share right at the end, in eighths.
EQUAL = {rule: dict.fromkeys(RATES, 4) for rule in RULES}


def clipping(params=PARAMS, **changes) -> Clipping:
    return Clipping(dataclasses.replace(params, **changes))


def late(**changed):
    """Metrics of which the last ten steps have others."""
    return lambda rule, seed, step: changed if step > 10 else {}


def shares(value, **changed):
    """A share of tokens in every corner, whatever else changes late."""
    mine = {name: value for name in METRICS if "token_share" in name}
    return lambda rule, seed, step: mine | (changed if step > 10 else {})


def test_arms_are_shared_whatever_the_notebook_calls_itself(project):
    """Worker counts and the set of other arms are no part of a run's key; options of one rule are
    no part of another's."""
    keys = {arm: stage.key for arm, stage in clipping().arms.items()}
    fewer = clipping(rules=["gppo", "cispo"], seeds=[2], workers=7)
    assert {arm: stage.key for arm, stage in fewer.arms.items()}.items() <= keys.items()
    other = clipping(options={"beta_low": 0.5}).arms
    assert {rule for (rule, seed), s in other.items() if s.key != keys[rule, seed]} == {"gppo"}


def test_scores_are_those_of_the_last_step_not_the_best(project):
    e = clipping()
    finish_all(e, ENDS | {"gppo": 0.375})
    turned = np.mean([len(range(seed + 3, 30, 7)) / 240 for seed in (0, 1, 2)])
    row = again(e).table("scores").set_index(["benchmark", "rule"]).loc[("maths A", "GPPO")]
    assert row["seeds"] == 3
    assert row["start"] == pytest.approx(0.25 - turned)
    assert row["end"] == pytest.approx(0.375 - turned)
    assert row["gain"] == pytest.approx(0.125)
    assert row["paper_last"] == pytest.approx(0.811)


def test_few_clipped_tokens_test_nothing(project):
    e = clipping()
    finish_all(e, ENDS, shares(0.0001))
    assert verdicts(e)["C1"]["verdict"] == "not tested"


def test_runs_that_never_trained_test_nothing_and_publish(project):
    e = clipping()
    nothing = {name: None for name in METRICS if "share" in name}
    finish_all(e, ENDS, shares(None, **nothing))
    assert verdicts(e)["C1"]["verdict"] == "not tested" and section(e)["status"] == "complete"


@pytest.mark.parametrize(
    ("metrics", "word"),
    [
        pytest.param({"train/grad_norm": 5.0}, "contradicted", marks=pytest.mark.slow),
        # All updates skipped, and one of several: a gradient that is not finite is never a gap.
        pytest.param(
            {"train/grad_norm": None, "train/skipped_updates": 8},
            "contradicted",
            marks=pytest.mark.slow,
        ),
        ({"train/grad_norm": 0.5, "train/skipped_updates": 1}, "contradicted"),
        # Steps without an update are no instability, and 10 steps are too few to tell.
        ({"train/grad_norm": None}, "undecided"),
    ],
)
def test_a_diverging_run_is_not_stable(project, metrics, word):
    e = clipping()
    finish_all(e, ENDS, late(**metrics))
    assert verdicts(e)["C3"]["verdict"] == word


def test_a_changed_rule_is_not_the_papers(project):
    finish_all(clipping(), ENDS | {"gppo": 0.75})
    changed = clipping(options={"dual_clip": 10.0})
    found = verdicts(changed)["C1"]
    assert found["verdict"] == "not run" and "dual_clip" in found["reason"]
    assert verdicts(changed)["C3"]["reason"] == found["reason"]
    assert "dual_clip: 10.0" in section(changed)["notes"][0]


def test_a_rule_that_the_paper_has_not_is_shown_and_leaves_the_claims_alone(project):
    finish_all(clipping(), ENDS | {"gppo": 0.75})
    judged = verdicts(clipping())
    (project / "mine.py").write_text(
        "def steep(ratio, advantage):\n    return ratio.clamp(max=9.0)"
    )
    more = clipping(rules=read_rules([*RULES, "mine.py:steep", {"name": "gppo", "beta_low": 0}]))
    own = [series for series in more.rules if series not in RULES]
    assert [more.arms[series, 0].title for series in own] == [
        "steep, seed 0",
        "GPPO, beta_low 0, seed 0",
    ]
    diverges = {"train/grad_norm": 50.0}  # which is nothing that C3 is about
    for series in own:
        for seed in PARAMS.seeds:
            mine = lambda step: diverges if step > 9 else {}  # noqa: E731
            finish(more.arms[series, seed], end=1.0, metrics=mine)
    assert verdicts(more) == judged
    made, more = section(more), again(more)
    assert made["status"] == "complete" and "steep (mine.py:steep)" in made["notes"][0]
    assert made["parameters"]["rules"][3]["source"].startswith("def steep")
    scores = more.table("scores").set_index(["benchmark", "rule"])
    for label in ("steep", "GPPO, beta_low 0"):
        row = scores.loc["maths A", label]
        assert row["end"] > 0.9 and np.isnan(row["paper_last"])
        (legend,) = more.figure("corners").legends
        fig2 = more.figure("fig2").axes[-1].get_legend()
        for each in (legend, fig2):
            assert label in [text.get_text() for text in each.get_texts()]
        titles = [axis.get_title(loc="left") for axis in more.figure("rules").axes]
        assert label in titles and "GPPO" in titles
    corners = more.table("rules").set_index("rule")
    assert corners.loc["steep", "r high, A > 0"] == "1.29 to 9"
    assert corners.loc["GPPO, beta_low 0", ["r low, A < 0", "r high, A > 0"]].tolist() == [
        "0",
        "1.28",
    ]
    assert corners["largest_error"].max() < 1e-12


def test_a_claim_on_a_rule_that_is_absent_is_not_run_and_says_so(project):
    fewer = clipping(rules=["gppo", "clip_higher"])
    finish_all(fewer, ENDS)
    found = verdicts(fewer)
    for name in ("C1", "C3", "C18"):
        assert found[name]["verdict"] == "not run"
        assert found[name]["reason"] == "rules has no CISPO, which the claim is about"
    assert found["C14"]["verdict"] == "reproduced" and section(fewer)["status"] == "complete"


# several learning rates


def finish_grid(
    validation=EQUAL,
    benchmarks=EQUAL,
    *,
    decisive=None,
    turned=lambda cell: 5 * (cell[2] % 100),
    metrics=lambda cell: None,
    without=(),
):
    """All runs of the grid but those `without`; the validation set and the benchmarks end at rates
    of their own, `decisive` is the validation of the seeds that decide."""
    for cell, stage in Clipping(GRID).grid.items():
        if cell not in without:
            rule, rate, seed = cell
            ends = dict.fromkeys(("math_a", "math_b"), benchmarks[rule][rate] / 8)
            mine = validation if seed in TUNING else decisive or validation
            ends["validation"] = mine[rule][rate] / 8
            finish(stage, end=ends, turned=turned(cell), metrics=metrics(cell))


def test_a_run_of_a_grid_is_the_run_at_its_rate_alone(project):
    cells = clipping(learning_rates=RATES).grid
    seeds = [*TUNING, 0, 1, 2]
    assert [seed for _, _, seed in cells] == [seed for seed in seeds for _ in range(9)]
    assert len({stage.title for stage in cells.values()}) == len(cells)
    for rate in RATES:
        alone = clipping(learning_rates=[rate]).arms
        assert {arm: stage.key for arm, stage in alone.items()} == {
            (rule, seed): stage.key
            for (rule, mine, seed), stage in cells.items()
            if mine == rate and seed not in TUNING
        }


def test_validation_chooses_and_no_benchmark_does(project):
    best = {"clip_higher": 1e-3, "gppo": 1e-4, "cispo": 3e-4}
    worst = {"clip_higher": 1e-4, "gppo": 3e-4, "cispo": 1e-3}
    validation = {rule: {rate: 6 if rate == best[rule] else 3 for rate in RATES} for rule in best}
    benchmarks = {rule: {rate: 8 if rate == worst[rule] else 2 for rate in RATES} for rule in best}
    finish_grid(validation, benchmarks, decisive=benchmarks)
    e = Clipping(GRID)
    assert e.chosen == {rule: dict.fromkeys((0, 1), rate) for rule, rate in best.items()}
    assert list(e.arms) == [(rule, seed) for seed in (0, 1) for rule in GRID.rules]
    for (rule, seed), stage in e.arms.items():
        assert stage is e.grid[rule, best[rule], seed]
    # The scores that decide are those of the chosen runs: 2 of 8, not the benchmarks' best 8 of 8.
    ends = e.table("scores").set_index(["benchmark", "rule"])["end"]
    assert ends["maths A", "GPPO"] < 0.3 and ends["validation", "GPPO"] < 0.3
    said, found = "Clip-Higher 0.001, GPPO 0.0001, CISPO 0.0003", verdicts(e)
    for name in ("C1", "C3", "C18"):
        assert said in found[name]["reason"]
    made = section(e)
    assert made["status"] == "complete" and said in made["notes"][0]
    captions = {each["name"]: each["caption"] for each in made["tables"]}
    assert said in captions["scores"] and said not in captions["rules"]
    table = e.table("rates")
    assert len(table) == 9 and table["seeds"].eq(2).all()
    chosen = table[table["chosen"] == "yes"].set_index("rule")["learning_rate"]
    assert set(chosen) == {"0.001", "0.0001", "0.0003"} and len(chosen) == 3
    assert (table["maths A low"] < table["maths A"]).all()


def test_of_equal_rates_the_smallest_is_kept_however_the_seeds_differ(project):
    finish_grid(turned=lambda cell: 0)
    e = Clipping(GRID)
    assert {rate for mine in e.chosen.values() for rate in mine.values()} == {1e-4}
    # The same right responses at both rates, one seed up and one down: still equal.
    for (rule, rate, seed), stage in e.grid.items():
        if rule == "gppo" and rate in (1e-3, 3e-4) and seed in TUNING[:2]:
            up = (seed == TUNING[0]) == (rate == 1e-3)
            shutil.rmtree(e.folder(stage))
            finish(stage, end=5 / 8 if up else 7 / 8, turned=0)
    assert again(e).chosen["gppo"] == dict.fromkeys((0, 1), 3e-4)


def test_an_unfinished_grid_decides_nothing_and_says_why(project):
    finish_grid(without=[("gppo", 3e-4, 101)])
    e = Clipping(GRID)
    assert e.chosen.keys() == {"clip_higher", "cispo"}
    found = verdicts(e)
    why = "no learning rate is chosen for GPPO: 11 of 12 runs are done"
    for name in ("C1", "C3", "C18"):
        assert (found[name]["verdict"], found[name]["reason"]) == ("not run", why)
    assert found["C14"]["verdict"] == "reproduced"
    assert section(e)["missing"] == ["GPPO, learning rate 0.0003, seed 101"]
    table = e.table("rates")
    assert not (table[table["rule"] == "GPPO"]["chosen"] == "yes").any() and len(table) == 9


def test_the_largest_stable_rate_of_a_rule_is_found_replicate_by_replicate(project):
    """CISPO's norm rises late at the two largest rates, and at the largest alone in one replicate;
    Clip-Higher is stable nowhere; GPPO everywhere."""
    unstable = {"clip_higher": RATES, "cispo": (3e-4, 1e-3)}

    def metrics(cell):
        rule, rate, _ = cell
        breaks = rate in unstable.get(rule, ()) and cell != ("cispo", 3e-4, 1)
        return lambda step: {"train/grad_norm": 5.0} if breaks and step > 15 else {}

    finish_grid(metrics=metrics)
    found = Clipping(GRID).evidence()["E6"].values
    gppo, clip_higher = found["GPPO - Clip-Higher"]
    _, cispo = found["GPPO - CISPO"]
    assert gppo == pytest.approx([-3, -3]) and cispo == pytest.approx(np.log10([1e-4, 3e-4]))
    assert clip_higher == pytest.approx(np.log10([5e-5, 5e-5]))
    assert "learning_rates" in Clipping(PARAMS).evidence()["E6"]


def test_tokens_pushed_down_are_compared_at_the_same_rates(project):
    """More fall at a larger rate, which Clip-Higher has for its own, and two points more under
    GPPO at each; steps of the second half do not count."""
    own = {"clip_higher": max(RATES), "gppo": min(RATES), "cispo": 3e-4}
    validation = {rule: {rate: 6 if rate == own[rule] else 3 for rate in RATES} for rule in own}

    def metrics(cell):
        rule, rate, seed = cell
        share = 0.4 + 100 * rate + 0.01 * seed + (0.02 if rule == "gppo" else 0.0)
        return lambda step: {"train/pushed_down_share": share if step <= 10 else 0.0}

    finish_grid(validation, metrics=metrics)
    ((gppo, clip_higher),) = Clipping(GRID).evidence()["C25"].values.values()
    assert clip_higher == pytest.approx(0.4 + 100 * np.mean(RATES) + np.array([0, 0.01]))
    assert gppo - clip_higher == pytest.approx([0.02, 0.02])


def test_a_replicate_that_idled_through_its_first_half_is_left_out_of_tokens_pushed_down(project):
    def metrics(cell):
        idle = cell == ("gppo", 1e-3, 1)
        return lambda step: {"train/pushed_down_share": None if idle and step <= 10 else 0.6}

    finish_grid(metrics=metrics)
    found = Clipping(GRID).evidence()["C25"]
    assert found.replicates == [0] and verdicts(Clipping(GRID))["C25"]["verdict"] != "supported"


@pytest.mark.parametrize("unmeasured", [{"engine": "verl"}, {"options": {"policy_lag": 1}}])
def test_what_moves_after_a_step_is_not_measured_everywhere(unmeasured):
    found = clipping(**unmeasured).evidence()["C25"]
    assert found == "log-probabilities after a step are not measured with policy_lag or on verl"


def test_a_grid_of_which_nothing_is_done_publishes(project):
    e = Clipping(GRID)
    assert len(section(e)["missing"]) == 9 * (len(TUNING) + 2) and e.table("rates").empty
    assert verdicts(e)["C1"]["verdict"] == "not run"


def test_a_single_rate_needs_no_grid(project):
    e = clipping(GRID, learning_rates=[3e-4])
    assert e.chosen == dict.fromkeys(RULES, dict.fromkeys((0, 1), 3e-4))
    finish(e.arms["gppo", 0], end=0.5)
    made, e = section(e), again(e)
    assert e.runs.runs.keys() == {("gppo", 0)}
    assert "rates" not in {each["name"] for each in made["tables"]}
    assert "One learning rate for all rules (0.0003)" in made["notes"][0]
    assert e.arms["gppo", 0].title == "GPPO, seed 0"
    assert np.isnan(e.table("rates")["maths A low"]).all()  # one seed, no interval


# the printed objectives


def test_autograd_of_the_printed_objectives_is_f_times_a():
    check = demo.gradient_check(eps_low=0.2, eps_high=0.28)
    assert check["error"].max() < 1e-9
    assert len(check) == 6 * 80 * 4


def test_corner_table_is_the_papers_and_shows_what_the_dual_clip_breaks():
    check = demo.gradient_check(eps_low=0.2, eps_high=0.28)
    table = demo.corner_table(check, eps_low=0.2, eps_high=0.28).set_index("rule")
    expected = {
        "clip_higher": ("0", "0", "no"),
        "gppo": ("0.8", "1.28", "yes"),
        "gppo_general": ("0.4", "2.56", "yes"),
        "cispo": ("0.8", "1.28", "yes"),
        "gppo_released": ("0.8", "1.28", "no"),
    }
    for rule, values in expected.items():
        row = table.loc[rule]
        assert (row["r low, A < 0"], row["r high, A > 0"], row["never_zero"]) == values
    assert table.loc["cispo", "r high, A < 0"] == "1.28"
    assert table.loc["gppo_released", "r high, A < 0"].startswith("0 to")


def test_rules_that_weigh_responses_are_not_in_the_table_of_coefficients():
    labels = [*clipping(rules=read_rules([*RULES, "gspo", "sapo"])).table("rules")["rule"]]
    assert "SAPO" in labels and "GSPO" not in labels


def test_a_rule_that_drops_gradients_would_fail_the_mechanism(project, monkeypatch):
    """The released code's dual clip, taken for the paper's GPPO, is "not reproduced"."""
    honest = demo.gradient_check(eps_low=0.2, eps_high=0.28)
    swapped = honest[honest["rule"] == "gppo_released"].assign(rule="gppo")
    monkeypatch.setattr(demo, "gradient_check", lambda **_: swapped)
    assert verdicts(clipping())["C14"]["verdict"] == "not reproduced"


def test_c2_is_rl_on_code_whose_gppo_is_the_soft_arm_of_notebook_07(project):
    e = clipping(code=True, seeds=[0, 1])
    soft = SoftReward(e.soft)
    assert {seed for _, seed in e.code_arms} == {seed for _, seed in soft.arms}
    assert e.code_arms["gppo", 0].key == soft.arms["soft", 0].key
    for stage in e.code_arms.values():
        assert stage.params["settings"] == soft.arms["soft", 0].params["settings"]
    assert e.stages() == [*e.grid.values(), *e.code_arms.values()]
    finish_all(e, ENDS)  # what the runs of C1 say decides nothing here
    assert "no replicate" in again(e).evidence()["C2"]
    for (rule, seed), stage in e.code_arms.items():
        end = {"gppo": 0.75, "clip_higher": 0.5, "cispo": 0.25}[rule]
        finish(stage, end=end, turned=seed)
    found = again(e).evidence()["C2"]
    for name, gap in (("GPPO - Clip-Higher", 0.25), ("GPPO - CISPO", 0.5)):
        a, b = found.values[f"RL on code: {name}"]
        assert a - b == pytest.approx([gap] * len(found.replicates))
    assert "code_decide" in found.words[0] and set(found.checked.values()) == {1.0}
    rows = again(e).table("code_scores").set_index(["benchmark", "rule"])
    assert {benchmark for benchmark, _ in rows.index} == {"code A", "code B", "validation"}
    assert rows.loc[("code A", "GPPO"), "paper_last"] > 0.5
    assert np.isnan(rows.loc[("code B", "GPPO"), "paper_last"])


def test_the_runs_on_code_differ_from_notebook_07_in_what_is_said(project):
    changes = {"num_steps": 2, "mini_batch_problems": 1, "learning_rate": 2e-4}
    e = clipping(code=True, code_changes=changes, seeds=[0, 1])
    theirs = SoftReward(SoftReward.params_of(e.params.profile)).arms["soft", 0].params["settings"]
    ours = e.code_arms["gppo", 0].params["settings"]
    assert {name for name in ours if ours[name] != theirs[name]} <= {*changes}
    assert all(ours[name] == changes[name] for name in changes)
    assert "learning_rate: 0.0002" in " ".join(e.notes())
    with pytest.raises(ParameterError, match="code_changes: unknown parameter 'engine'"):
        check("05_clipping", {"code_changes": {"engine": "local"}})


def test_without_runs_on_code_c2_says_what_it_needs(project):
    assert "set code: true" in clipping().evidence()["C2"]


def test_without_tuning_seeds_each_seed_has_the_rate_that_the_others_choose(project, monkeypatch):
    e = Clipping(GRID)
    statistics = dataclasses.replace(e.statistics, tuning=[])
    monkeypatch.setattr(Clipping, "statistics", statistics)
    e = Clipping(dataclasses.replace(GRID, seeds=[0, 1, 2]))
    assert {seed for _, _, seed in e.grid} == {0, 1, 2}
    best = {0: 1e-4, 1: 1e-3, 2: 1e-3}
    for (rule, rate, seed), stage in e.grid.items():
        finish(stage, end=0.75 if rate == best[seed] or rule == "gppo" else 0.25)
    e = again(e)
    assert e.chosen["cispo"] == {0: 1e-3, 1: 1e-4, 2: 1e-4}  # of equals the smallest
    assert e.chosen["gppo"] == dict.fromkeys(range(3), min(RATES))
    assert e.arms["cispo", 0].key == e.grid["cispo", 1e-3, 0].key
    assert "the other replicates chose" in e.words_on_rates
    assert "CISPO 0.0001 (2) or 0.001 (1)" in e.words_on_rates
