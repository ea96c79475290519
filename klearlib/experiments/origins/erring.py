"""The miniature with a teacher that errs in one way alone, for notebook 11."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from klearlib.experiments.origins.miniature import MiniatureOrigin
from klearlib.params import DataMiniatureParams, DataOptions

KINDS = ("habit", "random")
TEACHER = "weak"
"""The teacher that errs; the others do not."""
_ERRS = ("slip_share", "step_noise")


class ErringOrigin(MiniatureOrigin):
    """Its teacher has the habits of the profile's weak teacher and no other error ("habit"), or no
    habit and errs at any step, half as often as those do ("random"); it learns as long as the
    middle teacher. As often, it was right in 37 % of easy responses where the other was in 65 %,
    too few to choose from."""

    def __init__(self, kind: str, profile: str, options: DataOptions, world: int):
        super().__init__(profile, options, world)
        assert kind in KINDS, kind
        self.kind = kind

    @cached_property
    def _data(self) -> DataMiniatureParams:
        found = self._load("data_miniature")
        share, often = found.weak_slip_share, found.weak_slip_share * found.slip_rate / 2
        habits, noise = (share, 0.0) if self.kind == "habit" else (0.0, often)
        others = {f"{who}_{how}": 0.0 for who in ("middle", "strong") for how in _ERRS}
        weak = {f"weak_{how}": value for how, value in zip(_ERRS, (habits, noise), strict=True)}
        return replace(found, **others, **weak, weak_steps=found.middle_steps)
