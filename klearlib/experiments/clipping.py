"""Notebook 05: GPPO, Clip-Higher and CISPO from the same start (section 5.2.1, Fig. 2)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.evaluate.record_files import load_record
from klearlib.experiments.arms import RULE_NAMES, maths_start
from klearlib.experiments.curves import evaluations
from klearlib.experiments.maths_rl import maths_arm
from klearlib.experiments.running import finished, plan_table, train
from klearlib.params.notebooks import ClippingParams
from klearlib.run.stage import Stage

if TYPE_CHECKING:
    import pandas as pd

    Cell = tuple[str, float, int]  # rule, learning rate, seed

NOTEBOOK = "05_clipping"


def grid(params: ClippingParams) -> dict[Cell, Stage]:
    """(rule, learning rate, seed) -> its RL run, round-robin over seeds: the first seed of every
    rule comes first."""
    start = maths_start(params.profile)
    several = len(params.learning_rates) > 1
    return {
        (rule, rate, seed): maths_arm(
            params,
            start,
            label=RULE_NAMES[rule] + (f", learning rate {rate:g}" if several else ""),
            seed=seed,
            learning_rate=rate,
            alpha=params.alpha,
            rule=rule,
        )
        for seed in params.seeds
        for rate in params.learning_rates
        for rule in params.rules
    }


def chosen_rates(params: ClippingParams) -> dict[str, float]:
    """Rule -> the learning rate whose runs give most right responses on the validation set at their
    last step, over all seeds; of equals the smallest. The benchmarks are not looked at.

    Of several rates none is chosen before all runs of the rule are done: such a rule is left out.
    """
    if len(params.learning_rates) == 1:
        return dict.fromkeys(params.rules, params.learning_rates[0])
    done = finished(grid(params))
    chosen = {}
    for rule in params.rules:
        scores = {}
        for rate in sorted(params.learning_rates):
            folders = [done.get((rule, rate, seed)) for seed in params.seeds]
            if None not in folders:
                # All runs have as many responses, so counts order the rates as means do, exactly.
                scores[rate] = sum(map(_right_at_the_end, folders))
        if len(scores) == len(params.learning_rates):
            chosen[rule] = max(scores, key=scores.__getitem__)
    return chosen


def arms(params: ClippingParams) -> dict[tuple[str, int], Stage]:
    """(rule, seed) -> its RL run at the rule's chosen learning rate, in the order of `grid`."""
    chosen = chosen_rates(params)
    return {
        (rule, seed): stage
        for (rule, rate, seed), stage in grid(params).items()
        if chosen.get(rule) == rate
    }


def stages(params: ClippingParams) -> list[Stage]:
    """All that the notebook asks for."""
    return list(grid(params).values())


def plan(params: ClippingParams) -> pd.DataFrame:
    """The stages of this notebook; see `running.plan_table`."""
    return plan_table(stages(params))


def run(params: ClippingParams) -> None:
    """Train all arms that are not done yet, and publish what there is as runs finish."""
    from klearlib.experiments.clipping_section import publish

    train(stages(params), workers=params.workers, publish=lambda: publish(params))


def finished_runs(params: ClippingParams) -> dict[tuple[str, int], Path]:
    """(rule, seed) -> folder, of the runs of `arms` that are done."""
    return finished(arms(params))


def _right_at_the_end(folder: Path) -> int:
    steps = evaluations(folder, "validation")
    return int(load_record(steps[max(steps)]).correct.sum())
