"""Numbers behind the curves: the mean over seeds and its 95 % interval, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("series", "seed", "step", "value")


def seed_bands(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean over seeds with its t interval, for each series and step.

    ``mean +- t(0.975, n - 1) * s / sqrt(n)`` with s the unbiased standard deviation of the n seeds.

    Args:
        frame: columns series, seed, step, value; one row for each seed and step.

    Returns:
        Columns series, step, mean, low, high, num_seeds (finite values at this step) and num_arms
        (seeds of the series). A mean over a part of the seeds would jump when a seed is late or
        diverged, so mean, low and high are NaN where not every seed has a finite value. With one
        seed there is a mean and no interval.

    Raises:
        ValueError: a column is missing, or a seed has two values at one step.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"series": "gppo", "seed": [0, 1], "step": 1, "value": [0.4, 0.6]})
    >>> seed_bands(frame)[["mean", "num_seeds"]].values.tolist()
    [[0.5, 2.0]]
    """
    import numpy as np
    import pandas as pd
    from scipy.special import stdtrit

    check_columns(frame, COLUMNS)
    if frame.duplicated(["series", "seed", "step"]).any():
        row = frame[frame.duplicated(["series", "seed", "step"])].iloc[0]
        raise ValueError(
            f"one value for each series, seed and step: {row.series}, seed {row.seed}, "
            f"step {row.step} has more"
        )
    parts = []
    for series, curves in frame.groupby("series", sort=False):
        wide = curves.pivot(index="step", columns="seed", values="value").sort_index()
        values = np.where(np.isfinite(wide.to_numpy(float)), wide.to_numpy(float), np.nan)
        num_arms = values.shape[1]
        mean = values.mean(axis=1)
        half = np.full(len(mean), np.nan)
        if num_arms > 1:
            error = values.std(axis=1, ddof=1) / np.sqrt(num_arms)
            half = stdtrit(num_arms - 1, 0.975) * error
        parts.append(
            pd.DataFrame(
                {
                    "series": series,
                    "step": wide.index,
                    "mean": mean,
                    "low": mean - half,
                    "high": mean + half,
                    "num_seeds": np.isfinite(values).sum(axis=1),
                    "num_arms": num_arms,
                }
            )
        )
    columns = ["series", "step", "mean", "low", "high", "num_seeds", "num_arms"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def seeds_text(frame: pd.DataFrame, label) -> str:
    """How many seeds stand behind the curves, in words; `label` maps a series to its display name.

    >>> import pandas as pd
    >>> seeds = {"series": ["a", "a", "b"], "seed": [0, 1, 0]}
    >>> frame = pd.DataFrame(seeds | {"step": 1, "value": 0.5})
    >>> seeds_text(frame, str.upper)
    'seeds: A 2, B 1 (no band)'
    """
    counts = frame.groupby("series", sort=False)["seed"].nunique()
    if not len(counts):
        return "no seed yet"
    if counts.nunique() == 1:
        number = int(counts.iloc[0])
        return "1 seed, so no band" if number == 1 else f"{number} seeds each"
    words = [f"{label(s)} {n}{' (no band)' if n == 1 else ''}" for s, n in counts.items()]
    return "seeds: " + ", ".join(words)


def check_columns(frame: pd.DataFrame, columns) -> None:
    """ValueError naming the columns of `columns` that `frame` lacks."""
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        raise ValueError(
            f"the frame lacks {', '.join(missing)}: expected the columns {', '.join(columns)}, "
            f"got {', '.join(map(str, frame.columns)) or 'none'}"
        )
