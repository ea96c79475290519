"""Runs by their metrics: which a word names, and their figure."""

import json

import numpy as np
import pytest

from klearlib.errors import ParameterError
from klearlib.evaluate.record_files import save_record
from klearlib.records import EvalRecord
from klearlib.report.style import figure_bytes
from klearlib.report.watch import curves_of, find_run, title_of, watch_figure
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
    return folder


def _record(name, right):
    correct = np.zeros((2, 2), dtype=bool)
    correct.flat[:right] = True
    ones, reason = np.ones((2, 2)), np.full((2, 2), "wrong")
    found = np.full((2, 2), "")
    return EvalRecord(name, ("p", "q"), correct, correct, ones.astype(int), reason, ones, found)


def test_a_label_steers_no_terminal(runs_dir):
    assert title_of(_run(runs_dir / "rl" / "dd05", "\x1b[2JGPPO").path) == "\\x1b[2JGPPO"


def test_a_run_by_its_key_or_the_start_of_it(runs_dir):
    for word in ("bb03", "bb", "rl/bb", "rl/bb03"):
        assert find_run(word, runs_dir) == runs_dir / "rl" / "bb03"
    with pytest.raises(ParameterError, match="several runs begin with 'aa': aa01, aa02"):
        find_run("aa", runs_dir)
    for word in ("bb04", "rl/bb3", ""):
        with pytest.raises(ParameterError, match=f"there is no run '{word}': .* has a folder for"):
            find_run(word, runs_dir)


def test_curves_are_those_of_the_metrics(runs_dir):
    first, _, third, sft = map(curves_of, sorted(runs_dir.glob("*/*")))
    assert first["reward"] == [(1, 0.25), (2, 0.5), (3, 0.75)]
    assert first["gradient norm"] == [(1, 0.5), (3, 1.5)]  # step 2 had no update
    assert first["score"] == [(2, 0.5)]  # without the validation set
    assert "score" not in third and set(sft) == {"loss", "gradient norm"}


def test_figure_is_that_of_the_report(runs_dir):
    figure = watch_figure(sorted(runs_dir.glob("*/*")))
    titles = [axis.get_title(loc="left") for axis in figure.axes]
    assert sorted(titles) == ["entropy", "gradient norm", "reward", "score"]
    reward = figure.axes[titles.index("reward")]
    means = [line.get_ydata().tolist() for line in reward.lines]
    assert [0.75, 1.0, 1.25] in means  # the mean of GPPO's two seeds
    only = watch_figure([runs_dir / "sft" / "cc04"])
    assert {axis.get_title(loc="left") for axis in only.axes} == {"gradient norm", "loss"}
    with pytest.raises(ParameterError, match="nothing to draw"):
        watch_figure([])


def test_one_title_twice_is_told_apart(runs_dir):
    for key in ("d005", "d105"):
        again = _run(runs_dir / "rl" / key, "GPPO, seed 0")
        again.append_metrics({"step": 1, "rollout/reward_mean": 0.5})
    figure = watch_figure(sorted(runs_dir.glob("rl/d[01]*")))
    (legend,) = figure.legends
    assert {text.get_text() for text in legend.get_texts()} > {"d005 GPPO", "d105 GPPO"}


def test_a_label_is_text_and_no_formula(runs_dir):
    folder = _run(runs_dir / "rl" / "dd05", r"costs $\frac{ $ more")
    folder.append_metrics({"step": 1, "rollout/reward_mean": 0.5})
    assert b"<svg" in figure_bytes(watch_figure([folder.path]), "svg")
