"""The short table of claims on the front page, made from results/<profile>/claims.json."""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path

from klearlib.errors import KlearError, MissingAsset
from klearlib.report.render import render
from klearlib.run.files import read_json, write_text

END = "<!-- end of claims -->"
"""The line that ends every block."""


def start_marker(profile: str) -> str:
    return f"<!-- claims of results/{profile} -->"


def claims_block(entries: list[dict], folder: str) -> str:
    """Counts of verdicts and one row for each claim of claims.json, as markdown; `folder`: with the
    results, as seen from the front page."""
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
        raise MissingAsset(f"no file {readme}: --readme names a markdown file that exists")
    try:
        text = readme.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise KlearError(f"{readme} is not UTF-8: --readme names a markdown file") from error
    start = start_marker(results_dir.resolve().name)
    block = rf"(^{re.escape(start)}[ \t]*\r?\n)(.*?)(^{re.escape(END)}[ \t]*\r?$)"
    blocks = re.findall(block, text, re.M | re.S)
    if len(blocks) != 1 or "<!-- claims of" in blocks[0][1]:
        raise KlearError(
            f"{readme.name}: expected the line {start!r} once, and {END!r} after it: put them "
            "around the table"
        )
    folder = Path(os.path.relpath(results_dir.resolve(), readme.resolve().parent)).as_posix()
    made = claims_block(read_json(results_dir / "claims.json"), folder)
    changed = re.sub(block, lambda each: f"{each[1]}\n{made}\n{each[3]}", text, flags=re.M | re.S)
    if changed != text:
        write_text(readme.resolve(), changed)  # a link stays one
    return readme
