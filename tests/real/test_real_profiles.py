"""The files of qwen and paper: they are complete, they agree with one another, and what claims to
be a value of the paper is that value."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest

from klearlib import params as parameters
from klearlib.errors import ParameterError
from klearlib.evaluate.record_files import save_record
from klearlib.experiments import catalogue
from klearlib.experiments.benchmarks import REAL
from klearlib.experiments.experiment import runs_dir
from klearlib.experiments.headline_pipeline import DOMAINS
from klearlib.experiments.nb02_data_correctness import DataCorrectness
from klearlib.experiments.nb03_teacher_ablation import TeacherAblation
from klearlib.experiments.nb05_clipping import Clipping
from klearlib.experiments.nb06_alpha_sweep import AlphaSweep
from klearlib.experiments.nb09_zero_advantage import ZeroAdvantage
from klearlib.experiments.nb10_headline import Headline
from klearlib.experiments.origins.real import learnt_sets, mixed_sets
from klearlib.paper import claim
from klearlib.params.real import BENCHMARKS
from klearlib.records import EvalRecord
from klearlib.run.folder import RunFolder
from klearlib.run.stage import Stage, with_inputs
from klearlib.suite.estimate import cost_of

REPOSITORY = Path(__file__).resolve().parents[2]
PROFILES = ["qwen", "node8", "paper"]


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    for name in ("params", "notebooks"):
        shutil.copytree(REPOSITORY / name, tmp_path / name)
    monkeypatch.setenv("KLEAR_ROOT", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path


def of(profile: str, notebook: str):
    return catalogue.check(notebook, parameters.load_profile(profile, notebook))


def stages_of(profile: str, notebook: str) -> list[Stage]:
    return list(catalogue.stages_of(notebook, of(profile, notebook)).values())


@pytest.mark.parametrize("profile", PROFILES)
def test_every_notebook_of_a_profile_has_its_stages(profile):
    names = catalogue.notebooks_of(profile)
    absent = set(catalogue.names()) - set(names)
    # The paper names neither ten sources nor their order; its Table 2 is on responses that
    # OpenR1-Math-220k holds, which the notebook samples itself; and no card holds its teachers.
    # What the paper leaves open is asked of the miniature alone.
    left_out = {"qwen": {"04_topk_diversity", "11_beyond", "12_rules"}}
    left_out["paper"] = left_out["qwen"] | {"02_data_correctness", "03_teacher_ablation"}
    left_out["node8"] = left_out["paper"] | {
        name for name in catalogue.names() if name[:2] in ("06", "07", "08", "09")
    }
    assert absent == left_out[profile]
    for name in names[:-1]:
        made = stages_of(profile, name)
        assert made and all(len(stage.key) == 16 for stage in made)
        params = of(profile, name)
        by_verl = {"compute.yaml, verl"} if getattr(params, "engine", "local") == "verl" else set()
        assert by_verl == ({"compute.yaml, verl"} if profile != "qwen" and name >= "05" else set())
        assert (
            set(parameters.worlds_of(params))
            == {"statistics.yaml", "real.yaml", "compute.yaml, local"} | by_verl
        )


def test_paper_values_are_the_papers():
    """Wherever a record names a number of the paper, the file has it."""
    compared = 0
    for name in catalogue.notebooks_of("paper"):
        compared += _compare(name, of("paper", name))
    compared += _compare("real", parameters.load("paper", "real"))
    assert compared > 60


def _compare(where: str, params) -> int:
    compared = 0
    for field in dataclasses.fields(params):
        value, paper = getattr(params, field.name), field.metadata.get("paper")
        if isinstance(value, dict) and "record" in field.metadata:
            compared += _compare(f"{where}.{field.name}", field.metadata["record"](**value))
        elif isinstance(paper, int | float):
            assert value in (paper, [paper]), f"{where}.{field.name}"
            compared += 1
    return compared


def test_what_the_claims_say_of_c13_is_how_the_profile_measures():
    params = of("paper", "10_headline")
    made = Headline(params)
    sizes = made.joint.benchmarks["math"] | made.joint.benchmarks["code"]
    assert list(sizes) == list(BENCHMARKS)
    names = dict(zip(sizes, claim("C13").paper[:5], strict=True))
    for name, number in names.items():
        domain = "math" if name in made.joint.benchmarks["math"] else "code"
        stage = made.measured[domain]["code_rl_long", 0]
        assert stage.params["num_responses"] == number.num_samples
        assert stage.params["benchmarks"][name] == number.num_problems
        assert stage.params["max_new_tokens"] == 65536 and stage.params["yarn_factor"] == 2.5
        assert stage.params["yarn_original"] == 32768
        assert made.measured[domain]["code_rl", 0].params["max_new_tokens"] == 32768


def finish(params, shift: float) -> None:
    """Invented records of the final model, drawn as the stages say, whose scores are the paper's
    and `shift`."""
    made = Headline(params)
    printed = {number.what: number.value for number in claim("C13").paper}
    for domain in DOMAINS:
        for (series, _), stage in made.measured[domain].items():
            folder = RunFolder(stage.folder(runs_dir()))
            folder.load_checkpoint()
            budget = "64K" if series == "code_rl_long" else "32K"
            for name, size in stage.params["benchmarks"].items():
                title = REAL[name].paper
                wanted = printed[f"{title}, {budget}"] + shift
                record = _record(name, wanted, size or 150, stage)
                path = folder.path / "evaluations" / f"{name}-00000.npz"
                save_record(record, path)
            folder.finish()


def _record(name: str, score: float, size: int, stage: Stage) -> EvalRecord:
    drawn, n = stage.params, stage.params["num_responses"]
    correct = np.zeros(size * n, dtype=bool)
    correct[: round(score * size * n)] = True
    # Every problem is right about as often: the noise is that of sampling.
    correct = correct.reshape(n, size).T
    return EvalRecord(
        name,
        tuple(f"{name}-{index}" for index in range(size)),
        correct,
        np.zeros_like(correct),
        np.full(correct.shape, 100),
        np.where(correct, "correct", "wrong"),
        correct.astype(float),
        np.where(correct, "boxed", ""),
        sampling={
            "max_tokens": drawn["max_new_tokens"],
            "temperature": drawn["temperature"],
            "top_p": drawn["top_p"],
            "yarn_factor": drawn.get("yarn_factor"),
        },
    )


@pytest.mark.parametrize(
    ("profile", "shift", "words"),
    [
        ("paper", 0.0, "reproduced"),
        ("paper", -0.3, "not reproduced"),
        ("qwen", 0.0, "not run"),  # its budgets are others
    ],
)
def test_c13_is_decided_from_the_papers_profile_alone(profile, shift, words):
    params = of(profile, "10_headline")
    finish(params, shift)
    *_, verdict = Headline(params).verdicts()
    assert verdict.verdict == words
    if words == "not run":
        assert verdict.measured.startswith("not comparable") and "profile paper" in verdict.settle
    else:
        assert len(verdict.comparisons) == 10


def test_qwens_arms_that_coincide_are_one_run():
    five, six, nine = (
        each(of("qwen", each.name)) for each in (Clipping, AlphaSweep, ZeroAdvantage)
    )
    keys = [{stage.key for stage in each.stages()} for each in (five, six)]
    assert keys[0] & keys[1]
    for seed in nine.params.seeds:
        for alpha, its in ((0, five.arms["gppo", seed]), (0.1, six.arms["alpha_0.1", seed])):
            assert nine.arms[f"alpha {alpha:g}: filter", seed].inputs["sft"].key == its.key
    sft = Headline(of("qwen", "10_headline")).first.models["sft"].key
    assert sft == five.arms["gppo", 0].inputs["sft"].key
    two = DataCorrectness(of("qwen", "02_data_correctness")).arms["overall_wrong_0", 0]
    three = TeacherAblation(of("qwen", "03_teacher_ablation")).arms["middle", 0]
    two, three = (each.inputs["model"].inputs["examples"] for each in (two, three))
    assert two.inputs["responses"].key == three.inputs["responses"].key


@pytest.mark.parametrize("profile", PROFILES)
def test_the_memory_of_every_model_is_known(profile):
    """Nothing starts whose model no check could refuse."""
    for name in catalogue.notebooks_of(profile)[:-1]:
        for stage in stages_of(profile, name):
            if "compute" in stage.params:
                assert cost_of(stage).memory, stage.title


def test_the_lines_of_ones_own_files_are_counted_for_the_plan(project):
    (project / "data" / "sums").mkdir(parents=True)
    for name in ("examples", "problems", "held_out"):
        (project / "data" / "sums" / f"{name}.jsonl").write_text("twenty bytes a line\n" * 192)
    every = with_inputs(stages_of("smol", "12_rules"))
    (sft,) = [stage for stage in every.values() if stage.name == "sft"]
    assert cost_of(sft).trained == 192 * 5


@pytest.mark.parametrize("profile", PROFILES)
def test_no_part_of_a_file_is_read_for_a_domain_that_it_may_not_hold(profile):
    real = parameters.load(profile, "real")
    for domain in ("math", "code"):
        for name in mixed_sets(real, domain):
            assert learnt_sets(real, domain)[name]["limit"] is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("num_kv_heads: 8", "num_kv_heads: 3", "num_kv_heads 3 must divide num_heads 16"),
        ("max_new_tokens: 4096", "max_new_tokens: 9000", "must exceed max_new_tokens 9000"),
        ("{limit: 10000}", "{limits: 10000}", "did you mean 'limit'"),
        ("tie_word_embeddings: true\n", "", "tie_word_embeddings is missing"),
    ],
)
def test_a_bad_real_file_names_the_fix(project, old, new, words):
    path = project / "params" / "qwen" / "real.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(ParameterError, match=words):
        parameters.load("qwen", "real")
