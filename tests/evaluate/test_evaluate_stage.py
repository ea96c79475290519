"""Stage ``evaluate``: what RL's evaluations would have measured, and no benchmark twice."""

import dataclasses

import numpy as np
import pytest

from klearlib.data.problems import read_problems
from klearlib.errors import KlearError, MissingAsset, ParameterError
from klearlib.evaluate import harness
from klearlib.evaluate.harness import evaluate, evaluate_benchmarks
from klearlib.evaluate.record_files import load_record
from klearlib.policy.compute import local_compute
from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.engines import TransformersEngine
from klearlib.policy.load import load_policy
from klearlib.run.folder import RunFolder
from klearlib.run.seeding import derive_seed

HOW = {
    "seed": 3,
    "benchmarks": {"math_a": 30, "validation": 6, "math_b": 30},
    "num_responses": 2,
    "temperature": 0.6,
    "top_p": 0.95,
    "max_new_tokens": 40,
    "test_timeout_s": 2.0,
    "test_memory_mb": 256,
    "compute": dataclasses.asdict(local_compute()),
}
FILES = ["math_a-00000.npz", "math_b-00000.npz", "validation-00000.npz"]


@pytest.fixture(scope="module")
def inputs(tiny_stages):
    return {"model": tiny_stages.sft, "world": tiny_stages.world}


@pytest.fixture(scope="module")
def measured(inputs, tmp_path_factory):
    """The folder of a finished stage."""
    path = tmp_path_factory.mktemp("evaluate")
    evaluate_benchmarks(RunFolder(path), inputs, **HOW)
    return path


def files(path):
    return {file.name: file.read_bytes() for file in sorted((path / "evaluations").iterdir())}


def test_deciding_benchmarks_are_answered_once(inputs, tmp_path):
    how = HOW | {"benchmarks": {"validation": 6}, "deciding": {"math_a": 30}}
    evaluate_benchmarks(RunFolder(tmp_path), inputs, **how)
    shapes = [load_record(path).correct.shape for path in sorted(tmp_path.glob("*/*.npz"))]
    assert shapes == [(30, 1), (6, 2)]


def test_each_benchmark_is_measured_as_the_harness_does(measured, inputs):
    assert list(files(measured)) == FILES
    engine = TransformersEngine(
        *load_policy(inputs["model"] / "model", device="cpu"), local_compute()
    )
    for name, size in HOW["benchmarks"].items():
        expected = evaluate(
            engine,
            read_problems(inputs["world"] / f"{name}.jsonl", expected_size=size),
            benchmark=name,
            num_responses=2,
            settings=SamplingSettings(
                temperature=0.6,
                top_p=0.95,
                top_k=0,
                max_tokens=40,
                seed=derive_seed(3, "evaluate", name, 0),
            ),
            test_timeout_s=2.0,
            test_memory_mb=256,
        )
        found = load_record(measured / "evaluations" / f"{name}-00000.npz")
        assert found.benchmark == name and found.problem_ids == expected.problem_ids
        assert found.sampling == expected.sampling | {"yarn_factor": None, "yarn_original": None}
        assert found.correct.shape == (size, 2)
        for field in ("correct", "truncated", "num_tokens", "reason", "pass_rate"):
            assert np.array_equal(getattr(found, field), getattr(expected, field)), field


def test_a_benchmark_of_any_size_is_measured_as_one_of_a_known_size(measured, inputs, tmp_path):
    evaluate_benchmarks(RunFolder(tmp_path), inputs, **HOW | {"benchmarks": {"validation": None}})
    assert files(tmp_path) == {FILES[2]: files(measured)[FILES[2]]}


def test_benchmarks_of_another_folder_and_another_seed(measured, inputs, tmp_path):
    (tmp_path / "own").mkdir()
    text = (inputs["world"] / "validation.jsonl").read_text()
    (tmp_path / "own" / "mine.jsonl").write_text(text)
    given = {"model": inputs["model"], "benchmarks": tmp_path / "own"}
    how = HOW | {"benchmarks": {"mine": 6}, "num_responses": 3}
    evaluate_benchmarks(RunFolder(tmp_path / "a"), given, **how)
    evaluate_benchmarks(RunFolder(tmp_path / "b"), given, **how | {"seed": 4})
    a, b = files(tmp_path / "a"), files(tmp_path / "b")
    assert list(a) == list(b) == ["mine-00000.npz"] and a != b


class Killed(BaseException):
    pass


@pytest.mark.parametrize(
    ("moment", "num_before"),
    [
        ("evaluate", 1),
        ("save_record", 2),
        *(pytest.param("evaluate", number, marks=pytest.mark.slow) for number in (0, 2)),
        *(pytest.param("save_record", number, marks=pytest.mark.slow) for number in (0, 1)),
    ],
)
def test_killed_and_resumed_measures_only_what_is_missing(
    measured, inputs, tmp_path, monkeypatch, num_before, moment
):
    original, measured_names = harness.evaluate, []

    def killing(*args, **kwargs):
        if len(measured_names) - (moment == "save_record") == num_before:
            raise Killed
        return saving(*args, **kwargs)

    def counting(*args, **kwargs):
        measured_names.append(kwargs["benchmark"])
        return original(*args, **kwargs)

    monkeypatch.setattr(harness, "evaluate", counting)
    saving = getattr(harness, moment)
    monkeypatch.setattr(harness, moment, killing)
    with pytest.raises(Killed):
        evaluate_benchmarks(RunFolder(tmp_path), inputs, **HOW)
    monkeypatch.undo()
    monkeypatch.setattr(harness, "evaluate", counting)
    measured_names.clear()
    evaluate_benchmarks(RunFolder(tmp_path), inputs, **HOW)
    assert measured_names == list(HOW["benchmarks"])[num_before:]
    assert files(tmp_path) == files(measured)


def test_yarn_reaches_a_longer_budget_and_changes_short_responses(inputs, tmp_path):
    """The tiny model has 128 positions."""
    model, _ = load_policy(inputs["model"] / "model", device="cpu")
    over = model.config.max_position_embeddings
    how = HOW | {"benchmarks": {"validation": 6}, "num_responses": 8}
    with pytest.raises(KlearError, match="lower max_new_tokens"):
        evaluate_benchmarks(RunFolder(tmp_path / "off"), inputs, **how | {"max_new_tokens": over})
    longer = how | {"max_new_tokens": over, "yarn_factor": 2.5}
    evaluate_benchmarks(RunFolder(tmp_path / "longer"), inputs, **longer)
    evaluate_benchmarks(RunFolder(tmp_path / "plain"), inputs, **how)
    evaluate_benchmarks(RunFolder(tmp_path / "yarn"), inputs, **how | {"yarn_factor": 2.5})
    names = ("longer", "plain", "yarn")
    longer, plain, yarn = (load_record(tmp_path / n / "evaluations" / FILES[2]) for n in names)
    assert [r.sampling["yarn_factor"] for r in (longer, plain, yarn)] == [2.5, None, 2.5]
    assert (
        longer.sampling["max_tokens"] == over and longer.sampling["seed"] == plain.sampling["seed"]
    )
    assert not np.array_equal(plain.num_tokens, yarn.num_tokens)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"benchmarks": {"math_a": 29}}, KlearError, "must hold 29 problems, got 30"),
        ({"benchmarks": {"math_a": 30, "none": 30}}, MissingAsset, r"none\.jsonl"),
        ({"max_new_tokens": 10_000}, KlearError, "lower max_new_tokens"),
        ({"yarn_factor": 1.0}, ParameterError, "yarn_factor must be above 1"),
    ],
)
def test_bad_parameters_leave_no_file(inputs, tmp_path, changes, error, words):
    with pytest.raises(error, match=words):
        evaluate_benchmarks(RunFolder(tmp_path), inputs, **HOW | changes)
    assert not (tmp_path / "evaluations").exists()
