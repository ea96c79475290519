"""One finished RL run that several files look at."""

import pytest


@pytest.fixture(scope="session")
def inputs(tiny_stages):
    """The upstream folders of an RL run."""
    return {"world": tiny_stages.world, "sft": tiny_stages.sft}


@pytest.fixture(scope="session")
def plain(inputs, tmp_path_factory):
    """A run of GPPO in the paper's way, with both benchmarks."""
    from tiny_runs import PLAIN, run

    path = tmp_path_factory.mktemp("plain")
    run(path, inputs, **PLAIN)
    return path
