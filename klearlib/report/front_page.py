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

_MARKER = re.compile(
    r"^<!-- (?:claims of results/(?P<profile>\S+)|end of claims) -->[ \t\r]*$", re.M
)


def start_marker(profile: str) -> str:
    return f"<!-- claims of results/{profile} -->"


def _read_claims(results_dir: Path) -> list[dict]:
    path, profile = results_dir / "claims.json", results_dir.resolve().name
    fix = f"write it with `klear report --profile {profile}`"
    try:
        return read_json(path)
    except FileNotFoundError as error:
        raise MissingAsset(f"no {profile}/claims.json: {fix}") from error
    except (OSError, ValueError) as error:
        raise KlearError(f"{profile}/claims.json cannot be read ({error}): {fix}") from error


def claims_block(entries: list[dict], folder: str) -> str:
    """Counts of verdicts and one row for each claim of claims.json, as markdown; `folder`: with the
    results, as seen from the front page."""
    beside = posixpath.normpath(f"{folder}/..")
    return render("claims_block.md.j2", entries=entries, folder=folder, beside=beside)


def write_front_page(readme: Path, results_dir: Path) -> Path:
    """Replace what stands between the markers of the profile in `readme`; the rest stays.

    readme: a markdown file with the lines `start_marker` and `END`; left alone where nothing
    changed. results_dir: results/<profile> with claims.json. Returns `readme`.

    Raises MissingAsset where there is no such file or no claims.json, and KlearError for a marker
    that is missing, there twice, or out of order.
    """
    text, start, end = block_of(readme, results_dir.resolve().name)
    folder = Path(os.path.relpath(results_dir.resolve(), readme.resolve().parent)).as_posix()
    block = claims_block(_read_claims(results_dir), folder)
    changed = f"{text[:start]}\n\n{block}\n{text[end:]}"
    if changed != text:
        write_text(readme.resolve(), changed)  # a link stays one
    return readme


def block_of(readme: Path, profile: str) -> tuple[str, int, int]:
    """The text of `readme`, and where in it the block of `profile` starts and ends, without its
    markers; raises as `write_front_page` does for the file."""
    if not readme.is_file():
        raise MissingAsset(f"no file {readme}: --readme names a markdown file that exists")
    try:
        text = readme.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise KlearError(f"{readme} is no text in UTF-8: --readme names a markdown file") from error
    return text, *_place(text, profile, readme.name)


def _place(text: str, profile: str, name: str) -> tuple[int, int]:
    """Where the block of `profile` starts and ends, without its markers."""
    start, markers = start_marker(profile), list(_MARKER.finditer(text))
    mine = [index for index, marker in enumerate(markers) if marker["profile"] == profile]
    if not mine:
        raise KlearError(f"{name} has no line {start!r}: put it and {END!r} around the table")
    if len(mine) > 1:
        raise KlearError(f"{name} has the line {start!r} {len(mine)} times: keep one of them")
    opens = [marker["profile"] is not None for marker in markers]
    if len(opens) % 2 or opens != [True, False] * (len(opens) // 2):
        raise KlearError(
            f"{name}: after each line {start_marker('<profile>')!r} comes one line {END!r}, "
            "before the next"
        )
    return markers[mine[0]].start() + len(start), markers[mine[0] + 1].start()
