"""A policy and finished RL runs that several files look at."""

import pytest


@pytest.fixture(scope="session")
def policy(new_policy):
    """A policy in float64, whose weights no test may change."""
    import torch

    return new_policy(3, dtype=torch.float64)


@pytest.fixture(scope="session")
def inputs(tiny_stages):
    """The upstream folders of an RL run."""
    return {"world": tiny_stages.world, "sft": tiny_stages.sft}


@pytest.fixture(scope="session")
def plain(inputs, made_once):
    """A run of GPPO in the paper's way, with both benchmarks."""
    from tiny_runs import PLAIN, run

    return made_once("plain_rl_run", lambda path: run(path, inputs, **PLAIN))


@pytest.fixture(scope="session")
def finished(inputs, tmp_path_factory):
    """A function that gives the folder of a run of one update, of equal settings the same one."""
    from tiny_runs import ONE_UPDATE, run

    runs = {}

    def folder(**settings):
        key = repr(sorted(settings.items()))
        if key not in runs:
            runs[key] = tmp_path_factory.mktemp("finished")
            run(runs[key], inputs, **ONE_UPDATE | settings)
        return runs[key]

    return folder
