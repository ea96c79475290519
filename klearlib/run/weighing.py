"""What a plan costs, and whether this machine can finish it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from klearlib.params import check, is_real, real_of, root
from klearlib.policy.compute import Compute
from klearlib.run.assets import missing_of
from klearlib.run.cost import Cost
from klearlib.run.costs import cost_of
from klearlib.run.fanout import num_at_once
from klearlib.run.machine import this_machine
from klearlib.run.planned import WILL_RUN, PlannedNotebook
from klearlib.run.refusals import refusals
from klearlib.run.stage import Stage, is_done


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
    here, workers = this_machine(runs), 1
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
        costs += mine
        if mine:
            asked = num_at_once(params.workers, len(here.gpus))
            workers = max(workers, asked)  # who counts less shares the first places
        found.append(replace(each, cost=sum(mine, Cost())))
    lines = _assets(profile, todo)
    lines += refusals(profile, list(computes), costs, here, workers=workers)
    return _said_once(found, lines)


def _assets(profile: str, todo: Sequence[Stage]) -> list[str]:
    """Models and data sets that the stages of a real profile read and that are not here."""
    return missing_of(real_of(profile), todo) if is_real(profile) else []


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
