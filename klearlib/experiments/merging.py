"""``klear merge``: results of other replicates, from other machines or other evenings, as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from klearlib.errors import KlearError, ParameterError
from klearlib.experiments import catalogue, registered
from klearlib.experiments.tidy import RUNS, Place, Published, Run, unlike
from klearlib.params import root
from klearlib.params.place import place_of, read_place
from klearlib.report.page import build_report


def merge(folders: Sequence[str], out: str, *, other_versions: bool = False) -> Path:
    """Join published results folders into `out`, decide all claims again, and return the report.

    All arms of a replicate come from one folder, its variants may come from another; two folders
    may have the very same runs.
    other_versions: also join where stages, or what they are made from, have different code or
    libraries; the notes of the report say so.

    Raises:
        ParameterError: a folder is not a results folder of this version or is named twice, `out`
            holds something, or the folders differ in profile, parameters or rules.
        KlearError: two folders have different runs of one replicate, or differ in code or facts.
    """
    paths = {each: (root() / each).resolve() for each in folders}
    if len({*paths.values()}) < len(folders):
        raise ParameterError(f"{' '.join(folders)}: a folder is named twice: leave one out")
    places = {each: read_place(path) for each, path in paths.items()}
    one, first = next(iter(places.items()))
    for each, place in places.items():
        if not any(paths[each].glob(f"*/{RUNS}")):
            raise ParameterError(
                f"{each} has no {RUNS}: name a results folder of this version of klear"
            )
        if (place.profile, place.changes) != (first.profile, first.changes):
            raise ParameterError(
                f"{each} is profile {place.profile} with {place.says() or 'its own values'}, "
                f"{one} profile {first.profile} with {first.says() or 'its own values'}: "
                "only equal parameters can be joined"
            )
    place = place_of(first.profile, first.changes, out)
    if place.folder.is_dir() and any(place.folder.iterdir()):
        raise ParameterError(f"--out {out} exists already: name a new folder, or delete it")
    names = sorted({each.parent.name for path in paths.values() for each in path.glob(f"*/{RUNS}")})
    wholes = {}
    for name in names:
        parts = {each: path / name for each, path in paths.items() if (path / name).is_dir()}
        parts = {each: Published.read(path) for each, path in parts.items()}
        wholes[name] = joined(name, parts, other_versions=other_versions)
    place.folder.mkdir(parents=True, exist_ok=True)
    place.claim()
    known: dict[str, str] = {}
    for path in paths.values():
        for rule, since in registered.read(path / registered.REGISTERED).items():
            known[rule] = min(since, known.get(rule, since))  # its digest is the rule
    registered.publish(place.folder, first.profile, known)
    for name, whole in wholes.items():
        params = catalogue.check(name, whole.section.parameters)
        catalogue.experiment_of(name)(params, place, whole).publish()
    for experiment in catalogue.experiments():
        if experiment.gathers:
            experiment(experiment.params_of(first.profile), place).publish()
    return build_report(place.folder, catalogue.experiments())


def joined(name: str, parts: Mapping[str, Published], *, other_versions: bool) -> Published:
    """The parts of one notebook, by the names of their folders, as one; errors as `merge`."""
    (one, first), *others = parts.items()
    for folder, part in others:
        a, b = first.section.parameters, part.section.parameters
        differ = (key for key in sorted(a.keys() | b.keys()) if a.get(key) != b.get(key))
        if keyed := ", ".join(key for key in differ if key != "workers"):  # changes no result
            raise ParameterError(
                f"{name}: {one} and {folder} differ in {keyed}: only equal parameters can be joined"
            )
        rules, theirs = ({v.claim: v.rule for v in p.section.verdicts} for p in (first, part))
        both = (claim for claim in rules if rules[claim] and theirs.get(claim))
        if unequal := ", ".join(claim for claim in both if rules[claim] != theirs[claim]):
            raise ParameterError(
                f"{name}: {one} and {folder} decide {unequal} by different rules: publish both "
                "with one version (klear report)"
            )
    arms: dict[Place, Run] = {}
    owner: dict[tuple[str, int], str] = {}  # set of runs and replicate -> folder
    for folder, part in parts.items():
        cells = {(kind, seed) for kind, _, seed in part.arms}
        # A folder shows all that is done on its machine, also unfinished pieces of others.
        shared = {(kind, seed) for kind, _, seed in arms.keys() & part.arms.keys()}
        differ = {
            (kind, seed)
            for kind, series, seed in arms.keys() & part.arms.keys()
            if arms[kind, series, seed].about != part.arms[kind, series, seed].about
        }
        if twice := sorted((cells & owner.keys()) - (shared - differ)):
            seeds = ", ".join(map(str, sorted({seed for _, seed in twice})))
            raise KlearError(
                f"{name}: runs of {seeds} are in {owner[twice[0]]} and in {folder}: all arms of a "
                "replicate must come from one folder; leave one out"
            )
        owner |= dict.fromkeys(cells, folder)
        arms |= part.arms
    if kinds := unlike(arms, "made_of"):
        raise ParameterError(
            f"{name}: the parameters behind {', '.join(kinds)} differ between the folders "
            "(worlds.yaml, real.yaml): only equal parameters can be joined"
        )
    if (kinds := unlike(arms, "made_by")) and not other_versions:
        raise KlearError(
            f"{name}: the code or the libraries of {', '.join(kinds)} differ between the folders: "
            "run them with one version, or join them with --other-versions, which the report shows"
        )
    sections = [part.section for part in parts.values()]
    facts: dict[str, Any] = {}
    for part in parts.values():
        for fact, value in part.facts.items():
            facts[fact] = _joined_fact(name, fact, facts.get(fact), value)
    late = max(sections, key=lambda section: section.provenance["utc"])
    missing = [title for title in sections[0].missing if all(title in s.missing for s in sections)]
    section = replace(
        first.section,
        missing=tuple(missing),
        provenance=late.provenance,
        seconds=sum(each.seconds for each in sections),
    )
    return Published(arms, facts, section)


def _joined_fact(name: str, fact: str, one: Any, other: Any) -> Any:
    """One fact from two parts: key by key if it has keys; where one part is empty, the other."""
    if isinstance(one, dict) and isinstance(other, dict):
        both = {key for key in one.keys() & other.keys() if one[key] != other[key]}
        if not both:
            return one | other
    elif not one or not other or one == other:
        return one or other
    raise KlearError(
        f"{name}: the folders differ in {fact} (facts.json), so they come from different data: "
        "join results that one version made from the same worlds"
    )
