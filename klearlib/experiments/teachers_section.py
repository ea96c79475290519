"""Tables, figures, verdict and the published section of notebook 03."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.curation.pass_rates import RATES, read_pass_rates
from klearlib.experiments import curves, data_scores
from klearlib.experiments.benchmarks import counterparts, titles
from klearlib.experiments.data_scores import Arm, card_of, common_notes, mean_loss
from klearlib.experiments.demos import data_rules as data_demos
from klearlib.experiments.publish import as_table, publish_section, runs_dir
from klearlib.experiments.running import finished
from klearlib.experiments.teachers import (
    NOTEBOOK,
    arms,
    chosen,
    finished_runs,
    responses,
    stages,
    teachers,
)
from klearlib.experiments.verdict_dicts import holm_in_notebook, is_paper_scale, not_run
from klearlib.paper import claim
from klearlib.params import TeacherParams
from klearlib.report.bars import ScorePanel, scores_beside_paper
from klearlib.run.stage import is_done

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_TABLE = 3
_ARMS = {
    "weak": Arm("weak teacher", "QwQ-32B"),
    "middle": Arm("middle teacher", "DeepSeek-R1-0120"),
    "strong": Arm("strong teacher", "DeepSeek-R1-0528"),
}
_EQUATIONS = (
    {
        "number": "8",
        "latex": r"\mathcal{L}_{\mathrm{SFT}}=-\frac{1}{N}\sum_{i=1}^{N}\frac{1}{T_i}"
        r"\sum_{t=1}^{T_i}\log\pi_\theta(y_{i,t}\mid x_i,y_{i,<t})",
        "says": "The mean over responses of the mean over their tokens: a token of a long response "
        "weighs less. Printed with pi for log pi.",
    },
)


def normalizer_table(params: TeacherParams) -> pd.DataFrame:
    """Both normalisers of Eq. 8 against autograd; see `data_demos.normalizers`."""
    del params  # the same at every scale
    return data_demos.normalizers()


def teacher_table(params: TeacherParams) -> pd.DataFrame:
    """Each teacher's own accuracy: on the prompts that it answers for its students, at the
    sampling temperature of teachers, and on the benchmarks as students are measured; its responses,
    the chosen ones, the correct among them, and its students' last training loss."""
    import pandas as pd

    names = counterparts(params.profile, "math")
    scores = [titles(params.profile)[name].replace(" ", "_") for name in names]
    columns = ["teacher", "pass_rate_on_prompts", *scores, "responses", "examples"]
    columns += ["correct_examples", "students_last_loss"]
    measured, students = finished(teachers(params)), arms(params)
    rows = []
    for name, stage in responses(params).items():
        if not is_done(stage, runs_dir()):
            continue
        rates = read_pass_rates(stage.folder(runs_dir()) / RATES)
        row = [_ARMS[name].label, sum(rate.pass_rate for rate in rates.values()) / len(rates)]
        for benchmark in names:
            mine = {arm: folder for arm, folder in measured.items() if arm[0] == name}
            row.append(data_scores.scores_frame(mine, benchmark)["value"].mean())
        row.append(sum(rate.num_responses for rate in rates.values()))
        card = card_of(chosen(params)[name])
        row += [card["num_kept"], card["labels"].get("correct", 0)] if card else [None, None]
        rows.append([*row, mean_loss(students, name)])
    return pd.DataFrame(rows, columns=columns)


def score_table(params: TeacherParams) -> pd.DataFrame:
    """Table 3: ours with intervals beside the paper's; see `data_scores.score_table`."""
    about = {"profile": params.profile, "domain": "math", "paper_table": _TABLE}
    return data_scores.score_table(finished_runs(params), _ARMS, **about)


def score_figure(params: TeacherParams) -> Figure:
    """The paper's Table 3 on top, ours below with the teachers' own scores."""
    import pandas as pd

    runs, own, panels = finished_runs(params), finished(teachers(params)), []
    for name, printed in counterparts(params.profile, "math").items():
        paper = [
            ("student", teacher, data_scores.paper_cell(_TABLE, printed, arm.column))
            for teacher, arm in _ARMS.items()
        ]
        frames = [
            data_scores.scores_frame(those, name)
            .rename(columns={"series": "group"})
            .assign(series=who)
            for who, those in (("student", runs), ("teacher", own))
            if those
        ]
        panels.append(
            ScorePanel(
                printed,
                f"{titles(params.profile)[name]}, avg@{params.eval_responses}",
                pd.DataFrame(paper, columns=["series", "group", "value"]),
                pd.concat(frames, ignore_index=True),
            )
        )
    return scores_beside_paper(
        panels, groups=tuple(_ARMS), series=("student", "teacher"), x_label="teacher"
    )


def verdicts(params: TeacherParams) -> list[dict]:
    """The verdict on C5 by the rule of claims.yaml, from the students that are measured."""
    runs = finished_runs(params)
    scored = data_scores.comparisons(
        runs, "C5", profile=params.profile, domain="math", series={arm: arm for arm in _ARMS}
    )
    if isinstance(scored, str):
        return [not_run(claim("C5"), scored)]
    corrected = holm_in_notebook({"C5": scored})["C5"]
    return [
        data_scores.verdict(
            "C5",
            corrected,
            profile=params.profile,
            domain="math",
            runs=runs,
            paper_scale=is_paper_scale(params.profile),
        )
    ]


def difference_table(params: TeacherParams) -> pd.DataFrame:
    """Every pair of teachers, the strongest against the weakest among them: difference of their
    students' mean scores with its 95 % interval, paired by seed and problem, not corrected."""
    import pandas as pd

    from klearlib.evaluate.scores import paired_difference

    columns = ["difference", "seeds", "problems", "value", "low", "high"]
    runs, rows = finished_runs(params), []
    seeds = curves.common_seeds(runs, list(_ARMS))
    if seeds:
        names = list(counterparts(params.profile, "math"))
        scores = {arm: curves.problem_scores(runs, arm, seeds, names) for arm in _ARMS}
        for better, worse in (("middle", "weak"), ("strong", "middle"), ("strong", "weak")):
            found = paired_difference(scores[better], scores[worse], 0.95)
            row = [f"{better} - {worse}", found.num_seeds, found.num_problems]
            rows.append([*row, found.difference, found.low, found.high])
    return pd.DataFrame(rows, columns=columns)


def verdict_table(params: TeacherParams) -> pd.DataFrame:
    """The verdict as a table for the notebook."""
    return as_table(verdicts(params))


def publish(params: TeacherParams) -> Path:
    """Write tables, figures and section.json for what is done so far."""
    return publish_section(
        NOTEBOOK,
        params,
        stages=stages(params),
        title="Students of weak, middle and strong teachers",
        section="5.1.2",
        question="Does a student learn more from a stronger teacher, at equal prompts and equal "
        "numbers of examples?",
        equations=_EQUATIONS,
        figures=_figures(params) if finished_runs(params) else {},
        tables={
            "scores": (
                score_table(params),
                f"Table 3, ours beside the paper's: avg@{params.eval_responses}, mean over seeds "
                "with 95 % t interval.",
            ),
            "differences": (
                difference_table(params),
                "Differences of the mean over both benchmarks, paired by seed and problem; 95 % "
                "intervals before Holm's correction.",
            ),
            "teachers": (teacher_table(params), "The teachers themselves."),
            "normalizers": (
                normalizer_table(params),
                "Both normalisers of Eq. 8 against autograd of the printed sum.",
            ),
        },
        verdicts=verdicts(params),
        notes=[
            "The teachers are models of the student's own size, trained from the same base model "
            "on responses of graded quality and for longer; the paper's are far larger than the "
            "student and differ in more than strength.",
            "All responses are used, right or wrong, as in the mixed arms of notebook 02.",
            *common_notes(params, arms_text="three arms"),
        ],
    )


def _figures(params: TeacherParams) -> dict[str, tuple[Figure, str, str]]:
    return {
        "table3": (
            score_figure(params),
            "The paper's Table 3 and ours; grey: the teachers themselves.",
            "Two columns, one for each benchmark. Top: the paper's scores of the students of three "
            "teachers. Bottom: ours with 95 % intervals, and the teachers' own scores.",
        ),
    }
