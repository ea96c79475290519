"""Evidence as data: what is published gives the same tables, figures and verdicts without runs, and
pieces of it, joined, those of the whole."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from fake_runs import HOW, again, finish, finish_all, published

import klearlib
from klearlib.errors import KlearError, MissingAsset, ParameterError
from klearlib.experiments.catalogue import rebuild
from klearlib.experiments.clipping_arms import ClippingParams
from klearlib.experiments.experiment import runs_dir
from klearlib.experiments.merging import merge
from klearlib.experiments.nb05_clipping import Clipping
from klearlib.experiments.tidy import Published
from klearlib.params import root
from klearlib.params.statistics import REPLICATES, replicates_asked

RATES, TUNING = [1e-4, 3e-4], [100, 101, 102, 103]
PARAMS = ClippingParams(seeds=[0, 1, 2], joint=None, rules=["clip_higher", "gppo"], **HOW)
GRID = replace(PARAMS, seeds=[0, 1], learning_rates=RATES)
ENDS = {"clip_higher": 0.5, "gppo": 0.625, "cispo": 0.375}


@pytest.fixture(autouse=True)
def _quick(monkeypatch, request):
    """Figures are drawn where their bytes are compared alone."""
    if "bytes" not in request.node.name:
        monkeypatch.setattr("klearlib.report.style.save_figure", _empty)


def _empty(figure, folder, name):
    del figure
    for kind, end in (("svg", "</svg>"), ("png", "IEND\xaeB`\x82")):
        (folder / f"{name}.{kind}").write_bytes(end.encode("latin-1"))


def finished(seeds, params=PARAMS, **changed) -> Clipping:
    """Notebook 05 with the invented runs of some seeds."""
    e = Clipping(params)
    for (rule, rate, seed), stage in e.grid.items():
        if seed in seeds:
            end = ENDS[rule] + (0.125 if rate == min(RATES) else 0)
            finish(stage, end=end, turned=seed + len(rule), metrics=lambda step: changed)
    return e


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_what_is_published_gives_the_same_bytes_without_runs(project):
    e = finished([0, 1, 2])
    # A value that is not there, one that is no number, and one that is infinite.
    finish_all(
        e,
        ENDS,
        lambda rule, seed, step: (
            {"train/grad_norm": None} if step == 3 else {"train/entropy": float("nan")}
        ),
    )
    before = published(e)
    assert {"runs.parquet", "curves.parquet", "evaluations.parquet"} <= before.keys()
    shutil.rmtree(runs_dir())
    folder = e.place.folder / e.name
    for name in ("scores.csv", "replicates.csv", "fig2.svg", "curves.parquet"):
        assert (folder / name).exists()
    for path in folder.glob("*.csv"):
        path.write_text(path.read_text() + "1\n")  # is written anew
        path.write_bytes(before[path.name])
    rebuild(e.place.folder)
    assert files(folder) == {name: content for name, content in before.items()}


def test_null_and_nan_are_told_apart(project):
    e = finished([0], replace(PARAMS, seeds=[0], learning_rates=[1e-4]))
    finish_all(e, ENDS, lambda *_: {"train/grad_norm": None, "train/entropy": float("nan")})
    again(e).publish()
    read = Published.read(e.place.folder / e.name)
    (line, *_) = next(iter(read.arms.values())).metrics
    assert line["train/grad_norm"] is None and np.isnan(line["train/entropy"])
    column = pq.read_table(e.place.folder / e.name / "curves.parquet")["value"]
    assert column.null_count == 20 * len(read.arms)


def test_the_frames_are_what_the_tables_say(project):
    e = finished([*TUNING, 0, 1], GRID)
    again(e).publish()
    frames = klearlib.results(e.place.folder)
    assert set(frames.runs["notebook"]) == {"05_clipping"}
    ends = frames.evaluations.query("benchmark == 'math_a' and step == 20")
    means = ends.assign(score=ends["right"] / ends["n"]).groupby(["series", "seed"])["score"].mean()
    mine = means.loc["learning rate 0.0001: gppo"].loc[[0, 1]].mean()
    row = again(e).table("rates").set_index(["rule", "learning_rate"]).loc[("GPPO", "0.0001")]
    assert row["maths A"] == pytest.approx(mine)
    curves = frames.curves.query("metric == 'train/entropy'")
    assert len(curves) == 20 * 2 * len(RATES) * 6 and set(curves["value"]) == {0.5}
    with pytest.raises(MissingAsset, match="has no runs"):
        klearlib.results(root() / "params")


def test_wide_curves_and_scores_by_problem(project):
    runs = finished([0], replace(PARAMS, seeds=[0], learning_rates=[1e-4])).runs
    wide = runs.frame("entropy", "train/grad_norm")
    assert list(wide) == ["series", "seed", "step", "entropy", "train/grad_norm"]
    assert len(wide) == 2 * 20
    problems = runs.scores("math_a").query("step == 20")
    assert problems.groupby("series")["score"].mean()["gppo"] == pytest.approx(
        runs.of("gppo").end_scores("math_a")["value"].item()
    )
    with pytest.raises(ParameterError, match="no one metric 'entrpy'; did you mean"):
        runs.frame("entrpy")
    with pytest.raises(ParameterError, match="no benchmark 'maths_a'; did you mean 'math_a'"):
        runs.scores("maths_a")


def pieces(project, monkeypatch, *seeds, params=PARAMS, **changed) -> list[str]:
    """Published folders, each with the runs of some seeds alone."""
    names = []
    for number, mine in enumerate(seeds):
        shutil.rmtree(runs_dir(), ignore_errors=True)
        monkeypatch.setenv("KLEAR_OUT", f"results/piece{number}")
        finished(mine, params, **changed)
        Clipping(params).publish()
        names.append(f"results/piece{number}")
    return names


def test_halves_joined_are_the_whole(project, monkeypatch):
    (whole,) = pieces(project, monkeypatch, [0, 1, 2])
    made = files(root() / whole / "05_clipping")
    shutil.rmtree(root() / whole)
    parts = pieces(project, monkeypatch, [0], [1, 2])
    joined = merge(parts, "results/joined").parent
    ours = files(joined / "05_clipping")
    assert ours.keys() == made.keys()
    # What differs is where and when the runs were, which an invented run has too.
    timed = {"runs.parquet", "section.json"}
    assert {n for n in made if made[n] != ours[n]} <= timed
    a, b = (pd.read_parquet(x / "05_clipping" / "runs.parquet") for x in (joined, joined))
    assert a.equals(b) and not a.duplicated(["set", "series", "seed"]).any()
    read = Published.read(joined / "05_clipping").section
    assert read.complete and not read.missing


def test_what_cannot_be_joined(project, monkeypatch):
    first, second = pieces(project, monkeypatch, [0], [0, 1])
    with pytest.raises(KlearError, match="runs of 0 are in piece0 and in piece1"):
        merge([first, second], "results/joined")
    with pytest.raises(ParameterError, match="is one of the folders"):
        merge([first], first)
    with pytest.raises(ParameterError, match="has no runs"):
        merge(["results/none"], "results/joined")
    other = replace(PARAMS, num_problems=6, mini_batch_problems=2)
    shutil.rmtree(root() / second)
    monkeypatch.setenv("KLEAR_OUT", "results/piece1")
    Clipping(other).publish()
    with pytest.raises(ParameterError, match="only equal parameters"):
        merge([first, second], "results/joined")


def test_runs_of_other_code_are_joined_on_request_alone(project, monkeypatch):
    first, second = pieces(project, monkeypatch, [0], [1, 2])
    path = root() / second / "05_clipping" / "runs.parquet"
    table = pq.read_table(path)
    table = table.set_column(
        table.schema.get_field_index("code"), "code", [["other"] * table.num_rows]
    )
    pq.write_table(table, path)
    with pytest.raises(KlearError, match=r"the code of rl differs.*--other-versions"):
        merge([first, second], "results/joined")
    joined = merge([first, second], "results/joined", other_versions=True).parent
    notes = Published.read(joined / "05_clipping").section.notes
    assert notes[-1] == "Joined of runs with other code: rl."


def test_a_piece_is_asked_for_by_its_replicates(project, monkeypatch):
    e = Clipping(GRID)
    every = {stage.key: arm for arm, stage in e.rate_arms.items()}
    monkeypatch.setenv(REPLICATES, "1-2")
    assert {every[stage.key][1] for stage in e.asked()} == {1}
    monkeypatch.setenv(REPLICATES, "0")  # with the first go those that tune
    assert {every[stage.key][1] for stage in e.asked()} == {0, *TUNING}
    assert replicates_asked() == [0]
    monkeypatch.setenv(REPLICATES, "200 to 203")
    with pytest.raises(ParameterError, match="write seeds or worlds, such as 200-203,207"):
        replicates_asked()
    monkeypatch.delenv(REPLICATES)
    assert len(e.asked()) == len(e.stages())
