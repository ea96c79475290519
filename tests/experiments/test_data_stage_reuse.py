"""The arms of notebooks 01 to 04: what they share, and that nothing else differs between them."""

from __future__ import annotations

import pytest

from klearlib.experiments.catalogue import check
from klearlib.experiments.experiment import Experiment
from klearlib.experiments.nb01_data_curation import CurationParams, DataCuration
from klearlib.experiments.nb02_data_correctness import CorrectnessParams, DataCorrectness
from klearlib.experiments.nb03_teacher_ablation import TeacherAblation, TeacherParams
from klearlib.experiments.nb04_topk_diversity import EQUAL_SHARE, TopKDiversity, TopKParams
from klearlib.experiments.origins import origin
from klearlib.experiments.students import StudentExperiment
from klearlib.paper import claim
from klearlib.params import DataOptions, load_profile
from klearlib.run.stage import Stage, with_inputs

PROFILES = ("smoke", "mini")
STUDENTS = (DataCorrectness, TeacherAblation, TopKDiversity)


def of_profile(experiment: type[Experiment], profile: str) -> Experiment:
    return experiment(check(experiment.name, load_profile(profile, experiment.name)))


def chosen_by(e: StudentExperiment) -> dict[str, Stage]:
    """Series -> the examples of a student in the first world."""
    return {each.series: e.choose(e.data, each) for each in e.students}


@pytest.mark.parametrize("profile", PROFILES)
def test_two_notebooks_have_the_same_responses_of_the_middle_teacher(profile):
    """Both notebooks' parameters must agree, or 03 samples them twice."""
    chosen = (
        chosen_by(of_profile(DataCorrectness, profile))["easy_wrong_0"],
        chosen_by(of_profile(TeacherAblation, profile))["middle"],
    )
    assert len({each.inputs["responses"].key for each in chosen}) == 1


@pytest.mark.parametrize("profile", PROFILES)
def test_notebooks_share_bases_responses_and_curated_sources(profile):
    found = {
        each: {
            (stage.name, stage.key)
            for stage in with_inputs(of_profile(each, profile).stages()).values()
        }
        for each in (DataCuration, *STUDENTS)
    }
    shared = found[DataCuration] & found[DataCorrectness]
    assert {"sources", "world", "responses"} <= {name for name, _ in shared}
    kept = found[DataCuration] & found[TopKDiversity]
    assert sum(name == "curate" for name, _ in kept) == 2
    bases = {key for keys in found.values() for key in keys if key[0] == "base"}
    assert len(bases) == 2


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("experiment", STUDENTS)
def test_arms_of_a_domain_differ_in_their_examples_alone(profile, experiment):
    arms = of_profile(experiment, profile).arms
    seeds = sorted({seed for _, seed in arms})
    assert profile == "smoke" or len(seeds) >= 3
    groups: dict[tuple[str, int], list[Stage]] = {}
    for (series, seed), stage in arms.items():
        assert stage.params["seed"] == stage.inputs["model"].params["seed"] == seed
        groups.setdefault((series.partition("_")[0] == "code", seed), []).append(stage)
    for stages in groups.values():
        first = stages[0]
        for stage in stages[1:]:
            training = stage.inputs["model"]
            assert stage.params == first.params
            assert training.params == first.inputs["model"].params
            assert training.inputs["base"].key == first.inputs["model"].inputs["base"].key
        sizes = {stage.inputs["model"].inputs["examples"].params["size"] for stage in stages}
        assert len(sizes) == 1
        keys = {stage.inputs["model"].inputs["examples"].key for stage in stages}
        assert len(keys) == len(stages)


def test_arms_come_round_robin_over_seeds():
    arms = TeacherAblation(TeacherParams(seeds=[3, 1])).arms
    assert list(arms)[:4] == [("weak", 3), ("middle", 3), ("strong", 3), ("weak", 1)]


def test_the_filters_of_table_2():
    shares = [0.0, 0.15, 0.3]
    how = CorrectnessParams(easy_from=0.5, num_examples=9, wrong_shares=shares)
    chosen = chosen_by(DataCorrectness(how))
    assert len(chosen) == 8
    for series, stage in chosen.items():
        difficulty, _, share = series.split("_")
        assert stage.params["difficulty"] == difficulty
        assert stage.params["wrong_share"] == float(share)
        assert stage.params["easy_from"] == (None if difficulty == "overall" else 0.5)
        assert ("reference" in stage.inputs) == (difficulty != "overall")


def test_top_k_takes_the_best_sources():
    chosen = chosen_by(TopKDiversity(TopKParams()))
    ranked = origin("smoke", DataOptions()).ranked_sources("math")
    assert chosen["code_top2"].params["sources"] == ["code_1", "code_2"]
    assert chosen["math_top10"].params["sources"] == ranked and ranked[9] == "math_10"
    counts = [len(stage.params["sources"]) for stage in chosen.values()]
    assert counts == [1, 2, 4, 6, 8, 10, 1, 2, 4, 6]


def test_single_sources_and_equal_errors_are_arms_on_request():
    few = chosen_by(TopKDiversity(TopKParams()))
    more = TopKParams(single_sources=[5, 10], equal_sources=[1, 4])
    chosen = chosen_by(TopKDiversity(more))
    assert {name: chosen[name].key for name in few} == {name: few[name].key for name in few}
    more = {name: stage for name, stage in chosen.items() if name not in few}
    assert {name: stage.params["sources"] for name, stage in more.items()} == {
        "math_alone5": ["math_5"],
        "math_alone10": ["math_10"],
        "code_alone5": ["code_5"],  # there is no tenth
        "math_equal1": ["math_1"],
        "math_equal4": ["math_1", "math_2", "math_3", "math_4"],
    }
    for name, stage in more.items():
        equal = "equal" in name
        assert stage.params["wrong_share"] == (EQUAL_SHARE if equal else None)
        assert stage.inputs["problems"].name == ("true_answers" if equal else "curate")
    assert f"{100 * EQUAL_SHARE:g} % are wrong responses" in claim("E7").metric


def test_rules_of_overlap_differ_in_nothing_else():
    stages = DataCuration(CurationParams(stop_list=3)).curated
    used, strict, stop = (stages["math", rule].params for rule in ("used", "strict", "stop list"))
    assert {name for name in used if used[name] != strict[name]} == {"templates"}
    assert {name for name in strict if strict[name] != stop[name]} == {"stop_more_than"}
    assert stop["stop_more_than"] == 3
    assert used["min_tests"] == 0 and stages["code", "used"].params["min_tests"] == 16


def test_an_option_reaches_its_stage():
    plain = origin("smoke", DataOptions())
    odd = origin("smoke", DataOptions(temperature=0.5, embedding_dim=8, ngram_words=5))
    assert odd.responses("weak", num_responses=2).params["temperature"] == 0.5
    assert odd.curated("code").params["ngram_words"] == 5
    chosen = odd.chosen_sources("math", ranks=[1], size=4, words="top 1")
    assert chosen.params["embedding"]["dim"] == 8
    assert odd.stages["teacher_weak"].key == plain.stages["teacher_weak"].key


def test_options_that_are_not_named_take_the_papers_values():
    params = CorrectnessParams(options={"min_tests": 3})
    assert params.data_options == DataOptions(min_tests=3)
    assert DataOptions().ngram_words == 9 and DataOptions().min_tests == 16


def test_a_world_with_too_few_easy_problems_has_the_other_arms():
    arms = of_profile(DataCorrectness, "full").arms
    series = {seed: {name for name, other in arms if other == seed} for _, seed in arms}
    assert series[210] == {name for name in series[200] if not name.startswith("easy")}
    assert [seed for seed in series if series[seed] != series[200]] == [210]
