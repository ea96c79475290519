"""The worlds that several files look at, each made once; no test may change them."""

import pytest


@pytest.fixture(scope="session")
def worlds(made_once):
    """A function that gives the folder of a world of `made_worlds.WORLDS`."""
    from made_worlds import WORLDS, build

    def folder(name):
        def fill(path):
            build(name, path, inputs_of(name))

        return made_once(f"{name} world", fill)

    def inputs_of(name):
        return {key: folder(world) for key, world in WORLDS[name][2].items()}

    folder.inputs_of = inputs_of
    return folder
