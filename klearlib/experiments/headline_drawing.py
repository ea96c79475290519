"""The figures of notebook 10: final scores beside the paper's, and both phases of RL."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.evaluate import scores
from klearlib.experiments import curves, headline_tables
from klearlib.experiments.benchmarks import Named
from klearlib.experiments.headline import MODELS
from klearlib.experiments.headline_scores import Gathered
from klearlib.experiments.headline_tables import LONGER_ROW
from klearlib.paper import figure, table
from klearlib.report.bars import BarPanel, headline_bars
from klearlib.report.curves import learning_curves

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_KLEAR = "Klear-Reasoner-8B"
_IN_TABLE_ALONE = "HMMT 2025"  # and not in Fig. 1
# Models of Fig. 1 by their names in Table 1, which has HMMT 2025.
_TABLE_NAMES = {
    _KLEAR: LONGER_ROW,
    "Deepseek-R1-0528-8B": "Deepseek-R1-0528-Distill-8B",
}
_LEARNING = {
    "rollouts that are right, temperature 1": "rollout/correct_rate",
    "mean reward": "rollout/reward_mean",
    "entropy, nats per token": "train/entropy",
    "response length, tokens": "rollout/response_tokens_mean",
    "gradient norm": "train/grad_norm",
}


def score_figure(have: Gathered) -> Figure:
    """The paper's Fig. 1 on top, with Table 1's scores on HMMT 2025, and ours below."""
    measured, panels = headline_tables.score_table(have), []
    columns = {"score": "value", "sampling_low": "low", "sampling_high": "high"}
    for name, about in have.named.items():
        params, is_maths = have.params, about.domain == "math"
        responses = params.maths_responses if is_maths else params.code_responses
        mine = measured[measured["benchmark"] == about.title].rename(columns=columns)
        rows = [
            (label, seed, scores.avg_at_n(record.correct))
            for series, label in MODELS.items()
            for seed, record in have.of_series(series, name).items()
        ]
        panels.append(
            BarPanel(
                about.paper + ("\n(Table 1)" if about.paper == _IN_TABLE_ALONE else ""),
                f"{about.title}, avg@{responses}",
                _paper_bars(about),
                mine[["model", "value", "low", "high"]],
                _frame(rows, ["model", "seed", "value"]),
            )
        )
    return headline_bars(
        panels,
        paper_models=list(dict.fromkeys(figure("1")["model"])),
        our_models=list(MODELS.values()),
        highlight=_KLEAR,
        interval="95 % sampling noise",
    )


def learning_figure(trained: Mapping[tuple[str, int], Path]) -> Figure:
    """Both phases of RL: rollouts right, reward, validation, entropy, length, gradient norm.

    trained: (series, seed) -> folder, of the phases that are done.
    """
    import pandas as pd

    runs = {(MODELS[series], seed): folder
            for (series, seed), folder in trained.items()}  # fmt: skip
    parts = [curves.metric_curves(runs, metric).assign(panel=t) for t, metric in _LEARNING.items()]
    both = curves.score_curves(runs, "validation")
    parts.insert(2, both.assign(panel="validation set, both domains"))
    return learning_curves(pd.concat(parts, ignore_index=True), x_label="step of the phase")


def _paper_bars(about: Named) -> pd.DataFrame:
    """Columns model, value: Fig. 1's bars, from Table 1 where Fig. 1 has no such benchmark."""
    printed = figure("1")
    models = list(dict.fromkeys(printed["model"]))
    if about.paper == _IN_TABLE_ALONE:
        cells = table(1)[about.column]
        rows = [(model, cells[_TABLE_NAMES.get(model, model)] / 100) for model in models]
        return _frame(rows, ["model", "value"])
    wanted = about.paper.replace("AIME ", "AIME")
    mine = printed[printed["benchmark"].str.startswith(wanted)]
    return mine.assign(value=mine["value"] / 100)[["model", "value"]]


def _frame(rows: list[tuple], columns: list[str]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(rows, columns=columns)
