"""Strict parameters: every mistake stops with one line that names the fix."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
import yaml
from papermill.translators import PythonTranslator

from klearlib import params
from klearlib.errors import KlearError, ParameterError
from klearlib.experiments.catalogue import check, experiments, notebooks_of
from klearlib.experiments.clipping_arms import ClippingParams
from klearlib.params import RLOptions, files
from klearlib.params.fields import default_of, shown_fields

PROJECT = Path(__file__).resolve().parents[1]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project without notebooks, with what the profile smoke shares and an empty profile mini."""
    shutil.copytree(PROJECT / "params" / "smoke", tmp_path / "params" / "smoke")
    (tmp_path / "params" / "mini").mkdir()
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv("KLEAR_ROOT", str(tmp_path))
    return tmp_path


def write(project: Path, name: str, text: str) -> None:
    (project / "params" / name).write_text(text, encoding="utf-8")


def refused(call, *arguments) -> str:
    """The one line in which a call refuses its arguments."""
    with pytest.raises(ParameterError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
    return str(caught.value)


MISTAKES = {
    "unknown": ({"num_step": 3}, "unknown parameter 'num_step': did you mean 'num_steps'?"),
    "two unknown": ({"num_step": 3, "seed": 0}, "'num_steps'?; 'seed': did you mean 'seeds'?"),
    "unknown, nothing near": ({"xyzzy": 3}, "there are: profile, rules, seeds"),
    "bool for integer": ({"num_steps": True}, "num_steps must be an integer, got True"),
    "float for integer": ({"num_steps": 3.0}, "num_steps must be an integer, got 3.0"),
    "text for integer": ({"num_steps": "3"}, "got '3': a string; write 3 without quotes"),
    "bool for number": ({"alpha": False}, "alpha must be a number, got False"),
    "YAML's 1e-4": ({"learning_rates": ["1e-4"]}, "a string; write 0.0001 without quotes"),
    "YAML's 1e-6": ({"learning_rates": ["1e-6"]}, "a string; write 1.0e-06 without quotes"),
    "an option": ({"dual_clip": 10.0}, "'dual_clip': write it as options={dual_clip: ...}"),
    "word for number": ({"alpha": "none"}, "alpha must be a number, got 'none'"),
    "nan": ({"alpha": float("nan")}, "alpha must be a finite number"),
    "infinite": ({"learning_rates": [float("inf")]}, "must be a finite number"),
    "null": ({"num_steps": None}, "num_steps must be an integer, got None"),
    "scalar for list": ({"seeds": 3}, "seeds must be a list of integers, got 3: write [3]"),
    "null for list": ({"seeds": None}, "a list of integers, got None: give at least one"),
    "text for list": ({"seeds": "[1,2]"}, "seeds must be a list of integers"),
    "bad element": ({"seeds": [0, "1"]}, "seeds[1] must be an integer, got '1'"),
    "empty list": ({"rules": []}, "rules must be a list such as [gppo, cispo], got []"),
    "twice": ({"seeds": [1, 1]}, "seeds has a value twice"),
    "negative seed": ({"seeds": [0, -1]}, "seeds[1] must be at least 0, got -1"),
    "choice": (
        {"rules": ["gppoo"]},
        "unknown rule 'gppoo' (or write FILE.py:NAME); did you mean 'gppo'?",
    ),
    "zero rate": ({"learning_rates": [0]}, "learning_rates[0] must be above 0.0"),
    "eps_low above 1": ({"eps_low": 1.5}, "eps_low must be at most 1.0"),
    "seconds that no sandbox can set": (
        {"options": {"test_timeout_s": 1e300}},
        "test_timeout_s must be at most 3600",
    ),
    "memory that no sandbox can set": (
        {"options": {"test_memory_mb": 2**43}},
        "test_memory_mb must be at most 1048576",
    ),
    "group of one": ({"group_size": 1}, "group_size must be at least 2"),
    "one update": ({"mini_batch_problems": 8}, "all clipping rules are equal"),
    "large mini-batch": ({"mini_batch_problems": 9, "rules": ["gppo"]}, "exceeds num_problems 8"),
    "option": ({"options": {"dualclip": 10}}, "options: unknown parameter 'dualclip': did you"),
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
    assert message in refused(check, "05_clipping", values)


def test_defaults_are_valid_and_integers_become_numbers(project):
    checked = check("05_clipping", {"alpha": 1, "options": {"dual_clip": 10}})
    assert isinstance(checked.alpha, float)
    assert checked == dataclasses.replace(ClippingParams(), alpha=1.0, options={"dual_clip": 10.0})
    assert checked.rl_options == dataclasses.replace(RLOptions(), dual_clip=10.0)


@pytest.mark.parametrize(
    ("notebook", "values", "message"),
    [
        ("06_alpha_sweep", {"alphas": [0, 0.0]}, "alphas has a value twice"),
        ("06_alpha_sweep", {"alphas": [-0.1]}, "alphas[0] must be at least 0.0, got -0.1"),
        ("06_alpha_sweep", {"alpha": 0.1}, "unknown parameter 'alpha': did you mean 'alphas'?"),
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
    assert message in refused(check, notebook, values)


def test_one_update_per_rollout_is_allowed_without_a_comparison(project):
    assert check("05_clipping", {"mini_batch_problems": 8, "rules": ["gppo"]})


def test_default_lists_are_not_shared():
    ClippingParams().seeds.append(7)
    assert ClippingParams().seeds == [0, 1]


def test_unknown_notebook():
    with pytest.raises(ParameterError, match="did you mean '05_clipping'"):
        check("05_cliping", {})


def test_profile_file_is_loaded_and_gets_its_profile(project):
    write(project, "mini/05_clipping.yaml", "num_steps: 30\n")
    assert params.load_profile("mini", "05_clipping") == {"profile": "mini", "num_steps": 30}
    assert notebooks_of("mini") == ["05_clipping"]


def test_smoke_has_every_notebook_and_every_profile_the_overview(project):
    for name in ("00_overview", "05_clipping", "06_alpha_sweep", "99_mine"):
        (project / "notebooks" / f"{name}.ipynb").touch()
    write(project, "mini/06_alpha_sweep.yaml", "")
    assert notebooks_of("smoke") == ["05_clipping", "06_alpha_sweep", "00_overview"]
    assert notebooks_of("mini") == ["06_alpha_sweep", "00_overview"]
    assert params.load_profile("smoke", "05_clipping") == {"profile": "smoke"}
    assert params.load_profile("mini", "00_overview") == {"profile": "mini"}
    write(project, "smoke/05_clipping.yaml", "num_steps: 3")  # a file goes before the defaults
    assert params.load_profile("smoke", "05_clipping")["num_steps"] == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("profile: smoke\n", "params/mini/05_clipping.yaml says profile: smoke"),
        ("num_steps: 3\nnum_steps: 4\n", "line 2: num_steps is written twice"),
        ("num_steps: [3\n", "params/mini/05_clipping.yaml: line 2"),
        ("- 3\n", "must hold lines of the form name: value"),
        ("3: num_steps\n", "must hold lines of the form name: value"),
        ("num_steps: 2025-99-99\n", "05_clipping.yaml: not valid YAML: month must be in 1..12"),
        ("alpha: 1.0e+400\n", "alpha must be a finite number, got inf"),
        ("alpha: 1.0e+9\n", "alpha must be at most 1000000.0, got 1000000000.0"),
        ("learning_rates: [1.0e+6]\n", "learning_rates[0] must be at most 1.0, got 1000000.0"),
        ("options: {dual_clip: 3.0, dual_clip: 4.0}\n", "line 1: dual_clip is written twice"),
        ("options: {? [1]: 2}\n", "line 1: found unhashable key"),
    ],
)
def test_bad_profile_file(project, text, message):
    write(project, "mini/05_clipping.yaml", text)
    said = refused(lambda: check("05_clipping", params.load_profile("mini", "05_clipping")))
    assert message in said


@pytest.mark.parametrize(
    ("load", "name", "file"),
    [
        (params.load_profile, "05_clipping", "05_clipping"),
        (params.load, "miniature", "worlds"),
        (params.load, "real", "real"),
        (params.load, "verl", "compute"),
    ],
)
def test_file_that_is_not_utf8(project, load, name, file):
    path = project / "params" / "mini" / f"{file}.yaml"
    path.write_bytes("# Größe\n".encode("latin-1"))
    assert refused(load, "mini", name).startswith(
        f"params/mini/{file}.yaml: is not UTF-8 (byte 4): save it"
    )


def test_missing_file_and_profile_name_what_there_is(project):
    write(project, "mini/05_clipping.yaml", "{}")
    assert "did you mean '05_clipping'" in refused(params.load_profile, "mini", "05_cliping")
    for load, name in ((params.load_profile, "05_clipping"), (params.load, "miniature")):
        assert refused(load, "gpu", name) == "unknown profile 'gpu'; there are: mini, smoke"


MISTAKES_OF_WORLDS = [
    ("miniature", "modulus: 7", "", "worlds.yaml, miniature: modulus is missing (chains are"),
    ("miniature", "num_kv_heads: 2", "num_kv_heads: 3", "num_kv_heads 3 must divide num_heads 4"),
    ("miniature", "miniature:", "minature:", "unknown section 'minature'; did you mean 'mini"),
    ("miniature", "modulus: 7", "modulus: 7\n  seed: 1", "line 5: seed is written twice"),
    ("miniature", "miniature:", "miniature: 3\nx:", "unknown section 'x'"),
    ("code_miniature", "flawed_share: 0.25", "", "code_miniature: flawed_share is missing"),
    ("code_miniature", "num_tests: 16", "num_tests: 8", "num_tests must be at least 16, got 8"),
    ("code_miniature", "max_difficulty: 3", "max_difficulty: 9", "at most 8, got 9"),
    ("code_miniature", "head_dim: 16", "head_dim: 15", "head_dim must be even, got 15"),
    ("code_miniature", "sft_batch: 6", "sft_batch: 6\n  sft_bath: 7", "did you mean 'sft_batch'"),
    ("joint_miniature", "max_new_tokens: 56", "max_new_tokens: 200", "must exceed max_new_tokens"),
    ("joint_miniature", "num_validation: 16", "num_validation: 15", "must be even, half of each"),
]


@pytest.mark.parametrize(("name", "right", "wrong", "message"), MISTAKES_OF_WORLDS)
def test_a_world_names_its_mistake(project, name, right, wrong, message):
    before, section = f"\n{(project / 'params/smoke/worlds.yaml').read_text()}".split(f"\n{name}:")
    assert right in f"{name}:{section}"
    changed = f"{name}:{section}".replace(right, wrong, 1)
    write(project, "smoke/worlds.yaml", f"{before}\n{changed}"[1:])
    assert message in refused(params.load, "smoke", name)


@pytest.mark.parametrize("name", files.RECORDS)
def test_what_a_profile_shares_is_complete(project, name):
    assert (
        f"profile 'mini' has no {name} in params/mini/{files.RECORDS[name][0]}: start from"
        in refused(params.load, "mini", name)
    )
    file, record = files.RECORDS[name]
    assert (name == "real") == (not (project / "params" / "smoke" / file).exists())
    needed = {f.name for f in dataclasses.fields(record) if default_of(f) is dataclasses.MISSING}
    fields = [field.name for field in dataclasses.fields(record)]
    first = "seed" if "seed" in fields else fields[0]
    whole = file == f"{name}.yaml"
    write(project, f"mini/{file}", f"{first if whole else name}: 3")
    assert refused(params.load, "mini", name)
    one = f"{first}: {'true' if first == 'decides' else 0}"
    write(project, f"mini/{file}", one if whole else f"{name}: {{{one}}}")
    message = refused(params.load, "mini", name)
    required = needed - {first}
    if name not in ("local", "verl"):  # which have defaults
        assert all(f"{each} is missing" in message for each in required)


def test_shared_files_are_no_notebooks(project):
    for name in ("worlds", "compute", "real", "05_clipping"):
        write(project, f"mini/{name}.yaml", "{}")
    assert notebooks_of("mini") == ["05_clipping"]


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
    shared = [name for name, (file, _) in files.RECORDS.items() if file == path.name]
    written = yaml.safe_load(path.read_text())
    for name in shared:
        if name != "verl" or name in written:  # a profile may do without its engine
            assert params.load(profile, name)
    if not shared:
        values = params.load_profile(profile, notebook)
        checked = check(notebook, values)
        assert set(values) == {field.name for field in dataclasses.fields(checked)}


@pytest.mark.parametrize("record", [each.Params for each in experiments()])
def test_parameters_cell_gives_the_defaults(record):
    cell = params.parameters_cell(record)
    names: dict = {}
    exec(cell, names)
    del names["__builtins__"], names["__annotations__"]
    assert record(**names) == record()
    assert list(names) == [field.name for field in shown_fields(record)]
    read = PythonTranslator.inspect({"source": cell})  # it warns of a parameter that it misses
    helped = {field.name: field.metadata["help"] for field in shown_fields(record)}
    assert {each.name: each.help for each in read} == helped and all(helped.values())
    assert max(map(len, cell.splitlines())) <= 100


def test_seeds_that_tune_never_decide():
    how = {"decides": True, "design": "one_world", "margin": 0.05, "tuning": [100, 4]}
    counts = {each: [0, 4] for each in ("students", "maths_rl", "code_rl", "headline")}
    record = files.RECORDS["statistics"][1]
    with pytest.raises(ParameterError, match=r"tuning: \[4\] are among the seeds that decide"):
        params.check_values(record, how | counts, "statistics.yaml")
