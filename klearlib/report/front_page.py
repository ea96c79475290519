"""The short table of claims on the front page, made from results/<profile>/claims.json."""

from __future__ import annotations

import os
import posixpath
from pathlib import Path

from klearlib.errors import KlearError, MissingAsset
from klearlib.report.render import render
from klearlib.run.files import read_json, write_text

END = "<!-- end of claims -->"
"""The line that ends every block."""


def start_marker(profile: str) -> str:
    return f"<!-- claims of results/{profile} -->"


def claims_block(entries: list[dict], folder: str) -> str:
    """Counts of verdicts and one row for each claim of claims.json, as markdown; `folder`: the
    results, relative to the front page."""
    beside = posixpath.normpath(f"{folder}/..")
    return render("claims_block.md.j2", entries=entries, folder=folder, beside=beside)


def write_front_page(readme: Path, results_dir: Path) -> Path:
    """Replace what stands between the markers of the profile in `readme`; the rest stays.

    readme: a markdown file with the lines `start_marker` and `END`; left alone where nothing
    changed. results_dir: results/<profile> with the claims.json that `build_report` writes.
    Returns `readme`.

    Raises MissingAsset if there is no such file, and KlearError for a marker that is missing or
    there twice.
    """
    if not readme.is_file():
        raise MissingAsset(f"no file {readme}: give --readme an existing markdown file")
    text, start = readme.read_text(encoding="utf-8"), start_marker(results_dir.resolve().name)
    before, line, rest = f"\n{text}".partition(f"\n{start}\n")
    old, end, after = rest.partition(END)
    if not end or "<!-- claims of" in old or start in after:
        raise KlearError(
            f"{readme.name}: expected the line {start!r} once, and {END!r} after it: put them "
            "around the table"
        )
    folder = Path(os.path.relpath(results_dir.resolve(), readme.resolve().parent)).as_posix()
    made = claims_block(read_json(results_dir / "claims.json"), folder)
    changed = f"{before}{line}\n{made.rstrip()}\n{end}{after}"[1:]
    if changed != text:
        write_text(readme.resolve(), changed)  # a link stays one
    return readme
