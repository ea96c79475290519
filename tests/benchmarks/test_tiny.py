"""Every script of benchmarks/ runs with --tiny, and leaves nothing behind."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WARM_START = Path(__file__).with_name("warm_start.py")
SCRIPTS = sorted(
    path.name
    for path in (ROOT / "benchmarks").glob("*.py")
    if "__main__" in path.read_text(encoding="utf-8")
)


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A copy of what the scripts need: nobody else writes into it meanwhile."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("benchmarks", "klearlib", "notebooks", "params", "tests"):
        shutil.copytree(ROOT / name, folder / name)
    for path in (ROOT / "results").glob("*/*/replicates.csv"):
        (folder / path.relative_to(ROOT)).parent.mkdir(parents=True)
        shutil.copy(path, folder / path.relative_to(ROOT))
    return folder


@pytest.fixture(scope="module")
def run(clone):
    """A function that runs a script with --tiny: exit code and output."""
    with subprocess.Popen(
        [sys.executable, WARM_START],
        cwd=clone,
        env=os.environ | {"KLEAR_ROOT": str(clone), "PYTHONPATH": str(clone)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:

        def run(script, folder):
            print(clone / "benchmarks" / script, folder, "--tiny", file=process.stdin, flush=True)
            code = int(process.stdout.readline())
            return code, (folder / "output.txt").read_text(encoding="utf-8")

        yield run
        os.killpg(process.pid, signal.SIGKILL)


def files(folder):
    return {
        path: (path.stat().st_size, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }


# Those that take 7 to 20 s; the check of a change (.ci/run) has them too.
SLOW = {
    *("kills.py", "same_cell.py"),
    *("sampling_speed.py", "answer_judges.py", "rl_round.py"),
}


@pytest.mark.parametrize(
    "script", [pytest.param(s, marks=pytest.mark.slow if s in SLOW else ()) for s in SCRIPTS]
)
def test_it_runs_and_keeps_nothing(script, run, clone, tmp_path):
    before = files(clone)
    code, output = run(script, tmp_path)
    assert code == 0, output
    assert files(clone) == before
    # torch has a cache there.
    left = [path.name for path in tmp_path.iterdir() if "torchinductor" not in path.name]
    assert left == ["output.txt"]
