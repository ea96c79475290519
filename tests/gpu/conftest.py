"""The GPU, or what stands in for it, and what the tests of rl/ are made of."""

import os
import sys
from pathlib import Path

import pytest
from stand_in import stand_in

sys.path.append(str(Path(__file__).parents[1] / "rl"))


@pytest.fixture(scope="module")
def device():
    if os.environ.get("KLEAR_STAND_IN") != "1":
        yield "cuda"
        return
    with pytest.MonkeyPatch.context() as patch:
        yield stand_in(patch)
