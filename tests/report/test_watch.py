"""Runs as they go: which a word names, their lines at any width, and their figure."""

import json

import numpy as np
import pytest

from klearlib.errors import ParameterError
from klearlib.evaluate.record_files import save_record
from klearlib.records import EvalRecord
from klearlib.report.watch import (
    find_run,
    sparkline,
    text_lines,
    title_of,
    watch_figure,
    watch_page,
    watched,
)
from klearlib.run.folder import RunFolder

KEYS = {"GPPO, seed 0": "aa01", "GPPO, seed 1": "aa02", "a <b>title</b>, seed 0": "bb03"}


@pytest.fixture
def runs_dir(tmp_path):
    """Three runs of RL, of which the last has no evaluation, and one of SFT."""
    for place, (title, key) in enumerate(KEYS.items()):
        folder = _run(tmp_path / "rl" / key, title)
        for step in (1, 2, 3):
            norm = None if step == 2 else 0.5 * step
            line = {"rollout/reward_mean": step / 4 + place, "train/entropy": 1 / step}
            folder.append_metrics({"step": step, **line, "train/grad_norm": norm})
        if place < 2:
            for name, right in (("math_a", 1), ("math_b", 3), ("validation", 0)):
                save_record(_record(name, right), folder.path / f"evaluations/{name}-00002.npz")
            for copied in ("math_a-00002 (copy)", "copy of x"):
                save_record(_record("math_a", 4), folder.path / f"evaluations/{copied}.npz")
    folder = _run(tmp_path / "sft" / "cc04", "SFT")
    folder.append_metrics({"step": 1, "sft/loss": 2.0, "sft/grad_norm": 1.0})
    return tmp_path


def _run(path, label):
    folder = RunFolder(path)
    (path / "spec.json").write_text(json.dumps({"name": path.parent.name, "label": label}))
    folder.progress(0, 30)
    return folder


def _record(name, right):
    correct = np.zeros((2, 2), dtype=bool)
    correct.flat[:right] = True
    ones, reason = np.ones((2, 2)), np.full((2, 2), "wrong")
    found = np.full((2, 2), "")
    return EvalRecord(name, ("p", "q"), correct, correct, ones.astype(int), reason, ones, found)


@pytest.mark.parametrize("label", [5, ["GPPO"], "\x1b[2JGPPO", "GPPO\nGPPO", "\ud800"])
def test_a_label_that_is_no_line_of_text_is_passed_over(runs_dir, label):
    assert title_of(_run(runs_dir / "rl" / "dd05", label).path) == "dd05"


def test_a_run_by_its_key_or_the_start_of_it(runs_dir):
    for word in ("bb03", "bb", "rl/bb", "rl/bb03"):
        assert find_run(word, runs_dir) == runs_dir / "rl" / "bb03"
    with pytest.raises(ParameterError, match="several runs begin with 'aa': rl/aa01, rl/aa02"):
        find_run("aa", runs_dir)
    with pytest.raises(ParameterError, match=r"there is no run 'bb04'; did you mean 'bb03'\?"):
        find_run("bb04", runs_dir)
    with pytest.raises(ParameterError, match=r"did you mean 'rl/bb03'\?"):
        find_run("rl/bb3", runs_dir)
    with pytest.raises(ParameterError, match="no run 'x'; none has run yet"):
        find_run("x", runs_dir / "rl")


def test_curves_are_those_of_the_metrics(runs_dir):
    first, second, third, sft = watched(sorted(runs_dir.glob("*/*")))
    assert first.curves["reward"] == [(1, 0.25), (2, 0.5), (3, 0.75)]
    assert first.curves["gradient norm"] == [(1, 0.5), (3, 1.5)]  # step 2 had no update
    assert first.curves["score"] == [(2, 0.5)]  # without the validation set
    assert "score" not in third.curves and set(sft.curves) == {"loss", "gradient norm"}
    assert (first.series, first.seed, second.seed) == ("GPPO", "0", "1")
    assert (first.done, first.total, first.state) == (3, 30, "absent")


def test_one_title_twice_is_told_apart(runs_dir):
    _run(runs_dir / "rl" / "dd05", "SFT").append_metrics({"step": 1, "sft/loss": 1.0})
    titles = {run.title for run in watched(runs_dir.glob("*/*"))}
    assert {"cc04 SFT", "dd05 SFT", "GPPO, seed 0"} < titles


@pytest.mark.parametrize("width", [1, 30, 60, 80, 120, 160, 200])
def test_lines_fit(runs_dir, width):
    lines = text_lines(watched(sorted(runs_dir.glob("*/*"))), width)
    assert len(lines) == 5 and max(map(len, lines)) <= width
    if width >= 60:
        assert lines[0].split()[0] == "run" and "reward" in lines[0]
        assert "3/30" in lines[1] and "0.75" in lines[1] and "▁" in lines[1]
    assert text_lines([], width)[0][: width - 1] == "no run has written metrics yet"[: width - 1]


def test_sparkline_has_the_extremes_and_leaves_out_what_is_not_finite():
    assert sparkline([float("nan"), 3.0, float("inf"), 1.0], 8) == "█▁"
    long = sparkline(range(1000), 10)
    assert len(long) == 10 and (long[0], long[-1]) == ("▁", "█") and list(long) == sorted(long)


def test_figure_is_that_of_the_report(runs_dir):
    figure = watch_figure(watched(sorted(runs_dir.glob("*/*"))))
    titles = [axis.get_title(loc="left") for axis in figure.axes]
    assert titles == ["reward", "score", "entropy", "gradient norm"]
    reward = figure.axes[0]
    means = [line.get_ydata().tolist() for line in reward.lines]
    assert [0.75, 1.0, 1.25] in means  # the mean of GPPO's two seeds
    only = watch_figure(watched([runs_dir / "sft" / "cc04"]))
    assert {axis.get_title(loc="left") for axis in only.axes} == {"gradient norm", "loss"}
    with pytest.raises(ParameterError, match="nothing to draw"):
        watch_figure([])


def test_a_label_is_text_and_no_formula(runs_dir):
    folder = _run(runs_dir / "rl" / "dd05", r"costs $\frac{ $ more")
    folder.append_metrics({"step": 1, "rollout/reward_mean": 0.5})
    assert "<svg" in watch_page(watched([folder.path]))


def test_numbers_beyond_measure_leave_a_page(runs_dir):
    folder = _run(runs_dir / "rl" / "dd05", "far")
    for step, value in enumerate((1.7e308, -1.7e308, 0.5), 1):
        folder.append_metrics({"step": step, "rollout/reward_mean": value})
    assert "<svg" in watch_page(watched([folder.path]))


def test_page_escapes_and_asks_for_no_network(runs_dir):
    page = watch_page(watched(sorted(runs_dir.glob("*/*"))))
    assert "a &lt;b&gt;title" in page and "<b>title" not in page
    assert "<svg" in page and "<script" not in page and 'src="http' not in page
