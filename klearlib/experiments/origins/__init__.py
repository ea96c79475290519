"""What the experiments of a profile start from: the embedded world, or a real model and the paper's
data sets. Both consist of stages, and no experiment needs to know which it has."""

from __future__ import annotations

from collections.abc import Sequence

from klearlib.errors import ParameterError
from klearlib.experiments.origins.base import DOMAIN_WORDS, Joint, Origin, Start, wrong_words
from klearlib.params import STATISTICS, DataOptions, is_real, load
from klearlib.params.statistics import WORLDS

__all__ = ["DOMAIN_WORDS", "Joint", "Origin", "Start", "origin", "origins", "wrong_words"]


def origins(
    profile: str, seeds: Sequence[int], options: DataOptions | None = None
) -> dict[int, Origin]:
    """Seed -> what that replicate of an experiment starts from: one for all of them, or, by the
    design of the profile's statistics.yaml, a world of its own for each.

    Raises:
        ParameterError: as `origin`.
    """
    if load(profile, STATISTICS).design == WORLDS:
        return {seed: origin(profile, options, world=seed) for seed in seeds}
    return dict.fromkeys(seeds, origin(profile, options))


def origin(profile: str, options: DataOptions | None = None, *, world: int = 0) -> Origin:
    """What the experiments of `profile` start from. options: of curation, where a notebook has
    them. world: added to all seeds of worlds.yaml.

    Raises:
        ParameterError: a file of the profile is missing, incomplete or wrong; or real data are to
            have more than one world.
    """
    # Each imports what the other does not need: readers of real data sets, writers of small ones.
    if is_real(profile):
        if world:
            raise ParameterError(
                f"params/{profile}/statistics.yaml: real data are one world: set design: one_world"
            )
        from klearlib.experiments.origins.real import RealOrigin

        return RealOrigin(profile, options)
    from klearlib.experiments.origins.miniature import MiniatureOrigin

    return MiniatureOrigin(profile, options, world)
