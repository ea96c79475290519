"""What `klear run` prints at the end: the verdicts, what changed, how long it took, and where the
report is."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from klearlib.paper import claim
from klearlib.params import root
from klearlib.report.render import duration_text
from klearlib.report.section import NOT_RUN
from klearlib.report.tables import number_text
from klearlib.run.files import read_json
from klearlib.run.stage import Stage

COLUMNS = 80


def verdicts_of(results: Path) -> dict[str, str]:
    """Claim -> its verdict word, by the claims.json of a results folder; empty if there is none, or
    no notebook has been run yet."""
    words = {entry["claim"]: entry["verdict"] for entry in _entries(results)}
    return words if set(words.values()) - {NOT_RUN} else {}


def summary(
    results: Path, before: dict[str, str], computed: Sequence[Stage], seconds: float
) -> str:
    """The last lines of a run in `COLUMNS` columns.

    before: `verdicts_of` at its start. computed: the stages that it ran. seconds: how long it took.
    """
    entries, answers = _entries(results), _answers(results)
    shown = [entry for entry in entries if entry["verdict"] != NOT_RUN and not answers]
    rows = [("claim", "", "verdict", "smallest difference")] if shown else []
    for entry in shown:
        title = textwrap.shorten(entry["title"], 36, placeholder="...")
        rows.append((entry["claim"], title, entry["verdict"], _number(entry)))
    lines = [line for each in answers for line in textwrap.wrap(each, COLUMNS)]
    lines += [f"{c:<5}{title:<36} {word:<14} {number}".rstrip() for c, title, word, number in rows]
    if answers:
        lines.append("the claims of the paper are in the report")
    elif hidden := len(entries) - len(shown):
        lines.append(f"not run: {hidden} {'more ' if shown else ''}claim{'s' * (hidden > 1)}")
    after = {entry["claim"]: entry["verdict"] for entry in entries}
    moved = [n for n, old in before.items() if after.get(n, old) != old]
    changed = []
    if computed:
        kinds = Counter(stage.name for stage in computed)
        changed.append(f"computed: {', '.join(f'{count} {kind}' for kind, count in kinds.items())}")
    if before and (moved or computed):
        words = ", ".join(f"{name} {before[name]} -> {after[name]}" for name in moved)
        changed.append(f"verdicts that changed: {words or 'none'}")
    for line in changed or ["nothing changed since the last run"]:
        lines += textwrap.wrap(line, COLUMNS, subsequent_indent="  ")
    report = (results / "report.html").relative_to(root())
    return "\n".join([*lines, f"took {duration_text(seconds)}", f"report: {report}"])


def _entries(results: Path) -> list[dict]:
    try:
        return read_json(results / "claims.json")
    except (OSError, ValueError):
        return []  # the next report rewrites it


def _answers(results: Path) -> list[str]:
    """What notebooks answer besides the claims, see `Section.answers`."""
    sections = map(read_json, sorted(results.glob("*/section.json")))
    return [answer for section in sections for answer in section.get("answers", ())]


def _number(entry: dict) -> str:
    """The smallest of its differences, which an ordering depends on, or else the first of what was
    measured."""
    if differences := [each["difference"] for each in entry["comparisons"]]:
        if claim(entry["claim"]).unit == "fraction":
            return f"{100 * min(differences):+.1f} points"
        return number_text(min(differences), signed=True)
    first = entry["measured"].partition("; ")[0].rpartition(": ")[2]
    return re.split(r", | [\[(]", first)[0][:23]
