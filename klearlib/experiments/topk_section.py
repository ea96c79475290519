"""Tables, figures, verdicts and the published section of notebook 04."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.experiments import data_scores
from klearlib.experiments.benchmarks import counterparts, titles
from klearlib.experiments.data_arms import ranked_sources
from klearlib.experiments.data_scores import Arm, card_of, common_notes, mean_loss
from klearlib.experiments.demos import data_rules as data_demos
from klearlib.experiments.publish import as_table, publish_section
from klearlib.experiments.topk import (
    NOTEBOOK,
    NUM_SOURCES,
    arms,
    chosen,
    domain_of,
    finished_runs,
    series,
)
from klearlib.experiments.verdict_dicts import holm_in_notebook, is_paper_scale, not_run
from klearlib.miniature.source_plan import SOURCES
from klearlib.paper import claim
from klearlib.params import TopKParams
from klearlib.report.bars import ScorePanel, scores_beside_paper, stacked_bars

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_TABLES = {"math": 4, "code": 5}
_CLAIMS = {"C6": "math", "C7": "code"}
_DOMAIN_WORDS = {"math": "maths", "code": "code"}
_EQUATIONS = (
    {
        "number": "5.1.3",
        "latex": r"S\leftarrow S\cup\left\{\mathrm{argmax}_i\min_{j\in S}"
        r"\lVert x_i-x_j\rVert\right\}",
        "says": "K-center greedy brings every pool to one size: each new example is the one "
        "farthest from those that are chosen.",
    },
)


def coverage_table(params: TopKParams) -> pd.DataFrame:
    """K-center against the plain algorithm; see `data_demos.coverage`."""
    del params  # the same at every scale
    return data_demos.coverage()


def source_table(params: TopKParams) -> pd.DataFrame:
    """The sources from best to worst, as the miniature writes them, and how many responses of each
    may be chosen. The paper ranks its sources by experience and names no measure."""
    import pandas as pd

    kept = {}
    for stage in chosen(params).values():
        card = card_of(stage.inputs["responses"])
        if card is not None:
            kept |= {
                name: counts["num_kept"] + counts["num_merged"]
                for name, counts in card["responses"].items()
            }
    rows = [
        {
            "source": plan.name,
            "schema": plan.dataset,
            "steps_with_a_habit_of_going_wrong": plan.slip_share,
            "other_wrong_steps": plan.noise,
            "steps_left_out": plan.gaps,
            "needless_steps": plan.repeats,
            "notation": plan.notation,
            "responses": kept.get(plan.name),
        }
        for plan in SOURCES
        if plan.rank
    ]
    return pd.DataFrame(rows)


def spread_table(params: TopKParams) -> pd.DataFrame:
    """How the chosen examples of each arm are spread over the sources."""
    import pandas as pd

    stages, rows = arms(params), []
    for name, stage in chosen(params).items():
        counts = list(
            data_scores.spread(stage, ranked_sources(params.profile, domain_of(name))).values()
        )
        if counts:
            row = {"arm": _label(name), "examples": sum(counts)}
            row |= {"last_loss": mean_loss(stages, name)}
            ranks = range(len(ranked_sources(params.profile, "math")))
            row |= {f"rank_{i + 1}": str(counts[i]) if i < len(counts) else "" for i in ranks}
            rows.append(row)
    return pd.DataFrame(rows)


def spread_figure(params: TopKParams) -> Figure:
    """The same as bars, one for each arm."""
    bars = {}
    for name, stage in chosen(params).items():
        counts = data_scores.spread(stage, ranked_sources(params.profile, domain_of(name)))
        if counts:
            bars[_label(name)] = {f"rank {i}": n for i, n in enumerate(counts.values(), start=1)}
    return stacked_bars(bars, x_label="examples", heading="Here: the sources of the examples")


def score_table(params: TopKParams) -> pd.DataFrame:
    """Tables 4 and 5: ours with intervals beside the paper's; see `data_scores.score_table`."""
    import pandas as pd

    runs = finished_runs(params)
    parts = [
        data_scores.score_table(
            runs, _arms(domain), profile=params.profile, domain=domain, paper_table=number
        )
        for domain, number in _TABLES.items()
    ]
    filled = [part for part in parts if len(part)]
    return pd.concat(filled, ignore_index=True) if filled else parts[0]


def score_figure(params: TopKParams) -> Figure:
    """The paper's Tables 4 and 5 on top, ours below, benchmark by benchmark."""
    import pandas as pd

    runs, panels = finished_runs(params), []
    for domain, number in _TABLES.items():
        of_domain = {arm: folder for arm, folder in runs.items() if domain_of(arm[0]) == domain}
        responses = params.eval_responses if domain == "math" else params.code_eval_responses
        for name, printed in counterparts(params.profile, domain).items():
            paper = [
                ("student", group, data_scores.paper_cell(number, printed, group.title()))
                for group in series(domain)
            ]
            ours = data_scores.scores_frame(of_domain, name).rename(columns={"series": "group"})
            ours["group"] = ours["group"].str.removeprefix(f"{domain}_")
            panels.append(
                ScorePanel(
                    printed,
                    f"{titles(params.profile)[name]}, avg@{responses}",
                    pd.DataFrame(paper, columns=["series", "group", "value"]),
                    ours.assign(series="student"),
                )
            )
    groups = list(series("math"))
    return scores_beside_paper(
        panels, groups=groups, series=("student",), x_label="sources, best first"
    )


def verdicts(params: TopKParams) -> list[dict]:
    """The verdicts on C6 and C7 by the rules of claims.yaml, from the students measured so far."""
    runs = finished_runs(params)
    scored = {
        name: data_scores.comparisons(
            runs, name, profile=params.profile, domain=domain, series=series(domain)
        )
        for name, domain in _CLAIMS.items()
    }
    measured = {name: found for name, found in scored.items() if not isinstance(found, str)}
    corrected = holm_in_notebook(measured)
    paper_scale = is_paper_scale(params.profile)
    return [
        data_scores.verdict(
            name,
            corrected[name],
            profile=params.profile,
            domain=domain,
            runs={arm: folder for arm, folder in runs.items() if domain_of(arm[0]) == domain},
            paper_scale=paper_scale,
        )
        if name in corrected
        else not_run(claim(name), scored[name])
        for name, domain in _CLAIMS.items()
    ]


def verdict_table(params: TopKParams) -> pd.DataFrame:
    """The verdicts as a table for the notebook."""
    return as_table(verdicts(params))


def publish(params: TopKParams) -> Path:
    """Write tables, figures and section.json for what is done so far."""
    return publish_section(
        NOTEBOOK,
        params,
        stages=list(arms(params).values()),
        title="The best source, or more of them",
        section="5.1.3",
        question="At an equal number of examples, do more sources of lower quality add anything "
        "to the best ones?",
        equations=_EQUATIONS,
        figures=_figures(params) if finished_runs(params) else {},
        tables={
            "scores": (
                score_table(params),
                f"Tables 4 and 5, ours beside the paper's: avg@{params.eval_responses} for maths, "
                f"avg@{params.code_eval_responses} for code, mean over seeds with 95 % t interval.",
            ),
            "spread": (spread_table(params), "Where the examples of each arm come from."),
            "sources": (source_table(params), "The sources of the miniature, best first."),
            "coverage": (
                coverage_table(params),
                "K-center against the plain algorithm on 60 points of a 9 x 9 grid.",
            ),
        },
        verdicts=verdicts(params),
        notes=[
            "The miniature's sources are ranked by construction: from rank to rank more steps are "
            "wrong, left out or needless, and the notation clashes more. How steep this is decides "
            "how much there is to lose.",
            "Each domain has a base model of its own, so a maths student is measured on maths and "
            "a code student on code; the paper measures both on all four benchmarks.",
            *common_notes(params, arms_text="arms of a domain"),
        ],
    )


def _arms(domain: str) -> dict[str, Arm]:
    return {name: Arm(_label(name), group.title()) for group, name in series(domain).items()}


def _label(name: str) -> str:
    domain, _, most = name.partition("_top")
    assert int(most) in NUM_SOURCES[domain]
    return f"{_DOMAIN_WORDS[domain]} top {most}"


def _figures(params: TopKParams) -> dict[str, tuple[Figure, str, str]]:
    return {
        "tables4_5": (
            score_figure(params),
            "The paper's Tables 4 and 5 and ours.",
            "Four columns: two maths and two code benchmarks. Top: the paper's scores for Top1 to "
            "Top10 sources. Bottom: ours with 95 % intervals.",
        ),
        "spread": (
            spread_figure(params),
            "Where the examples of each arm come from.",
            "One bar for each arm, all of a domain equally long, made of the examples from each "
            "source by its rank.",
        ),
    }
