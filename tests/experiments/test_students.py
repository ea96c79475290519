"""Notebooks 02 to 04 on invented students: what tables, verdicts and figures make of them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from fake_runs import deciding, record

from klearlib.evaluate.record_files import save_record
from klearlib.experiments.nb01_data_curation import DataCuration
from klearlib.experiments.nb02_data_correctness import (
    IN_TABLE_2,
    CorrectnessParams,
    DataCorrectness,
)
from klearlib.experiments.nb03_teacher_ablation import TeacherAblation, TeacherParams
from klearlib.experiments.nb04_topk_diversity import TopKDiversity, TopKParams
from klearlib.paper import claim
from klearlib.report.section import Verdict
from klearlib.run.folder import RunFolder

SEEDS = [0, 1, 2]
CLASSES = (DataCuration, DataCorrectness, TeacherAblation, TopKDiversity)


def three() -> TeacherAblation:
    return TeacherAblation(TeacherParams(seeds=SEEDS))


def four() -> TopKDiversity:
    return TopKDiversity(TopKParams(seeds=SEEDS))


@pytest.fixture(autouse=True)
def _in_its_project(project):
    pass


def started(e, stage) -> RunFolder:
    folder = RunFolder(e.folder(stage))
    folder.load_checkpoint()
    return folder


def finish(e, stage, *, right: int, offset: int) -> None:
    """A measured student that answers `right` of 8 responses to each problem, but for some."""
    folder = started(e, stage)
    for place, name in enumerate(stage.params["benchmarks"]):
        found = record(name, right, turned=offset + place)
        save_record(found, folder.path / "evaluations" / f"{name}-00000.npz")
    for name in stage.params.get("deciding", {}):
        found = deciding(name, right / 8, offset)
        save_record(found, folder.path / "evaluations" / f"{name}-00000.npz")
    folder.finish()


def finish_all(e, right, *, but: str = "") -> None:
    """All arms, those of the series `but` left out. right: series -> right responses of 8."""
    names = list(dict.fromkeys(series for series, _ in e.arms))
    for (series, seed), stage in e.arms.items():
        if series != but:
            offset = seed + 3 * names.index(series) % 7
            finish(e, stage, right=right(series), offset=offset)
    e.refresh()


def verdict_of(e, claim: str) -> Verdict:
    return next(v for v in e.verdicts() if v.claim == claim)


def published(e) -> dict:
    e.publish()
    return json.loads((e.place.folder / e.name / "section.json").read_text())


@pytest.mark.parametrize("experiment", CLASSES)
def test_nothing_done_says_not_run_and_publishes(experiment, project):
    e = experiment(experiment.Params())
    assert all(v.verdict == "not run" for v in e.verdicts())
    section = published(e)
    assert section["status"] == "partial" and not section["figures"]
    assert (len(section["verdicts"]) > 0) == (experiment is not DataCuration)


@pytest.mark.parametrize(
    ("order", "word"),
    [((3, 4, 5), "supported"), ((5, 4, 3), "contradicted"), ((4, 4, 4), "no difference")],
)
def test_the_teachers_verdict_follows_the_order(order, word):
    right = dict(zip(("weak", "middle", "strong"), order, strict=True))
    e = three()
    finish_all(e, right.get)
    verdict = verdict_of(e, "C5")
    assert verdict.verdict == word
    assert "math_decide, which stands for AIME 2024 and AIME 2025; Live" in verdict.reason
    assert "LiveCodeBench V5 has no counterpart" in verdict.reason
    first = verdict.comparisons[0]
    assert first.num_replicates == 3
    assert first.difference == pytest.approx((order[1] - order[0]) / 8, abs=0.03)


def test_scores_stand_beside_the_papers_cells():
    e = three()
    finish_all(e, {"weak": 2, "middle": 4, "strong": 6}.get)
    table = e.table("scores").set_index(["benchmark", "arm"])
    row = table.loc[("maths B", "strong teacher")]
    assert row["paper"] == pytest.approx(0.6458) and row["paper_benchmark"] == "AIME 2025"
    mine = e.runs.of("strong").end_scores("math_b")["value"]
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
        ({"hard_wrong_0": 3, "hard_wrong_0.3": 5}, "supported"),
        ({"hard_wrong_0": 5, "hard_wrong_0.3": 3}, "contradicted"),
        ({}, "mixed"),
    ],
)
def test_the_verdict_on_correctness_needs_both_halves(rights, word):
    e = DataCorrectness(CorrectnessParams(seeds=SEEDS, wrong_shares=[0.0, 0.3, 0.6]))
    rights = {"easy_wrong_0": 6, "easy_wrong_0.6": 1, "overall_wrong_0.3": 6} | rights
    finish_all(e, lambda series: rights.get(series, 4))
    assert verdict_of(e, "C4").verdict == word
    assert verdict_of(e, "C15").verdict == "contradicted"  # that there is no difference
    table = e.table("scores").set_index(["benchmark", "arm"])
    assert table.loc[("maths A", "hard, 30 % wrong"), "paper"] == pytest.approx(0.4729)
    assert table.loc[("maths B", "overall, only correct"), "paper"] == pytest.approx(0.3229)
    assert np.isnan(table.loc[("maths A", "hard, 60 % wrong"), "paper"])
    doses = e.table("doses").set_index(["problems", "wrong_share"])
    assert doses.index.tolist() == [
        *((name, share) for name in ("easy", "hard") for share in (0.0, 0.3, 0.6)),
        ("overall", 0.0), ("overall", 0.3),
    ]  # fmt: skip
    # On what decides, not on maths A and B; the interval is that of the paired differences.
    a, b = (e.runs.of(f"easy_wrong_{x}").end_scores("math_decide")["value"] for x in ("0.6", "0"))
    assert doses.loc[("easy", 0.6), "score"] == pytest.approx(a.mean())
    row, half = doses.loc[("easy", 0.6)], 4.302653 * (a - b).std(ddof=1) / np.sqrt(3)
    assert row["minus_only_true"] == pytest.approx((a - b).mean())
    assert row["minus_high"] - row["minus_only_true"] == pytest.approx(half, rel=1e-5)
    assert doses["minus_only_true"].isna().sum() == 3


def test_the_doses_of_the_claims_must_be_there():
    registered = {arm.rpartition("_")[2] for name in ("C4", "C15") for arm in claim(name).arms}
    assert registered == {f"{share:g}" for share in IN_TABLE_2}
    with pytest.raises(ValueError, match=r"wrong_shares must hold 0.0 and 0.3.*: add 0.3"):
        CorrectnessParams(wrong_shares=[0.0, 0.6])


def test_a_missing_arm_leaves_the_claim_open():
    e = three()
    finish_all(e, lambda _: 4, but="strong")
    verdict = verdict_of(e, "C5")
    assert verdict.verdict == "not run" and "strong" in verdict.reason


def test_top_k_averages_the_arms_of_a_side_and_keeps_the_domains_apart():
    e, few = four(), {"math_top1": 6, "math_top2": 4, "code_top1": 3, "code_top2": 3}
    finish_all(e, lambda series: few.get(series, 3 if "math" in series else 5))
    maths, code = (verdict_of(e, name) for name in ("C6", "C7"))
    assert (maths.verdict, code.verdict) == ("supported", "contradicted")
    assert maths.comparisons[0].difference == pytest.approx((5 - 3) / 8, abs=0.03)
    assert code.comparisons[0].difference == pytest.approx((3 - 5) / 8, abs=0.03)
    assert "code_decide, which stands for LiveCodeBench V5 and LiveCodeBench V6" in code.reason
    assert "AIME 2024 and AIME 2025 have no counterpart" in code.reason
    table = e.table("scores").set_index(["benchmark", "arm"])
    assert table.loc[("code B", "code top 2"), "paper"] == pytest.approx(0.2920)
    assert table.loc[("maths A", "maths top 10"), "paper"] == pytest.approx(0.3042)


def test_mixing_is_decided_where_its_arms_are_asked_for():
    assert verdict_of(four(), "E7").reason == (
        "needs the arms equal1, equal4, equal10, which are not asked for"
    )
    e = TopKDiversity(TopKParams(seeds=SEEDS, single_sources=[5], equal_sources=[1, 4, 10]))
    finish_all(e, lambda series: 6 if series == "math_alone5" else 4)
    verdict = verdict_of(e, "E7")
    assert verdict.verdict == "supported" and len(verdict.comparisons) == 2
    table = e.table("scores").set_index(["benchmark", "arm"])
    assert np.isnan(table.loc[("maths A", "maths source 5 alone"), "paper"])
    maths, code = e.figure("tables4_5").axes
    assert [*maths.get_xticks()] == [1, 2, 4, 6, 8, 10] and [*code.get_xticks()] == [1, 2, 4, 6]
    drawn = [[*each.lines[0].get_xdata()] for each in maths.containers]
    assert drawn == [[1, 2, 4, 6, 8, 10], [1, 4, 10]] * 2  # at equal errors beside them


def test_sections_publish_their_figures(project):
    e = four()
    finish_all(e, lambda _: 4)
    section = published(e)
    assert [figure["name"] for figure in section["figures"]] == ["tables4_5"]
    assert [table["name"] for table in section["tables"]] == ["scores", "replicates"]
    assert "avg@2 for maths, avg@1 for code" in section["tables"][0]["caption"]
    folder = e.place.folder / e.name
    assert (folder / "tables4_5.svg").is_file() and (folder / "scores.csv").is_file()


def test_a_figure_can_have_students_of_one_domain_alone(project):
    e = four()
    for seed in SEEDS:
        finish(e, e.arms["code_top1", seed], right=4, offset=seed)
    e.refresh()
    assert published(e)["figures"]
    assert set(e.table("scores")["arm"]) == {"code top 1"}
    assert {v.verdict for v in e.verdicts()} == {"not run"}
