"""Notebooks 02 to 04 on invented students: what tables, verdicts and figures make of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from klearlib.experiments.publish import results_dir, runs_dir

from klearlib.curation.pass_rates import RATES, PassRate, write_pass_rates
from klearlib.evaluate.record_files import save_record
from klearlib.experiments import (
    correctness,
    correctness_section,
    data_scores,
    teachers,
    teachers_section,
    topk,
    topk_section,
)
from klearlib.experiments.nb02_data_correctness import CorrectnessParams
from klearlib.experiments.nb03_teacher_ablation import TeacherParams
from klearlib.experiments.nb04_topk_diversity import TopKParams
from klearlib.records import EvalRecord
from klearlib.report.mathml import to_mathml
from klearlib.run.files import write_json
from klearlib.run.folder import RunFolder

REPOSITORY = Path(__file__).resolve().parents[2]
SEEDS = [0, 1, 2]
TWO, THREE = CorrectnessParams(seeds=SEEDS), TeacherParams(seeds=SEEDS)
FOUR = TopKParams(seeds=SEEDS)
RESPONSES = 8
SECTIONS = {
    correctness_section: TWO,
    teachers_section: THREE,
    topk_section: FOUR,
}


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    shutil.copytree(REPOSITORY / "params", tmp_path / "params")
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv("KLEAR_ROOT", str(tmp_path))
    return tmp_path


def finish(stage, *, right: int, offset: int) -> None:
    """A measured student that answers `right` of 8 responses to each problem, but for some."""
    folder = RunFolder(stage.folder(runs_dir()))
    folder.load_checkpoint()
    for place, name in enumerate(stage.params["benchmarks"]):
        correct = np.zeros((30, RESPONSES), dtype=bool)
        correct[:, :right] = True
        correct[(offset + place) :: 7, :1] ^= True  # intervals are neither empty nor zero
        record = EvalRecord(
            name,
            tuple(f"{name}-{i}" for i in range(30)),
            correct,
            np.zeros_like(correct),
            np.ones(correct.shape, dtype=int),
            np.where(correct, "correct", "wrong"),
            correct.astype(float),
        )
        save_record(record, folder.path / "evaluations" / f"{name}-00000.npz")
    folder.finish()


def finish_all(arms, right) -> None:
    names = list(dict.fromkeys(series for series, _ in arms))
    for (series, seed), stage in arms.items():
        finish(stage, right=right(series), offset=seed + 3 * names.index(series) % 7)


def verdict_of(section, params, claim: str) -> dict:
    return next(v for v in section.verdicts(params) if v["claim"] == claim)


@pytest.mark.parametrize("section", SECTIONS)
def test_nothing_done_says_not_run_and_publishes(section):
    params = SECTIONS[section]
    assert {v["verdict"] for v in section.verdicts(params)} == {"not run"}
    published = json.loads(section.publish(params).read_text())
    assert published["status"] == "partial" and not published["figures"]


@pytest.mark.parametrize("section", SECTIONS)
def test_every_formula_can_be_rendered(section):
    for equation in section._EQUATIONS:
        assert "<math" in to_mathml(equation["latex"])


@pytest.mark.parametrize(
    ("order", "word"),
    [((3, 4, 5), "direction"), ((5, 4, 3), "opposite"), ((4, 4, 4), "inconclusive")],
)
def test_the_teachers_verdict_follows_the_order(order, word):
    right = dict(zip(("weak", "middle", "strong"), order, strict=True))
    finish_all(teachers.arms(THREE), right.get)
    verdict = verdict_of(teachers_section, THREE, "C5")
    assert verdict["verdict"] == word
    assert "maths A for AIME 2024 and maths B for AIME 2025" in verdict["reason"]
    assert "LiveCodeBench V5 has no counterpart" in verdict["reason"]
    first = verdict["comparisons"][0]
    assert (first["num_seeds"], first["num_problems"]) == (3, 60)
    assert first["difference"] == pytest.approx((order[1] - order[0]) / 8, abs=0.02)
    table = teachers_section.difference_table(THREE).set_index("difference")
    assert table.loc["strong - weak", "value"] == pytest.approx((order[2] - order[0]) / 8, abs=0.02)


def test_scores_stand_beside_the_papers_cells():
    finish_all(teachers.arms(THREE), {"weak": 2, "middle": 4, "strong": 6}.get)
    table = teachers_section.score_table(THREE).set_index(["benchmark", "arm"])
    row = table.loc[("maths B", "strong teacher")]
    assert row["paper"] == pytest.approx(0.6458) and row["paper_benchmark"] == "AIME 2025"
    runs = teachers.finished_runs(THREE)
    mine = data_scores.scores_frame(runs, "math_b").query("series == 'strong'")["value"]
    assert row["score"] == pytest.approx(mine.mean())
    # t(0.975, 2) = 4.3027
    half = 4.302653 * mine.std(ddof=1) / np.sqrt(3)
    assert row["high"] - row["score"] == pytest.approx(half, rel=1e-5)
    both = table.loc[("mean of both", "strong teacher")]
    parts = [table.loc[(name, "strong teacher"), "score"] for name in ("maths A", "maths B")]
    assert both["score"] == pytest.approx(np.mean(parts))
    assert both["paper"] == pytest.approx((0.7354 + 0.6458) / 2)


@pytest.mark.parametrize(
    ("rights", "word"),
    [
        ({"easy_only_true": 6, "easy_mixed": 4, "hard_only_true": 3, "hard_mixed": 5}, "direction"),
        ({"easy_only_true": 6, "easy_mixed": 4, "hard_only_true": 5, "hard_mixed": 3}, "opposite"),
    ],
)
def test_the_verdict_on_correctness_needs_both_halves(rights, word):
    finish_all(correctness.arms(TWO), lambda series: rights.get(series, 4))
    verdict = verdict_of(correctness_section, TWO, "C4")
    assert verdict["verdict"] == word
    table = correctness_section.score_table(TWO).set_index(["benchmark", "arm"])
    assert table.loc[("maths A", "hard, mixed"), "paper"] == pytest.approx(0.4729)
    assert table.loc[("maths B", "overall, only true"), "paper"] == pytest.approx(0.3229)


def test_a_missing_arm_leaves_the_claim_open():
    arms = teachers.arms(THREE)
    finish_all({arm: stage for arm, stage in arms.items() if arm[0] != "strong"}, lambda _: 4)
    verdict = verdict_of(teachers_section, THREE, "C5")
    assert verdict["verdict"] == "not run" and "strong" in verdict["reason"]


def test_top_k_averages_the_arms_of_a_side_and_keeps_the_domains_apart():
    few = {"math_top1": 6, "math_top2": 4, "code_top1": 3, "code_top2": 3}
    finish_all(topk.arms(FOUR), lambda series: few.get(series, 3 if "math" in series else 5))
    maths, code = (verdict_of(topk_section, FOUR, name) for name in ("C6", "C7"))
    assert (maths["verdict"], code["verdict"]) == ("direction", "opposite")
    assert maths["comparisons"][0]["difference"] == pytest.approx((5 - 3) / 8, abs=0.02)
    assert code["comparisons"][0]["difference"] == pytest.approx((3 - 5) / 8, abs=0.02)
    assert "code A for LiveCodeBench V5" in code["reason"]
    assert "AIME 2024 and AIME 2025 have no counterpart" in code["reason"]
    table = topk_section.score_table(FOUR).set_index(["benchmark", "arm"])
    assert table.loc[("code B", "code top 2"), "paper"] == pytest.approx(0.2920)
    assert table.loc[("maths A", "maths top 10"), "paper"] == pytest.approx(0.3042)


def test_sections_publish_their_figures():
    finish_all(topk.arms(FOUR), lambda _: 4)
    topk_section.publish(FOUR)
    folder = results_dir("smoke", topk.NOTEBOOK)
    section = json.loads((folder / "section.json").read_text())
    assert [figure["name"] for figure in section["figures"]] == ["tables4_5", "spread"]
    assert (folder / "tables4_5.svg").is_file() and (folder / "scores.csv").is_file()


def test_labels_and_examples_are_counted():
    stages = correctness.pool(TWO)
    counts = {"teacher": [4, 1, 0, 2], "reference": [2, 1, 0, 0]}
    for name, stage in stages.items():
        folder = RunFolder(stage.folder(runs_dir()))
        folder.load_checkpoint()
        rates = [PassRate(f"p{i}", 4, right, 0) for i, right in enumerate(counts[name])]
        write_pass_rates(rates, folder.path / RATES)
        folder.finish()
    table = correctness_section.label_table(TWO).set_index("difficulty")
    assert TWO.easy_from == 0.25
    assert table.loc["easy", ["problems", "responses", "correct"]].tolist() == [2, 8, 5]
    assert table.loc["hard", ["problems", "responses", "correct"]].tolist() == [2, 8, 2]
    assert table.loc["overall", "correct_share"] == pytest.approx(7 / 16)


def test_the_spread_over_sources_is_read_from_the_selection():
    stage = topk.chosen(FOUR)["code_top2"]
    folder = RunFolder(stage.folder(runs_dir()))
    folder.load_checkpoint()
    sources = {"code_2": {"num_kept": 5}, "code_1": {"num_kept": 7}}
    write_json(folder.path / "card.json", {"num_kept": 12, "sources": sources})
    folder.finish()
    assert data_scores.spread(stage, ["code_1", "code_2"]) == {"code_1": 7, "code_2": 5}
    row = topk_section.spread_table(FOUR).iloc[0]
    assert (row["arm"], row["examples"], row["rank_1"], row["rank_2"]) == (
        "code top 2", 12, "7", "5",
    )  # fmt: skip
