"""Adversarial and odd programs, on both tiers, as the user of the tests and as a plain user."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from attacks import ATTACKS
from honest_programs import HONEST

import klearlib
from klearlib.verify.sandbox import TIERS

ROOT = Path(klearlib.__file__).resolve().parents[1]
SCRIPT = Path(__file__).with_name("run_attacks.py")
PLAIN_USER = 1000
MAX_JUDGE_MB = 300


@cache
def what_happened(tier: str, uid: int | None, programs: str) -> dict | str:
    """The report of `run_attacks`, or why it cannot run here."""
    words = ["--sample"] * (programs == "sample") + [str(uid)] * (uid is not None)
    done = subprocess.run(
        [sys.executable, "-B", SCRIPT, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "KLEAR_SANDBOX": tier},
        capture_output=True,
        text=True,
        timeout=240,
    )
    if done.returncode:
        reason = done.stderr.splitlines()[-1]
        known = ("does not work here", "cannot become user", "cannot run")
        assert any(text in reason for text in known), done.stderr
        return reason
    return json.loads(done.stdout)


@pytest.fixture(params=[None, PLAIN_USER], ids=["self", "plain user"])
def user(request):
    if request.param is not None and os.geteuid() != 0:
        pytest.skip("only root can become another user, and this user is a plain one already")
    return request.param


@pytest.fixture(params=TIERS)
def tier(request):
    return request.param


@pytest.fixture(params=["sample", pytest.param("all", marks=pytest.mark.slow)])
def found(request, tier, user):
    report = what_happened(tier, user, request.param)
    if isinstance(report, str):
        pytest.skip(report)
    return report


def test_the_set_is_large_and_well_formed():
    programs = (*ATTACKS, *HONEST)
    assert len(ATTACKS) >= 160 and len(HONEST) >= 45
    assert len({program.name for program in programs}) == len(programs)
    for program in programs:
        assert len(program.outcomes) == len(program.tests) > 0, program.name
        has_choice = any(isinstance(word, tuple) for word in program.outcomes)
        assert bool(program.why) == has_choice, program.name


def test_every_program_gets_the_outcome_that_it_must_get(found):
    assert found["failures"] == []


def test_nothing_outside_is_changed_or_left(found):
    assert found["left"] == []


def test_the_judges_stay_small(found):
    assert 10 < found["judge_mb"] < MAX_JUDGE_MB
