"""The notebooks on a real profile, with a tiny model and a few rows: each stage really runs, and
what is published has the names of the paper's benchmarks."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from real_project import PROFILE, change, run_here, write_yaml

from klearlib.errors import ParameterError
from klearlib.evaluate.record_files import load_record
from klearlib.experiments.clipping_arms import ClippingParams
from klearlib.experiments.experiment import Experiment, runs_dir
from klearlib.experiments.headline_pipeline import DOMAINS, HeadlineParams
from klearlib.experiments.nb01_data_curation import DataCuration
from klearlib.experiments.nb02_data_correctness import DataCorrectness
from klearlib.experiments.nb03_teacher_ablation import TeacherAblation
from klearlib.experiments.nb04_topk_diversity import TopKDiversity
from klearlib.experiments.nb05_clipping import Clipping
from klearlib.experiments.nb06_alpha_sweep import AlphaSweep
from klearlib.experiments.nb07_soft_reward import SoftReward
from klearlib.experiments.nb08_test_filter import TestFilter
from klearlib.experiments.nb09_zero_advantage import ZeroAdvantage
from klearlib.experiments.nb10_headline import Headline
from klearlib.experiments.origins import origin
from klearlib.experiments.rl_stages import teacher_pass_rates
from klearlib.params import root, worlds_of

LIMITS = {"test_timeout_s": 2.0, "test_memory_mb": 256}
# A random teacher passes no test: keep what it never passes, so that something is left.
FILTER = {"teacher_responses": 1, "threshold": 0.0, "keep_equal": True}
SIZES = {"num_problems": 2, "group_size": 2, "mini_batch_problems": 1}
CLIPPING = ClippingParams(
    profile=PROFILE, seeds=[0], num_steps=2, options=LIMITS, code=False, **SIZES
)
SMALL_RL = {"num_steps": 1, **SIZES}
SMALL_RL |= {"learning_rate": 1.0e-4}
HEADLINE = HeadlineParams(
    profile=PROFILE,
    sft={"num_epochs": 1, "batch_size": 4, "learning_rate": 1.0e-3, "normalizer": "sequence"},
    maths_rl=SMALL_RL | {"teacher_responses": 2, "threshold": 0.5},
    code_rl=SMALL_RL,
    options=LIMITS,
    test_filter=FILTER,
    maths_responses=2,
    code_responses=1,
)


def published(e: Experiment) -> dict:
    """The section of `e`, whose parameters become those of the profile."""
    write_yaml(root(), e.name, asdict(e.params))
    e.publish()
    return json.loads((root() / "results" / PROFILE / e.name / "section.json").read_text())


def test_all_rl_starts_are_one_sft_checkpoint_of_both_domains(project):
    starts = [
        Clipping(CLIPPING).stages()[0],
        *(each(each.Params(profile=PROFILE)).stages()[0] for each in (AlphaSweep, TestFilter)),
        SoftReward(SoftReward.Params(profile=PROFILE)).stages()[0],
    ]
    assert len({stage.inputs["sft"].key for stage in starts}) == 1
    # The parameters of notebook 10's SFT are those of real.yaml here, so it is the same run.
    assert Headline(HEADLINE).first.models["sft"].key == starts[0].inputs["sft"].key
    budgets = [stage.params["settings"]["max_new_tokens"] for stage in starts]
    assert budgets == [6, 6, 5, 5]


def test_a_named_sft_checkpoint_skips_the_training(project):
    change(project, sft_model="models/tiny")
    sft = Clipping(CLIPPING).stages()[0].inputs["sft"]
    assert sft.name == "model" and not sft.inputs
    assert (run_here(sft) / "model" / "model.safetensors").is_symlink()


def test_notebook_08_filters_by_a_teacher_without_a_planted_truth(project):
    params = TestFilter.Params(profile=PROFILE, test_filter=FILTER, options=LIMITS)
    run_here(TestFilter(params).teacher)
    e = TestFilter(params)
    used = e.table("filter").set_index("rule").loc["pass rate >= 0 (used)"]
    assert used["kept"] == 12 and used["dropped"] == 0 and used["recall"] != used["recall"]
    run_here(e.arms["filter", 0].inputs["pool"])
    published(e)


def test_a_profile_without_a_teacher_says_what_to_name(project):
    change(project, teacher_code=None)
    with pytest.raises(ParameterError, match="has no teacher_code"):
        teacher_pass_rates(origin(PROFILE), SoftReward.Params(profile=PROFILE))
    soft = SoftReward(SoftReward.Params(profile=PROFILE)).arms["soft", 0]
    assert "pool" not in soft.inputs, "all problems have passed the filter"
    change(project, teacher_weak=None)
    with pytest.raises(ParameterError, match="no teacher_weak: name a model"):
        TeacherAblation(TeacherAblation.Params(profile=PROFILE)).stages()


def test_notebook_01_on_real_sources(project):
    e = DataCuration(DataCuration.Params(profile=PROFILE, reference_responses=1))
    for stage in e.stages():
        run_here(stage)
    e.refresh()
    assert published(e)["status"] == "complete"
    assert "strong" not in e.responses, "klear_math has passed the majority"
    assert e.table("funnel").set_index("source").loc["klear_math", "problems"] == 20
    assert e.table("found").empty, "nothing is planted in real data"
    overlap = e.table("overlap")
    assert (overlap["planted"] == 0).all() and overlap["recall"].isna().all()
    sets = e.table("sets").set_index("set")
    assert sets.loc["RL, code: at least 16 tests", "problems"] == 20


def test_students_of_teachers_learn_what_the_teachers_answered(project):
    two = DataCorrectness(DataCorrectness.Params(profile=PROFILE)).arms
    chosen = two["overall_wrong_0.3", 0].inputs["model"].inputs["examples"]
    world = chosen.inputs["problems"]
    assert world.name == "real_world" and chosen.params["problems"] == "train.jsonl"
    assert chosen.inputs["responses"].inputs["problems"] is world, "no held-out problem is learnt"
    # There are two real sources of each domain, and the notebook compares ten.
    ten = TopKDiversity(TopKDiversity.Params(profile=PROFILE)).arms["math_top10", 0]
    chosen = ten.inputs["model"].inputs["examples"]
    assert chosen.params["sources"] == ["openr1_math", "acereason_sft"]


def test_notebook_09_compares_on_both_kinds_of_rewards(project):
    values = {"profile": PROFILE, "options": LIMITS, "test_filter": FILTER}
    write_yaml(project, "07_soft_reward", values)
    nine = ZeroAdvantage(ZeroAdvantage.Params(profile=PROFILE))
    stage = nine.arms["soft code reward: advantage", 0]
    assert list(stage.params["settings"]["benchmarks"]) == ["livecodebench_v5", "livecodebench_v6"]


def test_notebook_10_end_to_end(project):
    made = Headline(HEADLINE)
    for stage in made.stages():
        run_here(stage)
    for domain in DOMAINS:
        for (series, _), stage in made.measured[domain].items():
            for name in made.joint.benchmarks[domain]:
                path = stage.folder(runs_dir()) / "evaluations" / f"{name}-00000.npz"
                record = load_record(path)
                assert record.benchmark == name
                stretched = series in ("code_rl_yarn", "code_rl_long")
                drawn = {
                    "max_tokens": 12 if series == "code_rl_long" else 6,
                    "temperature": 0.6,
                    "top_p": 0.95,
                    "yarn_factor": 2.5 if stretched else None,
                    "yarn_original": 512 if stretched else None,
                }
                assert drawn.items() <= record.sampling.items()
    made.refresh()
    section = published(made)
    assert section["status"] == "complete"
    longer, verdict = section["verdicts"]
    assert longer["claim"] == "C24" and longer["settle"] == "at least 2 replicates"
    assert verdict["verdict"] == "not run" and "HMMT 2025" in verdict["measured"]
    assert "profile paper" in verdict["settle"]
    printed = made.table("table1")
    maths = ["AIME 2024", "AIME 2025", "HMMT 2025"]
    assert list(printed.columns[3:]) == [*maths, "LiveCodeBench V5", "LiveCodeBench V6"]
    assert set(printed["from"]) == {"paper", "here"}


def test_the_notebook_cache_sees_the_real_files(project):
    assert list(worlds_of(CLIPPING)) == ["statistics.yaml", "real.yaml", "compute.yaml, local"]
    before = Clipping(CLIPPING).arms["gppo", 0].key
    change(project, max_new_tokens=7)
    assert worlds_of(CLIPPING)["real.yaml"].max_new_tokens == 7
    assert Clipping(CLIPPING).arms["gppo", 0].key != before
