"""Tables, figures, verdict and the published section of notebook 02."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.curation.difficulty import difficulties
from klearlib.curation.pass_rates import RATES, read_pass_rates
from klearlib.experiments import data_scores
from klearlib.experiments.benchmarks import counterparts, titles
from klearlib.experiments.correctness import (
    DIFFICULTIES,
    FILTERS,
    NOTEBOOK,
    SERIES,
    arms,
    chosen,
    finished_runs,
    pool,
)
from klearlib.experiments.data_scores import Arm, card_of, common_notes, mean_loss
from klearlib.experiments.demos import data_rules as data_demos
from klearlib.experiments.publish import as_table, publish_section, runs_dir
from klearlib.experiments.verdict_dicts import holm_in_notebook, is_paper_scale, not_run
from klearlib.paper import claim
from klearlib.params import CorrectnessParams
from klearlib.report.bars import ScorePanel, scores_beside_paper
from klearlib.run.stage import is_done

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_TABLE = 2
_COLUMNS = {"only_true": "Only True", "mixed": "Mixed"}
_ARMS = {
    f"{difficulty}_{name}": Arm(
        f"{difficulty}, {_COLUMNS[name].lower()}", f"{difficulty.title()} / {_COLUMNS[name]}"
    )
    for difficulty in DIFFICULTIES
    for name in FILTERS
}
_EQUATIONS = (
    {
        "number": "8",
        "latex": r"\mathcal{L}_{\mathrm{SFT}}=-\frac{1}{N}\sum_{i=1}^{N}\frac{1}{T_i}"
        r"\sum_{t=1}^{T_i}\log\pi_\theta(y_{i,t}\mid x_i,y_{i,<t})",
        "says": "No label and no sign: a wrong response is taught as a right one is. Printed with "
        "pi for log pi.",
    },
)


def push_table(params: CorrectnessParams) -> pd.DataFrame:
    """What one update does to a right and to a wrong response; see `data_demos.pushes`."""
    del params  # the same at every scale
    return data_demos.pushes()


def label_table(params: CorrectnessParams) -> pd.DataFrame:
    """What the arms choose from: problems, responses and correct ones, by the reference's
    difficulty. Empty before the responses are judged."""
    import pandas as pd

    columns = ["difficulty", "problems", "share", "responses", "correct", "correct_share"]
    stages = pool(params)
    if not all(is_done(stage, runs_dir()) for stage in stages.values()):
        return pd.DataFrame(columns=columns)
    rates = {
        name: read_pass_rates(stage.folder(runs_dir()) / RATES) for name, stage in stages.items()
    }
    names = list(rates["teacher"])
    found = difficulties(names, rates["reference"], easy_from=params.easy_from)
    rows = []
    for wanted in (*dict.fromkeys(["easy", "hard", *found]), "overall"):
        mine = [
            rates["teacher"][name]
            for name, word in zip(names, found, strict=True)
            if wanted in (word, "overall")
        ]
        responses = sum(rate.num_responses for rate in mine)
        correct = sum(rate.num_correct for rate in mine)
        share = correct / responses if responses else float("nan")
        rows.append([wanted, len(mine), len(mine) / len(names), responses, correct, share])
    return pd.DataFrame(rows, columns=columns)


def example_table(params: CorrectnessParams) -> pd.DataFrame:
    """What each arm learns: candidates after the filters, chosen examples, the correct ones among
    them, and the training loss over the last tenth of the steps."""
    import pandas as pd

    columns = ["arm", "candidates", "examples", "correct", "wrong", "last_loss"]
    stages, rows = arms(params), []
    for series, stage in chosen(params).items():
        card = card_of(stage)
        if card is None:
            continue
        covered = sum(row["num_removed"] for row in card["funnel"] if row["stage"] == "coverage")
        kept, labels = card["num_kept"], card["labels"]
        row = [_ARMS[series].label, kept + covered, kept, labels.get("correct", 0)]
        rows.append([*row, labels.get("wrong", 0), mean_loss(stages, series)])
    return pd.DataFrame(rows, columns=columns)


def score_table(params: CorrectnessParams) -> pd.DataFrame:
    """Table 2: ours with intervals beside the paper's; see `data_scores.score_table`."""
    about = {"profile": params.profile, "domain": "math", "paper_table": _TABLE}
    return data_scores.score_table(finished_runs(params), _ARMS, **about)


def score_figure(params: CorrectnessParams) -> Figure:
    """The paper's Table 2 on top, ours below, benchmark by benchmark."""
    import pandas as pd

    runs, panels = finished_runs(params), []
    for name, printed in counterparts(params.profile, "math").items():
        paper = [
            (kind, difficulty, data_scores.paper_cell(_TABLE, printed, _ARMS[series].column))
            for series, difficulty, kind in _parts()
        ]
        ours = data_scores.scores_frame(runs, name)
        ours[["group", "series"]] = ours["series"].str.split("_", n=1, expand=True)
        panels.append(
            ScorePanel(
                printed,
                f"{titles(params.profile)[name]}, avg@{params.eval_responses}",
                pd.DataFrame(paper, columns=["series", "group", "value"]),
                ours,
            )
        )
    return scores_beside_paper(
        panels, groups=DIFFICULTIES, series=tuple(FILTERS), x_label="problems"
    )


def verdicts(params: CorrectnessParams) -> list[dict]:
    """The verdict on C4 by the rule of claims.yaml, from the students that are measured."""
    runs = finished_runs(params)
    about = claim("C4")
    scored = data_scores.comparisons(
        runs, "C4", profile=params.profile, domain="math", series={arm: arm for arm in about.arms}
    )
    if isinstance(scored, str):
        return [not_run(about, scored)]
    corrected = holm_in_notebook({"C4": scored})["C4"]
    return [
        data_scores.verdict(
            "C4",
            corrected,
            profile=params.profile,
            domain="math",
            runs=runs,
            paper_scale=is_paper_scale(params.profile),
        )
    ]


def verdict_table(params: CorrectnessParams) -> pd.DataFrame:
    """The verdict as a table for the notebook."""
    return as_table(verdicts(params))


def publish(params: CorrectnessParams) -> Path:
    """Write tables, figures and section.json for what is done so far."""
    return publish_section(
        NOTEBOOK,
        params,
        stages=list(arms(params).values()),
        title="Correct responses only, or all of them",
        section="5.1.1",
        question="Should a student see wrong responses too, and does the answer depend on how hard "
        "the problems are?",
        equations=_EQUATIONS,
        figures=_figures(params) if finished_runs(params) else {},
        tables={
            "scores": (
                score_table(params),
                f"Table 2, ours beside the paper's: avg@{params.eval_responses}, mean over seeds "
                "with 95 % t interval.",
            ),
            "labels": (
                label_table(params),
                "What the arms choose from: the teacher's responses by the reference's difficulty.",
            ),
            "examples": (example_table(params), "What each arm learns."),
            "pushes": (
                push_table(params),
                "One update on a right and on a wrong response: Eq. 8 has no sign.",
            ),
        },
        verdicts=verdicts(params),
        notes=[
            "Labels are the verifier's. A problem is easy where the reference, the maths SFT "
            f"checkpoint, solves it in at least {params.easy_from:g} of "
            f"{params.reference_responses} responses; the paper annotates by a model and prints no "
            "threshold.",
            "Where an arm has fewer problems than examples, K-center over prompts takes further "
            "responses to the same problems.",
            *common_notes(params, arms_text=f"{len(SERIES)} arms"),
        ],
    )


def _parts() -> list[tuple[str, str, str]]:
    """(series, difficulty, filter) of every arm."""
    return [(series, *series.split("_", 1)) for series in SERIES]


def _figures(params: CorrectnessParams) -> dict[str, tuple[Figure, str, str]]:
    return {
        "table2": (
            score_figure(params),
            "The paper's Table 2 and ours.",
            "Two columns, one for each benchmark. Top: the paper's scores for easy, hard and all "
            "problems, correct responses only against all. Bottom: ours with 95 % intervals.",
        ),
    }
