"""``klear show``: what the policy of a run wrote."""

from __future__ import annotations

import math
from pathlib import Path

from klearlib.errors import KlearError, printable
from klearlib.evaluate.record_files import LOOKS, load_record, looked_at, scored_files
from klearlib.experiments.experiment import runs_dir
from klearlib.report.watch import find_run
from klearlib.rl.alarms import truncation_rose
from klearlib.run.entry import read_metrics, read_samples


def show(word: str) -> int:
    """Print what the policy of a run wrote, behind its scores and what stands beside them.

    Raises:
        ParameterError: no such run. KlearError: it keeps no samples.
    """
    folder = find_run(word, runs_dir())
    lines = read_samples(folder)
    if not lines:
        raise KlearError(
            f"{folder.parent.name}/{folder.name} has no samples: only RL runs keep them, from "
            "their first step on"
        )
    for text in _looks(folder):
        print(text)
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
        print(printable(head, keep="\n\t"))
        for name in ("prompt", "text"):
            print(f"-- {name}", printable(line[name], keep="\n\t"), sep="\n")
    return 0


def _looks(folder: Path) -> list[str]:
    """A line for each evaluation of a run, in percent and mean tokens, below a line of heads."""
    rows = [["step", *(name.replace("_", " ") for name in LOOKS)]]
    for step, paths in scored_files(folder).items():
        row = [str(step)]
        for name, value in looked_at([load_record(path) for path in paths]).items():
            share = "-" if math.isnan(value) else f"{100 * value:.0f} %"
            row.append(f"{value:.0f}" if name == "tokens" else share)
        rows.append(row)
    sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.rjust, row, sizes)) for row in rows]
    return lines if len(rows) > 1 else []
