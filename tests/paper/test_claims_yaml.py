"""claims.yaml: what is in it, and that nothing in it is half-written."""

import re

import pytest
import yaml

from klearlib.evaluate.statistics import ONE_SIDED
from klearlib.paper import claims
from klearlib.paper.schema import CLAIMS_FILE, COMPARED, STATISTICS, TESTS, parse_claims
from klearlib.rl.coefficients import CORNERS as CORNERS_OF_THE_LOSS

NOTEBOOKS = {
    "05_clipping": {"C1", "C2", "C3", "C14", "C18", "C25", "C26", "E6"},
    "02_data_correctness": {"C4", "C15"},
    "03_teacher_ablation": {"C5"},
    "04_topk_diversity": {"C6", "C7", "E7"},
    "06_alpha_sweep": {"C8", "C19"},
    "07_soft_reward": {"C9", "C10", "C17", "C22"},
    "08_test_filter": {"C11", "C16"},
    "09_zero_advantage": {"C12", "C21"},
    "10_headline": {"C13", "C24"},
    "11_beyond": {"E2", "E3", "E4"},
    "12_rules": {"E1", "E5", "E8"},
}
KINDS = {
    "C3": "trend",
    "C13": "absolute",
    "C14": "mechanism",
    "C15": "equivalence",
    **dict.fromkeys(("E5", "E7", "E8"), "equivalence"),
    **dict.fromkeys(("E1", "E2", "E3", "E4"), "exploration"),
    "C8": "plateau",
}
KINDS |= dict.fromkeys(
    ("C9", "C10", "C11", "C12", "C16", "C17", "C18", "C19", "C21", "C22", "C24", "C25"), "direction"
)


def test_all_claims_with_their_notebook_and_kind():
    ours = {20, 23}  # which are E6 and E7
    names = [f"C{i}" for i in range(1, 27) if i not in ours]
    names += [f"E{i}" for i in range(1, 9)]
    assert [entry.id for entry in claims()] == names
    for notebook, ids in NOTEBOOKS.items():
        assert {entry.id for entry in claims() if entry.notebook == notebook} == ids
    for entry in claims():
        assert entry.kind == KINDS.get(entry.id, "ordering")
        assert entry.paper_text() and entry.section and entry.shown
        assert bool(entry.expectation) == (entry.id[0] == "E") != bool(entry.paper)


def test_what_is_compared_has_a_statistic():
    for entry in claims():
        assert bool(entry.statistic) == bool(entry.comparisons), entry.id
        # a distance from a line or a rate of the run is no score: it has a margin of its own
        own = entry.statistic == "curve" and entry.id != "C17"
        own |= entry.id in ("C4", "C15", "E3", "E8")  # few students, a half, and what is fixed
        assert bool(entry.margin) == own, entry.id
    # The p-values that its rules print are those by which verdicts are decided.
    limits = {tuple(entry.rule.numbers.items()) for entry in claims() if entry.comparisons}
    assert limits == {(("one_sided", ONE_SIDED),), (("two_sided", 2 * ONE_SIDED),)}


def test_rules_are_compared_where_they_differ_on_a_thousandth_of_the_tokens():
    by_id = {entry.id: entry for entry in claims()}
    with_corners = {e.id for e in claims() if any(check.corners for check in e.checks)}
    assert with_corners == {"C1", "C2", "C18", "C26", "E1"}
    assert by_id["C1"].checks == by_id["C2"].checks
    assert {check.at_least for check in by_id["C1"].checks} == {0.001}


def test_checks_look_at_the_corners_in_which_the_printed_rules_differ():
    """F at el = .2, eh = .28 in each corner, typed from Eqs. 10, 12 and 16; "r" is the ratio."""
    coefficients = {
        "clip_higher": {"low_negative": 0, "high_positive": 0},
        "gppo": {"low_negative": 0.8, "high_positive": 1.28},
        "cispo": {"low_negative": 0.8, "high_positive": 1.28},
    }
    for rule, others in (("clip_higher", "rr"), ("gppo", "rr"), ("cispo", (0.8, 1.28))):
        coefficients[rule] |= dict(zip(("low_positive", "high_negative"), others, strict=True))
    entry = claims()[0]
    for comparison in entry.comparisons:
        a, b = coefficients[comparison.a[0]], coefficients[comparison.b[0]]
        differ = {corner for corner in a if a[corner] != b[corner]}
        arms = {*comparison.a, *comparison.b}
        (check,) = [check for check in entry.checks if set(check.arms) == arms]
        assert set(check.corners) == differ
        assert differ <= set(CORNERS_OF_THE_LOSS)


def test_the_words_of_a_rule_state_its_numbers():
    for entry in claims():
        rule = entry.rule
        words = f"{rule.below_paper} {rule.at_paper}".replace("1e-6", "0.000001")
        stated = {float(number) for number in re.findall(r"\d+\.?\d*", words)}
        for name, value in rule.numbers.items():
            assert value in stated or round(100 * value, 9) in stated, (entry.id, name)


def test_every_claim_says_what_kind_of_test_it_gets():
    by_test = {test: {e.id for e in claims() if e.test == test} for test in TESTS}
    assert by_test["planted"] == {"C5", "C6", "C7", "C24", "E7"}
    assert by_test["identity"] == {"C14"} and by_test["own"] == {"E6"}
    assert all(by_test.values())
    assert all(entry.why.endswith(".") and len(entry.why) < 120 for entry in claims())


UNITS = {"fraction", "reward", "norm", "share", "count", "coefficient"}
TREND = {"median_factor", "min_share_below", "min_steps", "min_seeds", "max_score_drop"}
TREND |= {"band_low", "band_high", "min_share_in_band"}
NUMBERS = {"mechanism": {"tolerance"}, "trend": TREND, "absolute": {"level", "rounding"}}
NUMBERS |= {"equivalence": {"two_sided"}, "direction": {"one_sided"}}
NUMBERS |= {kind: {"one_sided"} for kind in ("ordering", "exploration", "plateau")}


def test_every_rule_states_its_numbers():
    for entry in claims():
        assert entry.rule.numbers.keys() == NUMBERS[entry.kind]
        assert all(type(value) in (int, float) for value in entry.rule.numbers.values())


@pytest.mark.parametrize("entry", claims(), ids=lambda entry: entry.id)
def test_a_claim_is_written_whole(entry):
    texts = (entry.title, entry.statement, entry.why, entry.metric, *entry.notes)
    assert all(text == text.strip() != "" for text in texts)
    assert {entry.unit, *(number.unit for number in entry.paper)} <= UNITS
    assert all(type(number.value) in (int, float) for number in entry.paper)
    if entry.kind == "absolute":
        assert all(number.num_samples for number in entry.paper)
    assert bool(entry.comparisons) == (entry.kind in COMPARED)
    assert not entry.comparisons or entry.statistic in STATISTICS
    assert entry.margin is None or entry.margin > 0
    names = [each.name for each in entry.comparisons]
    assert len({*names}) == len(names)
    for each in entry.comparisons:
        arms = {*each.a, *each.b}
        assert each.a and each.b and len(arms) == len(each.a + each.b), "an arm against itself"
        assert arms <= set(entry.arms) and each.benchmarks
    for check in entry.checks:
        assert set(check.arms) <= set(entry.arms) and set(check.corners) <= set(CORNERS_OF_THE_LOSS)
        assert bool(check.arms) == bool(check.corners) and 0 < check.at_least < 1


def test_a_field_that_is_missing_or_unknown_is_an_error():
    document = yaml.safe_load(CLAIMS_FILE.read_text(encoding="utf-8"))
    assert parse_claims(document) == claims()
    first = document["claims"][0]
    statement = first.pop("statement")
    with pytest.raises(TypeError, match="statement"):
        parse_claims(document)
    first |= {"statement": statement, "verdict": "reproduced"}
    with pytest.raises(TypeError, match="verdict"):
        parse_claims(document)
