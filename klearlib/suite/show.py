"""``klear show``: what the policy of a run wrote."""

from __future__ import annotations

import math

from klearlib.errors import KlearError, printable
from klearlib.evaluate.counts import LOOKS, looked_at, read_evaluations, scored
from klearlib.experiments.experiment import runs_dir
from klearlib.report.watch import find_run
from klearlib.rl.alarms import truncation_rose
from klearlib.run.entry import read_metrics, read_samples


def show(word: str) -> int:
    """Print the scores of a run with what goes with them, then what its policy wrote.

    Raises ParameterError where there is no such run, KlearError where it keeps no samples.
    """
    folder = find_run(word, runs_dir())
    lines = read_samples(folder)
    if not lines:
        raise KlearError(
            f"{folder.parent.name}/{folder.name} has no samples: only RL runs keep them, from "
            "their first step on"
        )
    if evaluations := scored(read_evaluations(folder)):
        print("  ".join(["step", *(name.replace("_", " ") for name in LOOKS)]))
    for step, found in evaluations.items():
        cells = [f"{step:4d}"]
        for name, value in looked_at(found).items():
            share = "-" if math.isnan(value) else f"{100 * value:.0f} %"
            cells.append((f"{value:.0f}" if name == "tokens" else share).rjust(len(name)))
        print("  ".join(cells))
    if rose := truncation_rose(read_metrics(folder)):
        print(f"!! {rose}")
    for line in lines:
        found = f" ({line['found']})" if line["found"] else ""
        head = (
            f"== step {line['step']}, {line['problem']}, response {line['response']}: "
            f"{line['reason']}{found}, reward {line['reward']:.2f}, "
            f"advantage {line['advantage']:.2f}, "
            f"{line['tokens']} tokens{', truncated' if line['truncated'] else ''}"
        )
        for text in (head, "-- prompt", line["prompt"], "-- text", line["text"]):
            print(printable(text, keep="\n\t"))
    return 0
