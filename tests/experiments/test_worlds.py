"""Replicates that are worlds of their own, by the design of statistics.yaml."""

from __future__ import annotations

import pytest

from klearlib.errors import ParameterError
from klearlib.experiments.catalogue import check, experiment_of
from klearlib.experiments.origins import origin, origins
from klearlib.params import load_profile
from klearlib.run.stage import with_inputs

WORLDS = ("world", "code_world", "joint_world", "sources")
COMPARED = (
    "02_data_correctness",
    "04_topk_diversity",
    "05_clipping",
    "08_test_filter",
    "09_zero_advantage",
    "10_headline",
)


def arms(notebook: str) -> dict:
    values = load_profile("smoke", notebook) | {"seeds": [0, 1]}
    return experiment_of(notebook)(check(notebook, values)).arms


def worlds_of(stage) -> set[str]:
    """The keys of all worlds that a run comes from."""
    return {s.key for s in with_inputs([stage]).values() if s.name in WORLDS}


@pytest.mark.parametrize("notebook", COMPARED)
def test_each_replicate_has_its_own_worlds_and_the_first_is_the_one_world(project, notebook):
    shared = arms(notebook)
    path = project / "params" / "smoke" / "statistics.yaml"
    path.write_text(path.read_text().replace("design: one_world", "design: worlds"))
    own = arms(notebook)
    assert own.keys() == shared.keys()
    for (series, seed), stage in own.items():
        assert (stage.key == shared[series, seed].key) == (seed == 0)
        mine, theirs = worlds_of(stage), worlds_of(own[series, 1 - seed])
        assert mine and not mine & theirs
        assert worlds_of(shared[series, 0]) == worlds_of(shared[series, 1])


def test_one_world_is_one_object_whose_stages_are_made_once(project):
    found = origins("smoke", [0, 1, 2])
    assert len({id(each) for each in found.values()}) == 1


def test_real_data_are_one_world(project):
    with pytest.raises(ParameterError, match="set design: one_world"):
        origin("qwen", world=1)
