"""Who trains the RL runs: the same rule, settings and inputs for both engines, on all notebooks."""

from __future__ import annotations

import dataclasses
import shutil

import pytest
import yaml

from klearlib import params
from klearlib.errors import ParameterError
from klearlib.experiments import rl_stages
from klearlib.experiments.catalogue import check, experiments, notebooks_of, stages_of
from klearlib.experiments.clipping_arms import ClippingParams
from klearlib.experiments.nb09_zero_advantage import ZeroAdvantage
from klearlib.experiments.origins import Start, origin
from klearlib.experiments.rl_stages import rl_arm
from klearlib.params import RLOptions, files, load, load_profile, worlds_of
from klearlib.run.stage import Stage
from klearlib.scale.cluster import WHAT

STARTS = {"start", "start_validation"}  # measured by verl itself
LOCAL, VERL = "klearlib.rl.train:train_rl", "klearlib.scale.stage:train_rl"
NOTEBOOKS = [
    "05_clipping",
    "06_alpha_sweep",
    "07_soft_reward",
    "08_test_filter",
    "09_zero_advantage",
    "10_headline",
    "11_beyond",
]
RULES = "12_rules"  # whose rules verl has not


def stages(notebook: str, profile: str, **changes) -> list[Stage]:
    values = load_profile(profile, notebook) | changes
    return list(stages_of(notebook, check(notebook, values)).values())


def runs(found: list[Stage]) -> list[Stage]:
    return [stage for stage in found if stage.name == "rl"]


def test_the_notebooks_with_rl_have_an_engine_and_no_others():
    fields = {each.name: dataclasses.fields(each.Params) for each in experiments()}
    have = [name for name, each in fields.items() if "engine" in {field.name for field in each}]
    assert have == [*NOTEBOOKS, RULES]


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_an_arm_of_verl_is_the_local_arm_but_for_how_it_computes(notebook):
    profile = "smoke" if notebook == "11_beyond" else "mini"
    local, verl = (stages(notebook, profile, engine=engine) for engine in ("local", "verl"))
    starts = {id(ours.inputs[name]) for ours in runs(local) for name in STARTS & ours.inputs.keys()}
    local = [stage for stage in local if id(stage) not in starts]
    assert len(local) == len(verl) and len(runs(local)) == len(runs(verl)) > 0
    cluster = dataclasses.asdict(load(profile, "verl"))
    for ours, theirs in zip(local, verl, strict=True):
        inputs = set(ours.inputs) - (STARTS if ours.name == "rl" else set())
        assert (ours.name, ours.title, inputs) == (theirs.name, theirs.title, set(theirs.inputs))
        if ours.name != "rl":
            assert (ours.target, ours.params) == (theirs.target, theirs.params)
            continue
        assert (ours.target, theirs.target) == (LOCAL, VERL)
        assert list(ours.params) == ["seed", "rule", "settings", "compute"]
        assert list(theirs.params) == ["seed", "rule", "settings", "cluster"]
        assert theirs.params == {k: v for k, v in ours.params.items() if k != "compute"} | {
            "cluster": {name: cluster[name] for name in WHAT}
        }
        left = {name: value for name, value in cluster.items() if name not in WHAT}
        assert (ours.placing, theirs.placing) == ({}, {"resources": left})


def test_paper_and_node8_are_trained_by_verl_and_all_other_profiles_here():
    for profile in params.profiles():
        for notebook in sorted({*NOTEBOOKS} & {*notebooks_of(profile)}):
            targets = {stage.target for stage in runs(stages(notebook, profile))}
            assert targets <= {VERL if profile in ("node8", "paper") else LOCAL}


def test_the_soft_reward_runs_of_09_are_those_of_its_own_engine():
    values = load_profile("mini", "09_zero_advantage") | {"soft_filters": ["advantage"]}
    here = check("09_zero_advantage", values | {"engine": "verl"})
    arms = ZeroAdvantage(here).arms
    assert {stage.target for stage in arms.values()} == {VERL}
    soft = stages("07_soft_reward", "mini", engine="verl")
    theirs = {str(stage.params) for stage in runs(soft)}
    assert {str(arms["soft code reward: advantage", seed].params) for seed in here.seeds} <= theirs


def test_code_rl_of_10_goes_on_from_the_checkpoint_of_verl():
    last = runs(stages("10_headline", "mini", engine="verl", seeds=[0]))
    first, second = last
    assert first.target == second.target == VERL
    assert second.inputs["sft"].params == first.params and first.inputs["sft"].name == "sft"


def start() -> Start:
    return origin("smoke").start("math")


def stage(begin: Start, options: RLOptions | None = None) -> Stage:
    small = ClippingParams(num_steps=1, num_problems=2, group_size=2, mini_batch_problems=1)
    params = dataclasses.replace(small, engine="verl")
    return rl_arm(params, begin, label="x", seed=0, learning_rate=1e-3, options=options)


def test_a_mean_that_verl_does_not_have_is_refused_at_once():
    with pytest.raises(ParameterError, match="set normalizer to token or sequence, or engine"):
        stage(start(), RLOptions(normalizer="prompt"))


@pytest.mark.parametrize("name", ["loss_denominator", "lm_normalizer"])
def test_what_depends_on_the_parts_that_verl_cuts_is_refused_at_once(name):
    with pytest.raises(ParameterError, match="lm_normalizer to mini_batch, or engine to"):
        stage(start(), RLOptions(**{name: "micro_batch"}))


@pytest.mark.parametrize("section", [None, {"nodes": "none"}, [1]])
def test_a_cluster_that_is_absent_or_wrong_stops_verl_alone(monkeypatch, tmp_path, section):
    """As one of a profile that somebody else has made, or has not changed to this version."""
    shutil.copytree(params.root() / "params", tmp_path / "params")
    file = tmp_path / "params" / "smoke" / "compute.yaml"
    others = yaml.safe_load(file.read_text())
    others.pop("verl")
    file.write_text(yaml.safe_dump(others | ({} if section is None else {"verl": section})))
    monkeypatch.setattr(files, "root", lambda: tmp_path)
    for notebook in NOTEBOOKS:
        assert {each.target for each in runs(stages(notebook, "smoke"))} == {LOCAL}
        with pytest.raises(ParameterError, match=r"compute\.yaml"):
            stages(notebook, "smoke", engine="verl")


def test_a_rollout_that_no_pass_can_hold_is_refused_at_once(monkeypatch):
    begin = start()
    small = dataclasses.replace(load("smoke", "verl"), max_tokens_per_gpu=begin.max_new_tokens)
    monkeypatch.setattr(rl_stages, "load", lambda *_: small)
    with pytest.raises(ParameterError, match="give max_tokens_per_gpu"):
        stage(begin)


def test_a_notebook_depends_on_the_cluster_where_verl_trains_alone():
    for engine, names in (("local", False), ("verl", True)):
        values = load_profile("mini", "05_clipping") | {"engine": engine}
        worlds = worlds_of(check("05_clipping", values))
        assert ("compute.yaml, verl" in worlds) is names
        assert list(worlds)[-1] == "compute.yaml, local"
