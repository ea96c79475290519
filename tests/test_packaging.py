"""One truth in several files: pyproject, lock, conda environment, doctor, changelog, imports."""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from datetime import date
from pathlib import Path

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

import klearlib
from klearlib.params.project import PARTS
from klearlib.scale import require
from klearlib.suite import doctor

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
LOCKED_EXTRAS = ("lab", "test")
# Module -> distribution: imported in klearlib/scale alone, and pinned in requirements-verl.lock.
OF_VERL = {
    "hydra": "hydra-core",
    "omegaconf": "omegaconf",
    "ray": "ray",
    "tensordict": "tensordict",
    "transfer_queue": "transferqueue",
    "verl": "verl",
}
OPTIONAL = {"tensorboard"}  # imported where it is asked for, with a line that names the extra


@pytest.fixture(scope="module")
def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def base(project) -> dict[str, Requirement]:
    return _by_name(project["dependencies"])


@pytest.fixture(scope="module")
def locked() -> dict[str, Requirement]:
    return _pins("requirements.lock")


def _pins(lock: str) -> dict[str, Requirement]:
    lines = (ROOT / lock).read_text().splitlines()
    return _by_name(line for line in lines if line and not line.startswith("#"))


def _by_name(lines) -> dict[str, Requirement]:
    requirements = [Requirement(line) for line in lines]
    found = {canonicalize_name(each.name): each for each in requirements}
    assert len(found) == len(requirements), "a distribution is named twice"
    return found


def _locked_version(requirement: Requirement) -> Version:
    (pin,) = requirement.specifier
    assert pin.operator == "==" and requirement.url is None and not requirement.extras
    version = Version(pin.version)
    assert version.local is None, f"{requirement}: a local build is on no index"
    return version


def _imported(folder: str) -> set[str]:
    """Top-level modules that are imported below `folder`, other than Python's own and ours."""
    modules = set().union(*map(_imported_by, (ROOT / folder).rglob("*.py")))
    return modules - set(sys.stdlib_module_names) - {"klearlib"}


@functools.cache
def _imported_by(path: Path) -> set[str]:
    modules = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules.add(node.module.partition(".")[0])
    return modules


def test_every_import_is_a_dependency_and_every_dependency_is_imported(base):
    distributions = importlib.metadata.packages_distributions()
    modules = _imported("klearlib") - OF_VERL.keys() - OPTIONAL
    assert {canonicalize_name(distributions[module][0]) for module in modules} == set(base)


def test_what_is_optional_has_an_extra_of_its_name(project):
    for name in OPTIONAL:
        assert _by_name(project["optional-dependencies"][name]).keys() == {name}


def test_the_tests_import_nothing_that_the_test_extra_lacks(project, base):
    extra = _by_name(project["optional-dependencies"]["test"])
    beside = {path.stem for path in (ROOT / "tests").rglob("*.py")}
    distributions = importlib.metadata.packages_distributions()
    # A package that a test writes itself is not installed here.
    modules = _imported("tests") - beside - OF_VERL.keys() - {"playwright"}
    modules = {module for module in modules if module in distributions}
    names = {canonicalize_name(distributions[module][0]) for module in modules}
    assert names <= set(base) | set(extra)


def test_verl_and_ray_are_imported_in_one_folder_and_pinned_in_a_lock_of_their_own(project, locked):
    folders = {path for path in (ROOT / "klearlib").iterdir() if path.is_dir()}
    for folder in folders - {ROOT / "klearlib" / "scale"}:
        assert not _imported(f"klearlib/{folder.name}") & OF_VERL.keys(), folder
    pins = _pins("requirements-verl.lock")
    assert set(OF_VERL.values()) <= pins.keys() and "torch" not in pins
    for name, pin in pins.items():
        version = _locked_version(pin)
        here = locked.get(name)
        # What requirements.lock has already stands here for another version, or for all Pythons.
        assert here is None or here.marker or version not in here.specifier, pin
    (extra,) = map(Requirement, project["optional-dependencies"]["ray"])
    assert extra.specifier == pins["ray"].specifier
    assert f"pip install '{extra}'" == require.INSTALL_RAY


def test_the_lock_covers_every_dependency_within_its_range(project, base, locked):
    wanted = list(base.values())
    for extra in LOCKED_EXTRAS:
        wanted += map(Requirement, project["optional-dependencies"][extra])
    for requirement in wanted:
        pin = locked[canonicalize_name(requirement.name)]
        assert pin.marker is None
        assert _locked_version(pin) in requirement.specifier, f"{pin} against {requirement}"


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_is_complete_on_every_python(base, locked, python):
    """With all that its own entries need: beside a torch that is lent, pip resolves nothing.

    What an entry needs is asked of the installed distribution; those of another Python are skipped.
    """
    environment = default_environment() | {
        "python_version": python,
        "python_full_version": f"{python}.1",
    }

    def applies(requirement: Requirement, extra: str = "") -> bool:
        marker = requirement.marker
        return marker is None or marker.evaluate(environment | {"extra": extra})

    there = {name: _locked_version(pin) for name, pin in locked.items() if applies(pin)}
    waiting = [(name, "") for name in there]
    waiting += [(name, extra) for name, each in base.items() for extra in each.extras]
    seen = set()
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen or name == "torch":  # torch pins what its builds need by itself
            continue
        seen.add((name, extra))
        try:
            needs = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            assert locked[name].marker is not None, f"{name} is locked and not installed"
            continue
        for need in map(Requirement, needs):
            if applies(need, extra):
                version = there.get(canonicalize_name(need.name))
                assert version is not None, f"{name}[{extra}] needs {need} on Python {python}"
                assert need.specifier.contains(version, prereleases=True), f"{name}: {need}"
                waiting += [(canonicalize_name(need.name), each) for each in need.extras]


def test_what_the_browser_needs_is_pinned_beside_the_lock(locked):
    pins = _pins("requirements-browser.lock")
    assert "playwright" in pins and not pins.keys() & locked.keys()
    assert all(map(_locked_version, pins.values()))


def test_python_versions_agree(project):
    oldest = project["requires-python"].removeprefix(">=")
    assert all(Version(python) in SpecifierSet(project["requires-python"]) for python in PYTHONS)
    ruff = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]
    assert ruff["target-version"] == f"py{oldest.replace('.', '')}"


def test_make_lends_the_torch_that_the_package_takes(base):
    text = (ROOT / "Makefile").read_text()
    low, high = re.search(r"near = \((\d+, \d+)\) <= .* < \((\d+, \d+)\)", text).groups()
    bounds = [each.replace(", ", ".") for each in (low, high)]
    assert base["torch"].specifier == SpecifierSet(">={},<{}".format(*bounds))


def test_conda_gets_the_same(project):
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    *packages, pip = environment["dependencies"]
    oldest = project["requires-python"].removeprefix(">=")
    assert environment["name"] == project["name"]
    assert packages == [f"python={oldest}", "pip", "git", "make"]
    assert pip == {"pip": ["-r requirements.lock", f"-e .[{','.join(LOCKED_EXTRAS)}]"]}
    assert set(LOCKED_EXTRAS) < set(project["optional-dependencies"])


def test_doctor_looks_for_every_dependency(base):
    assert {canonicalize_name(each.name) for each in doctor.needed()} == set(base)
    assert [each.name for each in doctor.needed("vllm")] == ["vllm"]


def test_the_version_is_the_changelogs_newest():
    entries = re.findall(r"^## (\S+) - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    entries = [entry for entry in entries if entry[1] != "unreleased"]
    versions = [Version(version) for version, _ in entries]
    days = [date.fromisoformat(day) for _, day in entries]
    assert str(versions[0]) == klearlib.__version__
    assert versions == sorted(versions, reverse=True) and days == sorted(days, reverse=True)


def test_all_files_of_the_package_are_in_its_data():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    declared = {
        path
        for package, patterns in settings["package-data"].items()
        for pattern in patterns
        for path in (ROOT / package.replace(".", "/")).glob(pattern)
    }
    beside = {
        path
        for path in (ROOT / "klearlib").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
        if path.suffix != ".py" and path.name[0] != "."
    }
    assert declared == beside


def test_a_wheel_begins_a_project_in_an_empty_folder(tmp_path):
    """Built without its own environment; its files are imported from where they were unpacked."""
    source, unpacked, empty = (tmp_path / name for name in ("source", "unpacked", "empty"))
    empty.mkdir()
    for name in ("klearlib", *PARTS):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    how = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--wheel-dir", tmp_path]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *how, source], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(unpacked)
    environment = {k: v for k, v in os.environ.items() if k != "KLEAR_ROOT"}
    environment["PYTHONPATH"] = str(unpacked)

    def klear(*words):
        command = [sys.executable, "-m", "klearlib.cli", *words]
        how = {"capture_output": True, "text": True, "env": environment, "cwd": empty}
        return subprocess.run(command, **how)

    assert "run inside a clone" in klear("status").stderr and not [*empty.iterdir()]
    planned = klear("plan", "--profile", "smoke")
    assert planned.returncode == 0, planned.stderr
    assert planned.stdout.startswith(f"new project in {empty}") and "12_rules" in planned.stdout
    for name in PARTS:
        copied = {path.relative_to(empty) for path in (empty / name).rglob("*") if path.is_file()}
        hidden = {path for path in copied if path.name.startswith(".")}
        there = {path.relative_to(ROOT) for path in (ROOT / name).rglob("*") if path.is_file()}
        wanted = {path for path in there if not any(part[0] == "." for part in path.parts)}
        assert copied == wanted and not hidden
    shutil.rmtree(empty / "params")  # what holds half a project is left alone
    assert "run inside a clone" in klear("plan", "--profile", "smoke").stderr
