"""The grid of learning rates of notebook 05: its table, and what verdicts and notes say of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klearlib.experiments import curves
from klearlib.experiments.arms import RULE_NAMES
from klearlib.experiments.benchmarks import curve_titles
from klearlib.experiments.clipping import chosen_rates, grid
from klearlib.experiments.running import finished
from klearlib.experiments.score_tables import seed_interval
from klearlib.params.notebooks import ClippingParams
from klearlib.report.style import series_style

if TYPE_CHECKING:
    import pandas as pd


def rate_table(params: ClippingParams) -> pd.DataFrame:
    """Every rule at every learning rate, of the runs that are done: last scores on the validation
    set and on the benchmarks, mean over seeds with its 95 % t interval, and "yes" at the rate that
    `chosen_rates` keeps."""
    import pandas as pd

    done, chosen = finished(grid(params)), chosen_rates(params)
    measured = curve_titles(params.profile, "math")
    titles = {"validation": measured["validation"]} | measured
    rows = []
    for rule in params.rules:
        for rate in sorted(params.learning_rates):
            runs = {(rule, s): f for (r, x, s), f in done.items() if (r, x) == (rule, rate)}
            if not runs:
                continue
            row: dict = {"rule": series_style(rule).label, "learning_rate": f"{rate:g}"}
            row["seeds"] = len(runs)
            for name, title in titles.items():
                last = curves.end_scores(runs, name).set_index("seed")["value"]
                row |= zip((title, f"{title} low", f"{title} high"), seed_interval(last))  # noqa: B905
            rows.append(row | {"chosen": "yes" if chosen.get(rule) == rate else ""})
    columns = [each for t in titles.values() for each in (t, f"{t} low", f"{t} high")]
    return pd.DataFrame(rows, columns=["rule", "learning_rate", "seeds", *columns, "chosen"])


def why_not_chosen(params: ClippingParams) -> str:
    """Why rules cannot be compared yet: what the choice of their learning rates waits for; "" where
    every rule has one."""
    chosen = chosen_rates(params)
    waiting = [rule for rule in params.rules if rule not in chosen]
    if not waiting:
        return ""
    mine = {cell: stage for cell, stage in grid(params).items() if cell[0] in waiting}
    names = " and ".join(RULE_NAMES[rule] for rule in waiting)
    done = len(finished(mine))
    return f"no learning rate is chosen for {names}: {done} of {len(mine)} runs are done"


def words_on_rates(params: ClippingParams) -> str:
    """The learning rate that each rule was given by validation; "" where there is one for all."""
    if len(params.learning_rates) == 1:
        return ""
    rates = [f"{RULE_NAMES[rule]} {rate:g}" for rule, rate in chosen_rates(params).items()]
    return f"Each rule at its best learning rate by validation: {', '.join(rates) or 'none yet'}"


def note_on_rates(params: ClippingParams) -> str:
    """The note on how far an order of rules holds, given the learning rates."""
    why = (
        "GPPO never cuts off tokens that it pushes down, and rests on small steps more than "
        "Clip-Higher does (docs/miniature.md has the runs)."
    )
    if len(params.learning_rates) == 1:
        return (
            f"One learning rate for all rules ({params.learning_rates[0]:g}). An order of rules "
            f"measured at one learning rate is an order at that learning rate: {why}"
        )
    tried = ", ".join(f"{rate:g}" for rate in sorted(params.learning_rates))
    return (
        f"{words_on_rates(params)}, of {tried}: the most right responses on the validation set at "
        f"the last step, over all seeds, of equals the smallest rate. No benchmark takes part in "
        f"the choice. Why a grid: {why}"
    )
