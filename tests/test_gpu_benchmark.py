"""What benchmarks/gpu.py says without a GPU: one line, or with --tiny what it measures on a CPU."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[1]


def run(tmp_path, *arguments):
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    script = str(ROOT / "benchmarks" / "gpu.py")
    return subprocess.run(
        [sys.executable, script, "--results", str(tmp_path), *arguments],
        capture_output=True,
        text=True,
        env=environment | {"KLEAR_ROOT": str(ROOT)},
        timeout=120,
    )


def test_without_a_gpu_it_is_one_line(tmp_path):
    done = run(tmp_path)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith("gpu.py: no NVIDIA GPU that torch sees")
    assert list(tmp_path.iterdir()) == []


def test_the_same_code_runs_small_on_a_cpu(tmp_path):
    done = run(tmp_path, "--tiny")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("no GPU: ")
    with (tmp_path / "gpu.csv").open() as file:
        rows = list(csv.DictReader(file))
    starts = ("sampling of a step", "training of a step", "an update", "SFT", "RL", "K-center")
    assert [row["what"].startswith(start) for row, start in zip(rows, starts, strict=True)]
    for row in rows:
        assert row["device"] == "cpu" and row["peak GB"] == ""
        assert float(row["s"]) > 0 and float(row["a second"]) > 0
    assert all(float(row["share of a large product"]) > 0 for row in rows[3:5])
    # 300 readings of 2,000 x 16 floats.
    assert float(rows[5]["floor s"]) > 0
    assert float(rows[5]["times the floor"]) == float(rows[5]["s"]) / float(rows[5]["floor s"])
