"""The words of ``klear report``; nothing heavy is imported here."""

from __future__ import annotations

import argparse


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``klear report`` takes."""
    parser.add_argument("--profile", help="folder in params/ (default: smoke)")
    parser.add_argument(
        "--readme",
        metavar="FILE",
        help="also rewrite the table of claims between the markers of the profile in this "
        "markdown file",
    )
    parser.add_argument(
        "--compare",
        nargs=2,
        metavar=("A", "B"),
        help="two results folders side by side instead, such as results/mini results/gpu",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="the page of --compare (default: compare_<A>_<B>.html beside A)",
    )
