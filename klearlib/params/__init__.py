"""Typed, strict parameters: one frozen record per notebook, checked before anything is computed.

>>> check("05_clipping", {"num_steps": 2}).num_steps
2
"""

from __future__ import annotations

from klearlib.errors import ParameterError
from klearlib.params.checking import check_values, did_you_mean, missing_assets, parameters_cell
from klearlib.params.declared import (
    NOTEBOOKS,
    ClippingParams,
    CodeRLParams,
    FilterOptions,
    OverviewParams,
    RLOptions,
    SoftRewardParams,
    TestFilterParams,
)
from klearlib.params.declared_data import (
    CorrectnessParams,
    CurationParams,
    DataOptions,
    TeacherParams,
    TopKParams,
)
from klearlib.params.declared_headline import HeadlineParams
from klearlib.params.declared_maths import AlphaSweepParams, ZeroAdvantageParams
from klearlib.params.files import (
    CODE_WORLD_FILE,
    DATA_WORLD_FILE,
    JOINT_WORLD_FILE,
    WORLD_FILE,
    load_profile,
    notebooks_of,
    profiles,
    require_profile,
    root,
    world_values,
)
from klearlib.params.worlds import (
    CodeMiniatureParams,
    DataMiniatureParams,
    JointMiniatureParams,
    MiniatureParams,
)

__all__ = [
    "NOTEBOOKS",
    "WORLDS",
    "AlphaSweepParams",
    "ClippingParams",
    "CodeMiniatureParams",
    "CodeRLParams",
    "CorrectnessParams",
    "CurationParams",
    "DataMiniatureParams",
    "DataOptions",
    "FilterOptions",
    "HeadlineParams",
    "JointMiniatureParams",
    "MiniatureParams",
    "OverviewParams",
    "RLOptions",
    "SoftRewardParams",
    "TeacherParams",
    "TestFilterParams",
    "TopKParams",
    "ZeroAdvantageParams",
    "check",
    "code_miniature",
    "data_miniature",
    "joint_miniature",
    "load_profile",
    "miniature",
    "missing_assets",
    "notebooks_of",
    "parameters_cell",
    "profiles",
    "record_of",
    "require_profile",
    "root",
    "worlds_of",
]


def record_of(notebook: str) -> type:
    """The record that declares the parameters of `notebook`.

    Raises:
        ParameterError: no notebook of this name declares parameters.
    """
    if notebook not in NOTEBOOKS:
        raise ParameterError(f"unknown notebook {notebook!r}; {did_you_mean(notebook, NOTEBOOKS)}")
    return NOTEBOOKS[notebook]


def check(notebook: str, values: dict) -> OverviewParams | ClippingParams | CodeRLParams:
    """The record of `notebook` with `values`; what is absent takes its default, smoke's value.

    Raises:
        ParameterError: an unknown name (with the nearest known one), a wrong type, a value out of
            range, an unknown profile. One line, which names the parameter and the fix.
    """
    params = check_values(record_of(notebook), values, notebook)
    require_profile(params.profile)
    return params


def miniature(profile: str) -> MiniatureParams:
    """The embedded world of `profile`, from ``params/<profile>/miniature.yaml``; all are required.

    Raises:
        ParameterError: the file is absent, incomplete or wrong.
    """
    values = world_values(profile, WORLD_FILE)
    return check_values(MiniatureParams, values, f"{profile}/{WORLD_FILE}")


def code_miniature(profile: str) -> CodeMiniatureParams:
    """The code part of the embedded world of `profile`, from
    ``params/<profile>/code_miniature.yaml``; all are required.

    Raises:
        ParameterError: the file is absent, incomplete or wrong.
    """
    values = world_values(profile, CODE_WORLD_FILE)
    return check_values(CodeMiniatureParams, values, f"{profile}/{CODE_WORLD_FILE}")


def data_miniature(profile: str) -> DataMiniatureParams:
    """The sources and teachers of `profile`, from ``params/<profile>/data_miniature.yaml``; all are
    required.

    Raises:
        ParameterError: the file is absent, incomplete or wrong.
    """
    values = world_values(profile, DATA_WORLD_FILE)
    return check_values(DataMiniatureParams, values, f"{profile}/{DATA_WORLD_FILE}")


def joint_miniature(profile: str) -> JointMiniatureParams:
    """The model of `profile` that learns both mathematics and code, from
    ``params/<profile>/joint_miniature.yaml``; all are required.

    Raises:
        ParameterError: the file is absent, incomplete or wrong.
    """
    values = world_values(profile, JOINT_WORLD_FILE)
    return check_values(JointMiniatureParams, values, f"{profile}/{JOINT_WORLD_FILE}")


WORLDS = {
    "miniature": miniature,
    "code_miniature": code_miniature,
    "data_miniature": data_miniature,
    "joint_miniature": joint_miniature,
}
"""The embedded worlds by the name under which a notebook's parameters ask for them (``worlds``)."""


def worlds_of(
    params,
) -> dict[str, MiniatureParams | CodeMiniatureParams | DataMiniatureParams | JointMiniatureParams]:
    """The worlds of its profile that a notebook with these parameters needs, by file name.

    Raises:
        ParameterError: the profile has no such file, or it is incomplete or wrong.
    """
    names = getattr(params, "worlds", ())
    return {f"{name}.yaml": WORLDS[name](params.profile) for name in names}
