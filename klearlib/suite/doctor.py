"""What this machine has and lacks, each lack with one line that fixes it."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from dataclasses import dataclass

from klearlib.errors import KlearError
from klearlib.params import SMOKE, profiles
from klearlib.policy.compute import INSTALL_VLLM
from klearlib.run.provenance import version
from klearlib.scale.require import INSTALL_RAY, INSTALL_VERL
from klearlib.suite.checks import readable, this_machine
from klearlib.suite.plan import plan, weighed
from klearlib.verify.sandbox import active_tier

OLDEST_PYTHON = (3, 11)


@dataclass(frozen=True)
class Finding:
    """One thing looked at: `found` says what there is, `fix` how to fix a lack ("" where none).

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
    """All findings, those about this machine first and then those about the profiles."""
    wanted, has = (".".join(map(str, each)) for each in (OLDEST_PYTHON, sys.version_info[:3]))
    old = "" if sys.version_info >= OLDEST_PYTHON else f"install Python {wanted} or newer"
    packages = [_package(name, "pip install -e .", required=True) for name in needed()]
    here = [Finding("Python", has, old, required=True), *packages, *_optional(), _sandbox()]
    try:
        return here + [_profile(name) for name in profiles()]
    except KlearError as error:
        return [*here, Finding("project", "not found", str(error), required=True)]


def needed() -> list[str]:
    """The packages that klear declares as its dependencies, without those of extras."""
    declared = importlib.metadata.requires("klear") or []
    return [re.match(r"[\w.-]+", each)[0] for each in declared if "extra ==" not in each]


def can_run_smoke(findings: list[Finding]) -> bool:
    """Whether nothing that the smoke profile needs is missing."""
    return not any(finding.fix and finding.required for finding in findings)


def _package(name: str, fix: str, required: bool = False) -> Finding:
    found = version(name)
    return Finding(name, found or "not installed", "" if found else fix, required)


def _optional() -> list[Finding]:
    """GPUs, and the packages for them and for clusters."""
    machine = this_machine()
    cards = ", ".join(map(readable, machine.gpus))
    gpu = "needed beyond mini: use a machine with an NVIDIA GPU and a CUDA build of torch"
    reason = "this torch is built without CUDA" if machine.torch_without_cuda else "no GPU"
    verl = f"only needed for engine: verl: {INSTALL_VERL}" if machine.verl_lacks else ""
    return [
        Finding("GPU", cards or reason, "" if cards else gpu),
        _package("vllm", f"only needed for engine: vllm: {INSTALL_VLLM}"),
        _package("ray", f"only needed for --workers ray: {INSTALL_RAY}"),
        Finding("verl", machine.verl_lacks or version("verl") or "", verl),
    ]


def _sandbox() -> Finding:
    """The isolation in which programs run, and why it is not a stronger one."""
    try:
        tier = active_tier()
    except KlearError as error:
        return Finding("sandbox", "none works", str(error), required=True)
    found = f"{tier.name} ({tier.detail})" if tier.detail else tier.name
    open_ = "programs run without isolation: use Linux 5.13 or newer with landlock"
    return Finding("sandbox", found, open_ if tier.name == "none" else "")


def _profile(name: str) -> Finding:
    """Whether its parameters are valid, and what keeps it from finishing on this machine, in the
    words of ``klear plan``, or how many things do."""
    try:
        missing = weighed(name, plan(name)).missing
    except KlearError as error:
        missing = [str(error)]
    fix = "".join(missing)
    if len(missing) > 1:
        fix = f"{len(missing)} things are missing: klear plan --profile {name} names them"
    ready = "not ready" if missing else "ready"
    return Finding(f"profile {name}", ready, fix, required=name == SMOKE)
