"""Cells of notebook 12 run once more from the same start, here and as another processor would.

    .venv/bin/python benchmarks/same_cell.py --profile full --replicates 200 201 202 203 204

For each replicate GPPO and GPPO with F = r in the low corner at the learning rate that decides E1;
runs that are not there are made first. `again` is the same computation: every file must be the same
bytes. `plain` sets ATEN_CPU_CAPABILITY=default, with which torch leaves out the vector instructions
that processors differ in, so that sums round otherwise. The score is the one that decides, in
points: how far it moves is the noise of a machine. Writes benchmarks/results/same_cell.csv; exit
code 1 if a file of `again` differs.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from common import arguments_of, copy_of_start, digests, finish, keep

from klearlib.experiments.catalogue import check
from klearlib.experiments.experiment import runs_dir
from klearlib.experiments.nb12_rules import Rules
from klearlib.experiments.results import Results
from klearlib.experiments.rule_grid import at_rate
from klearlib.experiments.tidy import of_stage
from klearlib.params import SMOKE, load_profile
from klearlib.run.entry import DONE
from klearlib.run.pool import run_stages
from klearlib.run.stage import Stage

RULES = ("gppo", "gppo_ratio_low")
PROCESSORS = {"again": {}, "plain": {"ATEN_CPU_CAPABILITY": "default"}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="full")
    parser.add_argument("--replicates", type=int, nargs="+", default=[200, 201, 202, 203, 204])
    arguments = arguments_of(parser, profile=SMOKE, replicates=[0])
    e = Rules(check(Rules.name, load_profile(arguments.profile, Rules.name)))
    rate = e.params.decided_at
    cells = {
        (rule, seed): e.arms[at_rate(rate, rule), seed]
        for seed in arguments.replicates
        for rule in RULES
    }
    finish(cells.values(), arguments)

    def score(cell: tuple[str, int], runs: Path) -> float:
        """In points."""
        on = e.decided_on_benchmarks
        run = Results({cell: of_stage(cells[cell], runs)})
        return 100 * run.replicate_scores(cell[0], [cell[1]], on, statistic="second_half")[0]

    rows = []
    for processor, variables in PROCESSORS.items():
        with tempfile.TemporaryDirectory(prefix="klear-same-") as place:
            runs = copy_of_start(place, next(iter(cells.values())))
            os.environ.update(variables)
            run_stages([*cells.values()], runs_dir=runs)
            rows += [
                {
                    "rule": e.titles[rule],
                    "replicate": seed,
                    "processor": processor,
                    "same_files": same_files(cells[rule, seed], runs),
                    "score": (before := score((rule, seed), runs_dir())),
                    "score_again": (now := score((rule, seed), runs)),
                    "difference": now - before,
                }
                for rule, seed in cells
            ]
    keep(rows, "same_cell", arguments)
    return 0 if all(row["same_files"] for row in rows if row["processor"] == "again") else 1


def same_files(stage: Stage, runs: Path) -> bool:
    return digests(stage.folder(runs_dir()) / DONE) == digests(stage.folder(runs) / DONE)


if __name__ == "__main__":
    sys.exit(main())
