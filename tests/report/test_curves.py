"""Figures: intervals against known quantiles, one look per series, nothing hidden, equal bytes."""

from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import report_fakes as fakes

from klearlib.paper import FIGURES, figure
from klearlib.report.curves import (
    Panel,
    corner_shares,
    learning_curves,
    paper_beside_ours,
    seed_bands,
    seeds_text,
)
from klearlib.report.rule_figures import coefficient_grid
from klearlib.report.style import (
    NOTEBOOK_DPI,
    SERIES,
    figure_bytes,
    save_figure,
    series_order,
    series_style,
)

T_975 = {2: 4.302652730, 4: 2.776445105}  # printed quantiles of Student's t


def frame_of(values, *, series="gppo"):
    """Long data from a [seeds, steps] array."""
    values = np.asarray(values, dtype=float)
    rows = [
        (series, seed, step, values[seed, step])
        for seed in range(values.shape[0])
        for step in range(values.shape[1])
    ]
    return pd.DataFrame(rows, columns=["series", "seed", "step", "value"])


def texts_of(panel):
    return " | ".join(text.get_text() for text in panel.texts)


@pytest.mark.parametrize("num_seeds", [3, 5])
def test_band_is_the_t_interval_of_the_mean(num_seeds):
    values = np.random.default_rng(num_seeds).normal(size=(num_seeds, 3))
    band = seed_bands(frame_of(values))
    mean = values.sum(axis=0) / num_seeds
    variance = ((values - mean) ** 2).sum(axis=0) / (num_seeds - 1)
    half = T_975[num_seeds - 1] * np.sqrt(variance / num_seeds)
    np.testing.assert_allclose(band["mean"], mean, rtol=1e-12)
    np.testing.assert_allclose(band["low"], mean - half, rtol=1e-8)
    np.testing.assert_allclose(band["high"], mean + half, rtol=1e-8)
    assert band["num_seeds"].tolist() == [num_seeds] * 3


def test_a_late_or_diverged_seed_leaves_a_gap_and_no_jump():
    values = np.array([[0.2, 0.3, 0.4], [0.8, np.nan, 0.9]])
    frame = frame_of(values)
    frame = frame[~((frame["seed"] == 1) & (frame["step"] == 2))]
    band = seed_bands(frame)
    assert band["mean"].iloc[0] == pytest.approx(0.5)
    assert band["mean"].iloc[1:].isna().all() and band["low"].iloc[1:].isna().all()
    assert band["num_seeds"].tolist() == [2, 1, 1]
    infinite = seed_bands(frame_of([[1.0], [np.inf]]))
    assert infinite["mean"].isna().all()


@pytest.mark.parametrize(
    ("values", "words"), [([[0.1, 0.2]], "1 seed"), ([[0, 0.1], [0.2, 0.3]], "2 seeds each")]
)
def test_below_three_seeds_there_is_a_mean_and_no_band_and_the_panel_says_so(values, words):
    frame = frame_of(values)
    band = seed_bands(frame)
    assert band["mean"].tolist() == pytest.approx([0.1, 0.2]) and band["low"].isna().all()
    drawn = learning_curves(frame)
    assert f"{words}, so no band" in texts_of(drawn.axes[0])
    legend = [text.get_text() for text in drawn.legends[0].get_texts()]
    assert not [text for text in legend if "interval" in text]
    unequal = pd.concat([frame, frame_of([[1, 2], [2, 3], [3, 4]], series="cispo")])
    assert seeds_text(unequal) == f"seeds: GPPO {words[0]} (no band), CISPO 3"


def test_two_values_of_a_seed_at_one_step_are_an_error():
    frame = frame_of([[0.1, 0.2]])
    with pytest.raises(ValueError, match="duplicate"):
        seed_bands(pd.concat([frame, frame.iloc[[1]]]))


@pytest.mark.parametrize("name", [name for name in FIGURES if name != "1"])
def test_the_papers_series_look_like_ours(name):
    for printed, key in figure(name).attrs["keys"].items():
        assert series_style(printed) == series_style(key)
        assert series_style(key).key in SERIES


def test_colours_stay_apart_for_colour_blind_readers():
    """Machado, Oliveira and Fernandes 2009: full protanopia and deuteranopia in linear RGB."""
    from matplotlib.colors import to_rgb

    protanopia = (
        "0.152286 1.052583 -0.204868 0.114503 0.786281 0.099216 -0.003882 -0.048116 1.051998"
    )
    deuteranopia = (
        "0.367322 0.860646 -0.227968 0.280085 0.672501 0.047413 -0.011820 0.042940 0.968881"
    )
    views = {"normal": np.eye(3)}
    for view, numbers in {"protanopia": protanopia, "deuteranopia": deuteranopia}.items():
        views[view] = np.array(numbers.split(), dtype=float).reshape(3, 3)
    rules = ["clip_higher", "gppo", "cispo", "unclipped", "ppo_clip"]
    rules += ["gppo_released", "gppo_general"]
    linear = np.array([to_rgb(SERIES[rule].color) for rule in rules]) ** 2.2
    for view, matrix in views.items():
        seen = np.clip(linear @ matrix.T, 0, 1) ** (1 / 2.2)
        distance = np.linalg.norm(seen[:, None] - seen[None], axis=-1)
        closest = distance[np.triu_indices(len(rules), 1)].min()
        assert closest > 0.1, (view, closest)
    assert len({SERIES[rule].marker for rule in rules}) == len(rules)


def test_an_unknown_series_keeps_its_colour_whatever_is_beside_it():
    assert series_style("mine") == series_style("mine")
    assert series_order(["mine", "gppo", "clip_higher"]) == ["clip_higher", "gppo", "mine"]


def test_the_paper_is_dashed_and_ours_is_solid_in_the_same_colour():
    panel = Panel("AIME 2024, avg@32", "maths, avg@4", fakes.paper_curves(), fakes.curves())
    top, bottom = paper_beside_ours([panel]).axes
    assert top.get_title(loc="left") == "Paper: AIME 2024, avg@32"
    assert bottom.get_title(loc="left") == "Here: maths, avg@4"
    assert all(line.is_dashed() for line in top.lines)
    assert not any(line.is_dashed() for line in bottom.lines)
    wide = [line for line in bottom.lines if line.get_linewidth() > 1]
    assert [line.get_color() for line in top.lines] == [line.get_color() for line in wide]
    assert len(bottom.lines) - len(wide) == 9  # three series of three seeds
    means = seed_bands(fakes.curves()).query("series == 'gppo'")["mean"]
    gppo = next(line for line in wide if line.get_color() == SERIES["gppo"].color)
    np.testing.assert_allclose(gppo.get_ydata(), means)
    assert "3 seeds each" in texts_of(bottom)


def test_partial_results_are_drawn_and_named():
    frame = fakes.curves()
    late = (frame["series"] == "cispo") & (frame["seed"] == 2) & (frame["step"] > 20)
    partial = frame[~late & ~((frame["series"] == "gppo") & (frame["seed"] == 1))]
    drawn = paper_beside_ours(
        [
            Panel("a", "a", fakes.paper_curves(), partial),
            Panel("b", "b", None, frame.iloc[:0]),
            Panel("c", "c", fakes.paper_curves(steps=range(1, 241)), None, "norm", log_y=True),
        ]
    )
    drawn.canvas.draw()
    words = [texts_of(panel) for panel in drawn.axes]
    note = words[3].replace("\n", " ")
    assert "seeds: GRPO w/ Clip-Higher 3, GPPO 2 (no band), CISPO 3" in note
    assert words[1] == "" and not drawn.axes[1].axison  # the paper has no such curve
    assert words[4] == words[5] == "not run yet"
    assert "median" in words[2]


def test_a_wide_band_does_not_flatten_the_curves():
    drawn = learning_curves(frame_of([[0.4, 0.5], [0.5, 0.6], [0.6, 0.5]]))
    low, high = drawn.axes[0].get_ylim()
    assert low > 0.3 and high < 0.7  # the band reaches from 0.25 to 0.75
    assert "band cut by the frame" in texts_of(drawn.axes[0])


def test_each_rule_has_a_panel_with_both_signs():
    shapes = fakes.coefficients() | {"GSPO": None}
    clip, gppo, gspo = (axis for axis in coefficient_grid(shapes).axes if axis.get_visible())
    assert gppo.get_title(loc="left") == "GPPO"
    unclipped, up, down = gppo.lines
    assert unclipped.get_color() != up.get_color() != down.get_color() and down.is_dashed()
    np.testing.assert_allclose(up.get_ydata(), shapes["GPPO"]["positive"])
    np.testing.assert_allclose(down.get_ydata(), shapes["GPPO"]["negative"])
    assert clip.lines[2].get_ydata()[0] == 0 and texts_of(gspo) == "depends on the batch"


def test_differences_are_paired_by_seed_in_a_row_of_their_own():
    # Seeds lie 0.3 apart, and b is above a by 2, 3 and 4 points at every step.
    a = np.array([[0.1, 0.2], [0.4, 0.5], [0.7, 0.8]])
    gains = np.array([[0.02], [0.03], [0.04]])
    frame = pd.concat([frame_of(a, series="gppo"), frame_of(a + gains, series="cispo")])
    late = frame[(frame["series"] != "cispo") | (frame["seed"] != 2)]  # pairs alone count
    for ours, mean in ((frame, 3.0), (late, 2.5)):
        panel = Panel("a", "a", fakes.paper_curves(), ours, less="gppo")
        _, middle, bottom = paper_beside_ours([panel]).axes
        assert len(middle.lines) == 2  # the means alone
        wide = [line for line in bottom.lines if line.get_linewidth() > 2]
        (line,) = wide
        np.testing.assert_allclose(line.get_ydata(), [mean, mean])
        assert line.get_color() == SERIES["cispo"].color
        assert bottom.get_title(loc="left") == "Here: minus GPPO, by seed"
    alone = Panel("a", "a", fakes.paper_curves(), frame_of(a), less="gppo")
    assert len(paper_beside_ours([alone]).axes) == 2


def test_corner_shares_put_each_number_into_its_panel():
    frame = fakes.corners(seeds=(0,), steps=[1, 2])
    drawn = corner_shares(frame)
    titles = [axis.get_title(loc="left").split("\n")[0] for axis in drawn.axes[:4]]
    assert titles == ["r low, A < 0", "r high, A > 0", "r low, A > 0", "r high, A < 0"]
    for axis, corner in zip(drawn.axes[4:8], ("low_negative", "high_positive"), strict=False):
        lines = {line.get_color(): line.get_ydata() for line in axis.lines}
        gradient = frame[frame["quantity"] == "gradient"]
        expected = gradient[gradient["corner"] == corner]
        for rule in fakes.RULES:
            values = expected[expected["series"] == rule]["value"]
            np.testing.assert_array_equal(lines[SERIES[rule].color], values)


def test_files_are_equal_for_equal_figures_and_hold_no_date(tmp_path):
    import matplotlib

    before = dict(matplotlib.rcParams)
    paths = [
        save_figure(learning_curves(fakes.curves()), tmp_path / folder, "curves")
        for folder in ("first", "second")
    ]
    assert set(paths[0]) == {"svg", "png"}
    for kind in paths[0]:
        first, second = (path[kind].read_bytes() for path in paths)
        assert first == second
        for word in (b"Date", b"matplotlib v", b"Matplotlib v"):
            assert word not in first
    assert sorted(path.name for path in (tmp_path / "first").iterdir()) == [
        "curves.png",
        "curves.svg",
    ]
    assert dict(matplotlib.rcParams) == before


def test_a_figure_shows_itself_in_a_notebook_without_pyplot():
    from PIL import Image

    drawn = learning_curves(fakes.curves())
    image = Image.open(io.BytesIO(drawn._repr_png_()))
    assert image.width == int(drawn.get_figwidth() * NOTEBOOK_DPI)
    assert figure_bytes(drawn, "png", dpi=NOTEBOOK_DPI) == drawn._repr_png_()


def test_the_report_needs_no_heavy_library_to_be_imported():
    modules = "bars curves formula front_page page render section style tables verdicts watch"
    code = "import sys, importlib\n"
    code += f"for name in {modules.split()!r}: importlib.import_module('klearlib.report.' + name)\n"
    code += "heavy = {'torch', 'pandas', 'matplotlib', 'scipy'}\n"
    code += "print(sorted(heavy & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
