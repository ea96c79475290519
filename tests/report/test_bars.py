"""Bars of final scores: every value is drawn where it belongs, with its interval and its seeds."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from klearlib.report.bars import BarPanel, headline_bars, scores_over_count
from klearlib.report.curves import Panel
from klearlib.report.style import figure_bytes

PAPER, OURS = ["Klear", "other"], ["base model", "SFT", "code RL", "code RL, YaRN"]


def panel(*, seeds=(0, 1)) -> BarPanel:
    means = {"base model": 0.1, "SFT": 0.4, "code RL": 0.6}
    rows = [(model, seed, mean) for model, mean in means.items() for seed in seeds]
    return BarPanel(
        "AIME 2024",
        "maths A, avg@8",
        pd.DataFrame({"model": PAPER, "value": [0.9, 0.8]}),
        pd.DataFrame(
            {
                "model": list(means),
                "value": list(means.values()),
                "low": [0.05, 0.35, np.nan],
                "high": [0.15, 0.45, np.nan],
            }
        ),
        pd.DataFrame(rows, columns=["model", "seed", "value"]),
    )


def draw(*panels):
    return headline_bars(panels, paper_models=PAPER, our_models=OURS, highlight="Klear")


def bars(axis) -> dict[int, float]:
    """Place on the axis, from the top -> length of the bar there."""
    return {round(p.get_y() + p.get_height() / 2): p.get_width() for p in axis.patches}


def labels(axis) -> list[str]:
    return [text.get_text() for text in axis.texts]


def test_each_score_is_a_bar_of_its_length():
    top, bottom = draw(panel()).axes[:2]
    assert bars(top) == pytest.approx({0: 0.9, 1: 0.8})
    assert bars(bottom) == pytest.approx({0: 0.1, 1: 0.4, 2: 0.6}), "what is not run has no bar"
    assert [t.get_text() for t in bottom.get_yticklabels()] == OURS
    assert labels(top) == ["90.0", "80.0"] and labels(bottom) == ["10.0", "40.0", "60.0"]
    assert bottom.get_ylim()[0] > bottom.get_ylim()[1], "the first model is on top"


def test_intervals_and_seeds_are_drawn_and_explained():
    figure = draw(panel())
    lines = [line for line in figure.axes[1].lines if line.get_linestyle() == "-"]
    assert [tuple(line.get_xdata()) for line in lines] == [(0.05, 0.15), (0.35, 0.45)]
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "95 % sampling noise" in words and "here, one seed" in words
    words = [text.get_text() for text in draw(panel(seeds=(0,))).legends[0].get_texts()]
    assert "here, one seed" not in words, "no dot is drawn where there is one seed"


def test_nothing_measured_says_so_and_bytes_are_equal():
    empty = panel()
    empty = BarPanel(
        empty.paper_title, empty.ours_title, empty.paper, empty.ours.iloc[:0], empty.seeds.iloc[:0]
    )
    figure = draw(empty)
    assert labels(figure.axes[1]) == ["not run yet"]
    assert figure_bytes(draw(panel()), "svg") == figure_bytes(draw(panel()), "svg")


def test_scores_stand_over_the_number_in_a_groups_name():
    groups = ["top10", "top1", "equal10", "alone2"]
    paper = pd.DataFrame({"series": "student", "group": groups[:2], "value": [0.3, 0.4]})
    rows = [(group, seed, 0.1 * place) for place, group in enumerate(groups) for seed in (0, 1, 2)]
    ours = pd.DataFrame(rows, columns=["group", "seed", "value"]).assign(series="student")
    kinds = {"top": "", "equal": ", equal"}
    domains = {"maths": [Panel("AIME", "A", paper, ours)]}
    (axis,) = scores_over_count(domains, kinds, x_label="n").axes
    printed, (top, equal) = axis.lines[0], (each.lines[0] for each in axis.containers)
    assert printed.is_dashed() and [*printed.get_xdata()] == [10, 1]
    assert [*top.get_xdata()] == [1, 10] and np.allclose(top.get_ydata(), [10, 0])
    assert [*equal.get_xdata()] == [10] and np.allclose(equal.get_ydata(), [20])
    assert [t.get_text() for t in axis.get_xticklabels()] == ["1", "10"]
