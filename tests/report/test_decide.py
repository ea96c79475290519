"""Verdicts: each rule's truth table, and that what would be a wrong verdict is an error."""

import dataclasses
import json
import math

import numpy as np
import pytest

from klearlib.evaluate.statistics import holm
from klearlib.paper import claim, figure
from klearlib.report.decide import decide_absolute, decide_mechanism, decide_stability
from klearlib.report.verdicts import decide_order

CLIP, CISPO = "GPPO - Clip-Higher", "GPPO - CISPO"
CHECKED = {check.name: 0.01 for check in claim("C1").checks}
UP, DOWN, NONE, SMALL = 0.2, -0.2, 0.0, 0.01


def well_formed(verdict):
    json.dumps(dataclasses.asdict(verdict), allow_nan=False)
    for text in (verdict.reason, verdict.measured, verdict.settle or ""):
        assert "\n" not in text and "nan" not in text and "inf" not in text.replace("infinit", "")
    return verdict


def arms(effect, *, num=5, noise=0.005, seed=0):
    """Two arms, float [num], whose differences have exactly the mean `effect`."""
    draws = np.random.default_rng(seed).normal(0, 1, num)
    b = np.full(num, 0.4)
    return b + effect + noise * (draws - draws.mean()) / draws.std(ddof=1), b


def order(effects, *, name="C1", checked=CHECKED, paper_scale=False, margin=0.05, **how):
    """The verdict on a claim for the differences of its comparisons."""
    about = claim(name)
    values = {
        each.name: arms(effect, seed=place, **how)
        for place, (each, effect) in enumerate(zip(about.comparisons, effects, strict=True))
    }
    return well_formed(
        decide_order(about, values, margin=margin, checked=checked, paper_scale=paper_scale)
    )


# Holm


def test_holm_by_hand():
    # sorted .005 .01 .03 .04 times 4 3 2 1 = .02 .03 .06 .04, made monotone .02 .03 .06 .06
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.04]) == [0.04]
    assert holm([]) == []


@pytest.mark.parametrize("values", [[-0.1], [1.1], [math.nan], [[0.1]]])
def test_holm_refuses_what_is_no_p_value(values):
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        holm(values)


# orders


@pytest.mark.parametrize(
    ("clip", "cispo", "word"),
    [
        (UP, UP, "supported"),
        (UP, NONE, "mixed"),
        (NONE, SMALL, "no difference"),
        (UP, DOWN, "contradicted"),
        (NONE, DOWN, "contradicted"),
        (DOWN, DOWN, "contradicted"),
    ],
)
def test_truth_table_of_an_order(clip, cispo, word):
    noise = {"noise": 0.02} if SMALL in (clip, cispo) else {}
    assert order((clip, cispo), **noise).verdict == word
    at_paper = {"supported": "reproduced", "contradicted": "not reproduced"}.get(word, word)
    assert order((clip, cispo), paper_scale=True, **noise).verdict == at_paper


def test_undecided_names_replicates_from_the_spread_alone():
    found = [order((effect, effect), num=3, noise=0.08) for effect in (0.0, 0.04)]
    assert [each.verdict for each in found] == ["undecided"] * 2
    assert found[0].settle == found[1].settle == "13 replicates"  # t_12 0.08 / sqrt(13) = 0.048
    about = claim("C9")
    noisy = {"soft - hard": arms(0.04, num=3, noise=0.08)}
    for spread, needed in ((4.0, 13), (20.0, 64)):  # in points: t_63 20 / sqrt(64) = 5.00
        how = {"margin": 0.05, "checked": {}, "paper_scale": False}
        more = decide_order(about, noisy, spread=spread, **how)
        assert more.settle == f"{needed} replicates"


def test_a_failed_check_is_said_with_its_number_whatever_the_difference():
    low = dict(zip(CHECKED, (0.01, 0.0009), strict=True))
    for effect in (UP, DOWN):
        found = order((effect, effect), checked=low)
        assert found.verdict == "not tested"
        assert found.reason == f"{[*CHECKED][1]}: 0.09 %, needs at least 0.1 %"
    least = dict.fromkeys(CHECKED, 0.001)  # exactly the least is enough
    assert order((UP, UP), checked=least).verdict == "supported"


@pytest.mark.parametrize("checked", [{}, dict.fromkeys(CHECKED, math.nan), {"other": 0.5}])
def test_a_check_cannot_be_passed_over(checked):
    with pytest.raises((AssertionError, KeyError)):
        order((UP, UP), checked=checked)


@pytest.mark.parametrize(
    ("effect", "noise", "word"),
    [
        (0.002, 0.005, "supported"),
        (0.02, 0.005, "supported"),  # a sure difference inside the margin is no difference
        (UP, 0.005, "contradicted"),
        (DOWN, 0.005, "contradicted"),
        (0.03, 0.1, "undecided"),
    ],
)
def test_truth_table_of_an_equivalence(effect, noise, word):
    assert order((effect,), name="C15", checked={}, noise=noise).verdict == word


@pytest.mark.parametrize(
    ("effects", "word"),
    [
        ((0.01, 0.0, 0.0), "supported"),  # above 0, inside the margin, and the others are alike
        ((UP, 0.0, UP), "supported"),
        ((UP, 0.0, DOWN), "contradicted"),
        ((-0.005, 0.001, 0.001), "no difference"),  # small, with the other sign
        ((0.0, 0.0, 0.0), "no difference"),
        ((0.0, UP, 0.0), "undecided"),
    ],
)
def test_truth_table_of_a_plateau(effects, word):
    assert order(effects, name="C8", checked={}, noise=0.004, num=16).verdict == word


def test_what_is_published_is_in_the_claims_unit_and_the_text_in_points():
    found = order((UP, UP), num=6)
    first = found.comparisons[0]
    assert first.difference == pytest.approx(0.2) and first.margin == 0.05
    assert first.num_replicates == 6 and first.p_flip == 2**-6
    text = f"{CLIP}: +20.0 points [{100 * first.low:+.1f}, {100 * first.high:+.1f}] (6 replicates)"
    assert found.measured.startswith(text)
    assert order((UP, UP), num=5).comparisons[0].p_flip is None


def test_equal_differences_in_few_replicates_have_no_interval():
    found = order((UP, UP), num=2, noise=0.0)
    assert found.verdict == "undecided" and "no interval" in found.measured
    assert [(c.low, c.high) for c in found.comparisons] == [(None, None)] * 2


def test_the_comparisons_are_all_those_of_the_claim_in_its_order():
    about = claim("C1")
    for wrong in ([CLIP], [CISPO, CLIP], [CLIP, CISPO, "more"], []):
        with pytest.raises(AssertionError, match="C1"):
            values = dict.fromkeys(wrong, arms(UP))
            decide_order(about, values, margin=0.05, checked=CHECKED, paper_scale=False)


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
    assert decide_mechanism(claim("C14"), error).verdict == word


# stability


def runs(num_seeds=3, num_steps=40, scale=0.06):
    rng = np.random.default_rng(0)
    return [scale * rng.uniform(0.9, 1.3, num_steps) for _ in range(num_seeds)]


def steady(arms):
    return {arm: [0.1] * len(norms) for arm, norms in arms.items()}


def stability(change=lambda arms: None, *, paper_scale=False, fell=0.0, **shape):
    arms = {arm: runs(**shape) for arm in ("gppo", "clip_higher", "cispo")}
    change(arms)
    scores = steady(arms) | {"gppo": [0.1, -fell, 0.1]}
    return well_formed(
        decide_stability(claim("C3"), (arms, scores), paper_scale=paper_scale)
    ).verdict


def test_truth_table_of_stability():
    def spikes(count, factor=10.0, arm="gppo"):
        def change(arms):
            arms[arm][1][-count:] *= factor

        return change

    def one_nan(arms):
        arms["cispo"][2][-1] = math.nan

    assert stability() == "supported"
    assert stability(paper_scale=True) == "reproduced"
    assert stability(scale=5.0) == "supported"
    assert stability(scale=5.0, paper_scale=True) == "not reproduced"
    assert stability(spikes(2)) == "supported"  # 2 of 40 are the 5 % that the rule allows
    assert stability(spikes(3)) == "contradicted"
    assert stability(spikes(3), paper_scale=True) == "not reproduced"
    assert stability(spikes(3, factor=2.0)) == "supported"
    assert stability(spikes(20)) == "contradicted"  # a run that blows up for good
    assert stability(one_nan) == "contradicted"
    assert stability(num_steps=4) == "undecided"
    assert stability(spikes(1), num_steps=4) == "undecided"
    assert stability(one_nan, num_steps=4) == "contradicted"
    assert stability(num_seeds=2) == "undecided"
    assert stability(num_seeds=1, paper_scale=True) == "reproduced"
    assert stability(lambda arms: arms.pop("cispo")) == "undecided"
    assert stability(fell=0.05) == "supported"  # the most that the rule allows
    assert stability(fell=0.06) == "contradicted"
    assert stability(fell=0.06, num_steps=4) == "undecided"
    assert stability(scale=0.0) == "undecided"
    assert stability(lambda arms: arms.update(gppo=[[math.nan]] * 3)) == "contradicted"


def test_the_papers_own_curves_pass_both_rules():
    frame = figure("2c")
    arms = {
        key: [frame.value[frame.series == printed].to_numpy()]
        for printed, key in frame.attrs["keys"].items()
    }
    assert (
        decide_stability(claim("C3"), (arms, steady(arms)), paper_scale=True).verdict
        == "reproduced"
    )
    thrice = {arm: norms * 3 for arm, norms in arms.items()}
    assert (
        decide_stability(claim("C3"), (thrice, steady(thrice)), paper_scale=False).verdict
        == "supported"
    )


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
    assert absolute(-0.023).verdict == "undecided"
    assert absolute(-0.035).verdict == "not reproduced"
    assert absolute(0.035).verdict == "not reproduced"
    assert absolute(0.0, paper_scale=False).verdict == "not run"
    assert absolute(0.0, only=[]).verdict == "not run"
    assert absolute(0.0, only=["AIME 2024, 64K"]).verdict == "undecided"
    assert absolute(-0.1, only=["AIME 2024, 64K"]).verdict == "not reproduced"


def test_absolute_interval_is_joint_sampling_noise():
    out = absolute(-0.017).comparisons[0]
    rate = 0.905 - 0.017
    joint = math.sqrt(2 * rate * (1 - rate) / (30 * 64))
    assert out.difference == pytest.approx(-0.017, abs=1e-3)
    assert (out.high - out.low) / 2 == pytest.approx(1.96 * joint, rel=0.02)


def test_absolute_refuses_another_benchmark():
    with pytest.raises(ValueError, match="expected 30 problems, got 29"):
        decide_absolute(claim("C13"), {"AIME 2024, 64K": evaluation(0.9, 29)}, paper_scale=True)
