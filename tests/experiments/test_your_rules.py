"""A rule of one's own ends with an answer: how it compares with GPPO and Clip-Higher."""

from __future__ import annotations

import pytest
from fake_runs import HOW, again, finish_all
from metric_names import METRICS

from klearlib.errors import ParameterError
from klearlib.experiments.clipping_arms import ClippingParams
from klearlib.experiments.nb05_clipping import Clipping
from klearlib.report.page import build_report
from klearlib.suite.summary import summary

SOURCE = (
    "def half(ratio, advantage, *, eps_low, eps_high):\n    return ratio.clamp(max=1 + eps_high)\n"
)
SHARES = {
    "train/token_share_low_negative": 0.01,
    "train/token_share_high_positive": 0.02,
    "train/token_share_low_positive": 0.04,
    "train/token_share_high_negative": 0.08,
}


def with_half(**how) -> Clipping:
    rules = ["clip_higher", "gppo", {"name": "mine.py:half", "source": SOURCE}]
    return Clipping(
        ClippingParams(**{"seeds": [0, 1, 2], "code": False, "rules": rules, **HOW, **how})
    )


def finished(e: Clipping, own: float) -> Clipping:
    ends = {name: 0.5 for name in e.rules} | dict.fromkeys(e.others, own)
    every = {name: 0.0 for name in METRICS if "token_share" in name} | SHARES
    finish_all(e, ends, lambda *_: every)
    return again(e)


@pytest.mark.parametrize(("own", "word"), [(0.75, "higher"), (0.25, "lower")])
def test_the_same_test_decides(project, own, word):
    table = finished(with_half(), own).table("your_rules")
    assert list(table["against"]) == ["GPPO", "Clip-Higher"]
    assert list(table["verdict"]) == [word] * 2 and list(table["seeds"]) == [3, 3]
    assert (table["low"] <= table["difference"]).all()


def test_the_share_of_tokens_on_which_rules_differ(project):
    """`half` is GPPO above the range for A > 0, keeps the ratio below it, and is bounded for A < 0
    where GPPO keeps the ratio."""
    table = finished(with_half(), 0.5).table("your_rules").set_index("against")
    assert table.loc["GPPO", "differs_on"] == pytest.approx(0.01 + 0.08)
    assert table.loc["Clip-Higher", "differs_on"] == pytest.approx(0.01 + 0.02 + 0.08)


def test_the_answer_is_read_first(project):
    e = finished(with_half(), 0.75)
    folder = e.publish().parent.parent
    build_report(folder, [type(e)])
    lines = summary(folder, {}, [], 1.0).splitlines()
    assert lines[0].startswith("half - GPPO: +") and "points [" in lines[0]
    assert "the claims of the paper are in the report" in lines
    page = (folder / "report.html").read_text()
    assert page.index("Your rules") < page.index("half - GPPO") < page.index("Claims")
    assert "## Your rules" in (folder / "README.md").read_text()


def test_without_two_replicates_there_is_no_answer_but_a_reason(project):
    (first, _) = finished(with_half(seeds=[0]), 0.75).answers()
    assert first == "half - GPPO: 1 replicate of both done, and the test needs two"


def test_a_rule_of_a_cell(project, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "a_cell.py").write_text(
        "from klearlib.rl.coefficients import as_loss, as_weights\n\n"
        + SOURCE
        + "\nEPS = 1\n\ndef uses(ratio, advantage):\n    return ratio * EPS\n"
        "\n@as_loss\ndef plain(ratio, advantage):\n    return -ratio.clamp(max=9) * advantage\n"
        "\n@as_weights\ndef near(log_ratio, advantage, response):\n    return log_ratio * 0\n"
    )
    import a_cell

    e = Clipping(ClippingParams(seeds=[0], code=False, **HOW)).add_rule(a_cell.half, label="mine")
    assert [arm.title for arm in e.rules.values()][-1] == "mine"
    assert "import torch" in e.params.rules[-1]["source"]
    for function, given in ((a_cell.plain, "loss"), (a_cell.near, "weights")):
        (*_, rule) = e.add_rule(function).others.values()
        assert getattr(rule, given) is not None
    with pytest.raises(ParameterError, match="uses uses EPS from the notebook"):
        e.add_rule(a_cell.uses)
