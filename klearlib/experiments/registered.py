"""What a profile has fixed before its runs, and since when: results/runs/rules.json."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict
from pathlib import Path

from klearlib.errors import DamagedEntry
from klearlib.paper import claims
from klearlib.paper.schema import COMPARED, Claim
from klearlib.params import STATISTICS, load
from klearlib.params.statistics import StatisticsParams
from klearlib.run.files import read_json, write_json

RULES = "rules.json"
_TEXTS = ("title", "statement", "section", "shown", "paper", "notes", "expectation")
"""Fields of a claim that decide nothing."""
STUDENTS, MATHS_RL, CODE_RL, HEADLINE = "students", "maths_rl", "code_rl", "headline"


def statistics_of(profile: str) -> StatisticsParams:
    """How a profile decides claims."""
    return load(profile, STATISTICS)


def digest(claim: Claim, profile: str) -> str:
    """Of all that the verdict on a claim follows from beside its runs: its rule and the profile's
    statistics.yaml."""
    rule = {name: value for name, value in asdict(claim).items() if name not in _TEXTS}
    content = [profile, rule, asdict(statistics_of(profile))]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def note(profile: str, runs_dir: Path) -> None:
    """Write down, before a run, the rules of a profile that are not written down yet, with the
    time."""
    known = _noted(runs_dir)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    new = {digest(each, profile): now for each in claims() if each.kind in (*COMPARED, "trend")}
    if new.keys() - known.keys():
        runs_dir.mkdir(parents=True, exist_ok=True)
        write_json(runs_dir / RULES, new | known)


def is_exploratory(rule: str, first_run: str, runs_dir: Path) -> bool:
    """Whether a rule is younger than the first of the runs that it is applied to, or was never
    written down. first_run: when that one ended, as its provenance says."""
    since = _noted(runs_dir).get(rule)
    return since is None or since > first_run


def _noted(runs_dir: Path) -> dict[str, str]:
    path = runs_dir / RULES
    if not path.is_file():
        return {}
    try:
        return read_json(path)
    except ValueError as error:
        raise DamagedEntry(
            f"{path} is damaged ({error}): put a copy of it back, or delete it, and verdicts on "
            "runs that are there count as exploratory"
        ) from None
