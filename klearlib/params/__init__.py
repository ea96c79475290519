"""Typed, strict parameters: one frozen record per notebook, checked before anything is computed.

>>> check("05_clipping", {"num_steps": 2}).num_steps
2
"""

from __future__ import annotations

from klearlib.params.data import SFTPhase
from klearlib.params.fields import check_values, did_you_mean, missing_assets, parameters_cell
from klearlib.params.files import (
    check,
    is_real,
    load,
    load_profile,
    notebooks_of,
    profiles,
    record_of,
    require_profile,
    root,
    uses_miniature,
    worlds_of,
)
from klearlib.params.notebooks import NOTEBOOKS
from klearlib.params.options import LOCAL, VERL, DataOptions, FilterOptions, RLOptions
from klearlib.params.real import RealParams
from klearlib.params.rl import CodeRLParams
from klearlib.params.worlds import (
    CodeMiniatureParams,
    DataMiniatureParams,
    JointMiniatureParams,
    MiniatureParams,
)

__all__ = [
    "LOCAL",
    "NOTEBOOKS",
    "VERL",
    "CodeMiniatureParams",
    "CodeRLParams",
    "DataMiniatureParams",
    "DataOptions",
    "FilterOptions",
    "JointMiniatureParams",
    "MiniatureParams",
    "RLOptions",
    "RealParams",
    "SFTPhase",
    "check",
    "check_values",
    "did_you_mean",
    "is_real",
    "load",
    "load_profile",
    "missing_assets",
    "notebooks_of",
    "parameters_cell",
    "profiles",
    "record_of",
    "require_profile",
    "root",
    "uses_miniature",
    "worlds_of",
]
