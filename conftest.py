"""A project without results for all tests and doctests, and what pytest leaves out where verl is
not installed: the modules that only verl's processes import."""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

CLONE = Path(__file__).resolve().parent
SCALE = CLONE / "klearlib" / "scale"
LINKED = ("params", "notebooks")
PROJECT = pytest.StashKey[Path]()
OF_VERL = ("hydra", "omegaconf", "ray", "tensordict", "transfer_queue", "verl")


def at_the_top(path: Path) -> set[str]:
    """The modules that a file imports as soon as it is imported itself."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def needing_verl() -> list[str]:
    """The files of klearlib/scale that cannot be imported without verl."""
    imported = {f"klearlib.scale.{path.stem}": at_the_top(path) for path in SCALE.glob("*.py")}
    found: set[str] = set()
    while more := {
        name
        for name, names in imported.items()
        if name not in found and any(n in found or n.partition(".")[0] in OF_VERL for n in names)
    }:
        found |= more
    return sorted(str(SCALE / f"{name.rpartition('.')[2]}.py") for name in found)


collect_ignore = [] if importlib.util.find_spec("verl") else needing_verl()


def pytest_configure(config):
    # A shell that starts this in the background has it ignored, in all that tests start too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.fsync = lambda handle: None  # waits for the disk, and matters for power cuts alone
    # Nobody's results decide what a test sees: a stage that is done here would be skipped there.
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        project = Path(os.environ["KLEAR_ROOT"], worker)
        # A test that looks for what is left behind does not see what the other worker is doing.
        temporary = project / "tmp"
        temporary.mkdir(parents=True)
        temporary.chmod(0o1777)
        os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    else:
        project = Path(tempfile.mkdtemp(prefix="klear-tests-"))
    project.chmod(0o755)  # some tests are another user's
    for name in LINKED:
        (project / name).symlink_to(CLONE / name)
    config.stash[PROJECT] = project
    os.environ["KLEAR_ROOT"] = str(project)


def pytest_unconfigure(config):
    # Those of the workers are in it, and they have ended.
    if "PYTEST_XDIST_WORKER" not in os.environ:
        shutil.rmtree(config.stash[PROJECT], ignore_errors=True)


@pytest.fixture(autouse=True)
def nothing_written_into_the_shared_project(request):
    yield
    left = [
        path
        for path in request.config.stash[PROJECT].iterdir()
        if path.name not in (*LINKED, "tmp")
    ]
    for path in left:
        shutil.rmtree(path, ignore_errors=True)
    assert not left, "the test needs a project of its own, in tmp_path"
