"""Verdicts: each rule's truth table, and that what would be a wrong verdict is an error."""

import dataclasses
import json
import math

import numpy as np
import pytest

from klearlib.evaluate.scores import PairedDifference, paired_difference
from klearlib.paper import claim, claims, figure
from klearlib.report.decide import (
    Measured,
    decide_absolute,
    decide_mechanism,
    decide_ordering,
    decide_stability,
    holm,
    holm_in_notebook,
    measure,
)

CLIP, CISPO = "GPPO - Clip-Higher", "GPPO - CISPO"
POWER = {CLIP: 0.01, CISPO: 0.01}


def well_formed(verdict):
    json.dumps(dataclasses.asdict(verdict), allow_nan=False)
    for text in (verdict.reason, verdict.measured, verdict.settle or ""):
        assert "\n" not in text and "nan" not in text and "inf" not in text.replace("infinit", "")
    return verdict


def scores_with(effect, *, num_seeds=4, num_problems=12, seed=0):
    """Two arms whose paired difference is `effect` -+ a little noise."""
    rng = np.random.default_rng(seed)
    shape = (num_seeds, num_problems)
    b = rng.random(shape)
    return b + effect + rng.normal(0, 0.02, shape), b


def order(effects, *, power=POWER, paper_scale=False, num_seeds=4):
    """The verdict on C1 for the differences {comparison: effect}."""
    measured = [
        measure(name, *scores_with(effect, num_seeds=num_seeds, seed=i))
        for i, (name, effect) in enumerate(effects.items())
    ]
    corrected = holm_in_notebook({"C1": measured})["C1"]
    return well_formed(
        decide_ordering(claim("C1"), corrected, power=power, paper_scale=paper_scale)
    )


# Holm


def test_holm_by_hand():
    # sorted .005 .01 .03 .04 times 4 3 2 1 = .02 .03 .06 .04, made monotone .02 .03 .06 .06
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.04]) == [0.04]
    assert holm([]) == []


def test_holm_rejects_between_bonferroni_and_nothing():
    rng = np.random.default_rng(0)
    for _ in range(50):
        p = rng.random(6) ** 3
        adjusted = np.array(holm(p))
        assert (adjusted >= p).all() and (adjusted <= np.minimum(1, 6 * p) + 1e-15).all()
        assert (np.diff(adjusted[np.argsort(p)]) >= 0).all()


def test_holm_keeps_the_chance_of_any_false_verdict():
    rng = np.random.default_rng(1)
    false = [min(holm(rng.random(4))) < 0.05 for _ in range(3000)]
    assert np.mean(false) == pytest.approx(0.05, abs=0.015)


@pytest.mark.parametrize("values", [[-0.1], [1.1], [math.nan], [[0.1]]])
def test_holm_refuses_what_is_no_p_value(values):
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        holm(values)


def test_holm_runs_over_all_claims_of_a_notebook_and_no_other():
    measured = {
        "C1": [measure(CLIP, *scores_with(0.5)), measure(CISPO, *scores_with(0.001, seed=1))],
        "C2": [measure(CLIP, *scores_with(0.02, seed=2))],
    }
    out = holm_in_notebook(measured)
    plain = [entry.result.p_value for entries in measured.values() for entry in entries]
    found = [entry.p_holm for entries in out.values() for entry in entries]
    assert found == holm(plain)
    assert all(entry.family == 3 for entries in out.values() for entry in entries)
    with pytest.raises(ValueError, match="inside one notebook"):
        holm_in_notebook({"C1": measured["C1"], "C9": []})


def test_a_difference_that_only_the_correction_leaves_open_is_said_to_be_one():
    measured = [measure(CLIP, *scores_with(0.5)), measure(CISPO, *scores_with(0.2, seed=1))]
    corrected = holm_in_notebook({"C1": measured})["C1"]
    assert all(entry.result.low > 0 for entry in corrected)
    later = [dataclasses.replace(corrected[0], p_holm=0.06), corrected[1]]
    verdict = well_formed(decide_ordering(claim("C1"), later, power=POWER, paper_scale=False))
    assert verdict.verdict == "inconclusive"
    assert verdict.reason.startswith("beside 0 alone, but not with Holm's correction")
    assert verdict.reason.endswith(f": {CLIP}")


# orderings

UP, DOWN, NONE = 0.2, -0.2, 0.0


@pytest.mark.parametrize(
    ("clip", "cispo", "word"),
    [
        (UP, UP, "direction"),
        (UP, NONE, "inconclusive"),
        (NONE, NONE, "inconclusive"),
        (UP, DOWN, "opposite"),
        (NONE, DOWN, "opposite"),
        (DOWN, DOWN, "opposite"),
    ],
)
def test_truth_table_of_an_ordering(clip, cispo, word):
    effects = {CLIP: clip, CISPO: cispo}
    assert order(effects).verdict == word
    at_paper = {"direction": "reproduced", "opposite": "not reproduced"}.get(word, word)
    assert order(effects, paper_scale=True).verdict == at_paper


@pytest.mark.parametrize(
    ("effects", "shares", "word"),
    [
        ((UP, UP), (0.01, 0.001), "direction"),  # exactly the minimum is enough
        ((UP, UP), (0.01, 0.0009), "no power"),
        ((UP, NONE), (0.0, 0.01), "no power"),
        ((DOWN, UP), (0.0, 0.01), "no power"),  # what has no power speaks neither for nor against
        ((DOWN, UP), (0.01, 0.0), "opposite"),
    ],
)
def test_truth_table_of_power(effects, shares, word):
    names = (CLIP, CISPO)
    out = order(dict(zip(names, effects, strict=True)), power=dict(zip(names, shares, strict=True)))
    assert out.verdict == word
    if word == "no power":
        assert "0.1 %" in out.reason and out.settle


@pytest.mark.parametrize("power", [None, {CLIP: 0.1}, {CLIP: 0.1, CISPO: math.nan}, {CLIP: 2.0}])
def test_a_rule_of_power_cannot_be_passed_over(power):
    with pytest.raises(ValueError, match="share of tokens"):
        order({CLIP: UP, CISPO: UP}, power=power)
    corrected = holm_in_notebook({"C9": [measure("soft - hard", *scores_with(UP))]})["C9"]
    with pytest.raises(ValueError, match="no rule of power"):
        decide_ordering(claim("C9"), corrected, power={"soft - hard": 1.0}, paper_scale=False)


def test_a_comparison_that_was_not_measured_leaves_the_claim_open():
    out = order({CLIP: UP}, power={CLIP: 0.01})
    assert out.verdict == "inconclusive" and CISPO in out.reason and CISPO in out.settle
    assert order({CLIP: DOWN}, power={CLIP: 0.01}).verdict == "opposite"
    assert order({}, power={}).verdict == "not run"


def test_one_seed_gives_no_interval_and_no_verdict():
    out = order({CLIP: UP, CISPO: UP}, num_seeds=1)
    assert out.verdict == "inconclusive" and "at least 2 seeds" in out.settle
    assert "no interval" in out.measured
    assert [(c.low, c.high, c.p_holm) for c in out.comparisons] == [(None, None, 1)] * 2


def test_scores_too_coarse_to_show_noise_are_no_evidence():
    measured = [measure(name, np.ones((2, 2)), np.zeros((2, 2))) for name in (CLIP, CISPO)]
    assert measured[0].result.p_value == 0
    corrected = holm_in_notebook({"C1": measured})["C1"]
    out = well_formed(decide_ordering(claim("C1"), corrected, power=POWER, paper_scale=False))
    assert out.verdict == "inconclusive" and "too coarse for an interval" in out.settle


def test_a_mean_of_exactly_zero_is_not_called_coarse():
    a = np.array([[0.3, 0.1, 0.5], [0.2, 0.6, 0.4]])
    pair = [measure(name, a, a[:, ::-1]) for name in (CLIP, CISPO)]
    result = pair[0].result
    assert abs(result.difference) < 1e-12 and result.low < 0 < result.high
    corrected = holm_in_notebook({"C1": pair})["C1"]
    out = well_formed(decide_ordering(claim("C1"), corrected, power=POWER, paper_scale=False))
    assert "coarse" not in out.settle and "enough" not in out.settle
    assert f"{CLIP}: the mean difference is 0, so no number of seeds can be given" in out.settle


def hand_made(difference, p_value, num_seeds=4):
    """A comparison with half-width .1 at level .95 whose p-value is set by hand."""
    result = PairedDifference(
        difference, 0.03, difference - 0.1, difference + 0.1, p_value, 0.95, num_seeds, 30,
        0.003, 0.0, 0.0,
    )  # fmt: skip
    return Measured(CLIP, result)


def test_holm_decides_where_the_plain_interval_would_not():
    pair = [hand_made(0.11, 0.03), dataclasses.replace(hand_made(0.11, 0.03), name=CISPO)]
    corrected = holm_in_notebook({"C1": pair})["C1"]
    out = well_formed(decide_ordering(claim("C1"), corrected, power=POWER, paper_scale=False))
    assert out.verdict == "inconclusive"  # Holm makes it .06, although [.01, .21] excludes 0
    assert [c.p_holm for c in out.comparisons] == [0.06, 0.06]
    # at level 1 - .05 / 2: t_3 sqrt(.003 / 4) = .114 hides .11, t_4 sqrt(.003 / 5) = .086 does not
    assert f"{CLIP}: about 5 seeds" in out.settle


def test_settle_names_seeds_or_says_that_seeds_will_not_do():
    rng = np.random.default_rng(3)
    noise = rng.normal(0, 0.5, (1, 10)) + rng.normal(0, 0.001, (3, 10))
    a = noise - noise.mean() + 0.01
    out = holm_in_notebook({"C1": [measure(CLIP, a, np.zeros_like(a))]})["C1"]
    verdict = decide_ordering(claim("C1"), out, power={CLIP: 0.1}, paper_scale=False)
    assert "more problems, on these 10 no number of seeds is enough" in verdict.settle


def test_measured_text_has_numbers_interval_and_n():
    a, b = scores_with(UP)
    result = paired_difference(a, b)
    out = order({CLIP: UP, CISPO: UP})
    text = f"{CLIP}: {100 * result.difference:+.1f} points [{100 * result.low:+.1f}, "
    assert out.measured.startswith(text)
    assert "(4 seeds x 12 problems, 1 % of tokens" in out.measured
    first = out.comparisons[0]
    assert (first.difference, first.low, first.high) == (
        result.difference, result.low, result.high,
    )  # fmt: skip
    assert first.num_seeds == 4 and first.num_problems == 12


def test_comparisons_must_be_those_of_the_claim_corrected_and_at_its_level():
    ready = holm_in_notebook({"C1": [measure(CLIP, *scores_with(UP))]})["C1"]
    wrong_level = holm_in_notebook({"C1": [measure(CLIP, *scores_with(UP), level=0.5)]})["C1"]
    cases = [
        ([measure(CLIP, *scores_with(UP))], "holm_in_notebook first"),
        (ready * 2, "each once"),
        ([dataclasses.replace(ready[0], name="GPPO - PPO")], "expected comparisons out of"),
        ([dataclasses.replace(ready[0], p_holm=0.0)], "p-value or level"),
        (wrong_level, "p-value or level"),
    ]
    for comparisons, match in cases:
        with pytest.raises(ValueError, match=match):
            decide_ordering(claim("C1"), comparisons, power=POWER, paper_scale=False)


def test_every_rule_refuses_a_claim_of_another_kind():
    by_kind = {
        "mechanism": lambda entry: decide_mechanism(entry, 0.0, 1e-9),
        "trend": lambda entry: decide_stability(entry, {}, paper_scale=True),
        "absolute": lambda entry: decide_absolute(entry, {}, paper_scale=True),
        "ordering": lambda entry: decide_ordering(entry, [], paper_scale=True),
    }
    for entry in claims():
        own = {"direction": "ordering"}.get(entry.kind, entry.kind)
        for kind, decide in by_kind.items():
            if kind != own:
                with pytest.raises(ValueError, match=f"{entry.id} is a claim of kind"):
                    decide(entry)


# mechanism


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (0.0, "reproduced"),
        (1e-6, "reproduced"),
        (1.1e-6, "not reproduced"),
        (math.nan, "not reproduced"),
        (math.inf, "not reproduced"),
    ],
)
def test_truth_table_of_a_mechanism(error, word):
    assert decide_mechanism(claim("C14"), error, 1e-6).verdict == word


def test_a_mechanism_cannot_be_judged_by_a_looser_tolerance():
    assert decide_mechanism(claim("C14"), 1e-8, 1e-9).verdict == "not reproduced"
    for tolerance in (1e-5, -1.0, math.nan):
        with pytest.raises(ValueError, match="at most 1e-06"):
            decide_mechanism(claim("C14"), 0.0, tolerance)


# stability


def runs(num_seeds=3, num_steps=40, scale=0.06):
    rng = np.random.default_rng(0)
    return [scale * rng.uniform(0.9, 1.3, num_steps) for _ in range(num_seeds)]


def stability(change=lambda arms: None, *, paper_scale=False, **shape):
    arms = {arm: runs(**shape) for arm in ("gppo", "clip_higher", "cispo")}
    change(arms)
    return well_formed(decide_stability(claim("C3"), arms, paper_scale=paper_scale)).verdict


def test_truth_table_of_stability():
    def spikes(count, factor=10.0, arm="gppo"):
        def change(arms):
            arms[arm][1][-count:] *= factor

        return change

    def one_nan(arms):
        arms["cispo"][2][-1] = math.nan

    assert stability() == "direction"
    assert stability(paper_scale=True) == "reproduced"
    assert stability(scale=5.0) == "direction"
    assert stability(scale=5.0, paper_scale=True) == "not reproduced"
    assert stability(spikes(2)) == "direction"  # 2 of 40 are the 5 % that the rule allows
    assert stability(spikes(3)) == "opposite"
    assert stability(spikes(3), paper_scale=True) == "not reproduced"
    assert stability(spikes(3, factor=2.0)) == "direction"
    assert stability(spikes(20)) == "opposite"  # a run that blows up for good
    assert stability(one_nan) == "opposite"
    assert stability(num_steps=4) == "inconclusive"
    assert stability(spikes(1), num_steps=4) == "inconclusive"
    assert stability(one_nan, num_steps=4) == "opposite"
    assert stability(num_seeds=2) == "inconclusive"
    assert stability(num_seeds=1, paper_scale=True) == "reproduced"
    assert stability(lambda arms: arms.pop("cispo")) == "inconclusive"
    assert stability(scale=0.0) == "inconclusive"
    assert stability(lambda arms: arms.update(gppo=[[math.nan]] * 3)) == "opposite"


def test_stability_speaks_of_arms_by_their_names():
    arms = {arm: runs() for arm in ("gppo", "clip_higher")}
    short = decide_stability(claim("C3"), arms, paper_scale=False)
    assert "GRPO w/ Clip-Higher: 100.0 % below" in short.measured
    assert short.reason == "missing: CISPO"
    arms["clip_higher"][0][-1] = math.inf
    broken = decide_stability(claim("C3"), arms, paper_scale=False)
    assert broken.reason == "not stable: GRPO w/ Clip-Higher"
    assert not [text for text in dataclasses.astuple(broken) if "clip_higher" in str(text)]


def test_the_papers_own_curves_pass_both_rules():
    frame = figure("2c")
    arms = {
        key: [frame.value[frame.series == printed].to_numpy()]
        for printed, key in frame.attrs["keys"].items()
    }
    assert decide_stability(claim("C3"), arms, paper_scale=True).verdict == "reproduced"
    thrice = {arm: norms * 3 for arm, norms in arms.items()}
    assert decide_stability(claim("C3"), thrice, paper_scale=False).verdict == "direction"


@pytest.mark.parametrize("arms", [{"ppo": [[0.1]]}, {"gppo": []}, {"gppo": [[]]}, {"gppo": [0.1]}])
def test_stability_refuses_unknown_arms_and_empty_runs(arms):
    with pytest.raises(ValueError, match="expected"):
        decide_stability(claim("C3"), arms, paper_scale=False)


# absolute numbers


def evaluation(value, num_problems, n=64, seed=0):
    """bool [P, n] with the mean `value` up to rounding, every problem at about that rate."""
    flat = np.arange(num_problems * n) < round(value * num_problems * n)
    return np.random.default_rng(seed).permutation(flat).reshape(num_problems, n)


def absolute(shift, *, only=None, paper_scale=True):
    numbers = [number for number in claim("C13").paper if only is None or number.what in only]
    measured = {
        number.what: evaluation(
            number.value + (shift if number.what == "AIME 2024, 64K" else 0.0),
            number.num_problems or 131,
            number.num_samples,
        )
        for number in numbers
    }
    return well_formed(decide_absolute(claim("C13"), measured, paper_scale=paper_scale))


def test_truth_table_of_absolute_numbers():
    """AIME at .905, 30 x 64 responses of ours and theirs: joint error .00946, 95 % .0186 + .0005,
    and at 95 % for ten numbers at once z = 2.81: .0266 + .0005."""
    assert absolute(0.0).verdict == "reproduced"
    assert absolute(-0.017).verdict == "reproduced"
    assert absolute(-0.023).verdict == "inconclusive"
    assert absolute(-0.035).verdict == "not reproduced"
    assert absolute(0.035).verdict == "not reproduced"
    assert absolute(0.0, paper_scale=False).verdict == "not run"
    assert absolute(0.0, only=[]).verdict == "not run"
    assert absolute(0.0, only=["AIME 2024, 64K"]).verdict == "inconclusive"
    assert absolute(-0.1, only=["AIME 2024, 64K"]).verdict == "not reproduced"


def test_absolute_interval_is_joint_sampling_noise():
    out = absolute(-0.017).comparisons[0]
    rate = 0.905 - 0.017
    joint = math.sqrt(2 * rate * (1 - rate) / (30 * 64))
    assert out.difference == pytest.approx(-0.017, abs=1e-3)
    assert (out.high - out.low) / 2 == pytest.approx(1.96 * joint, rel=0.02)


def test_absolute_refuses_another_benchmark():
    with pytest.raises(ValueError, match="expected numbers out of"):
        decide_absolute(claim("C13"), {"AIME": evaluation(0.9, 30)}, paper_scale=True)
    with pytest.raises(ValueError, match="expected 30 problems, got 29"):
        decide_absolute(claim("C13"), {"AIME 2024, 64K": evaluation(0.9, 29)}, paper_scale=True)
