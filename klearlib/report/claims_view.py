"""The ledger of claims as people read it: counts, and a table with shapes beside the colours."""

from __future__ import annotations

from klearlib.paper import claim as paper_claim
from klearlib.report.forest import forest_plot
from klearlib.report.markup import Markup, element
from klearlib.report.tables import MISSING

VERDICT_SHAPES = {
    "reproduced": "✓",
    "not reproduced": "✗",
    "direction": "▲",
    "opposite": "▼",
    "inconclusive": "◆",
    "no power": "○",
    "not run": "–",
}
"""Every verdict word with the shape that stands beside its colour, in reading order."""

VERDICT_MEANINGS = {
    "reproduced": "holds here as the paper says",
    "not reproduced": "does not hold here",
    "direction": "below paper scale, the difference has the paper's sign, its interval excludes 0",
    "opposite": "below paper scale, the difference has the other sign and its interval excludes 0",
    "inconclusive": "the interval holds 0, or runs are missing",
    "no power": "the comparison could not have shown a difference",
    "not run": "nothing was measured that decides it",
}
"""What each verdict word means, in one line."""


_LINES_IN_SIGHT = 2
_NUMBERS_IN_SHORT = 4

# A cell's class and its column's title, which a narrow screen shows in the cell itself.
_COLUMNS = {
    "numbers": "Paper",
    "measured": "Measured here, 95 % interval",
    "drawn": "Difference",
    "outcome": "Verdict",
    "why": "Why",
}


def verdict_counts(entries: list[dict]) -> dict[str, int]:
    """How many claims have each verdict, in the order of `VERDICT_SHAPES`, without the zeros."""
    words = [entry["verdict"] for entry in entries]
    return {word: words.count(word) for word in VERDICT_SHAPES if word in words}


def place_text(entry: dict) -> str:
    """Where the paper makes the claim, such as "Section 5.2.1, Figure 2a"."""
    section = entry["section"]
    return f"{'Section ' if section[:1].isdigit() else ''}{section}, {entry['shown']}"


def paper_in_short(paper: str) -> str:
    """The paper's numbers where they are few, else the first of them and how many more there are.

    >>> paper_in_short("a: 1; b: 2; c: 3; d: 4; e: 5")
    'a: 1; b: 2; and 3 more'
    """
    numbers = [number for number in paper.split("; ") if number]
    if len(numbers) <= _NUMBERS_IN_SHORT:
        return "; ".join(numbers)
    rest = len(numbers) - _LINES_IN_SIGHT
    return "; ".join([*numbers[:_LINES_IN_SIGHT], f"and {rest} more"])


def verdict_mark(word: str, count: int | None = None) -> Markup:
    """The verdict as a coloured label with its shape; with a count, as a label of the summary."""
    return element(
        "span",
        element("span", VERDICT_SHAPES[word], class_="shape", aria_hidden="true"),
        " ",
        word if count is None else f"{count} {word}",
        class_=f"verdict {word.replace(' ', '-')}",
        title=VERDICT_MEANINGS[word],
    )


def claims_table(entries: list[dict], published: set[str]) -> Markup:
    """The claims table of the page; `published` are the notebooks that have a section to link
    to.

    The roles repeat what the elements say: browsers drop a table's meaning where a narrow screen
    lays its rows out as blocks.
    """
    titles = ("Claim and place", *_COLUMNS.values())
    heads = [element("th", text, scope="col", role="columnheader") for text in titles]
    head = element("tr", heads, role="row")
    rows = [_row(entry, published) for entry in entries]
    caption = element(
        "caption",
        "The claims of the paper. Difference: dot ours (filled where the interval excludes 0), "
        "line its 95 % interval, diamond the paper's own difference at its last step.",
    )
    table = element(
        "table",
        caption,
        element("thead", head, role="rowgroup"),
        element("tbody", rows, role="rowgroup"),
        class_="claims",
        role="table",
    )
    return element(
        "div", table, class_="scroll", role="region", aria_label="Table of claims", tabindex="0"
    )


def with_paper_differences(entry: dict) -> tuple[list[dict], bool]:
    """The entry's comparisons, each with the paper's own difference, and whether they are
    fractions."""
    claim = paper_claim(entry["claim"])
    differences = {comparison.name: comparison.paper for comparison in claim.comparisons}
    rows = [{**row, "paper": differences.get(row["name"])} for row in entry["comparisons"]]
    return rows, claim.unit == "fraction"


def _row(entry: dict, published: set[str]) -> Markup:
    comparisons, percent = with_paper_differences(entry)
    title = entry["title"]
    if entry["notebook"] in published:
        title = element("a", title, href=f"#{entry['notebook']}")
    name = element(
        "th",
        element("span", entry["claim"], class_="number"),
        " ",
        title,
        element("div", place_text(entry), class_="place"),
        scope="row",
        role="rowheader",
    )
    verdict = [verdict_mark(entry["verdict"])]
    if entry["interim"] and entry["verdict"] != "not run":
        verdict.append(element("div", "interim", class_="place"))
    settle = entry["settle"]
    why = [
        entry["reason"],
        element("div", f"To settle it: {settle}", class_="place") if settle else None,
        _rule(entry),
    ]
    contents = (
        _paper_numbers(entry),
        _lines(entry["measured"]),
        forest_plot(comparisons, percent=percent),
        verdict,
        why,
    )
    cells = [_cell(kind, content) for kind, content in zip(_COLUMNS, contents, strict=True)]
    return element("tr", name, cells, id=f"claim-{entry['claim']}", role="row")


def _cell(kind: str, content) -> Markup:
    return element(
        "td",
        content or MISSING,
        class_=kind if content else f"{kind} empty",
        data_label=_COLUMNS[kind],
        role="cell",
    )


def _rule(entry: dict) -> Markup:
    notes = [element("li", note) for note in entry["notes"]]
    return element(
        "details",
        element("summary", "How it is judged"),
        element("p", entry["statement"]),
        element("p", "Below paper scale: ", entry["rule"]["below_paper"]),
        element("p", "At paper scale: ", entry["rule"]["at_paper"]),
        element("ul", notes) if notes else None,
        class_="rule",
    )


def _paper_numbers(entry: dict) -> list[Markup]:
    """The paper's numbers; of more than three the first two are in sight and the rest folded."""
    lines = _lines(entry["paper"])
    if len(lines) <= _LINES_IN_SIGHT + 1:
        return lines
    rest = lines[_LINES_IN_SIGHT:]
    folded = element("details", element("summary", f"{len(rest)} more"), rest)
    return [*lines[:_LINES_IN_SIGHT], folded]


def _lines(text: str) -> list[Markup]:
    return [element("div", line, class_="line") for line in text.split("; ") if line]
