"""``klear report``."""

from __future__ import annotations

import argparse
from pathlib import Path

from klearlib.errors import ParameterError


def report(arguments: argparse.Namespace) -> int:
    """Build the report of a profile, or the comparison of two, and print where it is."""
    if arguments.compare:
        return _compare(arguments)
    if arguments.out is not None:
        raise ParameterError("--out belongs to --compare: leave it out, or add --compare A B")
    from klearlib.params import require_profile
    from klearlib.report.front_page import write_front_page
    from klearlib.report.page import build_report
    from klearlib.run.notebooks import results_dir

    folder = results_dir(require_profile(arguments.profile or "smoke"))
    print(build_report(folder))
    if arguments.readme is not None:
        print(write_front_page(Path(arguments.readme), folder))
    return 0


def _compare(arguments: argparse.Namespace) -> int:
    if arguments.profile is not None or arguments.readme is not None:
        raise ParameterError("--compare takes its two folders and --out: no --profile, no --readme")
    from klearlib.report.compare import write_comparison

    out = None if arguments.out is None else Path(arguments.out)
    for path in write_comparison(*map(Path, arguments.compare), out):
        print(path)
    return 0
