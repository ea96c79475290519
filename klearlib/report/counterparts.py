"""Every table and figure of the paper with its counterpart in the page, or "not run"."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from klearlib.report.markup import Markup, element
from klearlib.report.sections import Section
from klearlib.report.verdicts import NOT_RUN


@dataclass(frozen=True)
class Counterpart:
    """A table or figure of the paper and what stands beside it here.

    item: as the paper calls it, "Table 1" or "Fig. 2a"; shows: what it holds; notebook: which
    publishes the counterpart; names: of its figures and tables there, the main one first.
    """

    item: str
    shows: str
    notebook: str
    names: tuple[str, ...]


COUNTERPARTS = (
    Counterpart("Table 1", "scores of all models", "10_headline", ("table1",)),
    Counterpart(
        "Table 2", "correct or mixed responses, by difficulty", "02_data_correctness", ("table2",)
    ),
    Counterpart("Table 3", "students of several teachers", "03_teacher_ablation", ("table3",)),
    Counterpart("Table 4", "few or many sources, mathematics", "04_topk_diversity", ("tables4_5",)),
    Counterpart("Table 5", "few or many sources, code", "04_topk_diversity", ("tables4_5",)),
    Counterpart("Table 6", "the weight of the LM loss", "06_alpha_sweep", ("table6", "scores")),
    Counterpart("Fig. 1", "final scores of all models", "10_headline", ("fig1",)),
    Counterpart("Fig. 2a", "clipping rules, mathematics", "05_clipping", ("fig2",)),
    Counterpart("Fig. 2b", "clipping rules, code", "05_clipping", ("fig2",)),
    Counterpart("Fig. 2c", "clipping rules, gradient norm", "05_clipping", ("fig2",)),
    Counterpart("Fig. 3a", "soft or hard reward, scores", "07_soft_reward", ("fig3",)),
    Counterpart("Fig. 3b", "soft or hard reward, rewards", "07_soft_reward", ("fig3",)),
    Counterpart("Fig. 4", "flawed tests filtered or not", "08_test_filter", ("fig4",)),
    Counterpart("Fig. 5a", "zero-advantage filter, scores", "09_zero_advantage", ("fig5",)),
    Counterpart("Fig. 5b", "zero-advantage filter, rewards", "09_zero_advantage", ("fig5",)),
)
"""In the order of the paper's numbers, tables first."""


def published_names(counterpart: Counterpart, sections: Iterable[Section]) -> list[str]:
    """The names of the counterpart's figures and tables that its section has, in their order."""
    for section in sections:
        if section.notebook == counterpart.notebook:
            items = [*section.content["figures"], *section.content["tables"]]
            there = {item["name"] for item in items}
            return [name for name in counterpart.names if name in there]
    return []


def counterparts_view(sections: Iterable[Section]) -> Markup:
    """The table of counterparts: item, what it shows, and a link into the page or "not run"."""
    sections = list(sections)
    partial = {each.notebook for each in sections if each.content["status"] != "complete"}
    titles = ("In the paper", "What it shows", "Here")
    head = element("tr", [element("th", title, scope="col") for title in titles])
    rows = [_row(counterpart, sections, partial) for counterpart in COUNTERPARTS]
    table = element(
        "table",
        element("caption", "Every table and figure of the paper, and its counterpart here."),
        element("thead", head),
        element("tbody", rows),
        class_="counterparts",
    )
    label = "Counterparts of the paper's tables and figures"
    return element("div", table, class_="scroll", role="region", aria_label=label, tabindex="0")


def _row(counterpart: Counterpart, sections: list[Section], partial: set[str]) -> Markup:
    notebook = counterpart.notebook
    links = [
        element("a", f"{notebook}, {name}", href=f"#{notebook}-{name}")
        for name in published_names(counterpart, sections)
    ]
    if links:
        here = [part for link in links for part in (", ", link)][1:]
        here.append(" (interim)" if notebook in partial else None)
    else:
        here = f"{NOT_RUN} ({notebook})"
    return element(
        "tr",
        element("th", counterpart.item, scope="row"),
        element("td", counterpart.shows),
        element("td", here),
    )
