"""A results folder as notebooks would leave it, with made-up curves; nothing in it was measured."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd

from klearlib.experiments.catalogue import experiments
from klearlib.paper import claim as paper_claim
from klearlib.report.curves import CORNER_TITLES
from klearlib.report.section import (
    Comparison,
    Equation,
    FigureItem,
    Section,
    TableItem,
    Verdict,
)

RULES = ("clip_higher", "gppo", "cispo")

NOTEBOOKS = experiments()
"""In their order, which is not that of the paper's numbers."""


class Page(HTMLParser):
    """The elements of a page and the texts of its tables' rows; fails on tags that do not match."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.texts, self.rows = [], [], [], []
        self.feed(text)
        assert self.open == [], self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in ("meta", "img", "br", "hr"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.texts.append(data)
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    def all(self, tag):
        return [attrs for name, attrs in self.elements if name == tag]

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.texts))


def curves(*, seeds=(0, 1, 2), steps=range(0, 41, 4), series=RULES, start=0.4, noise=0.02):
    """Columns series, seed, step, value: rising curves with noise."""
    generator = np.random.default_rng(7)
    rows = []
    for place, name in enumerate(series):
        for seed in seeds:
            for step in steps:
                trend = start + (0.2 + 0.03 * place) * (1 - np.exp(-step / 15))
                rows.append((name, seed, step, trend + noise * generator.normal()))
    return pd.DataFrame(rows, columns=["series", "seed", "step", "value"])


def paper_curves(*, steps=range(10, 250, 10), noise=0.01):
    """Columns series, step, value, with the names that the paper prints."""
    generator = np.random.default_rng(8)
    rows = []
    for place, name in enumerate(("GRPO w/ Clip Higher", "GPPO", "CISPO")):
        for step in steps:
            value = 0.73 + 0.02 * place + 0.0003 * step + noise * generator.normal()
            rows.append((name, step, value))
    return pd.DataFrame(rows, columns=["series", "step", "value"])


def coefficients():
    """Title -> columns ratio, positive, negative, typed from Eqs. 9 and 10."""
    ratio = np.geomspace(0.1, 3, 121)
    gppo = {"positive": np.minimum(ratio, 1.28), "negative": np.maximum(ratio, 0.8)}
    clip = {
        "positive": np.where(ratio > 1.28, 0, ratio),
        "negative": np.where(ratio < 0.8, 0, ratio),
    }
    shapes = {"GRPO w/ Clip-Higher": clip, "GPPO": gppo}
    return {title: pd.DataFrame({"ratio": ratio} | of) for title, of in shapes.items()}


def corners(*, seeds=(0, 1, 2), steps=range(1, 41)):
    """Columns series, seed, step, corner, quantity, value."""
    generator = np.random.default_rng(9)
    rows = []
    for name in RULES:
        for seed in seeds:
            for step in steps:
                for place, corner in enumerate(CORNER_TITLES):
                    share = 0.002 * (1 + place) * (1 + step / 20) * generator.uniform(0.7, 1.3)
                    mass = 0.0 if name == "clip_higher" and place < 2 else 1.3 * share
                    rows.append((name, seed, step, corner, "tokens", share))
                    rows.append((name, seed, step, corner, "gradient", mass))
    return pd.DataFrame(rows, columns=["series", "seed", "step", "corner", "quantity", "value"])


def provenance(**changes) -> dict:
    """What `klearlib.run.provenance` would say of a machine that does not exist."""
    known = {
        "klear": "0.1.0",
        "commit": "0123456789abcdef0123456789abcdef01234567",
        "python": "3.12.1",
        "torch": "2.13.0+cpu",
        "transformers": "5.1.0",
        "platform": "Linux-6.1-x86_64",
        "cpu": "A processor of two cores",
        "cores": 2,
        "memory_gb": 8.0,
        "gpu": None,
        "utc": "2026-01-02T03:04:05Z",
    }
    return known | changes


def verdict(claim: str, word: str, **changes) -> dict:
    """A claim's verdict as a notebook publishes it."""
    names = [each.name for each in paper_claim(claim).comparisons]
    comparisons = [
        {
            "name": name,
            "difference": difference,
            "low": difference - 0.035,
            "high": difference + 0.035,
            "margin": 0.05,
            "num_replicates": 5,
            "p_flip": None,
            "p_greater": 0.21,
            "p_less": 0.79,
        }
        for name, difference in zip(names, (0.021, -0.052))  # noqa: B905 - two of them at most
    ]
    known = {
        "claim": claim,
        "verdict": word,
        "reason": "neither a sign nor a difference inside +-5 can be told",
        "settle": "9 replicates",
        "comparisons": comparisons,
        "measured": "GPPO 0.612 (0.580 to 0.644), Clip-Higher 0.591 (0.560 to 0.622)",
        "exploratory": False,
        "rule": "0123456789abcdef",
    }
    return known | changes


def section(**changes) -> dict:
    """The section.json of the clipping experiment."""
    known = {
        "notebook": "05_clipping",
        "title": "Clipping rules: GPPO against Clip-Higher and CISPO",
        "section": "5.2.1",
        "question": "Does keeping the gradient of clipped tokens beat cutting it off?",
        "status": "complete",
        "missing": [],
        "equations": [
            {
                "number": "12",
                "latex": r"F^{\text{GPPO}} = \frac{1-\epsilon_l}{r} r \text{ at } r < 1-\epsilon_l",
                "says": "Clipped tokens keep a bounded, constant gradient.",
            },
            {
                "number": "7",
                "latex": r"\mathcal{J}(\theta) = \mathbb{E}_{q \sim \mathcal{D}}\left["
                r"\frac{1}{\sum_{j=1}^{M} T_j} \sum_{j=1}^{M} \sum_{t=1}^{T_j}"
                r"\min\left(r_t^{(j)} \hat{A}^{(j)}, \operatorname{clip}\left(r_t^{(j)},"
                r" 1-\epsilon_l, 1+\epsilon_h\right) \hat{A}^{(j)}\right)\right]",
                "says": "The mean is over all tokens of the mini-batch.",
            },
        ],
        "figures": [
            {
                "name": "fig2",
                "caption": "The paper's Figure 2 above, the same experiment here below.",
                "alt": "Six panels: score on two benchmarks and gradient norm against the step.",
            },
            {
                "name": "coefficients",
                "caption": "The coefficient F of each rule.",
                "alt": "Two panels: F against the ratio, one line for each rule.",
            },
            {
                "name": "corners",
                "caption": "How much a rule could matter.",
                "alt": "Eight panels: shares of tokens and of gradient mass by corner.",
            },
        ],
        "tables": [{"name": "final_scores", "caption": "Scores after the last step."}],
        "verdicts": [verdict("C1", "undecided"), verdict("C2", "supported")],
        "notes": ["An order of rules at one learning rate is an order at that learning rate."],
        "provenance": provenance(),
        "seconds": 1234.5,
        "parameters": {"profile": "mini", "rules": list(RULES), "learning_rate": 1e-4},
    }
    return known | changes


def record(**changes) -> Section:
    """`section` as the record that it is read to."""
    content = section(**changes)
    made = {
        "equations": tuple(Equation(**each) for each in content["equations"]),
        "figures": tuple(FigureItem(**each) for each in content["figures"]),
        "tables": tuple(TableItem(**each) for each in content["tables"]),
        "verdicts": tuple(map(verdict_record, content["verdicts"])),
    }
    return Section(**{"folder": Path(content["notebook"]), **content, **made})


def verdict_record(content: dict) -> Verdict:
    """`verdict` as the record that it is read to."""
    comparisons = tuple(Comparison(**each) for each in content["comparisons"])
    return Verdict(**{**content, "comparisons": comparisons})


def scores() -> pd.DataFrame:
    """A small table with words, whole numbers, fractions, an interval text and a missing value."""
    return pd.DataFrame(
        {
            "rule": ["GRPO w/ Clip-Higher", "GPPO", "CISPO"],
            "seeds": [3, 3, 2],
            "score": [0.591234, 0.612345, np.nan],
            "95 % interval": ["59.1 (56.0 to 62.2)", "61.2 (58.0 to 64.4)", "–"],
        }
    )


def publish(results_dir, content: dict, *, figures: bool = True) -> None:
    """Write the section with its figures and tables, the section last."""
    from klearlib.report.curves import Panel, corner_shares, paper_beside_ours
    from klearlib.report.rule_figures import coefficient_grid
    from klearlib.report.style import save_figure
    from klearlib.report.tables import write_table

    folder = results_dir / content["notebook"]
    folder.mkdir(parents=True, exist_ok=True)
    if figures:
        panels = [
            Panel("AIME 2024, avg@32", "maths A, avg@4", paper_curves(), curves(), "score"),
            Panel("LiveCodeBench V5, avg@4", "maths B", paper_curves(), curves(start=0.3), "score"),
            Panel("norm", "norm", paper_curves(steps=range(1, 241)), curves(noise=0.1), "norm"),
        ]
        save_figure(paper_beside_ours(panels), folder, "fig2")
        save_figure(coefficient_grid(coefficients()), folder, "coefficients")
        save_figure(corner_shares(corners()), folder, "corners")
    else:
        for item in content["figures"]:
            svg = b"<svg xmlns='http://www.w3.org/2000/svg'></svg>"
            for kind, content_of in (("svg", svg), ("png", b"IEND\xaeB`\x82")):
                (folder / f"{item['name']}.{kind}").write_bytes(content_of)
    for item in content["tables"]:
        write_table(scores(), folder / f"{item['name']}.csv")
    (folder / "section.json").write_text(json.dumps(content))
