"""What a plan costs, and whether this machine can finish it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from klearlib.errors import ParameterError
from klearlib.params import check, is_real, load, root
from klearlib.policy.compute import Compute
from klearlib.run.assets import missing_of
from klearlib.run.cost import Cost
from klearlib.run.costs import cost_of
from klearlib.run.machine import a_node, this_machine
from klearlib.run.planned import WILL_RUN, PlannedNotebook
from klearlib.run.pool import num_at_once
from klearlib.run.refusals import refusals
from klearlib.run.shapes import positions_of_stage
from klearlib.run.stage import Stage, is_done
from klearlib.scale.address import runs_here
from klearlib.scale.cluster import Cluster, cluster_of_stage
from klearlib.scale.require import INSTALL_RAY


def weighed(profile: str, planned: Sequence[PlannedNotebook]) -> list[PlannedNotebook]:
    """`planned` with the cost of each notebook that will run, and with all that keeps the run from
    finishing here in its `missing`. A stage that several notebooks share counts in the first.

    Raises:
        ParameterError: the profile lacks what a notebook needs.
    """
    # It imports every experiment, which a run of cached notebooks does without.
    from klearlib.experiments.catalogue import stages_of

    runs = root() / "results" / "runs"
    seen: set[str] = set()
    found, costs, computes, todo = [], [], {}, []
    clusters: dict[str, Cluster] = {}
    too_long: list[str] = []
    here, workers, on_ray = this_machine(runs), 0, False
    for each in planned:
        if each.state != WILL_RUN:
            found.append(each)
            continue
        mine = []
        params = check(each.notebook, each.values)
        for digest, stage in stages_of(each.notebook, params).items():
            if digest in seen:
                continue
            seen.add(digest)
            # A key takes a look at all code: not for stages of a kind that never ran.
            if not ((runs / stage.name).is_dir() and is_done(stage, runs)):
                todo.append(stage)
                mine.append(cost_of(stage))
                if "compute" in stage.params:
                    compute = Compute(**stage.params["compute"])
                    computes[compute] = None
                if "cluster" in stage.params:
                    cluster = cluster_of_stage(stage)
                    clusters[repr(cluster)] = cluster
                    too_long.append(_too_long(profile, stage))
        costs += mine
        on_ray |= bool(mine) and isinstance(params.workers, str)
        if mine and runs_here(params.workers):
            asked = params.workers if isinstance(params.workers, int) else 0
            workers = max(workers, num_at_once(asked, len(here.gpus)))
        found.append(replace(each, cost=sum(mine, Cost())))
    lines = _assets(profile, todo)
    lines += filter(None, too_long)
    # With verl, which stands on Ray, both are one lack.
    if on_ray and "ray" not in here.packages and not clusters:
        lines.append(f"Ray is not installed: {INSTALL_RAY}")
    machine = here if workers or not todo else a_node(here)
    lines += refusals(
        profile,
        list(computes),
        costs,
        machine,
        workers=workers or 1,
        clusters=list(clusters.values()),
    )
    return _said_once(found, lines)


def _too_long(profile: str, stage: Stage) -> str:
    """That the rollouts of a run of verl are longer than its model's positions; "" where not."""
    cluster = cluster_of_stage(stage)
    budget = stage.params["settings"]["max_new_tokens"]
    try:
        cluster.require_positions(positions_of_stage(stage), max_new_tokens=budget)
    except ParameterError as error:
        return f"params/{profile}/compute.yaml, verl: {error}"
    return ""


def _assets(profile: str, todo: Sequence[Stage]) -> list[str]:
    """Models and data sets that the stages of a real profile read and that are not here."""
    return missing_of(load(profile, "real"), todo) if is_real(profile) else []


def _said_once(planned: list[PlannedNotebook], lines: list[str]) -> list[PlannedNotebook]:
    """Lines that hold for the whole run stand at the first notebook that will run."""
    said: set[str] = set()
    found = []
    for each in planned:
        mine = each.missing
        if each.state == WILL_RUN:
            mine, lines = (*mine, *lines), []
        found.append(replace(each, missing=tuple(dict.fromkeys(m for m in mine if m not in said))))
        said.update(mine)
    return found
