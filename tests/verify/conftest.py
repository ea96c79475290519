"""The isolation tiers of this machine, for the tests that run programs."""

import pytest

from klearlib.errors import KlearError
from klearlib.verify.pool import close_pool
from klearlib.verify.sandbox import FORCE, TIERS, active_tier


@pytest.fixture(scope="module", autouse=True)
def no_judge_survives():
    yield
    close_pool()


@pytest.fixture(scope="module", params=TIERS)
def tier(request):
    """Each tier in turn, for all programs of a module's tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FORCE, request.param)
        try:
            active_tier()
        except KlearError as error:
            # What a kernel or container forbids is no failure; a sandbox with a hole is one.
            assert "an escape succeeded" not in str(error)
            assert "no program runs" not in str(error)
            pytest.skip(str(error))
        yield request.param
    close_pool()
