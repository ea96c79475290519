"""What exists: the published notebooks of each profile, then the runs that they share."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from klearlib.errors import KlearError, printable
from klearlib.experiments.catalogue import notebooks_of
from klearlib.experiments.results import NO_STEP
from klearlib.params import profiles, require_profile, root
from klearlib.params.place import Place, in_yaml, own_places, place_of
from klearlib.report.watch import title_of
from klearlib.rl.alarms import NOTHING_TRAINED, TRUNCATION_ROSE, truncation_rose, untrained
from klearlib.run.entry import read_metrics, read_progress
from klearlib.run.stage import folder_state
from klearlib.suite.cache import CACHE, SECTION, section
from klearlib.suite.plan import parameters_of, plan

PUBLISHED = "published, not by klear run here"


def describe_status(only_profile: str = "") -> str:
    """The status of `only_profile`, of all profiles if empty, as text for the terminal.

    A notebook is "done" (its results are what its cells, parameters and code give), "outdated" (one
    of these has changed), "partial" (published with some runs missing) or "broken". Results that
    came with the repository, or from papermill, share a line; without results there is no line.

    Raises ParameterError: unknown profile.
    """
    lines = []
    for profile in [require_profile(only_profile)] if only_profile else profiles():
        own = place_of(profile, {})
        for place in (own, *own_places(own)):
            lines += _states(place)
    lines += _describe_runs(root() / "results" / "runs")
    return printable("\n".join(lines) or "nothing has been run yet", keep="\n")


def _states(place: Place) -> list[str]:
    """The lines of a results folder; none if nothing is published in it."""
    lines = [f"{place.folder.name} ({place.says()})" if place.changes else place.folder.name]
    others = []
    for name in notebooks_of(place.profile):
        if any((place.folder / name / file).is_file() for file in (SECTION, CACHE)):
            word, why = _notebook_state(place, name)
            if word == PUBLISHED:
                others.append(name.partition("_")[0])
            else:
                lines.append(f"  {name:<19} {word:<9} {why}".rstrip())
    if others and len(lines) == 1:
        return [f"{lines[0]}: {PUBLISHED}"]
    if others:
        lines.append(f"  {' '.join(others)} {PUBLISHED}")
    return lines if len(lines) > 1 else []


def _notebook_state(place: Place, notebook: str) -> tuple[str, str]:
    """One word for a notebook and its reason; with a wrong parameter or damaged file "broken"."""
    try:
        published = section(place.folder / notebook)
        if published.get("status") == "complete" and not (place.folder / notebook / CACHE).exists():
            return PUBLISHED, ""
        known = place.changes.keys() & parameters_of(notebook)
        settings = [f"{name}={in_yaml(place.changes[name])}" for name in known]
        (planned,) = plan(place.profile, [notebook], settings=settings, out=str(place.folder))
    except KlearError as error:
        return "broken", str(error)
    if not planned.why:
        alarms = [
            n for n in published.get("notes", []) if n.startswith(NO_STEP) or TRUNCATION_ROSE in n
        ]
        return "done", ". ".join(alarms)
    if published.get("status") == "partial":
        return "partial", f"missing: {', '.join(map(str, published['missing']))}"
    return "outdated", planned.why


def _describe_runs(runs_dir: Path) -> list[str]:
    """One line per kind of stage with counts, and one per run in progress or with an alarm."""
    lines = []
    for kind in sorted(path for path in runs_dir.glob("[!.]*") if path.is_dir()):
        states = {each: folder_state(each) for each in sorted(kind.iterdir()) if each.is_dir()}
        counts = Counter(states.values())
        shown = [word for word in ("done", "running", "partial") if counts[word]]
        if shown:
            lines.append(f"  {kind.name:<19} {', '.join(f'{counts[w]} {w}' for w in shown)}")
        for folder, word in states.items():
            if word in ("running", "partial"):
                lines.append(f"    {folder.name} {word}{_progress(folder)}")
            elif word == "done" and kind.name == "rl":
                lines += _alarms(folder)
    return ["runs", *lines] if lines else []


def _alarms(folder: Path) -> list[str]:
    """What is wrong with a finished RL run."""
    try:
        metrics = read_metrics(folder)
    except KlearError as error:
        return [f"    {folder.name} broken: {error}"]
    found = {NOTHING_TRAINED: untrained(metrics), "done": truncation_rose(metrics)}
    return [
        f"    {folder.name} {word}{_progress(folder)}: {why}" for word, why in found.items() if why
    ]


def _progress(folder: Path) -> str:
    """Steps and title (" 12/30 GPPO, seed 0"), as far as the folder's files have them."""
    progress, title = read_progress(folder), title_of(folder)
    steps = f" {progress['done']}/{progress['total']}" if progress else ""
    return steps if title == folder.name else f"{steps} {title}"
