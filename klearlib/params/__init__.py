"""Typed, strict parameters: one frozen record per notebook, checked before anything is computed.

>>> check("05_clipping", {"num_steps": 2}).num_steps
2
"""

from __future__ import annotations

from klearlib.errors import ParameterError
from klearlib.params.checking import check_values, did_you_mean, missing_assets, parameters_cell
from klearlib.params.cluster import ClusterParams
from klearlib.params.compute import ComputeParams
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
from klearlib.params.declared_options import LOCAL, VERL
from klearlib.params.files import (
    CODE_WORLD_FILE,
    COMPUTE_FILE,
    DATA_WORLD_FILE,
    JOINT_WORLD_FILE,
    REAL_FILE,
    VERL_FILE,
    WORLD_FILE,
    is_real,
    load_profile,
    notebooks_of,
    profiles,
    require_profile,
    root,
    world_values,
)
from klearlib.params.real import RealParams
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
    "ClusterParams",
    "CodeMiniatureParams",
    "CodeRLParams",
    "ComputeParams",
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
    "RealParams",
    "SoftRewardParams",
    "TeacherParams",
    "TestFilterParams",
    "TopKParams",
    "ZeroAdvantageParams",
    "check",
    "cluster_of",
    "code_miniature",
    "compute_of",
    "data_miniature",
    "is_real",
    "joint_miniature",
    "load_profile",
    "miniature",
    "missing_assets",
    "notebooks_of",
    "parameters_cell",
    "profiles",
    "real_of",
    "record_of",
    "require_profile",
    "root",
    "uses_miniature",
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


def real_of(profile: str) -> RealParams:
    """The real model and the data sets of `profile`, from ``params/<profile>/real.yaml``; all are
    required.

    Raises:
        ParameterError: the file is absent, incomplete or wrong.
    """
    return check_values(RealParams, world_values(profile, REAL_FILE), f"{profile}/{REAL_FILE}")


def compute_of(profile: str) -> ComputeParams:
    """How the stages of `profile` compute, from ``params/<profile>/compute.yaml``; all are
    required.

    Raises:
        ParameterError: the file is absent, incomplete or wrong.
    """
    values = world_values(profile, COMPUTE_FILE)
    return check_values(ComputeParams, values, f"{profile}/{COMPUTE_FILE}")


def cluster_of(profile: str) -> ClusterParams:
    """How verl trains in `profile`, from ``params/<profile>/verl.yaml``; all are required.

    Raises:
        ParameterError: the file is absent, incomplete or wrong.
    """
    return check_values(ClusterParams, world_values(profile, VERL_FILE), f"{profile}/{VERL_FILE}")


WORLDS = {
    "miniature": miniature,
    "code_miniature": code_miniature,
    "data_miniature": data_miniature,
    "joint_miniature": joint_miniature,
}
"""The embedded worlds by the name under which a notebook's parameters ask for them (``worlds``)."""


def worlds_of(params) -> dict[str, object]:
    """The worlds of its profile that a notebook with these parameters needs, and how its stages
    compute, by file name; empty for a notebook that needs no world. A profile with a real model has
    that in the place of all others; the cluster is among them where verl trains.

    Raises:
        ParameterError: the profile has no such file, or it is incomplete or wrong.
    """
    names = getattr(params, "worlds", ())
    if names and is_real(params.profile):
        found: dict[str, object] = {REAL_FILE: real_of(params.profile)}
    else:
        found = {f"{name}.yaml": WORLDS[name](params.profile) for name in names}
    if not found:
        return {}
    if getattr(params, "engine", LOCAL) == VERL:
        found[VERL_FILE] = cluster_of(params.profile)
    return found | {COMPUTE_FILE: compute_of(params.profile)}


def uses_miniature(params) -> bool:
    """Whether a notebook with these parameters runs in the embedded world: what it measures there
    only stands for the paper's models and benchmarks."""
    return bool(getattr(params, "worlds", ())) and not is_real(params.profile)
