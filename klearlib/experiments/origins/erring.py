"""The miniature with teachers that err in one way each, for notebook 11."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from klearlib.experiments.origins.miniature import MiniatureOrigin
from klearlib.params import DataMiniatureParams

HABIT, RANDOM = "weak", "strong"
"""The teachers whose places they take."""


class ErringOrigin(MiniatureOrigin):
    """``weak`` has the habits of the profile's weak teacher and errs in nothing else; ``strong``
    has none and errs at any step, as often as those habits do. Both learn as long as ``middle``."""

    @cached_property
    def _data(self) -> DataMiniatureParams:
        found = self._load("data_miniature")
        steps = dict.fromkeys((f"{HABIT}_steps", f"{RANDOM}_steps"), found.middle_steps)
        noise = found.weak_slip_share * found.slip_rate
        return replace(
            found, weak_step_noise=0.0, strong_slip_share=0.0, strong_step_noise=noise, **steps
        )
