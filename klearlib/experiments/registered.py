"""What a profile fixed before its runs, and when: results/runs/rules.json, and registered.json in
the published folder."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from klearlib.errors import DamagedEntry
from klearlib.paper import claims
from klearlib.paper.schema import COMPARED, Claim
from klearlib.params import STATISTICS, load
from klearlib.run.files import read_json, write_json

RULES, REGISTERED = "rules.json", "registered.json"
_TEXTS = ("title", "statement", "section", "shown", "paper", "notes", "expectation", "test", "why")
_TEXTS += ("exploratory_at", "unrunnable")
"""Fields of a claim that decide nothing."""


def digest(claim: Claim, profile: str) -> str:
    """A hash of all that the verdict on a claim follows from besides its runs: its rule and the
    profile's statistics.yaml."""
    rule = {name: value for name, value in asdict(claim).items() if name not in _TEXTS}
    content = [profile, rule, asdict(load(profile, STATISTICS))]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def note(profile: str, runs_dir: Path) -> None:
    """Before a run, write down the rules of a profile that are not written down yet, with the
    time."""
    known = read(runs_dir / RULES)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    new = {digest(each, profile): now for each in claims() if each.kind in (*COMPARED, "trend")}
    if new.keys() - known.keys():
        runs_dir.mkdir(parents=True, exist_ok=True)
        write_json(runs_dir / RULES, new | known)


def publish(folder: Path, profile: str, known: Mapping[str, str]) -> None:
    """Keep with a results folder when its profile's rules were written down."""
    mine = {digest(each, profile) for each in claims()} & known.keys()
    write_json(folder / REGISTERED, {rule: known[rule] for rule in mine})


def read(path: Path) -> dict[str, str]:
    """What `RULES` or `REGISTERED` says: digest of a rule -> when it was written down."""
    if not path.is_file():
        return {}
    try:
        return read_json(path)
    except ValueError as error:
        raise DamagedEntry(
            f"{path} is damaged ({error}): restore a copy of it; or delete it, and verdicts on "
            "the existing runs count as exploratory"
        ) from None
