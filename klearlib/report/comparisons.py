"""The comparisons of a notebook: measured one by one, corrected together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from klearlib.errors import KlearError
from klearlib.evaluate import scores
from klearlib.paper import claim as claim_by_id


@dataclass(frozen=True)
class Measured:
    """One comparison of a notebook: its name in ``claims.yaml`` and its paired difference.

    `p_holm` is its p-value corrected over the `family` comparisons of the notebook, None before
    `holm_in_notebook`.
    """

    name: str
    result: scores.PairedDifference
    p_holm: float | None = None
    family: int = 1


def measure(name: str, a: np.ndarray, b: np.ndarray, *, level: float = 0.95) -> Measured:
    """`klearlib.evaluate.scores.paired_difference` of a - b under the comparison's name.

    a, b: float [S, P], the same seeds and problems in the same order.
    """
    return Measured(name, scores.paired_difference(a, b, level))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment: the i-th smallest of m p-values times m - i + 1, made monotone.

    Controls the chance of one or more false rejections among all, whatever their dependence.
    Raises ValueError for values outside [0, 1].

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(p_values, dtype=float)
    if values.ndim != 1 or not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"p_values: expected a list of numbers in [0, 1], got {p_values!r}")
    order = np.argsort(values, kind="stable")
    adjusted = np.empty_like(values)
    factors = len(values) - np.arange(len(values))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(factors * values[order]))
    return adjusted.tolist()


def holm_in_notebook(measured: Mapping[str, Sequence[Measured]]) -> dict[str, list[Measured]]:
    """All comparisons of one notebook, by claim id -> the same with `p_holm` set over all of them.

    Raises ValueError if the claims are not all judged by one notebook.
    """
    notebooks = {claim_by_id(claim_id).notebook for claim_id in measured}
    if len(notebooks) > 1:
        raise KlearError(f"Holm's correction is inside one notebook, got {sorted(notebooks)}")
    flat = [(claim_id, entry) for claim_id, entries in measured.items() for entry in entries]
    adjusted = holm([entry.result.p_value for _, entry in flat])
    corrected: dict[str, list[Measured]] = {claim_id: [] for claim_id in measured}
    for (claim_id, entry), p_holm in zip(flat, adjusted, strict=True):
        changed = dataclasses.replace(entry, p_holm=p_holm, family=len(flat))
        corrected[claim_id].append(changed)
    return corrected
