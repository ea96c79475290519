"""Notebook 05: GPPO, Clip-Higher and CISPO from the same start (section 5.2.1, Fig. 2)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.experiments.arms import rl_stage, rule_spec
from klearlib.experiments.publish import runs_dir, split_done
from klearlib.miniature.stages import start_stages
from klearlib.params import ClippingParams, miniature
from klearlib.run.fanout import run_stages
from klearlib.run.stage import Stage, state

if TYPE_CHECKING:
    import pandas as pd

NOTEBOOK = "05_clipping"
# A report that fills as seeds finish, without its drawing taking the workers' cores.
_PUBLISH_EVERY_S = 90.0


def arms(params: ClippingParams) -> dict[tuple[str, int], Stage]:
    """(rule, seed) -> its RL run, round-robin over seeds: the first seed of every rule comes
    first."""
    world = miniature(params.profile)
    return {
        (rule, seed): rl_stage(
            world,
            rule=rule_spec(
                rule,
                eps_low=params.eps_low,
                eps_high=params.eps_high,
                options=params.rl_options,
            ),
            seed=seed,
            num_steps=params.num_steps,
            num_problems=params.num_problems,
            group_size=params.group_size,
            mini_batch_problems=params.mini_batch_problems,
            learning_rate=params.learning_rate,
            alpha=params.alpha,
            eval_every=params.eval_every,
            eval_responses=params.eval_responses,
            options=params.rl_options,
        )
        for seed in params.seeds
        for rule in params.rules
    }


def plan(params: ClippingParams) -> pd.DataFrame:
    """One row for each stage: what it is, whether it is cached, an estimate in seconds, its
    folder."""
    import pandas as pd

    stages = [*start_stages(miniature(params.profile)).values(), *arms(params).values()]
    rows = [
        {
            "stage": stage.title,
            "state": state(stage, runs_dir()),
            "estimate_s": round(stage.estimate_s),
            "folder": f"results/runs/{stage.name}/{stage.key}",
        }
        for stage in stages
    ]
    return pd.DataFrame(rows)


def run(params: ClippingParams) -> None:
    """Train all arms that are not done yet, and publish what there is as runs finish."""
    from klearlib.experiments.clipping_section import publish

    last = time.monotonic()

    def publish_now_and_then(_: Stage) -> None:
        nonlocal last
        if time.monotonic() - last > _PUBLISH_EVERY_S:
            publish(params)
            last = time.monotonic()

    run_stages(
        list(arms(params).values()),
        runs_dir=runs_dir(),
        workers=params.workers,
        on_done=publish_now_and_then,
    )


def finished_runs(params: ClippingParams) -> dict[tuple[str, int], Path]:
    """(rule, seed) -> folder, of the runs that are done."""
    stages = arms(params)
    done, _ = split_done(list(stages.values()))
    return {arm: stage.folder(runs_dir()) for arm, stage in stages.items() if stage in done}
