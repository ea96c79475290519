"""What the experiments of a profile start from: the embedded world, or a real model and the paper's
data sets. Both are made of stages, and no experiment needs to know which it has."""

from __future__ import annotations

from klearlib.experiments.origins.base import DOMAIN_WORDS, Joint, Origin, Start, wrong_words
from klearlib.params import DataOptions, is_real

__all__ = ["DOMAIN_WORDS", "Joint", "Origin", "Start", "origin", "wrong_words"]


def origin(profile: str, options: DataOptions | None = None) -> Origin:
    """What the experiments of `profile` start from. options: of curation, where a
    notebook has them.

    Raises:
        ParameterError: a file of the profile is absent, incomplete or wrong.
    """
    # Either brings what the other does without: readers of real data sets, writers of small ones.
    if is_real(profile):
        from klearlib.experiments.origins.real import RealOrigin

        return RealOrigin(profile, options)
    from klearlib.experiments.origins.miniature import MiniatureOrigin

    return MiniatureOrigin(profile, options)
