"""The GPU, or what stands in for it, and what the tests of rl/ are made of."""

import os
import sys
from pathlib import Path

import pytest
from stand_in import stand_in
from torch.utils import backend_registration

sys.path.append(str(Path(__file__).parents[1] / "rl"))


@pytest.fixture(scope="module")
def device():
    if os.environ.get("KLEAR_STAND_IN") != "1":
        yield "cuda"
        return
    if not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"):
        pytest.skip("this torch has no devices written in Python")
    with pytest.MonkeyPatch.context() as patch:
        yield stand_in(patch)
