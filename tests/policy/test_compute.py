"""How a stage computes: what a profile's file may say is what a stage takes, and nothing else."""

import dataclasses

import pytest

from klearlib import params
from klearlib.errors import ParameterError
from klearlib.params import ComputeParams
from klearlib.params.fields import check_values
from klearlib.policy import compute as module
from klearlib.policy.compute import Compute, local_compute

PLAIN = dataclasses.asdict(local_compute())
REFUSED = [
    {"engine": "sglang"},
    {"precision": "fp16"},
    {"attention": "flex"},
    {"batch_rows": 0},
    {"micro_batch_tokens": -1},
    {"pack_tokens": 0},
    {"pack_tokens": 300, "micro_batch_tokens": 299},
    {"tensor_parallel": 0},
    {"tensor_parallel": 2},
    {"gpu_memory_share": 0.0},
    {"gpu_memory_share": 0.96},
]
TAKEN = [
    {},
    {"precision": "bf16", "attention": "flash_attention_2", "gradient_checkpointing": True},
    {"batch_rows": 1, "micro_batch_tokens": 1},
    {"pack_tokens": 300, "micro_batch_tokens": 300},
    {"pack_tokens": 32768, "micro_batch_tokens": 0},
    {"engine": "vllm", "tensor_parallel": 8, "gpu_memory_share": 0.95},
]


def test_both_records_have_the_same_fields_and_words():
    declared, taken = (
        [(field.name, field.type) for field in dataclasses.fields(record)]
        for record in (ComputeParams, Compute)
    )
    assert declared == taken
    choices = {
        field.name: tuple(field.metadata["choices"])
        for field in dataclasses.fields(ComputeParams)
        if field.metadata.get("choices")
    }
    assert choices == {
        "engine": module.ENGINES,
        "precision": module.PRECISIONS,
        "attention": module.ATTENTIONS,
    }


@pytest.mark.parametrize("changes", REFUSED, ids=str)
def test_both_records_refuse_the_same(changes):
    lines = []
    for make in (
        lambda values: Compute(**values),
        lambda values: check_values(ComputeParams, values, "mini/compute.yaml"),
    ):
        with pytest.raises(ParameterError, match=next(iter(changes))) as caught:
            make(PLAIN | changes)
        lines.append(str(caught.value))
    assert not any("\n" in line for line in lines)


@pytest.mark.parametrize("changes", TAKEN, ids=str)
def test_both_records_take_the_same(changes):
    values = PLAIN | changes
    declared = check_values(ComputeParams, values, "mini/compute.yaml")
    assert dataclasses.asdict(Compute(**dataclasses.asdict(declared))) == values


@pytest.mark.parametrize("profile", ["smoke", "mini"])
def test_a_profile_says_how_its_stages_compute(profile):
    assert Compute(**dataclasses.asdict(params.load(profile, params.LOCAL)))


def test_a_notebook_with_a_world_depends_on_how_its_stages_compute():
    trained = params.NOTEBOOKS["05_clipping"]()
    assert params.worlds_of(trained)["compute.yaml"] == params.load("smoke", params.LOCAL)
    untrained = [make() for make in params.NOTEBOOKS.values() if not getattr(make, "worlds", ())]
    assert all(params.worlds_of(made) == {} for made in untrained)


def test_a_profile_without_the_file_is_refused(tmp_path, monkeypatch):
    (tmp_path / "params" / "mini").mkdir(parents=True)
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv("KLEAR_ROOT", str(tmp_path))
    with pytest.raises(ParameterError, match="'mini' has no compute"):
        params.load("mini", params.LOCAL)
