"""docs/klear.slurm and docs/klear-verl.slurm with stand-ins of Slurm, Ray and klear.

A signal saves, requeues, goes on; for verl Ray is on all nodes first, and ends with klear, whose
end is the job's.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
ONE, VERL = DOCS / "klear.slurm", DOCS / "klear-verl.slurm"
ENVIRONMENT = {ONE: ".venv", VERL: ".venv-verl"}
# srun notes its options and runs the command here, on "another" node.
SRUN = """while [ "${1#-}" != "$1" ]; do
  [ "$1" = -w ] && { echo "on $2" >> "$NOTES/srun"; shift; }
  echo "$1" >> "$NOTES/srun"
  shift
done
[ "$1" = hostname ] && { echo 10.0.0.1 10.1.0.1; exit 0; }
exec "$@"
"""
RAY = """[ "$1" = get-auth-token ] && { echo secret; exit 0; }
echo "$@" >> "$NOTES/ray"
echo "$RAY_AUTH_MODE $RAY_AUTH_TOKEN" >> "$NOTES/tokens"
trap 'echo ended >> "$NOTES/ray"; exit 0' TERM
for _ in $(seq 600); do sleep 0.05; done
"""
SCONTROL = """[ "$1" = show ] && { printf 'n1\\nn2\\nn3\\n'; exit 0; }
echo "$@" > "$NOTES/requeued"
"""
JOINS = """echo "$RAY_ADDRESS $3" >> "$NOTES/asked"
[ "$(wc -l < "$NOTES/asked")" -ge 3 ]
"""
NOTES_ARGUMENTS = 'echo "$@" $RAY_ADDRESS $KLEAR_STOP_GRACE_S > "$NOTES/arguments"'
WAITS = f"""trap 'sleep 0.3; echo saved >> "$NOTES/state"; exit 143' TERM
{NOTES_ARGUMENTS}
for _ in $(seq 300); do sleep 0.05; done"""


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def start(tmp_path):
    for name, text in (("scontrol", SCONTROL), ("srun", SRUN)):
        put(tmp_path / "bin" / name, text)
    for name, text in (("ray", RAY), ("python", JOINS)):
        put(tmp_path / ".venv-verl" / "bin" / name, text)
    keep = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    variables = keep | {
        "PATH": f"{tmp_path / 'bin'}:{keep['PATH']}",
        "NOTES": str(tmp_path),
        "SLURM_SUBMIT_DIR": str(tmp_path),
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "n[1-3]",
        "SLURM_JOB_NUM_NODES": "3",
        "KLEAR_POLL_S": "0.05",
    }

    def begin(script: Path, klear: str, *arguments: str, **more: str) -> subprocess.Popen:
        put(tmp_path / ENVIRONMENT[script] / "bin" / "klear", klear)
        return subprocess.Popen(["bash", script, *arguments], env=variables | more)

    return begin


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def wait_until(condition) -> None:
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("script", "arguments", "told"),
    [
        (ONE, ["mini", "--workers", "4"], "run --profile mini --workers 4 840"),
        (VERL, [], "run --profile paper 10.0.0.1:6379 1800"),
    ],
)
def test_a_signal_reaches_klear_which_saves_and_the_job_is_requeued(
    start, tmp_path, script, arguments, told
):
    job = start(script, WAITS, *arguments)
    wait_until((tmp_path / "arguments").exists)
    job.send_signal(signal.SIGTERM)  # to the script alone, as --signal=B: does
    assert job.wait(timeout=20) == 143
    assert lines(tmp_path / "state") == ["saved"]
    assert lines(tmp_path / "requeued") == ["requeue 7"]
    assert lines(tmp_path / "arguments") == [told]


@pytest.mark.parametrize("code", [0, 1, 2])
@pytest.mark.parametrize("script", [ONE, VERL])
def test_an_end_of_its_own_is_the_jobs_end(start, tmp_path, script, code):
    assert start(script, f"exit {code}").wait(timeout=20) == code
    assert not (tmp_path / "requeued").exists()


@pytest.mark.parametrize("script", [ONE, VERL])
def test_the_signal_comes_before_the_stages_are_killed(script):
    text = script.read_text()
    (lead,) = re.findall(r"^#SBATCH --signal=B:TERM@(\d+)$", text, re.MULTILINE)
    (grace,) = re.findall(r"KLEAR_STOP_GRACE_S:-(\d+)", text)
    assert int(lead) >= int(grace) + 60
    if script == ONE:
        page = (DOCS / "gpu.md").read_text()
        assert f"a signal {lead} seconds before" in page and f"\n{grace} of them" in page


def test_the_script_asks_for_no_number_of_stages_by_itself(start, tmp_path):
    assert start(ONE, NOTES_ARGUMENTS, "mini").wait(timeout=20) == 0
    assert lines(tmp_path / "arguments") == ["run --profile mini 840"]


def test_klear_starts_when_all_nodes_have_joined_and_ray_ends_with_it(start, tmp_path):
    assert start(VERL, NOTES_ARGUMENTS, "paper", "--only", "05").wait(timeout=20) == 0
    (told,) = lines(tmp_path / "arguments")
    assert told == "run --profile paper --only 05 10.0.0.1:6379 1800"
    assert lines(tmp_path / "asked") == ["10.0.0.1:6379 3"] * 3
    starts = [line for line in lines(tmp_path / "ray") if line.startswith("start")]
    assert set(starts) == {
        "start --head --node-ip-address=10.0.0.1 --port=6379 --block",
        "start --address=10.0.0.1:6379 --block",
    }
    assert lines(tmp_path / "tokens") == ["token secret"] * 2
    assert {"on n1", "--nodes=2", "--ntasks=2", "--exclude=n1"} <= set(lines(tmp_path / "srun"))
    wait_until(lambda: lines(tmp_path / "ray").count("ended") == 2)
    assert lines(tmp_path / "ray").count("ended") == 2
    assert not (tmp_path / "requeued").exists()


def test_one_node_has_no_others(start, tmp_path):
    assert start(VERL, "exit 0", SLURM_JOB_NUM_NODES="1").wait(timeout=20) == 0
    assert len([line for line in lines(tmp_path / "ray") if line.startswith("start")]) == 1


def test_nodes_that_do_not_join_end_the_job(start, tmp_path):
    put(tmp_path / ".venv-verl" / "bin" / "python", "exit 1")
    assert start(VERL, NOTES_ARGUMENTS, KLEAR_POLL_S="0.01").wait(timeout=30) == 1
    assert not (tmp_path / "arguments").exists()


def test_the_job_asks_for_the_nodes_of_the_profile():
    from klearlib.params import VERL as SECTION
    from klearlib.params import load

    text, cluster = VERL.read_text(), load("paper", SECTION)
    assert f"#SBATCH --nodes={cluster.nodes}\n" in text
    assert f"#SBATCH --gpus-per-node={cluster.gpus_per_node}\n" in text
