"""``klear merge``: results of other replicates, from other machines or other evenings, as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from klearlib.errors import KlearError, ParameterError
from klearlib.experiments import catalogue, registered
from klearlib.experiments.tidy import RUNS, Place, Published, Run
from klearlib.params import root
from klearlib.params.place import place_of, read_place
from klearlib.report.page import build_report
from klearlib.report.section import SampleItem, Section

_NOT_KEYED = ("workers",)  # of the parameters, which change no result


def merge(folders: Sequence[str], out: str, *, other_versions: bool = False) -> Path:
    """Join published results folders into `out`, and decide all claims anew; the report.

    Every arm of a replicate comes from one of them. other_versions: also where stages have other
    code; the notes of the report say so.

    Raises:
        ParameterError: a folder is none of results, one of them is `out`, or they differ in
            profile, parameters or rules. KlearError: two have runs of one replicate, or code that
            differs.
    """
    paths = [(root() / each).resolve() for each in folders]
    places = [read_place(path) for path in paths]
    first = places[0]
    for path, place in zip(paths, places, strict=True):
        if not any(path.glob(f"*/{RUNS}")):
            raise ParameterError(f"{path} has no {RUNS} of a notebook: name a results folder")
        if (place.profile, place.changes) != (first.profile, first.changes):
            raise ParameterError(
                f"{path.name} is profile {place.profile} with {place.says() or 'its own values'}, "
                f"{paths[0].name} profile {first.profile} with {first.says() or 'its own values'}: "
                "only equal parameters can be joined"
            )
    place = place_of(first.profile, first.changes, out)
    if place.folder.resolve() in paths:
        raise ParameterError(f"--out {out} is one of the folders that are joined: name another")
    place.folder.mkdir(parents=True, exist_ok=True)
    place.claim()
    known = registered.earliest(map(registered.published, paths))
    registered.publish(place.folder, first.profile, known)
    names = sorted({each.parent.name for path in paths for each in path.glob(f"*/{RUNS}")})
    for name in names:
        parts = {path.name: Published.read(path / name) for path in paths if (path / name).is_dir()}
        whole = joined(name, parts, other_versions=other_versions)
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
        _require_alike(name, one, first, folder, part)
    versions = _versions(parts)
    if versions and not other_versions:
        raise KlearError(
            f"{name}: the code of {', '.join(versions)} differs between the folders: run them with "
            "one version, or join them with --other-versions, which the report shows"
        )
    arms: dict[Place, Run] = {}
    owner: dict[int, str] = {}
    for folder, part in parts.items():
        seeds = {seed for _, _, seed in part.arms}
        if twice := sorted(seeds & owner.keys()):
            raise KlearError(
                f"{name}: runs of {', '.join(map(str, twice))} are in {owner[twice[0]]} and in "
                f"{folder}: all arms of a replicate must come from one folder; leave one out"
            )
        owner |= dict.fromkeys(seeds, folder)
        arms |= part.arms
    sections = [part.section for part in parts.values()]
    facts: dict[str, Any] = {}
    for part in parts.values():
        for fact, value in part.facts.items():
            both = isinstance(value, dict) and isinstance(facts.get(fact), dict)
            facts[fact] = facts[fact] | value if both else facts.get(fact) or value
    late = max(sections, key=lambda section: section.provenance["utc"])
    missing = [title for title in sections[0].missing if all(title in s.missing for s in sections)]
    notes = [f"Joined of runs with other code: {', '.join(versions)}."] if versions else []
    section = replace(
        first.section,
        missing=tuple(missing),
        provenance=late.provenance,
        seconds=sum(each.seconds for each in sections),
        samples=tuple(_samples(sections)),
    )
    return Published(arms, facts, section, notes)


def _require_alike(name: str, one: str, first: Published, folder: str, part: Published) -> None:
    a, b = first.section.parameters, part.section.parameters
    differ = [key for key in a if key not in _NOT_KEYED and a[key] != b.get(key)]
    if differ:
        raise ParameterError(
            f"{name}: {one} and {folder} differ in {', '.join(differ)}: only equal parameters can "
            "be joined"
        )
    rules = [{v.claim: v.rule for v in each.section.verdicts} for each in (first, part)]
    both = [name for name in rules[0] if rules[0][name] and rules[1].get(name)]
    if other := [name for name in both if rules[0][name] != rules[1][name]]:
        raise ParameterError(
            f"{name}: {one} and {folder} decide {', '.join(other)} by other rules: publish both by "
            "one version (klear report)"
        )


def _versions(parts: Mapping[str, Published]) -> list[str]:
    """The kinds of stage whose code differs between the parts."""
    found: dict[str, set[str]] = {}
    for part in parts.values():
        for run in part.arms.values():
            found.setdefault(run.about["stage"], set()).add(run.about["code"])
    return sorted(stage for stage, codes in found.items() if len(codes) > 1)


def _samples(sections: Sequence[Section]) -> list[SampleItem]:
    """Of each series those of the first replicate that has it."""
    seeds = sections[0].parameters.get("seeds", ())
    order = {f", seed {seed}": place for place, seed in enumerate(seeds)}
    best: dict[str, tuple[int, list[SampleItem]]] = {}
    for section in sections:
        for item in section.samples:
            title, seed, number = item.arm.rpartition(", seed ")
            rank = order.get(seed + number, len(order))
            known = best.get(title, (rank + 1, []))[0]
            if rank < known:
                best[title] = rank, []
            if best[title][0] == rank:
                best[title][1].append(item)
    return [item for _, items in best.values() for item in items]
