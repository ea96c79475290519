"""Typed, strict parameters: one frozen record per notebook, checked before anything is computed."""

from __future__ import annotations

from klearlib.errors import did_you_mean
from klearlib.params.data import SFTPhase
from klearlib.params.fields import check_values, parameters_cell
from klearlib.params.files import (
    SMOKE,
    STATISTICS,
    files_of,
    is_real,
    load,
    load_profile,
    profiles,
    require_profile,
    uses_miniature,
    worlds_of,
)
from klearlib.params.options import LOCAL, VERL, DataOptions, FilterOptions, RLOptions
from klearlib.params.project import root
from klearlib.params.real import RealParams
from klearlib.params.worlds import (
    CodeMiniatureParams,
    DataMiniatureParams,
    JointMiniatureParams,
    MiniatureParams,
)

__all__ = [
    "LOCAL",
    "SMOKE",
    "STATISTICS",
    "VERL",
    "CodeMiniatureParams",
    "DataMiniatureParams",
    "DataOptions",
    "FilterOptions",
    "JointMiniatureParams",
    "MiniatureParams",
    "RLOptions",
    "RealParams",
    "SFTPhase",
    "check_values",
    "did_you_mean",
    "files_of",
    "is_real",
    "load",
    "load_profile",
    "parameters_cell",
    "profiles",
    "require_profile",
    "root",
    "uses_miniature",
    "worlds_of",
]
