"""Stages that run at once have one GPU each."""

import io
import json
from itertools import combinations
from pathlib import Path

import pytest

from klearlib.run.pool import run_stages
from klearlib.run.progress import Progress
from klearlib.run.provenance import gpus
from klearlib.run.stage import Stage

pytestmark = pytest.mark.gpu


def test_each_stage_sees_one_gpu_and_no_two_share_one(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    devices = gpus()
    stages = [
        Stage("place", "gpu_stages:place", {"seed": seed}) for seed in range(len(devices) + 1)
    ]
    run_stages(stages, runs_dir=tmp_path, progress=Progress(io.StringIO()))
    seen = [json.loads((s.folder(tmp_path) / "place.json").read_text()) for s in stages]
    assert all(len(one["names"]) == 1 and one["value"] == 8 for one in seen)
    assert {one["visible"] for one in seen} == set(devices)
    for one, other in combinations(seen, 2):
        if one["visible"] == other["visible"]:
            assert one["end"] <= other["start"] or other["end"] <= one["start"]
