"""Strict parameters: every mistake stops with one line that names the fix."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from klearlib import params
from klearlib.errors import KlearError, ParameterError
from klearlib.params import CodeMiniatureParams, FilterOptions, MiniatureParams, RLOptions
from klearlib.params.fields import parameter
from klearlib.params.notebooks import ClippingParams

PROJECT = Path(__file__).resolve().parents[1]

WORLD = """seed: 0
modulus: 20
max_difficulty: 6
slip_share: 0.2
slip_rate: 0.5
step_noise: 0.12
hidden_size: 128
num_layers: 3
num_heads: 4
num_kv_heads: 2
head_dim: 32
intermediate_size: 256
vocab_size: 300
max_positions: 128
base_examples: 100
base_steps: 10
base_batch: 8
base_learning_rate: 1.0e-3
sft_examples: 100
sft_steps: 10
sft_batch: 8
sft_learning_rate: 1.0e-3
num_train_problems: 64
num_validation: 30
max_new_tokens: 64
validation_responses: 4
"""

CODE_WORLD = """seed: 0
max_difficulty: 6
num_tests: 16
slip_share: 0.25
slip_rate: 0.5
step_noise: 0.01
teacher_slip_share: 0.05
flawed_share: 0.3
hidden_size: 96
num_layers: 2
num_heads: 8
num_kv_heads: 4
head_dim: 12
intermediate_size: 192
vocab_size: 400
max_positions: 256
base_examples: 100
base_steps: 10
base_batch: 8
base_learning_rate: 1.0e-3
sft_examples: 90
sft_steps: 9
sft_batch: 7
sft_learning_rate: 2.0e-3
teacher_examples: 110
teacher_steps: 11
num_train_problems: 64
num_validation: 30
max_new_tokens: 128
validation_responses: 4
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """An empty project with the profiles smoke and mini."""
    for profile in ("smoke", "mini"):
        (tmp_path / "params" / profile).mkdir(parents=True)
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv("KLEAR_ROOT", str(tmp_path))
    return tmp_path


def write(project: Path, name: str, text: str) -> None:
    (project / "params" / name).write_text(text, encoding="utf-8")


MISTAKES = {
    "unknown": ({"num_step": 3}, "unknown parameter 'num_step'; did you mean 'num_steps'?"),
    "unknown, nothing near": ({"xyzzy": 3}, "there are: profile, rules, seeds"),
    "bool for integer": ({"num_steps": True}, "num_steps must be an integer, got True"),
    "float for integer": ({"num_steps": 3.0}, "num_steps must be an integer, got 3.0"),
    "text for integer": ({"num_steps": "3"}, "write it without quotes"),
    "bool for number": ({"alpha": False}, "alpha must be a number, got False"),
    "YAML's 1e-4": ({"learning_rates": ["1e-4"]}, "YAML reads it as text, write 1.0e-4"),
    "YAML's 1.5e4": ({"alpha": "1.5e4"}, "YAML reads it as text, write 1.5e+4"),
    "word for number": ({"alpha": "none"}, "alpha must be a number, got 'none'"),
    "nan": ({"alpha": float("nan")}, "alpha must be a finite number"),
    "infinite": ({"learning_rates": [float("inf")]}, "must be a finite number"),
    "null": ({"num_steps": None}, "num_steps must be an integer, got None"),
    "scalar for list": ({"seeds": 3}, "seeds must be a list of integers, got 3: write [3]"),
    "text for list": ({"seeds": "[1,2]"}, "seeds must be a list of integers"),
    "bad element": ({"seeds": [0, "1"]}, "seeds[1] must be an integer, got '1'"),
    "empty list": ({"rules": []}, "rules is empty"),
    "twice": ({"seeds": [1, 1]}, "seeds names a value twice"),
    "negative seed": ({"seeds": [0, -1]}, "seeds[1] must be at least 0, got -1"),
    "choice": ({"rules": ["gpo"]}, "rules[0] is 'gpo'; did you mean 'gppo'?"),
    "zero rate": ({"learning_rates": [0]}, "learning_rates[0] must be above 0.0"),
    "eps_low above 1": ({"eps_low": 1.5}, "eps_low must be at most 1.0"),
    "group of one": ({"group_size": 1}, "group_size must be at least 2"),
    "one update": ({"mini_batch_problems": 8}, "all clipping rules are equal"),
    "large mini-batch": ({"mini_batch_problems": 9, "rules": ["gppo"]}, "exceeds num_problems 8"),
    "option": ({"options": {"dualclip": 10}}, "options: unknown parameter 'dualclip'; did you"),
    "option's range": ({"options": {"dual_clip": 0.5}}, "options: dual_clip must be above 1.0"),
    "YAML's off": ({"options": {"zero_advantage_filter": False}}, 'write "off"'),
    "option's word": ({"options": {"normalizer": "tokens"}}, "did you mean 'token'?"),
    "two penalties": (
        {"options": {"format_penalty": 1, "format_scores": "released"}},
        "options: format_penalty must be 0",
    ),
    "no mapping": ({"options": ["dual_clip"]}, "options must be a mapping"),
    "profile": ({"profile": "mimi"}, "unknown profile 'mimi'; there are: mini, smoke"),
}


@pytest.mark.parametrize(("values", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistake_is_one_line_that_names_the_fix(project, values, message):
    with pytest.raises(ParameterError) as caught:
        params.check("05_clipping", values)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_defaults_are_valid_and_integers_become_numbers(project):
    checked = params.check("05_clipping", {"alpha": 1, "options": {"dual_clip": 10}})
    assert isinstance(checked.alpha, float)
    assert checked == dataclasses.replace(ClippingParams(), alpha=1.0, options={"dual_clip": 10.0})
    assert checked.rl_options == dataclasses.replace(RLOptions(), dual_clip=10.0)


@pytest.mark.parametrize(
    ("notebook", "values", "message"),
    [
        ("06_alpha_sweep", {"alphas": 0.1}, "alphas must be a list of numbers, got 0.1"),
        ("06_alpha_sweep", {"alphas": [0, 0.0]}, "alphas names a value twice"),
        ("06_alpha_sweep", {"alphas": [-0.1]}, "alphas[0] must be at least 0.0, got -0.1"),
        ("06_alpha_sweep", {"alpha": 0.1}, "unknown parameter 'alpha'; did you mean 'alphas'?"),
        ("06_alpha_sweep", {"mini_batch_problems": 9}, "exceeds num_problems 8"),
        ("06_alpha_sweep", {"options": {"dual_clip": 1.1}}, "must be above 1 + eps_high = 1.28"),
        ("09_zero_advantage", {"soft_filters": ["accurate"]}, "did you mean 'accuracy'?"),
        (
            "09_zero_advantage",
            {"options": {"zero_advantage_filter": "off"}},
            "zero_advantage_filter is what this notebook compares: leave it out",
        ),
    ],
)
def test_mistakes_of_06_and_09(project, notebook, values, message):
    with pytest.raises(ParameterError) as caught:
        params.check(notebook, values)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_one_update_per_rollout_is_allowed_without_a_comparison(project):
    assert params.check("05_clipping", {"mini_batch_problems": 8, "rules": ["gppo"]})


def test_default_lists_are_not_shared():
    ClippingParams().seeds.append(7)
    assert ClippingParams().seeds == [0, 1]


def test_unknown_notebook():
    with pytest.raises(ParameterError, match="did you mean '05_clipping'"):
        params.check("05_cliping", {})


def test_profile_file_is_loaded_and_gets_its_profile(project):
    write(project, "mini/05_clipping.yaml", "num_steps: 30\n")
    assert params.load_profile("mini", "05_clipping") == {"profile": "mini", "num_steps": 30}
    assert params.notebooks_of("mini") == ["05_clipping"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("profile: smoke\n", "params/mini/05_clipping.yaml says profile: smoke"),
        ("num_steps: 3\nnum_steps: 4\n", "line 2: num_steps is written twice"),
        ("num_steps: [3\n", "params/mini/05_clipping.yaml, line 2"),
        ("- 3\n", "must hold lines of the form name: value"),
        ("3: num_steps\n", "has the key 3: write the name of a parameter"),
        ("num_steps: 2025-99-99\n", "params/mini/05_clipping.yaml is no YAML: month must be in"),
    ],
)
def test_bad_profile_file(project, text, message):
    write(project, "mini/05_clipping.yaml", text)
    with pytest.raises(ParameterError) as caught:
        params.load_profile("mini", "05_clipping")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["05_clipping", "miniature", "code_miniature"])
def test_file_that_is_not_utf8(project, name):
    path = project / "params" / "mini" / f"{name}.yaml"
    path.write_bytes("# Größe\n".encode("latin-1"))
    with pytest.raises(ParameterError) as caught:
        if name.endswith("miniature"):
            getattr(params, name)("mini")
        else:
            params.load_profile("mini", name)
    assert str(caught.value).startswith(f"params/mini/{name}.yaml is not UTF-8 (byte 4): save it")
    assert "\n" not in str(caught.value)


def test_missing_file_and_profile_name_what_there_is(project):
    write(project, "mini/05_clipping.yaml", "{}")
    with pytest.raises(ParameterError, match="did you mean '05_clipping'"):
        params.load_profile("mini", "05_cliping")
    with pytest.raises(ParameterError, match="unknown profile 'gpu'; there are: mini, smoke"):
        params.load_profile("gpu", "05_clipping")


def test_miniature_needs_every_field(project):
    write(project, "smoke/miniature.yaml", WORLD)
    assert params.load("smoke", "miniature") == MiniatureParams(
        *(0, 20, 6, 0.2, 0.5, 0.12, 128, 3, 4, 2, 32, 256, 300, 128),
        *(100, 10, 8, 1e-3, 100, 10, 8, 1e-3, 64, 30, 64, 4),
    )
    write(project, "smoke/miniature.yaml", WORLD.replace("modulus: 20\n", ""))
    with pytest.raises(ParameterError, match=r"smoke/miniature.yaml: modulus is missing"):
        params.load("smoke", "miniature")
    write(project, "smoke/miniature.yaml", WORLD.replace("num_kv_heads: 2", "num_kv_heads: 3"))
    with pytest.raises(ParameterError, match="num_kv_heads 3 must divide num_heads 4"):
        params.load("smoke", "miniature")
    with pytest.raises(ParameterError, match="'mini' has no miniature"):
        params.load("mini", "miniature")


def test_code_miniature_needs_every_field(project):
    write(project, "smoke/code_miniature.yaml", CODE_WORLD)
    assert params.load("smoke", "code_miniature") == CodeMiniatureParams(
        *(0, 6, 16, 0.25, 0.5, 0.01, 0.05, 0.3, 96, 2, 8, 4, 12, 192, 400, 256),
        *(100, 10, 8, 1e-3, 90, 9, 7, 2e-3, 110, 11, 64, 30, 128, 4),
    )
    mistakes = [
        ("flawed_share: 0.3\n", "", "smoke/code_miniature.yaml: flawed_share is missing"),
        ("num_tests: 16", "num_tests: 8", "num_tests must be at least 16, got 8"),
        ("max_difficulty: 6", "max_difficulty: 9", "max_difficulty must be at most 8, got 9"),
        ("num_kv_heads: 4", "num_kv_heads: 3", "num_kv_heads 3 must divide num_heads 8"),
        ("head_dim: 12", "head_dim: 11", "head_dim must be even, got 11"),
        ("slip_share: 0.25", "slip_share: 0.01", "must not exceed slip_share 0.01"),
        ("sft_batch: 7", "sft_batch: 7\nsft_bath: 7", "did you mean 'sft_batch'"),
    ]
    for right, wrong, message in mistakes:
        write(project, "smoke/code_miniature.yaml", CODE_WORLD.replace(right, wrong, 1))
        with pytest.raises(ParameterError, match=message) as caught:
            params.load("smoke", "code_miniature")
        assert "\n" not in str(caught.value)
    with pytest.raises(ParameterError, match="'mini' has no code_miniature"):
        params.load("mini", "code_miniature")


def test_worlds_are_no_notebooks(project):
    for name in ("miniature", "code_miniature", "05_clipping"):
        write(project, f"mini/{name}.yaml", "{}")
    assert params.notebooks_of("mini") == ["05_clipping"]


def test_root_is_found_from_inside_the_project(project, monkeypatch):
    monkeypatch.delenv("KLEAR_ROOT")
    for folder in (project, project / "notebooks", project / "params" / "mini"):
        monkeypatch.chdir(folder)
        assert params.root() == project
    monkeypatch.setenv("KLEAR_ROOT", str(project / "notebooks"))
    with pytest.raises(KlearError, match="has no params/"):
        params.root()


@pytest.mark.parametrize(
    "path", sorted((PROJECT / "params").glob("*/*.yaml")), ids=lambda path: str(path.parts[-2:])
)
def test_files_of_the_project_are_valid(path, monkeypatch):
    monkeypatch.setenv("KLEAR_ROOT", str(PROJECT))
    profile, notebook = path.parent.name, path.stem
    if notebook in params.WORLDS:
        assert params.WORLDS[notebook](profile)
        return
    if path.name == params.files.COMPUTE_FILE:
        assert params.load(profile, params.LOCAL)
        return
    if path.name == params.files.VERL_FILE:
        assert params.load(profile, params.VERL)
        return
    if path.name == params.files.REAL_FILE:
        assert params.load(profile, "real")
        return
    values = params.load_profile(profile, notebook)
    checked = params.check(notebook, values)
    assert set(values) == {field.name for field in dataclasses.fields(checked)}
    if profile == "smoke":
        assert checked == params.NOTEBOOKS[notebook]()


@pytest.mark.parametrize(
    "record",
    [*params.NOTEBOOKS.values(), RLOptions, FilterOptions, MiniatureParams, CodeMiniatureParams],
)
def test_help_survives_papermill(record):
    """Papermill's help loses a line with a second "=" and cuts values that hold "#"."""
    for field in dataclasses.fields(record):
        text = field.metadata["help"]
        assert text
        assert "=" not in text
        assert "#" not in text


@pytest.mark.parametrize("record", params.NOTEBOOKS.values())
def test_parameters_cell_gives_the_defaults(record):
    cell = params.parameters_cell(record)
    names: dict = {}
    exec(cell, names)
    del names["__builtins__"], names["__annotations__"]
    assert record(**names) == record()
    assert list(names) == [field.name for field in dataclasses.fields(record)]
    assert max(map(len, cell.splitlines())) <= 100


def test_missing_assets_are_found_in_neither_path_nor_cache(tmp_path, monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class Params:
        model: str = parameter("org/model", help="", asset="model")
        rows: str = parameter(str(tmp_path), help="", asset="dataset")
        other: str = parameter("", help="", asset="dataset")

    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    (line,) = params.missing_assets(Params())
    assert "hf download org/model" in line
    (tmp_path / "hub" / "models--org--model" / "snapshots").mkdir(parents=True)
    assert params.missing_assets(Params()) == []


def test_dual_clip_must_lie_beyond_the_clip_range():
    with pytest.raises(ParameterError, match=r"dual_clip 1.2 must be above 1 \+ eps_high = 1.28"):
        ClippingParams(options={"dual_clip": 1.2})
