"""How a stage computes: what a profile's file may say is what a stage takes, and nothing else."""

import dataclasses

import pytest

from klearlib import params
from klearlib.errors import ParameterError
from klearlib.params.fields import check_values
from klearlib.policy.compute import Compute, local_compute

PLAIN = dataclasses.asdict(local_compute())
REFUSED = [
    {"engine": "sglang"},
    {"precision": "fp16"},
    {"attention": "flex"},
    {"batch_rows": 0},
    {"micro_batch_tokens": -1},
    {"pack_tokens": 0},
    {"tensor_parallel": 0},
    {"tensor_parallel": 2},
    {"gpu_memory_share": 0.0},
    {"gpu_memory_share": 0.96},
]


@pytest.mark.parametrize("changes", REFUSED, ids=str)
def test_what_no_stage_can_do_is_refused_in_one_line(changes):
    with pytest.raises(ParameterError, match=f"^mini: .*{next(iter(changes))}") as caught:
        check_values(Compute, PLAIN | changes, "mini")
    assert "\n" not in str(caught.value)


def test_a_profile_without_the_file_is_refused(tmp_path, monkeypatch):
    (tmp_path / "params" / "mini").mkdir(parents=True)
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv("KLEAR_ROOT", str(tmp_path))
    with pytest.raises(ParameterError, match="'mini' has no local in params/mini/compute"):
        params.load("mini", params.LOCAL)
