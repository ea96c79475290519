"""The notebooks on a real profile, with a tiny model and a few rows: each stage really runs, and
what is published has the names of the paper's benchmarks."""

from __future__ import annotations

import json

import pytest
from real_project import PROFILE, make, run_here, write_yaml

from klearlib import params as parameters
from klearlib.errors import ParameterError
from klearlib.evaluate.record_files import load_record
from klearlib.experiments import (
    clipping,
    clipping_section,
    correctness,
    curation,
    curation_section,
    filtering,
    filtering_section,
    soft_reward,
    teachers,
    topk,
    zero_advantage,
)
from klearlib.experiments.arms import teacher_pass_rates
from klearlib.experiments.headline_pipeline import DOMAINS
from klearlib.experiments.nb06_alpha_sweep import AlphaSweep
from klearlib.experiments.nb10_headline import Headline
from klearlib.experiments.origins.real import RealOrigin
from klearlib.experiments.publish import results_dir, runs_dir
from klearlib.params import (
    ClippingParams,
    CorrectnessParams,
    CurationParams,
    FilterOptions,
    HeadlineParams,
    RLOptions,
    TeacherParams,
    TestFilterParams,
    worlds_of,
)

LIMITS = {"test_timeout_s": 2.0, "test_memory_mb": 256}
# A random teacher passes no test: keep what it never passes, so that something is left.
FILTER = {"teacher_responses": 1, "threshold": 0.0, "keep_equal": True}
CLIPPING = ClippingParams(profile=PROFILE, seeds=[0], num_steps=2, options=LIMITS)
SMALL_RL = {"num_steps": 1, "num_problems": 2, "group_size": 2, "mini_batch_problems": 1}
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


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("KLEAR_ROOT", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(RealOrigin, "curate_workers", 1)
    return make(tmp_path)


def section_of(notebook: str) -> dict:
    return json.loads((results_dir(PROFILE, notebook) / "section.json").read_text())


def test_notebook_05_from_raw_files_to_its_section(project):
    for stage in clipping.arms(CLIPPING).values():
        folder = run_here(stage)
        names = {path.name for path in (folder / "evaluations").iterdir()}
        assert {"aime_2024-00002.npz", "aime_2025-00002.npz", "validation-00002.npz"} <= names
    clipping_section.publish(CLIPPING)
    section = section_of(clipping.NOTEBOOK)
    assert section["status"] == "complete"
    verdicts = {each["claim"]: each for each in section["verdicts"]}
    assert verdicts["C2"]["verdict"] == "not run"
    assert "LiveCodeBench" in verdicts["C2"]["reason"]
    table = clipping_section.score_table(CLIPPING)
    assert set(table["benchmark"]) == {"AIME 2024", "AIME 2025", "validation"}


def test_all_rl_starts_are_one_sft_checkpoint_of_both_domains(project):
    starts = [
        next(iter(clipping.arms(CLIPPING).values())),
        AlphaSweep(parameters.AlphaSweepParams(profile=PROFILE)).stages()[0],
        next(iter(filtering.arms(TestFilterParams(profile=PROFILE)).values())),
        next(iter(soft_reward.arms(parameters.SoftRewardParams(profile=PROFILE)).values())),
    ]
    assert len({stage.inputs["sft"].key for stage in starts}) == 1
    # The parameters of notebook 10's SFT are those of real.yaml here, so it is the same run.
    assert Headline(HEADLINE).models["sft"].key == starts[0].inputs["sft"].key
    budgets = [stage.params["settings"]["max_new_tokens"] for stage in starts]
    assert budgets == [6, 6, 5, 5]


def test_a_named_sft_checkpoint_skips_the_training(project, tmp_path):
    made = project / "params" / PROFILE / "real.yaml"
    made.write_text(made.read_text().replace("sft_model: null", "sft_model: models/tiny"))
    sft = next(iter(clipping.arms(CLIPPING).values())).inputs["sft"]
    assert sft.name == "model" and not sft.inputs
    assert (run_here(sft) / "model" / "model.safetensors").is_symlink()


def test_notebook_08_filters_by_a_teacher_without_a_planted_truth(project):
    params = TestFilterParams(profile=PROFILE, test_filter=FILTER, options=LIMITS)
    run_here(filtering.rates_stage(params))
    table = filtering_section.filter_table(params).set_index("rule")
    used = table.loc["pass rate >= 0 (used)"]
    assert used["kept"] == 12 and used["dropped"] == 0 and used["recall"] != used["recall"]
    assert filtering_section.flaw_table(params).empty
    run_here(filtering.arms(params)["filter", 0].inputs["pool"])
    filtering_section.publish(params)


def test_a_profile_without_a_teacher_says_what_to_name(project):
    made = project / "params" / PROFILE / "real.yaml"
    made.write_text(made.read_text().replace("teacher_code: models/tiny", "teacher_code: null"))
    with pytest.raises(ParameterError, match="has no teacher_code"):
        teacher_pass_rates(PROFILE, options=FilterOptions(), limits=RLOptions())
    soft = soft_reward.arms(parameters.SoftRewardParams(profile=PROFILE))["soft", 0]
    assert soft.inputs.keys() == {"world", "sft"}, "all problems have passed the filter"
    made.write_text(made.read_text().replace("teacher_weak: models/tiny", "teacher_weak: null"))
    with pytest.raises(ParameterError, match="no teacher_weak: name a model"):
        teachers.arms(TeacherParams(profile=PROFILE))


def test_notebook_01_on_real_sources(project):
    params = CurationParams(profile=PROFILE, reference_responses=1)
    for stage in curation.stages(params):
        run_here(stage)
    curation_section.publish(params)
    section = section_of(curation.NOTEBOOK)
    assert section["status"] == "complete"
    assert "strong" not in curation.responses(params), "klear_math has passed the majority"
    funnel = curation_section.funnel_table(params).set_index("source")
    assert funnel.loc["klear_math", "problems"] == 20
    assert curation_section.found_table(params).empty, "nothing is planted in real data"
    sets = curation_section.set_table(params).set_index("set")
    assert sets.loc["RL, code: at least 16 tests", "problems"] == 20


def test_students_of_teachers_learn_what_the_teachers_answered(project):
    two = correctness.arms(CorrectnessParams(profile=PROFILE))
    chosen = two["overall_mixed", 0].inputs["model"].inputs["examples"]
    world = chosen.inputs["problems"]
    assert world.name == "real_world" and chosen.params["problems"] == "train.jsonl"
    assert chosen.inputs["responses"].inputs["problems"] is world, "no held-out problem is learnt"
    assert two["overall_mixed", 0].inputs["model"].params["drop_longer"] is True
    # There are two real sources of each domain, and the notebook compares ten.
    assert topk.chosen(parameters.TopKParams(profile=PROFILE))["math_top10"].params["sources"] == [
        "openr1_math",
        "acereason_sft",
    ]


def test_notebook_09_compares_on_both_kinds_of_rewards(project):
    write_yaml(
        project,
        "07_soft_reward",
        {"profile": PROFILE, "options": LIMITS, "test_filter": FILTER},
    )
    params = parameters.ZeroAdvantageParams(profile=PROFILE)
    stage = next(iter(zero_advantage.code_arms(params).values()))
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
                long = series == "code_rl_long"
                assert record.benchmark == name
                assert record.sampling["max_tokens"] == (12 if long else 6)
                assert record.sampling["temperature"] == 0.6 and record.sampling["top_p"] == 0.95
                stretched = series in ("code_rl_yarn", "code_rl_long")
                assert record.sampling["yarn_factor"] == (2.5 if stretched else None)
                assert record.sampling["yarn_original"] == (512 if stretched else None)
    made.refresh()
    made.publish()
    section = section_of(made.name)
    assert section["status"] == "complete"
    (verdict,) = section["verdicts"]
    assert verdict["verdict"] == "not run" and "HMMT 2025" in verdict["measured"]
    assert "profile paper" in verdict["settle"]
    printed = made.table("table1")
    assert list(printed.columns[3:]) == [
        "AIME 2024",
        "AIME 2025",
        "HMMT 2025",
        "LiveCodeBench V5",
        "LiveCodeBench V6",
    ]
    assert set(printed["from"]) == {"paper", "here"}


def test_the_notebook_cache_sees_the_real_files(project):
    assert list(worlds_of(CLIPPING)) == ["real.yaml", "compute.yaml"]
    before = clipping.arms(CLIPPING)["gppo", 0].key
    made = project / "params" / PROFILE / "real.yaml"
    made.write_text(made.read_text().replace("max_new_tokens: 6", "max_new_tokens: 7"))
    assert worlds_of(CLIPPING)["real.yaml"].max_new_tokens == 7
    assert clipping.arms(CLIPPING)["gppo", 0].key != before
