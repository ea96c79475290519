"""Verdicts as dicts, for the experiments that still change them; `klearlib.report.decide` gives
records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from klearlib.report import decide
from klearlib.report.decide import holm_in_notebook, is_paper_scale, measure
from klearlib.report.section import Comparison, Verdict

__all__ = [
    "decide_absolute",
    "decide_mechanism",
    "decide_ordering",
    "decide_stability",
    "holm_in_notebook",
    "is_paper_scale",
    "measure",
    "not_run",
]


def _as_dict(decide_claim: Callable[..., Verdict]) -> Callable[..., dict]:
    return lambda *args, **kwargs: asdict(decide_claim(*args, **kwargs))


decide_absolute = _as_dict(decide.decide_absolute)
decide_mechanism = _as_dict(decide.decide_mechanism)
decide_ordering = _as_dict(decide.decide_ordering)
decide_stability = _as_dict(decide.decide_stability)
not_run = _as_dict(decide.not_run)


def as_records(verdicts: list[dict]) -> list[Verdict]:
    """The verdicts as `klearlib.report.section.write_section` takes them."""
    return [
        Verdict(**{**each, "comparisons": tuple(Comparison(**c) for c in each["comparisons"])})
        for each in verdicts
    ]
