"""The paper's own numbers as data (arXiv 2508.07629): tables 1-6, figures 1-5, claims C1-C26;
and what the suite asks beyond it, E1 and on.

Tables hold the cells as printed, in percent. Figures were recovered from the vector drawing of the
PDF, so they are plotted values, rounded by the authors to 0.001. One run per line: the paper prints
no error bars.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.errors import KlearError
from klearlib.paper.schema import Claim, load_claims

if TYPE_CHECKING:
    import pandas as pd

DATA = Path(__file__).parent / "data"
NUM_TABLES = 6

_LCB, _GRAD, _REWARD = "LiveCodeBench V5, avg@4", "gradient norm", "mean reward of the batch"
_RULES = {"GRPO w/ Clip Higher": "clip_higher", "GPPO": "gppo", "CISPO": "cispo"}
_REWARDS = {"Hard Reward": "hard", "Soft Reward": "soft"}
_TESTS = {"w/o Filter": "no_filter", "Filter": "filter"}
_ADVANTAGES = {"w/o adv=0 Filter": "no_filter", "adv=0 Filter": "filter"}
PRINTED = _RULES | _REWARDS | _TESTS | _ADVANTAGES
"""Series as the figures print it -> key of that arm in this suite."""

# name -> file, what the value is, its unit, printed series -> key of that arm in this suite
_FIGURES: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "1": ("fig1.csv", "final score of each model", "percent", {}),
    "2a": ("fig2a_aime2024.csv", "AIME 2024, avg@32", "fraction", _RULES),
    "2b": ("fig2b_livecodebench_v5.csv", _LCB, "fraction", _RULES),
    "2c": ("fig2c_grad_norm.csv", _GRAD, "norm", _RULES),
    "3a": ("fig3a_livecodebench_v5.csv", _LCB, "fraction", _REWARDS),
    "3b": ("fig3b_rewards.csv", _REWARD, "reward", _REWARDS),
    "4": ("fig4_livecodebench_v5.csv", _LCB, "fraction", _TESTS),
    "5a": ("fig5a_aime2024.csv", "AIME 2024, avg@32", "fraction", _ADVANTAGES),
    "5b": ("fig5b_rewards.csv", _REWARD, "reward", _ADVANTAGES),
}
FIGURES = tuple(_FIGURES)


@functools.lru_cache(maxsize=1)
def _tables() -> list[dict]:
    import yaml

    return yaml.safe_load((DATA / "tables.yaml").read_text(encoding="utf-8"))["tables"]


def table(n: int) -> pd.DataFrame:
    """Table `n` (1-6): row labels as index, printed columns, values in percent as floats.

    `attrs` keeps what floats lose: ``cells`` {row: {column: text as printed}}; ``bold``,
    ``underlined``, ``dagger`` (lists of (row, column)); ``marks`` {row: text} (longer inference
    budgets in Table 1); ``notes``, ``caption`` (a summary), ``number``, ``pdf_page``, ``unit``.

    Raises ValueError for any other `n`.

    >>> float(table(6).loc["alpha = 0.1", "AIME2024"])
    79.37
    >>> table(6).attrs["bold"]
    [('alpha = 0.1', 'AIME2024'), ('alpha = 0.1', 'AIME2025')]
    """
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= NUM_TABLES:
        raise KlearError(f"no table {n!r} in the paper: expected an int from 1 to {NUM_TABLES}")
    import pandas as pd

    printed = _tables()[n - 1]
    rows, columns = printed["rows"], printed["columns"]
    frame = pd.DataFrame(
        [[float(row["values"][column]) for column in columns] for row in rows],
        index=pd.Index([row["label"] for row in rows], name=printed["row_header"] or "alpha"),
        columns=columns,
    )
    frame.attrs = {
        "number": n,
        "unit": "percent",
        "pdf_page": printed["pdf_page"],
        "caption": printed["caption_summary"],
        "notes": list(printed.get("notes", [])),
        "cells": {row["label"]: dict(row["values"]) for row in rows},
        "marks": {row["label"]: row["mark"] for row in rows if "mark" in row},
    }
    for mark in ("bold", "underlined", "dagger"):
        frame.attrs[mark] = [(row["label"], column) for row in rows for column in row.get(mark, [])]
    return frame


def figure(name: str) -> pd.DataFrame:
    """Figure `name` in long form: columns ``series, step, value``; "1" has model, benchmark, value.

    `attrs`: ``name``, ``metric``, ``unit`` ("percent" for Figure 1, "fraction" of 1 for scores,
    "norm", "reward") and ``keys``, the printed series name -> key of the same arm in this suite.

    Raises ValueError that lists the names for any other `name`.

    >>> figure("2a").query("series == 'GPPO' and step == 240").value.item()
    0.811
    """
    if name not in FIGURES:
        raise KlearError(f"no figure {name!r} in the paper: there are {', '.join(FIGURES)}")
    import pandas as pd

    file, metric, unit, keys = _FIGURES[name]
    frame = pd.read_csv(DATA / file)
    frame.attrs = {"name": name, "metric": metric, "unit": unit, "keys": dict(keys)}
    return frame


def claims() -> tuple[Claim, ...]:
    """The claims C1, C2, ... in order, then the explorations E1, E2, ..., each with its rule."""
    return load_claims()


def claim(claim_id: str) -> Claim:
    """One claim by its id.

    Raises ValueError that lists the ids for any other `claim_id`.

    >>> claim("C14").kind
    'mechanism'
    """
    by_id = {entry.id: entry for entry in claims()}
    if claim_id not in by_id:
        raise KlearError(f"no claim {claim_id!r} in the paper: there are {', '.join(by_id)}")
    return by_id[claim_id]
