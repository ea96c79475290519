"""``klear watch`` and ``klear show``: the curves of runs, and what their policies wrote."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from klearlib.errors import KlearError, ParameterError, printable
from klearlib.evaluate.looks import LOOKS, looked_at
from klearlib.evaluate.record_files import load_record, scored_files
from klearlib.experiments.catalogue import check, notebooks_of, stages_of
from klearlib.experiments.experiment import runs_dir
from klearlib.params import did_you_mean, load_profile, profiles
from klearlib.report.style import figure_bytes
from klearlib.report.watch import find_run, text_lines, watch_figure, watch_page, watched
from klearlib.rl.alarms import truncation_rose
from klearlib.run.entry import read_metrics, read_samples
from klearlib.run.files import write_bytes, write_text
from klearlib.run.pool import code_read_once
from klearlib.run.progress import Block, redraws
from klearlib.suite.tensorboard import Mirror

LOOK_EVERY_S = 2.0
_WIDTH = 120  # where there is no terminal


def run_folders(words: Sequence[str]) -> list[Path]:
    """The folders of the stages of each profile, and of each run, that `words` name. A
    stage that has not begun has a folder that is not there.

    Raises:
        ParameterError: no such profile or run.
    """
    found: list[Path] = []
    for word in words:
        if word in profiles():
            found += _of_profile(word)
            continue
        hint = did_you_mean(word, profiles())
        try:
            found.append(find_run(word, runs_dir()))
        except ParameterError as error:
            if not hint.startswith("did you mean"):
                raise
            raise ParameterError(f"there is no profile {word!r}; {hint}") from error
    return list(dict.fromkeys(found))


def _of_profile(profile: str) -> list[Path]:
    with code_read_once():
        return [
            stage.folder(runs_dir())
            for name in notebooks_of(profile)
            for stage in stages_of(name, check(name, load_profile(profile, name))).values()
        ]


def watch(
    words: Sequence[str],
    *,
    png: str | None = None,
    html: str | None = None,
    tensorboard: str | None = None,
) -> int:
    """Write the files that are asked for and return; without one show the runs, in a terminal anew
    each `LOOK_EVERY_S` seconds until Ctrl-C.

    Raises:
        ParameterError: no such profile or run, or nothing to draw. MissingAsset: no TensorBoard.
    """
    folders = run_folders(words)
    mirror = None if tensorboard is None else Mirror(Path(tensorboard), lambda: folders)
    draws = png is not None or html is not None
    if draws:
        runs = watched(folders)
        if png is not None:
            print(write_bytes(Path(png), figure_bytes(watch_figure(runs), "png")))
        if html is not None:
            print(write_text(Path(html), watch_page(runs)))
    if draws or not redraws(sys.stdout):
        if mirror is not None:
            mirror(True)
        if not draws:
            print("\n".join(text_lines(watched(folders), _WIDTH)))
        return 0
    block = Block(sys.stdout)
    try:
        while True:
            runs = watched(folders)
            block.show(lambda width: text_lines(runs, width))  # noqa: B023 - called at once
            if mirror is not None:
                mirror()
            time.sleep(LOOK_EVERY_S)
    except KeyboardInterrupt:
        block.keep()
    finally:
        block.close()
        if mirror is not None:
            mirror(True)
    return 0


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
