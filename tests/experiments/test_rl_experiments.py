"""What holds for every notebook on RL, 05 to 09, on invented runs."""

from __future__ import annotations

import csv
import functools
import io
import json
from dataclasses import replace

import pytest
from fake_runs import (
    HOW,
    NUM_STEPS,
    finish,
    finish_all,
    finish_same_rollouts,
    published,
    section,
    verdicts,
)
from scipy import stats

from klearlib.errors import DamagedEntry, ParameterError
from klearlib.evaluate.counts import read_evaluations
from klearlib.evaluate.record_files import load_record, save_record
from klearlib.experiments import registered
from klearlib.experiments.catalogue import check
from klearlib.experiments.experiment import runs_dir
from klearlib.experiments.nb05_clipping import Clipping
from klearlib.experiments.nb06_alpha_sweep import AlphaSweep
from klearlib.experiments.nb07_soft_reward import SoftReward
from klearlib.experiments.nb08_test_filter import TestFilter
from klearlib.experiments.nb09_zero_advantage import ZeroAdvantage
from klearlib.paper import claim
from klearlib.params import load_profile, uses_miniature

ALL = [Clipping, AlphaSweep, SoftReward, TestFilter, ZeroAdvantage]
ON_CODE = (SoftReward, TestFilter)


def made(of, **changes):
    """An experiment with small parameters and three seeds."""
    of_its = {"test_filter": {}} if of in ON_CODE else {"code": False} if of is Clipping else {}
    return of(of.Params(**{"seeds": [0, 1, 2]} | HOW | of_its | changes))


def of_profile(of, profile: str):
    return of(check(of.name, load_profile(profile, of.name)))


@pytest.mark.parametrize("profile", ["smoke", "mini"])
def test_arms_that_are_alike_are_one_run(profile):
    """The files must agree, or a notebook trains runs again that are there."""
    five, six, seven, eight, nine = (of_profile(of, profile) for of in ALL)
    assert set(six.params.seeds) <= set(five.params.seeds)
    same = [
        (six, "alpha_0", five, "gppo"),
        (eight, "filter", seven, "soft"),
    ]
    if nine.params.soft_filters:
        same.append((nine, "soft code reward: advantage", seven, "soft"))
    for mine, arm, other, its_arm in same:
        for seed in mine.params.seeds:
            assert mine.arms[arm, seed].key == other.arms[its_arm, seed].key, arm
    for seed in nine.params.seeds:  # what the pairs of 09 branch from
        for alpha in nine.params.alphas:
            other = five.arms["gppo", seed] if alpha == 0 else six.arms[f"alpha_{alpha:g}", seed]
            assert nine.arms[f"alpha {alpha:g}: filter", seed].inputs["sft"].key == other.key
    for e in (five, six, seven, eight, nine):
        assert len({stage.key for stage in e.arms.values()}) == len(e.arms)


SIX = [f"alpha_{alpha}" for alpha in ("0", "0.05", "0.1", "0.2")]
NINE = [f"alpha {alpha}: {arm}" for alpha in ("0", "0.1") for arm in ("filter", "no_filter")]
NINE += [f"soft code reward: {arm}" for arm in ("advantage", "accuracy")]
FILTER = "zero_advantage_filter"


@pytest.mark.parametrize(
    ("of", "arms", "pair", "values"),
    [
        (Clipping, ["clip_higher", "gppo", "cispo"], (0, 1), {}),
        (AlphaSweep, SIX, (0, 3), {"alpha": (0.0, 0.2)}),
        (SoftReward, ["soft", "hard"], (0, 1), {"code_reward": ("soft", "hard")}),
        (TestFilter, ["filter", "no_filter"], (0, 1), {}),
        (ZeroAdvantage, NINE, (2, 3), {FILTER: ("advantage", "off")}),
        (ZeroAdvantage, NINE, (4, 5), {FILTER: ("advantage", "accuracy")}),
    ],
)
def test_arms_are_round_robin_over_seeds_and_differ_in_one_value(project, of, arms, pair, values):
    e = made(of)
    assert list(e.arms) == [(arm, seed) for seed in (0, 1, 2) for arm in arms]
    own = e.stages()[: len(e.arms)]  # those of other sets follow
    assert own == list(e.arms.values())
    a, b = (e.arms[arms[place], 1].params for place in pair)
    one, other = a.pop("settings"), b.pop("settings")
    differ = {name: (one[name], other[name]) for name in one if one[name] != other[name]}
    assert differ == values
    a.pop("rule"), b.pop("rule")
    assert a == b and a["seed"] == 1


NONE = "not run"
CLAIMS_OF_05 = ("C14", "C1", "C2", "C18", "C25", "C26", "E6", "C3")
NOT_RUN = [
    (Clipping, dict.fromkeys(CLAIMS_OF_05, NONE) | {"C14": "reproduced"}, 9),
    (AlphaSweep, dict.fromkeys(("C8", "C19"), NONE), 12),
    (SoftReward, dict.fromkeys(("C9", "C10", "C17", "C22"), NONE), 9),
    (TestFilter, dict.fromkeys(("C11", "C16"), NONE), 6),
    (ZeroAdvantage, dict.fromkeys(("C12", "C21"), NONE), 18),
]


@pytest.mark.parametrize(("of", "words", "count"), NOT_RUN)
def test_nothing_done_says_not_run_and_publishes(project, of, words, count):
    e = made(of)
    assert {name: each["verdict"] for name, each in verdicts(e).items()} == words
    found = section(e)
    assert (found["status"], len(found["missing"])) == ("partial", count)
    assert (found["title"], found["question"]) == (of.title, of.question)


FILES = {
    Clipping: {"fig2.svg", "rules.png", "corners.svg", "rules.csv"},
    AlphaSweep: {"table6.svg", "table6.png", "scores.csv", "gradients.csv"},
    SoftReward: {"fig3.svg", "scores.csv", "replicates.csv"},
    TestFilter: {"fig4.svg", "filter.csv"},
    ZeroAdvantage: {"fig5.svg", "effects.csv", "scores.csv"},
}


@pytest.mark.parametrize(
    "of",
    [each if each is TestFilter else pytest.param(each, marks=pytest.mark.slow) for each in ALL],
)
def test_publishing_the_same_results_again_changes_no_byte(project, of):
    e = made(of)
    finish_all(e, dict.fromkeys([arm for arm, seed in e.arms if seed == 0], 0.5))
    if of is SoftReward:
        finish_same_rollouts(e)
    first = published(e)
    assert set(first) >= FILES[of]
    if of in (Clipping, TestFilter):
        assert published(e) == first
    assert json.loads(first["section.json"])["status"] == "complete"


ORDERS = {
    Clipping: ("C1", "gppo", ["clip_higher", "cispo"]),
    SoftReward: ("C9", "soft", ["hard"]),
    AlphaSweep: ("C19", "alpha_0.1", ["alpha_0", "alpha_0.05", "alpha_0.2"]),
}


@pytest.mark.parametrize(("end", "word"), [(0.75, "supported"), (0.25, "contradicted")])
@pytest.mark.parametrize("of", ORDERS)
def test_the_verdict_on_scores_follows_the_sign(project, of, end, word):
    claim, better, others = ORDERS[of]
    e = made(of)
    finish_all(e, {better: end} | dict.fromkeys(others, 0.5))
    verdict = verdicts(e)[claim]
    assert verdict["verdict"] == word and verdict["rule"]
    for found in verdict["comparisons"]:
        assert found["difference"] == pytest.approx(end - 0.5, abs=0.03)
        assert found["num_replicates"] == 3 and found["margin"] == 0.05


def test_a_reader_checks_every_verdict_from_the_csv_with_a_t_test(project):
    """Nothing but scipy on replicates.csv gives what section.json says."""
    e = made(Clipping)
    finish_all(e, {"gppo": 0.75, "clip_higher": 0.5, "cispo": 0.75})
    files = published(e)
    rows = list(csv.DictReader(io.StringIO(files["replicates.csv"].decode())))
    (said,) = (v for v in json.loads(files["section.json"])["verdicts"] if v["claim"] == "C1")
    inside, sure = [], []
    for found in said["comparisons"]:
        mine = [row for row in rows if (row["claim"], row["comparison"]) == ("C1", found["name"])]
        assert [row["replicate"] for row in mine] == ["0", "1", "2"]
        a, b = ([float(row[side]) for row in mine] for side in "ab")
        greater = stats.ttest_rel(a, b, alternative="greater")
        low, high = stats.ttest_rel(a, b).confidence_interval(0.95)
        assert [found["low"], found["high"]] == pytest.approx([low, high])
        assert found["p_greater"] == pytest.approx(greater.pvalue)
        ends = stats.ttest_rel(a, b).confidence_interval(0.90)
        inside.append(ends.low > -0.05 and ends.high < 0.05)
        sure.append(greater.pvalue <= 0.025 / 2)
    assert (sure, inside) == ([True, False], [False, True])
    assert said["verdict"] == "mixed"


def test_a_rule_that_is_younger_than_its_runs_is_exploratory_until_they_run_anew(project):
    e = made(SoftReward)
    finish_all(e, {"soft": 0.75, "hard": 0.5})
    assert verdicts(e)["C9"]["exploratory"]  # was never written down
    registered.note("smoke", runs_dir())
    first = min(
        json.loads(p.read_text())["provenance"]["utc"] for p in runs_dir().glob("rl/*/done.json")
    )
    path = runs_dir() / registered.RULES
    known = json.loads(path.read_text())
    for since, exploratory in ((first, False), ("9999", True)):
        path.write_text(json.dumps(dict.fromkeys(known, since)))
        assert verdicts(e)["C9"]["exploratory"] is exploratory
    registered.note("smoke", runs_dir())
    assert json.loads(path.read_text()) == dict.fromkeys(known, "9999")  # the first time stays
    path.write_text('{"a": ')
    with pytest.raises(DamagedEntry, match=f"{registered.RULES} is damaged .*restore a copy"):
        registered.note("smoke", runs_dir())
    path.write_text(json.dumps(dict.fromkeys(known, "9999")))
    statistics = project / "params" / "smoke" / "statistics.yaml"
    before = verdicts(e)["C9"]["rule"]
    statistics.write_text(statistics.read_text().replace("margin: 0.05", "margin: 0.04"))
    assert verdicts(e)["C9"]["rule"] != before and verdicts(e)["C9"]["exploratory"]


def test_plumbing_decides_nothing_and_tuning_replicates_never_decide(project):
    statistics = project / "params" / "smoke" / "statistics.yaml"
    e = made(SoftReward, seeds=[0, 1, 2, 100])
    finish_all(e, {"soft": 0.75, "hard": 0.5})
    assert verdicts(e)["C9"]["comparisons"][0]["num_replicates"] == 3
    statistics.write_text(statistics.read_text().replace("decides: true", "decides: false"))
    found = verdicts(e)["C9"]
    assert found["verdict"] == "not run" and "smoke test" in found["reason"] and found["measured"]


def test_a_replicate_in_which_a_claim_cannot_be_run_is_left_out_by_name(project, monkeypatch):
    e = made(SoftReward, seeds=[0, 1])
    finish_all(e, {"soft": 0.75, "hard": 0.5})
    registered.note("smoke", runs_dir())
    known = json.loads((runs_dir() / registered.RULES).read_text())
    (runs_dir() / registered.RULES).write_text(json.dumps(dict.fromkeys(known, "")))
    found = verdicts(e)["C9"]
    assert found["verdict"] == "undecided" and found["reason"].endswith("2 of 3 replicates so far")
    assert not found["exploratory"]
    about = functools.partial(replace, unrunnable=(2, 7))  # 7 is not registered
    monkeypatch.setattr("klearlib.report.verdicts.claim", lambda name: about(claim(name)))
    found = verdicts(e)["C9"]
    assert found["verdict"] == "supported" and found["exploratory"]
    assert found["reason"].endswith("It cannot be run in replicate 2, which is registered")


def test_stability_is_judged_on_the_seeds_that_decide_alone(project):
    e = made(Clipping, seeds=[0, 1, 2, 100], num_steps=NUM_STEPS)
    ends = dict.fromkeys(("clip_higher", "gppo", "cispo"), 0.5)
    finish_all(e, ends, lambda series, seed, step: late(seed == 100, step))
    found = verdicts(e)["C3"]
    assert found["verdict"] == "supported" and "(3 seeds" in found["measured"] and found["rule"]
    statistics = project / "params" / "smoke" / "statistics.yaml"
    statistics.write_text(statistics.read_text().replace("decides: true", "decides: false"))
    assert verdicts(e)["C3"]["verdict"] == "not run"


def late(breaks: bool, step: int) -> dict:
    return {"train/grad_norm": 5.0} if breaks and step > 15 else {}


def test_only_responses_behind_a_verdict_count_as_not_judged(project):
    """Of the second half, of the claim's arms, of the seeds that decide: at the last step but one
    too."""
    e = made(AlphaSweep, alphas=[0.0, 0.05, 0.1], seeds=[0, 1, 2, 100])
    finish_all(e, {"alpha_0": 0.5, "alpha_0.05": 0.5, "alpha_0.1": 0.75})
    assert "could not be judged" not in verdicts(e)["C19"]["reason"]
    for arm, step in (("alpha_0", 10), ("alpha_0", 0), ("alpha_0.05", 10), ("alpha_0", 10)):
        for seed in (0, 100):
            path = e.folder(e.arms[arm, seed]) / "evaluations" / f"math_decide-{step:05d}.npz"
            if path.is_file():
                found = load_record(path)
                found.reason[0] = "timeout"
                save_record(found, path)
    assert "1 responses could not be judged" in verdicts(e)["C19"]["reason"]


def test_half_of_the_runs_are_paired_by_the_seeds_that_all_arms_have(project):
    e = made(Clipping)
    for arm in [("clip_higher", 0), ("gppo", 0), ("cispo", 0), ("gppo", 1)]:
        finish(e.arms[arm], end=0.5)
    assert verdicts(e)["C1"]["reason"] == "one replicate has no spread"
    assert section(e)["missing"] == [
        "Clip-Higher, seed 1", "CISPO, seed 1", "Clip-Higher, seed 2", "GPPO, seed 2",
        "CISPO, seed 2",
    ]  # fmt: skip


@pytest.mark.parametrize("of", ALL)
def test_the_miniature_is_never_paper_scale(project, monkeypatch, of):
    monkeypatch.setattr("klearlib.experiments.experiment.is_paper_scale", lambda profile: True)
    e = made(of)
    assert uses_miniature(e.params) and not e.paper_scale
    monkeypatch.setattr(of.Params, "worlds", ())
    assert made(of).paper_scale


def test_options_that_are_written_out_with_their_default_are_no_departure():
    of = {"max_tests": None, "code_scores": "pass_rate"}
    assert made(Clipping, options=of).departures("options") == []
    (note,) = made(Clipping, options=of | {"max_tests": 8}).departures("options")
    assert note == "Options that depart from the paper: max_tests: 8."


@pytest.mark.parametrize(
    ("notebook", "values"),
    [
        ("05_clipping", {"learning_rates": [1e-4, 1.0000001e-4]}),
        ("06_alpha_sweep", {"alphas": [0.0, 0.1, 0.10000001]}),
        ("09_zero_advantage", {"alphas": [0.0, 0.1, 0.10000001]}),
    ],
)
def test_values_that_print_alike_are_refused(notebook, values):
    with pytest.raises(ParameterError, match=f"{next(iter(values))} has a value twice"):
        check(notebook, values)


def test_a_copy_of_an_evaluation_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr("klearlib.evaluate.counts.load_record", str)
    monkeypatch.setattr("klearlib.evaluate.counts.Evaluation.of_record", str)
    (tmp_path / "evaluations").mkdir()
    for name in ("math_a-00010", "math_a-00002", "math_a-00002 (copy)", "math_ab-00004"):
        (tmp_path / "evaluations" / f"{name}.npz").touch()
    assert list(read_evaluations(tmp_path)["math_a"]) == [2, 10]
