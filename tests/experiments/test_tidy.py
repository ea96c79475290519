"""Evidence as data: what is published gives the same tables, figures and verdicts without runs, and
pieces of it, joined, those of the whole."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fake_runs import HOW, again, finish, finish_all, published

import klearlib
from klearlib import cli
from klearlib.errors import KlearError, MissingAsset, ParameterError
from klearlib.experiments import catalogue
from klearlib.experiments.catalogue import rebuild
from klearlib.experiments.clipping_arms import ClippingParams
from klearlib.experiments.experiment import runs_dir
from klearlib.experiments.merging import _joined_fact, merge
from klearlib.experiments.nb05_clipping import Clipping
from klearlib.experiments.tidy import Published, _origin
from klearlib.params import root
from klearlib.params.place import PUBLISHED
from klearlib.params.statistics import REPLICATES, replicates_asked

RATES, TUNING = [1e-4, 3e-4], [100, 101, 102, 103]
PARAMS = ClippingParams(seeds=[0, 1, 2], code=False, rules=["clip_higher", "gppo"], **HOW)
GRID = replace(PARAMS, seeds=[0, 1], learning_rates=RATES)
ENDS = {"clip_higher": 0.5, "gppo": 0.625, "cispo": 0.375}


@pytest.fixture(autouse=True)
def _quick(monkeypatch, request):
    """Figures are drawn where their bytes are compared alone."""
    if "bytes" not in request.node.name:
        monkeypatch.setattr("klearlib.report.section.save_figure", _empty)


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
    line = {"step": 1, "problem": "p", "response": 0, "prompt": "2 + 3?", "text": "5", "chars": 1}
    line |= {"tokens": 1, "truncated": False, "reason": "correct", "found": "last", "reward": 1.0}
    lines = [line | {"step": step, "advantage": 0.5} for step in (1, 10, 20)]
    stage = next(iter(e.arms.values()))
    (e.folder(stage) / "samples.jsonl").write_text(
        "".join(json.dumps(each) + "\n" for each in lines)
    )
    before = published(e)
    assert {"runs.parquet", "curves.parquet", "evaluations.parquet"} <= before.keys()
    shutil.rmtree(runs_dir())
    folder = e.place.folder / e.name
    for name in ("scores.csv", "fig2.svg", "curves.parquet"):
        assert (folder / name).exists()
    read = Published.read(folder)
    (shown,) = {run.key: run for run in read.arms.values() if run.samples}.values()
    assert shown.key == stage.key and shown.samples == [lines[0], lines[2]]
    assert klearlib.results(e.place.folder).samples["step"].tolist() == [1, 20]
    for path in folder.glob("*.csv"):
        path.write_text(path.read_text() + "1\n")  # is written anew
    rebuild(e.place.folder)
    assert files(folder) == {name: content for name, content in before.items()}


def test_a_notebook_shows_what_is_published_and_trains_nothing(project, monkeypatch):
    e = finished([0, 1, 2])
    e.publish()
    scores = e.table("scores")
    shutil.rmtree(runs_dir())
    monkeypatch.setenv(PUBLISHED, "1")
    shown = Clipping.setup(asdict(PARAMS))
    shown.run()
    assert not runs_dir().exists()
    assert shown.table("scores").equals(scores)
    plan = shown.plan()
    assert [*plan["state"]] == ["published"] * 2 and [*plan["runs"]] == [3, 3]
    assert "report.html" in shown.finish().data


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
    file = pq.read_table(e.place.folder / e.name / "evaluations.parquet")
    assert file["right_boxed"].null_count == len(file) > file["pass_rate"].null_count > 0
    assert (frames.evaluations["right_boxed"] == frames.evaluations["right"]).all()
    assert frames.evaluations["pass_rate"].notna().all()
    row = again(e).table("rates").set_index(["rule", "learning_rate"]).loc[("GPPO", "0.0001")]
    assert row["maths A"] == pytest.approx(mine)
    curves = frames.curves.query("metric == 'train/entropy'")
    assert len(curves) == 20 * 2 * len(RATES) * 6 and set(curves["value"]) == {0.5}
    with pytest.raises(MissingAsset, match=r"runs\.parquet: name a folder"):
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
    with pytest.raises(ParameterError, match="no metric 'entrpy'; did you mean"):
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
    before = Published.read(root() / whole / "05_clipping")
    shutil.rmtree(root() / whole)
    parts = pieces(project, monkeypatch, [0], [1, 2])
    joined = merge(parts, "results/joined").parent
    ours = files(joined / "05_clipping")
    assert ours.keys() == made.keys()
    # What differs is where and when the runs were, which an invented run has too.
    timed = {"runs.parquet", "section.json"}
    assert {n for n in made if made[n] != ours[n]} <= timed
    read = Published.read(joined / "05_clipping")
    assert read.arms.keys() == before.arms.keys()
    for place, run in before.arms.items():
        other = read.arms[place]
        assert (run.key, run.metrics) == (other.key, other.metrics), place
        differ = {name for name in run.about if run.about[name] != other.about[name]}
        assert differ <= {"provenance", "seconds"}
    assert read.section.verdicts == before.section.verdicts and read.section.complete
    # What was joined is rebuilt to the byte too.
    rebuild(joined)
    assert files(joined / "05_clipping") == ours


def test_what_cannot_be_joined(project, monkeypatch):
    first, second = pieces(project, monkeypatch, [0], [0, 1])
    changed(root() / second / "05_clipping" / "runs.parquet", "weights")
    with pytest.raises(KlearError, match="runs of 0 are in results/piece0 and in results/piece1"):
        merge([first, second], "results/joined")
    for out, words in ((first, "exists already"), ("results/joined", "is named twice")):
        with pytest.raises(ParameterError, match=words):
            merge([first, first] if "twice" in words else [first], out)
    with pytest.raises(ParameterError, match="has no runs"):
        merge(["results/none"], "results/joined")
    other = replace(PARAMS, num_problems=6, mini_batch_problems=2)
    shutil.rmtree(root() / second)
    monkeypatch.setenv("KLEAR_OUT", "results/piece1")
    Clipping(other).publish()
    with pytest.raises(ParameterError, match="only equal parameters"):
        merge([first, second], "results/joined")
    assert not (root() / "results/joined").exists()  # nothing is begun


def test_the_very_same_runs_may_be_in_two_folders(project, monkeypatch):
    """One folder's beginning of a replicate is another's; a single other run is refused."""
    first, second = pieces(project, monkeypatch, [0, 1], [0, 1, 2])
    one, other = (root() / each / "05_clipping" / "runs.parquet" for each in (first, second))
    known = {(row["series"], row["seed"]): row for row in pq.read_table(one).to_pylist()}
    table = pq.read_table(other)
    rows = table.to_pylist()
    for row in rows:
        same = known.get((row["series"], row["seed"]), row)
        row |= {name: same[name] for name in ("provenance", "seconds")}

    def write(weights: str | None = None) -> None:
        last = rows[-1] | ({"weights": weights} if weights else {})
        pq.write_table(pa.Table.from_pylist([*rows[:-1], last], schema=table.schema), other)

    rows.sort(key=lambda row: row["seed"] != 2)  # the last is of a replicate that both have
    write('["other"]')
    with pytest.raises(KlearError, match="all arms of a replicate must come from one folder"):
        merge([first, second], "results/joined")
    write()
    joined = merge([first, second], "results/joined").parent
    read = Published.read(joined / "05_clipping")
    assert {seed for _, _, seed in read.arms} == {0, 1, 2} and read.section.complete


def test_verdicts_by_other_rules_are_not_joined(project, monkeypatch):
    first, second = pieces(project, monkeypatch, [0], [1, 2])
    for folder in (first, second):
        path = root() / folder / "05_clipping" / "section.json"
        content = json.loads(path.read_text())
        verdict = next(each for each in content["verdicts"] if each["claim"] == "C1")
        verdict["rule"] = f"the digest in {folder}"
        path.write_text(json.dumps(content))
    with pytest.raises(ParameterError, match="decide C1 by different rules"):
        merge([first, second], "results/joined")


def test_folders_of_one_name_are_told_apart(project, monkeypatch, tmp_path, capsys):
    first, second = pieces(project, monkeypatch, [0], [1, 2])
    (tmp_path / "usb").mkdir()
    theirs = tmp_path / "usb" / "piece0"
    shutil.move(root() / second, theirs)
    assert cli.main(["merge", first, str(theirs), "--out", "results/joined"]) == 0
    joined = root() / "results/joined"
    assert capsys.readouterr().out == f"{joined / 'report.html'}\n"
    assert {seed for _, _, seed in Published.read(joined / "05_clipping").arms} == {0, 1, 2}


def changed(path: Path, column: str) -> None:
    """Another text in a column of a parquet file."""
    table = pq.read_table(path)
    place = table.schema.get_field_index(column)
    pq.write_table(table.set_column(place, column, [['["other"]'] * table.num_rows]), path)


def test_runs_of_other_code_are_joined_on_request_alone(project, monkeypatch):
    first, second = pieces(project, monkeypatch, [0], [1, 2])
    changed(root() / second / "05_clipping" / "runs.parquet", "made_by")
    with pytest.raises(KlearError, match=r"the code or the libraries of rl differ.*--other-ver"):
        merge([first, second], "results/joined")
    joined = merge([first, second], "results/joined", other_versions=True).parent
    for _ in range(2):
        notes = Published.read(joined / "05_clipping").section.notes
        assert notes[-1] == "Joined from runs with different code or libraries: rl."
        rebuild(joined)


def test_runs_from_other_worlds_are_never_joined(project, monkeypatch):
    first, second = pieces(project, monkeypatch, [0], [1, 2])
    changed(root() / second / "05_clipping" / "runs.parquet", "made_of")
    with pytest.raises(ParameterError, match="the parameters behind rl differ"):
        merge([first, second], "results/joined", other_versions=True)


def test_all_replicates_of_an_arm_are_made_of_the_same():
    """A digest without seeds: worlds of their own differ in nothing else."""
    for name in catalogue.notebooks_of("full"):
        experiment = catalogue.experiment_of(name)
        e = experiment(experiment.params_of("full"))
        for which, arms in e.run_sets().items():
            found: dict[str, set] = {}
            for (series, _), stage in arms.items():
                found.setdefault(series, set()).add(tuple(_origin(stage).values()))
            assert all(len(each) == 1 for each in found.values()), (name, which)


def test_facts_are_joined_by_their_keys():
    assert _joined_fact("n", "f", {"0": [1]}, {"1": [2]}) == {"0": [1], "1": [2]}
    assert _joined_fact("n", "f", [], [1]) == _joined_fact("n", "f", [1], None) == [1]
    for one, other in (({"0": [1]}, {"0": [2]}), ([1], [1, 2])):
        with pytest.raises(KlearError, match="the folders differ in f"):
            _joined_fact("n", "f", one, other)


def test_a_run_that_nothing_names_any_more_is_not_lost(project):
    e = finished([*TUNING, 0, 1], GRID)
    again(e).publish()
    folder = e.place.folder / e.name
    file = root() / "params" / e.params.profile / "statistics.yaml"
    file.write_text(file.read_text().replace("100, 101, 102, 103", "100, 101"))
    before = (folder / "runs.parquet").read_bytes()
    with pytest.raises(KlearError, match=r"has 8 runs that neither parameters nor statistics"):
        rebuild(e.place.folder)
    assert (folder / "runs.parquet").read_bytes() == before


def test_a_piece_is_asked_for_by_its_replicates(project, monkeypatch):
    e = Clipping(GRID)
    every = {stage.key: arm for arm, stage in e.run_sets()["learning rates"].items()}
    monkeypatch.setenv(REPLICATES, "1-2")
    assert {every[stage.key][1] for stage in e.asked()} == {1}
    monkeypatch.setenv(REPLICATES, "0")  # with the first go those that tune
    assert {every[stage.key][1] for stage in e.asked()} == {0, *TUNING}
    assert replicates_asked() == [0]
    monkeypatch.setenv(REPLICATES, "8-3")
    with pytest.raises(ParameterError, match="8-3 begins after its end"):
        replicates_asked()
    monkeypatch.setenv(REPLICATES, "200 to 203")
    with pytest.raises(ParameterError, match="write seeds or worlds, such as 200-203,207"):
        replicates_asked()
    monkeypatch.delenv(REPLICATES)
    assert len(e.asked()) == len(e.stages())
