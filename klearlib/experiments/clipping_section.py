"""Tables, figures, verdicts and the published section of notebook 05."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from klearlib.experiments import curves, score_tables
from klearlib.experiments.arms import RULE_OPTIONS
from klearlib.experiments.benchmarks import curve_titles, standing_for, titles
from klearlib.experiments.clipping import NOTEBOOK, finished_runs, grid
from klearlib.experiments.clipping_rates import (
    note_on_rates,
    rate_table,
    why_not_chosen,
    words_on_rates,
)
from klearlib.experiments.demos.clipping import corner_table, gradient_check
from klearlib.experiments.publish import as_table, changed_options, departures, publish_section
from klearlib.experiments.verdict_dicts import (
    decide_mechanism,
    decide_ordering,
    decide_stability,
    holm_in_notebook,
    is_paper_scale,
    measure,
    not_run,
)
from klearlib.paper import claim, figure
from klearlib.params import RLOptions, uses_miniature
from klearlib.params.notebooks import ClippingParams
from klearlib.report.curves import (
    Panel,
    coefficient_curves,
    corner_shares,
    learning_curves,
    paper_beside_ours,
)
from klearlib.report.style import series_style
from klearlib.rl.coefficients import CORNERS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    Runs = dict[tuple[str, int], Path]

# Claim -> the paper's name of the benchmark that decides it in the miniature, or is it.
_DECIDED_ON = {"C1": "AIME 2024", "C2": "AIME 2025"}
_PAPER_FIGURES = {"C1": "2a", "C2": "2b"}
_NOT_MEASURED = (
    "RL on mathematics is measured on mathematics alone here, and this claim is about "
    "LiveCodeBench V5"
)
_STAND_IN = (
    "The miniature's second maths benchmark stands in for LiveCodeBench V5 here: the paper trains "
    "on mathematics in this experiment and code is its second benchmark."
)
_EQUATIONS = (
    {
        "number": "7",
        "latex": r"\mathcal{L}(\theta)=\mathbb{E}\left[\frac{1}{\sum_{j=1}^{M} T_j}"
        r"\sum_{j=1}^{M}\sum_{t=1}^{T_j}\min\left(r_t^{(j)}\tilde{A}^{(j)},"
        r"\mathrm{clip}(r_t^{(j)},1-\epsilon_l,1+\epsilon_h)\tilde{A}^{(j)}\right)\right]",
        "says": "Clip-Higher with the token-level mean: a clipped token loses its gradient.",
    },
    {
        "number": "11",
        "latex": r"\min\left(r_t\tilde{A},\mathrm{clip}\left(r_t,"
        r"\frac{1-\epsilon_l}{\mathrm{sg}(r_t)}r_t,"
        r"\frac{1+\epsilon_h}{\mathrm{sg}(r_t)}r_t\right)\tilde{A}\right)",
        "says": "GPPO: the same value, and a clipped token keeps a constant gradient.",
    },
    {
        "number": "16",
        "latex": r"F=\mathrm{clip}(r_t,1-\epsilon_l,1+\epsilon_h)",
        "says": "CISPO: the coefficient is clamped whatever the sign of the advantage.",
    },
)


def method_check(params: ClippingParams) -> pd.DataFrame:
    """Autograd of every printed objective against F * A; see `mechanism.gradient_check`."""
    return gradient_check(eps_low=params.eps_low, eps_high=params.eps_high)


def method_table(params: ClippingParams) -> pd.DataFrame:
    """The four-corner table, measured by autograd."""
    table = corner_table(method_check(params), eps_low=params.eps_low, eps_high=params.eps_high)
    return table.assign(rule=[series_style(rule).label for rule in table["rule"]])


def method_figure(params: ClippingParams) -> Figure:
    """F against the ratio for A > 0 and A < 0, one line a rule."""
    check = method_check(params)
    frame = check[check["advantage"].abs() == 2.0].copy()
    frame["sign"] = np.where(frame["advantage"] > 0, "positive", "negative")
    return coefficient_curves(frame, eps_low=params.eps_low, eps_high=params.eps_high)


def curves_figure(params: ClippingParams) -> Figure:
    """The paper's Fig. 2 a, b, c on top, ours below."""
    runs = finished_runs(params)
    n = params.eval_responses
    panels = [
        Panel(
            figure(printed).attrs["metric"],
            f"{titles(params.profile)[name]}, avg@{n}",
            figure(printed),
            curves.score_curves(runs, name),
            y_label="score",
        )
        for name, printed in _paper_figures(params).items()
    ]
    norm = curves.metric_curves(runs, "train/grad_norm")
    panels.append(Panel("gradient norm", "gradient norm", figure("2c"), norm, "norm", log_y=True))
    return paper_beside_ours(panels)


def corners_figure(params: ClippingParams) -> Figure:
    """Share of tokens and of gradient mass in each corner over the steps."""
    import pandas as pd

    runs = finished_runs(params)
    parts = []
    for quantity, stem in (("tokens", "token_share"), ("gradient", "gradient_share")):
        for corner in CORNERS:
            part = curves.metric_curves(runs, f"train/{stem}_{corner}")
            parts.append(part.assign(corner=corner, quantity=quantity))
    return corner_shares(pd.concat(parts, ignore_index=True))


def learning_figure(params: ClippingParams) -> Figure:
    """What else the runs do: rate correct of the rollouts, entropy, response length."""
    import pandas as pd

    runs = finished_runs(params)
    panels = {
        "rollouts correct, temperature 1": "rollout/correct_rate",
        "entropy, nats per token": "train/entropy",
        "response length, tokens": "rollout/response_tokens_mean",
    }
    parts = [curves.metric_curves(runs, metric).assign(panel=t) for t, metric in panels.items()]
    return learning_curves(pd.concat(parts, ignore_index=True))


def score_table(params: ClippingParams) -> pd.DataFrame:
    """Scores at the first and the last step; see `score_tables.score_table`."""
    return score_tables.score_table(
        finished_runs(params),
        series=params.rules,
        benchmarks=curve_titles(params.profile, "math"),
        paper_figures=_paper_figures(params),
        what="rule",
    )


def _decided_on(params: ClippingParams) -> dict[str, str]:
    """Claim -> the benchmark that decides it. Nothing stands for LiveCodeBench beside the real
    AIME."""
    found = {about: standing_for(params.profile, paper) for about, paper in _DECIDED_ON.items()}
    return found if uses_miniature(params) else {"C1": found["C1"]}


def _paper_figures(params: ClippingParams) -> dict[str, str]:
    return {name: _PAPER_FIGURES[about] for about, name in _decided_on(params).items()}


def clipped_table(params: ClippingParams) -> pd.DataFrame:
    """How many tokens the comparison acts on: the share in each corner, mean over steps and seeds;
    median and largest gradient norm, updates skipped, and rollouts that could not be judged."""
    import pandas as pd

    runs = finished_runs(params)
    rows = []
    for rule in params.rules:
        mine = curves.of_series(runs, rule)
        if not mine:
            continue
        row: dict = {"rule": series_style(rule).label, "seeds": len(mine)}
        for corner in CORNERS:
            row[corner] = curves.metric_curves(mine, f"train/token_share_{corner}")["value"].mean()
        norms = curves.metric_curves(mine, "train/grad_norm")["value"]
        row |= {"grad_norm_median": norms.median(), "grad_norm_max": norms.max()}
        skipped = curves.metric_curves(mine, "train/skipped_updates")["value"]
        row["skipped_updates"] = int(skipped.sum())
        failures = curves.metric_curves(mine, "rollout/judge_failures")["value"]
        row["not_judged"] = int(failures.sum())
        rows.append(row)
    columns = ["rule", "seeds", *CORNERS, "grad_norm_median", "grad_norm_max", "skipped_updates"]
    columns += ["not_judged"]
    return pd.DataFrame(rows, columns=columns)


def verdicts(params: ClippingParams) -> list[dict]:
    """The verdicts on C14, C1, C2 and C3 by the rules of claims.yaml, from the runs that are
    done."""
    runs, paper_scale = finished_runs(params), is_paper_scale(params.profile)
    found = [_mechanism_verdict(params), *_ordering_verdicts(params, runs, paper_scale)]
    norms = curves.gradient_norms(runs)
    if why := why_not_chosen(params):
        found.append(not_run(claim("C3"), why))
    elif norms:
        stability = decide_stability(claim("C3"), norms, paper_scale=paper_scale)
        found.append(_with_rates(stability, params))
    else:
        found.append(not_run(claim("C3"), "no run has finished yet"))
    return found


def verdict_table(params: ClippingParams) -> pd.DataFrame:
    """The verdicts as a table for the notebook."""
    return as_table(verdicts(params))


def publish(params: ClippingParams) -> Path:
    """Write tables, figures and section.json for what is done so far."""
    words = words_on_rates(params)
    said = f" {words}." if words else ""
    tables = {
        "rules": (
            method_table(params),
            "Each rule's coefficient in the four corners, by autograd.",
        ),
        "scores": (
            score_table(params),
            f"Scores at the first and last step: avg@{params.eval_responses} at temperature 0.6 "
            "for the benchmarks, rate correct at temperature 1 for the validation set; mean over "
            f"seeds, 95 % t interval over seeds.{said}",
        ),
        "clipped": (
            clipped_table(params),
            "Share of tokens in each corner (r low or high, sign of A), and gradient norms." + said,
        ),
    }
    if len(params.learning_rates) > 1:
        tables["rates"] = (rate_table(params), _RATES)
    figures = {
        "fig2": (curves_figure(params), f"The paper's Fig. 2 and ours.{said}", _ALT_CURVES),
        "rules": (method_figure(params), "The coefficient F of every rule.", _ALT_RULES),
        "corners": (
            corners_figure(params),
            f"Where tokens leave the clip range.{said}",
            _ALT_CORNERS,
        ),
        "learning": (
            learning_figure(params),
            f"What the runs do beside scores.{said}",
            _ALT_LEARNING,
        ),
    }
    return publish_section(
        NOTEBOOK,
        params,
        stages=list(grid(params).values()),
        title="GPPO against Clip-Higher and CISPO",
        section="5.2.1",
        question="Does keeping bounded gradients from clipped tokens train better than dropping "
        "them (Clip-Higher) or clamping all of them (CISPO)?",
        equations=_EQUATIONS,
        figures=figures,
        tables=tables,
        verdicts=verdicts(params),
        notes=_notes(params),
    )


_RATES = (
    "Every rule at every learning rate: last scores on the validation set, by which the rate is "
    "chosen, and on the benchmarks, which take no part in it; mean over seeds, 95 % t interval."
)
_ALT_CURVES = (
    "Six panels. Top: the paper's curves for AIME 2024, LiveCodeBench V5 and the gradient norm, "
    "dashed. Bottom: ours for two maths benchmarks and the gradient norm, mean over seeds with a "
    "95 % band."
)
_ALT_RULES = (
    "Two panels, A above and below zero: the coefficient F against the ratio, one line a rule."
)
_ALT_CORNERS = "Share of tokens and of gradient mass in each of the four corners over the RL steps."
_ALT_LEARNING = "Three panels over the RL steps: rollouts correct, entropy, response length."


def _mechanism_verdict(params: ClippingParams) -> dict:
    check = method_check(params)
    gppo = check[check["rule"] == "gppo"]
    # "Never zero" is part of the claim: one token without a gradient refutes it, whatever the
    # error.
    error = float(gppo["error"].max()) if (gppo["autograd"] != 0).all() else float("inf")
    mechanism = claim("C14")
    return decide_mechanism(mechanism, error, mechanism.rule.numbers["tolerance"])


def _ordering_verdicts(params: ClippingParams, runs: Runs, paper_scale: bool) -> list[dict]:
    needed = claim("C1").arms
    absent = [rule for rule in needed if rule not in params.rules]
    changed = [name for name in RULE_OPTIONS if name in changed_options(params.options, RLOptions)]
    seeds = curves.common_seeds(runs, list(needed))
    why = why_not_chosen(params)
    if changed:
        why = f"{' and '.join(changed)} make the rules others than the paper's"
    elif absent:
        why = f"no run of {', '.join(absent)}"
    elif not why and not seeds:
        why = "no seed of all three rules is done yet"
    if why:
        return [not_run(claim(name), why) for name in _DECIDED_ON]
    paired = {arm: folder for arm, folder in runs.items() if arm[1] in seeds}
    measured = {}
    decided_on = _decided_on(params)
    for name, benchmark in decided_on.items():
        scores = {rule: curves.last_scores(runs, rule, seeds, benchmark) for rule in needed}
        measured[name] = [
            measure(c.name, scores[c.a[0]], scores[c.b[0]]) for c in claim(name).comparisons
        ]
    found = []
    for name, comparisons in holm_in_notebook(measured).items():
        power = {c.name: _power(paired, claim(name), c) for c in claim(name).comparisons}
        verdict = decide_ordering(claim(name), comparisons, power=power, paper_scale=paper_scale)
        if name == "C2":
            verdict["reason"] = f"{verdict['reason']}. {_STAND_IN}"
        failures, _ = curves.last_counts(paired, decided_on[name])
        if failures:
            verdict["reason"] = f"{verdict['reason']}. {failures} responses could not be judged"
        found.append(_with_rates(verdict, params))
    left = [name for name in _DECIDED_ON if name not in decided_on]
    return [*found, *(not_run(claim(name), _NOT_MEASURED) for name in left)]


def _with_rates(verdict: dict, params: ClippingParams) -> dict:
    words = words_on_rates(params)
    return verdict | {"reason": f"{verdict['reason']}. {words}"} if words else verdict


def _power(runs: Runs, about, comparison) -> float:
    """Mean share of tokens, over steps, seeds and both arms, in the corners where the rules
    differ."""
    mine = curves.of_series(runs, *comparison.a, *comparison.b)
    shares = [
        curves.metric_curves(mine, f"train/token_share_{corner}")["value"]
        for corner in about.power.corners[comparison.name]
    ]
    # No share at all: no token was trained on, so nothing could show a difference.
    return sum(float(share.mean()) if len(share) else 0.0 for share in shares)


def _notes(params: ClippingParams) -> list[str]:
    return [
        *departures(params.options, RLOptions),
        note_on_rates(params),
        "The last step counts, never the best one. Seeds share the SFT checkpoint and, across "
        "rules, the order of problems.",
        _STAND_IN if uses_miniature(params) else f"{_NOT_MEASURED}.",
    ]
