"""What every notebook does with its arms: show the plan, run what is missing, find what is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.experiments.publish import runs_dir, split_done
from klearlib.run.pool import run_stages
from klearlib.run.preload import preload
from klearlib.run.progress import in_notebook
from klearlib.run.stage import Stage, state

if TYPE_CHECKING:
    import pandas as pd

Arms = Mapping[tuple[str, int], Stage]

# A report that fills as seeds finish, without its drawing taking the workers' cores.
_PUBLISH_EVERY_S = 90.0


def plan_table(stages: Iterable[Stage]) -> pd.DataFrame:
    """One row for each of `stages` and of the stages that they need, in the order in which they can
    run: what it is, whether it is cached, an estimate in seconds, its folder."""
    import pandas as pd

    found = [(stage, state(stage, runs_dir())) for stage in _with_inputs(stages)]
    # A notebook's next cells take about as long as the imports that `train` needs.
    if in_notebook() and any(now in ("absent", "partial") for _, now in found):
        preload()
    rows = [
        {
            "stage": stage.title,
            "state": now,
            "estimate_s": round(stage.estimate_s),
            "folder": f"results/runs/{stage.name}/{stage.key}",
        }
        for stage, now in found
    ]
    return pd.DataFrame(rows)


def train(stages: Sequence[Stage], *, workers: int | str, publish: Callable[[], object]) -> None:
    """Run all of `stages` that are not done yet, and publish what there is as they finish."""
    last = time.monotonic()

    def publish_now_and_then(_: Stage) -> None:
        nonlocal last
        if time.monotonic() - last > _PUBLISH_EVERY_S:
            publish()
            last = time.monotonic()

    run_stages(stages, runs_dir=runs_dir(), workers=workers, on_done=publish_now_and_then)


def finished(arms: Arms) -> dict[tuple[str, int], Path]:
    """(series, seed) -> folder, of the arms that are done."""
    done, _ = split_done(list(arms.values()))
    return {arm: stage.folder(runs_dir()) for arm, stage in arms.items() if stage in done}


def _with_inputs(stages: Iterable[Stage]) -> list[Stage]:
    found: dict[tuple[str, str], Stage] = {}

    def visit(stage: Stage) -> None:
        for upstream in stage.inputs.values():
            visit(upstream)
        found.setdefault((stage.name, stage.key), stage)

    for stage in stages:
        visit(stage)
    return list(found.values())
