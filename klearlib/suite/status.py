"""What is done, running, partial or absent: per profile its notebooks, then the runs they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from klearlib.errors import KlearError, printable
from klearlib.experiments.catalogue import notebooks_of
from klearlib.experiments.experiment import NO_STEP
from klearlib.params import profiles, require_profile, root
from klearlib.params.place import Place, in_yaml, own_places, place_of
from klearlib.rl.alarms import NOTHING_TRAINED, TRUNCATION_ROSE, truncation_rose
from klearlib.rl.idle import untrained
from klearlib.run.entry import SPEC, read_metrics, read_progress
from klearlib.run.files import read_json
from klearlib.run.stage import folder_state
from klearlib.suite.cache import CACHE, section
from klearlib.suite.plan import plan
from klearlib.suite.settings import parameters_of


def describe_status(only_profile: str = "") -> str:
    """The status of `only_profile`, of all profiles where empty, as text for the terminal.

    A notebook is "done" (its results are what its cells, parameters and code give), "outdated" (one
    of these changed since), "partial" (published with some runs missing) or "absent".

    Raises:
        ParameterError: unknown profile.
    """
    lines = []
    for profile in [require_profile(only_profile)] if only_profile else profiles():
        lines.append(profile)
        lines += _states(place_of(profile, {}), notebooks_of(profile))
        for place in own_places(profile):
            lines.append(f"{place.folder.name} ({place.says() or 'nothing changed'})")
            there = [name for name in notebooks_of(profile) if (place.folder / name).is_dir()]
            lines += _states(place, there)
    return printable("\n".join(lines + _describe_runs(root() / "results" / "runs")), keep="\n")


def _states(place: Place, notebooks: Sequence[str]) -> list[str]:
    found = {name: notebook_state(place, name) for name in notebooks}
    return [f"  {name:<19} {word:<9} {why}".rstrip() for name, (word, why) in found.items()]


def notebook_state(place: Place, notebook: str) -> tuple[str, str]:
    """One word and its reason for a notebook; a wrong parameter or damaged file is "broken"."""
    folder = place.folder / notebook
    try:
        known = parameters_of(notebook)
        settings = [
            f"{name}={in_yaml(value)}"
            for name, value in place.applies(notebook).items()
            if name in known
        ]
        (planned,) = plan(place.profile, [notebook], settings=settings, out=str(place.folder))
        published = section(folder)
    except KlearError as error:
        return "broken", str(error)
    if not planned.why:
        return "done", ". ".join(note for note in published.get("notes", []) if _is_alarm(note))
    if published.get("status") == "partial":
        missing = published.get("missing")
        words = [str(each) for each in missing] if isinstance(missing, list) else []
        return "partial", "missing: " + "".join(filter(str.isprintable, ", ".join(words)))
    return ("outdated" if (folder / CACHE).is_file() else "absent"), planned.why


def _is_alarm(note: str) -> bool:
    return note.startswith(NO_STEP) or TRUNCATION_ROSE in note


def _describe_runs(runs_dir: Path) -> list[str]:
    """One line per kind of stage with counts, and one per run that is under way."""
    lines = []
    for kind in sorted(path for path in runs_dir.glob("[!.]*") if path.is_dir()):
        folders = sorted(path for path in kind.iterdir() if path.is_dir())
        states = {folder: folder_state(folder) for folder in folders}
        counts = Counter(states.values())
        order = ("done", "running", "partial", "absent")
        words = [f"{counts[word]} {word}" for word in order if counts[word]]
        lines.append(f"  {kind.name:<19} {', '.join(words)}")
        trained = states if kind.name == "rl" else ()
        for folder in (each for each in trained if states[each] == "done"):
            try:
                metrics = read_metrics(folder)
            except KlearError as error:
                lines.append(f"    {folder.name} broken: {error}")
                continue
            if why := untrained(metrics):
                lines.append(f"    {folder.name} {NOTHING_TRAINED}{_progress(folder)}: {why}")
            if rose := truncation_rose(metrics):
                lines.append(f"    {folder.name} done{_progress(folder)}: {rose}")
        for folder, word in states.items():
            if word in ("running", "partial"):
                lines.append(f"    {folder.name} {word}{_progress(folder)}")
    return ["runs", *lines] if lines else []


def _progress(folder: Path) -> str:
    """Steps and label (" 12/30 GPPO, seed 0"), as far as the folder's files say them."""
    progress = read_progress(folder)
    steps = f" {progress['done']}/{progress['total']}" if progress else ""
    try:
        label = read_json(folder / SPEC)["label"]
    except (OSError, ValueError, KeyError, TypeError):  # a run that only begins has no spec yet
        return steps
    return f"{steps} {''.join(filter(str.isprintable, str(label)))}".rstrip()
