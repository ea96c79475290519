"""The tests of a GPU on the device that stands in for one, in a process of their own: torch counts
the kinds of devices at its first backward pass."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch.utils import backend_registration


@pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this torch has no devices written in Python",
)
@pytest.mark.parametrize("which", ["gpu and not slow", pytest.param("gpu", marks=pytest.mark.slow)])
def test_the_tests_of_a_gpu_pass_on_its_stand_in(which):
    own = {name: os.environ[name] for name in os.environ if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", which, "."],
        cwd=Path(__file__).parent,
        env=own | {"KLEAR_STAND_IN": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    passed = int(done.stdout.split(" passed")[0].split()[-1])
    assert passed >= (10 if "slow" in which else 20)
