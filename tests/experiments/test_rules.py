"""The parameter `rules`: names, values, files; what a run's key follows from; what is refused."""

from __future__ import annotations

import pytest

from klearlib.errors import ParameterError
from klearlib.experiments.catalogue import check
from klearlib.experiments.nb05_clipping import Clipping
from klearlib.experiments.rules import read_rules, rule_arms, rule_spec
from klearlib.params import RLOptions

HALF = """
from klearlib.rl.coefficients import Rule

half = Rule("half", eps_low=0.2, eps_high=0.28, low_negative=0.4, high_positive=0.64)


def fade(ratio, advantage, *, eps_low, eps_high, power=1.0):
    return ratio.clamp(1 - eps_low, 1 + eps_high) ** power
"""


@pytest.fixture
def file(project):
    path = project / "my_rules.py"
    path.write_text(HALF)
    return path


def clipping(*rules, **changes) -> Clipping:
    return Clipping(check("05_clipping", {"rules": [*rules], **changes}))


def keys(e: Clipping) -> dict[str, str]:
    """Title of a run -> its key."""
    return {stage.title: stage.key for stage in e.grid.values()}


def test_the_content_of_the_file_names_a_run_and_its_place_does_not(project, file):
    before = keys(clipping("gppo", "my_rules.py:half", "my_rules.py:fade"))
    assert len(set(before.values())) == len(before) == 6
    elsewhere = project / "deep" / "others.py"
    elsewhere.parent.mkdir()
    elsewhere.write_text(HALF)
    moved = keys(clipping(f"{elsewhere}:half", {"name": "deep/others.py:fade", "label": "x"}))
    assert moved["half, seed 0"] == before["half, seed 0"]
    assert moved["x, seed 0"] == before["fade, seed 0"]
    file.write_text(HALF.replace("0.64", "0.32"))
    after = keys(clipping("gppo", "my_rules.py:half"))
    alone = keys(clipping("gppo", "cispo"))
    assert after["GPPO, seed 0"] == before["GPPO, seed 0"] == alone["GPPO, seed 0"]
    assert after["half, seed 0"] not in before.values()


def test_a_run_takes_the_file_along(file):
    e = clipping("my_rules.py:half", "my_rules.py:fade")
    file.unlink()
    for stage in e.stages():
        assert stage.params["rule"]["source"] == HALF and "my_rules" not in str(stage.params)
    # What was read once is read no more, and is what results are published with.
    assert keys(clipping(*e.params.rules)) == keys(e)


def test_values_of_a_rule_stand_in_place_of_the_notebooks(file):
    rules = read_rules(
        [
            "gppo",
            {"name": "gppo", "beta_low": 0},
            {"name": "clip_higher", "eps_high": 0.2, "label": "PPO"},
            {"name": "my_rules.py:fade", "power": 2},
            "unclipped",
        ]
    )
    titles = ["GPPO", "GPPO, beta_low 0", "PPO", "fade, power 2", "unclipped"]
    assert [arm.title for arm in rule_arms(rules)] == titles
    options = RLOptions(dual_clip=10.0, beta_high=2.0)
    specs = [rule_spec(rule, eps_low=0.2, eps_high=0.28, options=options) for rule in rules]
    clip, dual = {"eps_low": 0.2, "eps_high": 0.28}, {"dual_clip": 10.0}
    betas = {"beta_low": 1.0, "beta_high": 2.0}
    assert specs == [
        {"name": "gppo", **clip, **dual, **betas},
        {"name": "gppo", **clip, **dual, **betas, "beta_low": 0.0},
        {"name": "clip_higher", **clip, **dual, "eps_high": 0.2},
        {"name": "fade", "source": HALF, **clip, "power": 2.0},
        {"name": "unclipped"},
    ]
    assert read_rules([{"name": "gppo"}]) == ["gppo"]


def test_each_rule_of_ones_own_has_a_look_of_its_own(file):
    from klearlib.report.style import SERIES, series_style

    arms = rule_arms(read_rules(["my_rules.py:half", "gppo", "my_rules.py:fade"]))
    looks = [series_style(arm.series) for arm in arms]
    assert [look.label for look in looks] == ["half", "GPPO", "fade"]
    others = {(look.color, look.marker) for look in SERIES.values()}
    own = {(look.color, look.marker) for look in (looks[0], looks[2])}
    assert len(own) == 2 and not own & others
    assert not {c for c, _ in own} & {c for c, _ in others}
    assert not {m for _, m in own} & {m for _, m in others}


BAD = [
    ("gppo", "rules must be a list"),
    ([], "rules must be a list"),
    (["gppoo"], "unknown rule 'gppoo'.* did you mean 'gppo'"),
    (["half"], r"unknown rule 'half' \(or write FILE.py:NAME\)"),
    (["gppo", "gppo"], "'GPPO' names more than one rule"),
    ([3], "rules has 3: write a name"),
    ([{"beta_low": 0}], "mapping with name"),
    ([{"name": "gppo", "beta_lo": 0}], "gppo: beta_lo: did you mean 'beta_low'"),
    ([{"name": "cispo", "dual_clip": 3.0}], "cispo: dual_clip: "),
    ([{"name": "gppo", "eps_low": -3}], r"gppo: eps_low .* in \[0, 1\], got -3"),
    ([{"name": "gppo", "eps_low": "a"}], "eps_low must be a number, got 'a'"),
    ([{"name": "gppo", "label": ""}], "label must be one line of text"),
    (["no_file.py:half"], "no file at .*no_file.py: paths are relative to the project's folder"),
    (["my_rules.py\0:half"], "no file at "),
    (["/dev/null:half"], "no file at /dev/null"),
    (["my_rules.py:hlf"], "the file has no rule 'hlf'; its rules: half, fade, wild"),
    (["my_rules.py"], "the file has no rule ''; its rules: half, fade, wild"),
    (["my_rules.py:half", "other.py:half"], "'half' names more than one rule.*label: another"),
    ([{"name": "my_rules.py:half", "label": "gppo"}], "'gppo' names more than one rule"),
    ([{"name": "my_rules.py:half", "eps_low": 0.1}], "its own numbers: leave out eps_low"),
    ([{"name": "my_rules.py:fade", "sharp": 1}], "unexpected keyword argument 'sharp'"),
    (["my_rules.py:wild"], r"my_rules.py:wild: F is \S+ at ratio"),
    (["helped.py:half"], "imports my_rules from its own folder"),
]


@pytest.mark.parametrize(("rules", "words"), BAD)
def test_bad_rules_are_refused_in_one_line_before_anything_starts(file, rules, words):
    file.write_text(HALF + "\n\ndef wild(ratio, advantage):\n    return ratio**3\n")
    file.with_name("other.py").write_text(HALF)
    file.with_name("helped.py").write_text("import my_rules\nhalf = my_rules.half\n")
    with pytest.raises(ParameterError, match=words) as caught:
        check("05_clipping", {"rules": rules})
    assert "\n" not in str(caught.value) and str(caught.value).startswith("05_clipping: rules")


def test_equal_rules_are_refused_where_every_ratio_is_1_and_no_others(file):
    one, lagged = {"mini_batch_problems": 8, "code": False}, {"options": {"policy_lag": 2}}
    with pytest.raises(ParameterError, match="8 makes one update per rollout"):
        check("05_clipping", {"rules": ["gppo", {"name": "clip_higher", "eps_high": 0.2}]} | one)
    for values in ({"rules": ["gppo", "dr_grpo"]}, {"rules": ["gppo", "my_rules.py:fade"]}, lagged):
        assert check("05_clipping", values | one)


def test_a_file_beside_the_user_is_named_in_full(project, file, tmp_path, monkeypatch):
    there = tmp_path / "user"
    there.mkdir()
    file.rename(there / "mine.py")
    monkeypatch.chdir(there)
    with pytest.raises(ParameterError, match=f"write {there}/mine.py"):
        clipping("mine.py:half")


def test_a_rule_of_ones_own_does_not_run_on_verl(file):
    e = clipping("gppo", "my_rules.py:half", engine="verl")
    with pytest.raises(ParameterError, match="half is another rule: set engine: local"):
        e.stages()
