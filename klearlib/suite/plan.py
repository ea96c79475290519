"""What `klear run` would do to each notebook of a profile, what that costs, and what keeps it from
finishing here."""

from __future__ import annotations

import dataclasses
import functools
import os
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from klearlib.errors import ParameterError
from klearlib.experiments import catalogue
from klearlib.experiments.experiment import Experiment, runs_dir
from klearlib.params import did_you_mean, load_profile, root
from klearlib.params.files import parse_yaml
from klearlib.params.place import Place, changes_of, place_of
from klearlib.params.statistics import REPLICATES, replicates_asked
from klearlib.report.render import duration_text
from klearlib.run.stage import Stage, is_done, wanted, with_inputs
from klearlib.scale.ray_cluster import RAY, cluster_address
from klearlib.scale.require import INSTALL_RAY
from klearlib.suite.cache import digests, read_notebook, why_not_cached
from klearlib.suite.checks import Machine, readable, refusals, short, this_machine
from klearlib.suite.estimate import CPU_FLOPS, Cost, cost_of

NOTEBOOK_S = 8.0
"""To execute a notebook whose stages are done, roughly."""


@dataclass(frozen=True)
class PlannedNotebook:
    """One notebook of a profile, checked, with what a run would do to it."""

    experiment: Experiment
    why: str  # the reason to run it, "" if its published results are what a run would give
    values: dict  # what papermill injects
    digests: dict[str, str]  # of what the results follow from

    @property
    def name(self) -> str:
        return self.experiment.name

    @property
    def number(self) -> str:
        return self.name.partition("_")[0]

    @functools.cached_property
    def stages(self) -> list[Stage]:
        """Its stages, see `wanted`; the same objects each time, which keep their keys."""
        return wanted(self.experiment.asked(), runs_dir())

    @property
    def place(self) -> Place:
        return self.experiment.place


@dataclass(frozen=True)
class Plan:
    """The notebooks of a run with their costs, and what keeps it from finishing, a line each."""

    notebooks: list[PlannedNotebook]
    # For each notebook that will run, by name, without the stages of those before it.
    costs: dict[str, Cost] = field(default_factory=dict)
    on_gpus: bool = False  # whether what runs is for GPUs, here or elsewhere
    missing: list[str] = field(default_factory=list)

    @property
    def todo(self) -> list[PlannedNotebook]:
        return [each for each in self.notebooks if each.why]


def plan(
    profile: str,
    only: Sequence[str] = (),
    *,
    settings: Sequence[str] = (),
    out: str | None = None,
    force: bool = False,
    workers: int | str | None = None,
) -> list[PlannedNotebook]:
    """The notebooks in the order in which they run, after every parameter of each is checked.

    only: numbers or names of notebooks, all if empty. settings, out: of ``--set`` and ``--out``;
    notebooks that ``--set`` does not change are left out. workers: replaces the parameter of this
    name in the notebooks that have one.

    Raises ParameterError: unknown profile or notebook, a wrong parameter, a parameter file with a
    missing or damaged notebook, a profile without the embedded world that one of its notebooks
    needs, a setting that fits no notebook, or a folder of other parameters.
    """
    names = _chosen(profile, only)
    given = _parsed_settings(names, settings)
    values, checked = {}, {}
    for name in names:
        known = parameters_of(name)
        if given and not given.keys() & known:
            continue
        own = {each: value for each, value in given.items() if each in known}
        own |= {"workers": workers} if workers is not None and "workers" in known else {}
        values[name] = load_profile(profile, name) | own
        checked[name] = catalogue.check(name, values[name])
    piece = replicates_asked()
    seeds = {seed for each in checked.values() for seed in getattr(each, "seeds", ())}
    if piece is not None and not seeds & {*piece}:
        raise ParameterError(
            f"--replicates {os.environ[REPLICATES]}: no chosen notebook has any of these; there "
            f"are: {', '.join(map(str, sorted(seeds))) or 'none'}"
        )
    place = place_of(profile, changes_of(checked) if given else {}, out)
    planned: list[PlannedNotebook] = []
    for name, params in checked.items():  # those that gather come last
        experiment = catalogue.experiment_of(name)(params, place)
        found = digests(read_notebook(notebook_file(name)), experiment)
        why = "forced" if force else why_not_cached(place.folder / name, found)
        if experiment.gathers and any(each.why for each in planned):
            why = why or "gathers results that change"
        planned.append(PlannedNotebook(experiment, why, values[name], found))
    return planned


def notebook_file(name: str) -> Path:
    return root() / "notebooks" / f"{name}.ipynb"


def parameters_of(name: str) -> set[str]:
    """The names of the parameters of a notebook."""
    return {field.name for field in dataclasses.fields(catalogue.experiment_of(name).Params)}


def _parsed_settings(names: Sequence[str], texts: Sequence[str]) -> dict[str, object]:
    """Parameter -> its value, by ``--set``.

    Raises ParameterError: not NAME=VALUE, not YAML, or a parameter that none of the notebooks
    `names` has.
    """
    known = set().union(*map(parameters_of, names)) - {"profile", "workers"}
    values: dict[str, object] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        try:
            if not equals or "." in name:
                raise ValueError(
                    "write NAME=VALUE, such as seeds=[0], and a mapping whole: "
                    "options={dual_clip: 10.0}"
                )
            if name.strip() not in known:
                hint = did_you_mean(name.strip(), sorted(known))
                raise ValueError(f"no chosen notebook has a parameter {name.strip()!r}; {hint}")
            values[name.strip()] = parse_yaml(value)
        except ValueError as error:
            raise ParameterError(f"--set {text:.100}: {error}") from None
    return values


def _chosen(profile: str, only: Sequence[str]) -> list[str]:
    names = catalogue.notebooks_of(profile)
    numbers = {name: name.partition("_")[0] for name in names}
    asked = {word.zfill(2) for word in only}
    chosen = [name for name in names if not asked or {name, numbers[name]} & asked]
    if unknown := asked.difference(chosen, numbers.values()):
        word = min(unknown)
        hint = did_you_mean(word, names)
        raise ParameterError(f"profile {profile!r} has no notebook {word!r}; {hint}")
    return chosen


def workers_of(notebooks: Sequence[PlannedNotebook]) -> int | str:
    """What they ask for together: Ray if one of them does, else the largest number of stages at a
    time; 0 is one per GPU or core."""
    asked = [getattr(each.experiment.params, "workers", None) for each in notebooks]
    numbers = [each for each in asked if isinstance(each, int)]
    return RAY if RAY in asked else 0 if 0 in numbers else max(numbers, default=0)


def weighed(profile: str, planned: list[PlannedNotebook]) -> Plan:
    """The plan with its costs, and with all that keeps the run from finishing here.

    Raises ParameterError: the profile lacks what a notebook needs.
    """
    if not any(each.why for each in planned):
        return Plan(planned)
    here, seen = this_machine(), set()
    todo: dict[str, list[Stage]] = {}
    for each in planned:
        if each.why:
            stages = with_inputs(each.stages)
            new = [stage for key, stage in stages.items() if key not in seen]
            todo[each.name] = [stage for stage in new if not is_done(stage, runs_dir())]
            seen |= stages.keys()
    left = [stage for stages in todo.values() for stage in stages]
    asked = workers_of([each for each in planned if todo.get(each.name)])
    workers = (0 if asked == RAY else asked) or len(here.gpus) or here.cores
    elsewhere = asked == RAY and cluster_address()
    missing = refusals(profile, left, here, 0 if elsewhere else workers)
    if asked == RAY and "ray" not in here.packages:
        missing.append(f"Ray is not installed: {INSTALL_RAY}")
    costs = {name: _cost_here(stages, here, workers) for name, stages in todo.items()}
    return Plan(planned, costs, bool(here.gpus or missing), missing)


def _cost_here(stages: list[Stage], machine: Machine, workers: int) -> Cost:
    """What the stages of a notebook cost. Their time on this machine is all their work divided by
    its places, or their longest chain. A stage takes the time of its kind in the miniature, or on
    cores that of its FLOP if that is more, as for a larger model."""
    places = max(1, min(workers, len(machine.gpus) or machine.cores))
    total, work, ends = Cost(), 0.0, {}
    for stage in stages:
        cost = cost_of(stage)
        alone = max(stage.estimate_s, cost.flops / CPU_FLOPS)
        alone = cost.gpu_s if machine.gpus and cost.gpu_s else alone
        before = (ends.get(upstream.key, 0.0) for upstream in stage.inputs.values())
        ends[stage.key] = alone + max(before, default=0.0)
        work, total = work + alone, total + cost
    return total + Cost(here_s=NOTEBOOK_S + max(work / places, *ends.values(), 0.0))


def describe(planned: Plan) -> str:
    """The plan for the terminal: a line for each notebook and one for their sum, where results go,
    why notebooks run, and what is missing. GPU hours are shown on a machine with GPUs, or for a run
    that this machine cannot finish; its time is then left out."""
    if not planned.notebooks:
        return ""
    heads = ("notebook", "state", "time", "sampled", "trained", "FLOP", "memory")
    rows = [(*heads, "GPU h" if planned.on_gpus else "")]
    for each in planned.notebooks:
        cells = _cells(planned.costs.get(each.name, Cost()), planned)
        rows.append((each.name, "run" if each.why else "cached", *cells))
    total = sum(planned.costs.values(), Cost())
    if total.sampled or total.trained:
        rows.append(("in all", "", *_cells(total, planned)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    how = [f"{'<' if column < 2 else '>'}{width}" for column, width in enumerate(widths)]
    lines = ["  ".join(map(format, row, how)).rstrip() for row in rows]
    if total.gpu_s and planned.on_gpus:
        lines.append("GPU hours are for an H100 as docs/gpu.md assumes it, without judging.")
    place = planned.notebooks[0].place
    if place.folder.name != place.profile:
        lines.append(f"Results: results/{place.folder.name}")
        changed = f"Changed from profile {place.profile}: {place.says() or 'nothing'}"
        lines += textwrap.wrap(changed, 80, subsequent_indent="  ")
    for why in dict.fromkeys(each.why for each in planned.todo):
        numbers = [each.number for each in planned.todo if each.why == why]
        lines.append(f"Why: {why} ({' '.join(numbers)})")
    return "\n".join([*lines, *(f"missing: {line}" for line in planned.missing)])


def _cells(cost: Cost, planned: Plan) -> tuple[str, ...]:
    return (
        duration_text(max(1, cost.here_s)) if cost.here_s and not planned.missing else "",
        f"{short(cost.sampled / 1e6)} M" if cost.sampled else "",
        f"{short(cost.trained / 1e6)} M" if cost.trained else "",
        f"{cost.flops:.1e}".replace("e+", "e") if cost.flops else "",
        readable(cost.memory) if cost.memory else "",
        short(cost.gpu_s / 3600) if cost.gpu_s and planned.on_gpus else "",
    )
