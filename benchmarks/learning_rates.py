"""Train every rule at several learning rates: an order of rules at one of them is an order there.

    .venv/bin/python benchmarks/learning_rates.py --profile mini --steps 30

Runs are stages like those of notebook 05 and are cached with them. Writes
benchmarks/results/learning_rates_<profile>.csv: one row for each learning rate and rule with the
rate correct on the validation set at temperature 1 before and after, the lowest rollout rate
correct, the largest gradient norm and the share of tokens outside the clip range.
"""

from __future__ import annotations

import argparse

from common import arguments_of, finish, keep

from klearlib.experiments.catalogue import check
from klearlib.experiments.experiment import runs_dir
from klearlib.experiments.nb05_clipping import Clipping
from klearlib.experiments.results import Results
from klearlib.experiments.tidy import of_stage
from klearlib.params import SMOKE, load_profile
from klearlib.report.style import series_style
from klearlib.rl.coefficients import CORNERS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="mini")
    parser.add_argument("--rates", type=float, nargs="+", default=[2.5e-5, 5e-5, 1e-4, 2e-4])
    parser.add_argument("--seeds", type=int, nargs="+", default=[100], help="they decide nothing")
    parser.add_argument("--steps", type=int, help="RL steps (default: the profile's)")
    arguments = arguments_of(parser, profile=SMOKE, rates=[5e-5], steps=1)
    values = load_profile(arguments.profile, Clipping.name)
    values |= {"learning_rates": arguments.rates, "code": False}
    if arguments.steps is not None:
        values["num_steps"] = arguments.steps
    clipping = Clipping(check(Clipping.name, values))
    cells = clipping.cells(arguments.seeds)
    finish(cells.values(), arguments, workers=clipping.params.workers)
    rows = [
        {"learning_rate": f"{rate:g}", "rule": series_style(rule).label, "seed": seed}
        | measures(Results({(rule, seed): of_stage(stage, runs_dir())}))
        for (rule, rate, seed), stage in cells.items()
    ]
    keep(rows, f"learning_rates_{arguments.profile}", arguments)


def measures(run: Results) -> dict[str, float]:
    scores = run.score_curve("validation").set_index("step")["value"]
    return {
        "start": scores.loc[scores.index.min()],
        "end": scores.loc[scores.index.max()],
        "lowest_rollout_rate": run.curve("rollout/correct_rate")["value"].min(),
        "largest_grad_norm": run.curve("train/grad_norm_max")["value"].max(),
        "tokens_outside": sum(run.mean(f"train/token_share_{corner}") for corner in CORNERS),
    }


if __name__ == "__main__":
    main()
