"""docs/klear.slurm with stand-ins of klear and scontrol: a signal saves, requeues, goes on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "docs" / "klear.slurm"
WAITS = """trap 'sleep 0.3; echo saved >> state; exit 143' TERM
echo "$@" $KLEAR_STOP_GRACE_S > arguments
for _ in $(seq 300); do sleep 0.05; done"""


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def start(tmp_path):
    put(tmp_path / "bin" / "scontrol", f'echo "$@" > {tmp_path}/requeued')
    variables = {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "SLURM_SUBMIT_DIR": str(tmp_path),
        "SLURM_JOB_ID": "7",
    }

    def begin(klear: str, *arguments: str) -> subprocess.Popen:
        put(tmp_path / ".venv" / "bin" / "klear", klear)
        return subprocess.Popen(["bash", SCRIPT, "mini", *arguments], env=variables)

    return begin


def test_a_signal_reaches_klear_which_saves_and_the_job_is_requeued(start, tmp_path):
    job = start(WAITS, "--workers", "4")
    deadline = time.monotonic() + 20
    while not (tmp_path / "arguments").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    job.send_signal(signal.SIGTERM)  # to the script alone, as --signal=B: does
    assert job.wait(timeout=20) == 143
    assert (tmp_path / "state").read_text() == "saved\n"
    assert (tmp_path / "requeued").read_text() == "requeue 7\n"
    assert (tmp_path / "arguments").read_text() == "run --profile mini --workers 4 840\n"


@pytest.mark.parametrize("code", [0, 1, 2])
def test_an_end_of_its_own_is_the_jobs_end(start, tmp_path, code):
    assert start(f"exit {code}").wait(timeout=20) == code
    assert not (tmp_path / "requeued").exists()


def test_the_signal_comes_before_the_stages_are_killed():
    text = SCRIPT.read_text()
    (lead,) = re.findall(r"^#SBATCH --signal=B:TERM@(\d+)$", text, re.MULTILINE)
    (grace,) = re.findall(r"KLEAR_STOP_GRACE_S:-(\d+)", text)
    assert int(lead) >= int(grace) + 60
    page = (SCRIPT.parent / "gpu.md").read_text()
    assert f"a signal {lead} seconds before" in page and f"\n{grace} of them" in page


def test_the_script_asks_for_no_number_of_stages_by_itself(start, tmp_path):
    assert start('echo "$@" > arguments').wait(timeout=20) == 0
    assert (tmp_path / "arguments").read_text() == "run --profile mini\n"
