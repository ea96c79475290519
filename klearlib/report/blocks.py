"""Headings, paragraphs and tables that are written once and rendered as HTML and as markdown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from klearlib.report.claims_view import VERDICT_SHAPES, verdict_mark
from klearlib.report.markup import Markup, element, render
from klearlib.report.readme import plain
from klearlib.report.tables import MISSING, markdown_rows


@dataclass(frozen=True)
class Heading:
    """A heading of level 2 or 3."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """A paragraph; as a banner where the reader must not miss it."""

    text: str
    banner: bool = False


@dataclass(frozen=True)
class Verdict:
    """A cell with the word of a verdict and what qualifies it, such as "interim"."""

    word: str
    note: str = ""


@dataclass(frozen=True)
class Table:
    """A table of texts and verdicts: rows as long as the header, "" for an empty cell; what "; "
    joins in a cell stands on lines of its own where there is room."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str | Verdict, ...], ...]


Block = Heading | Paragraph | Table


def to_html(blocks: Iterable[Block]) -> Markup:
    """The blocks one after the other, those below each heading of level 2 as a section."""
    groups: list[list[Block]] = [[]]
    for block in blocks:
        if isinstance(block, Heading) and block.level == 2:
            groups.append([])
        groups[-1].append(block)
    first, *rest = [[_html(block) for block in group] for group in groups]
    return Markup(render(first) + "".join(element("section", group) for group in rest))


def to_markdown(blocks: Iterable[Block]) -> str:
    """The blocks with an empty line between them."""
    return "\n\n".join(map(_markdown, blocks)) + "\n"


def _html(block: Block) -> Markup:
    if isinstance(block, Heading):
        return element(f"h{block.level}", block.text)
    if isinstance(block, Paragraph):
        return element("p", block.text, class_="banner" if block.banner else None)
    head = element("tr", [element("th", text, scope="col") for text in block.header])
    rows = []
    for row in block.rows:
        cells = [element("th", _html_cell(row[0]), scope="row")]
        rows.append(element("tr", cells, [element("td", _html_cell(cell)) for cell in row[1:]]))
    table = element(
        "table",
        element("caption", block.caption),
        element("thead", head),
        element("tbody", rows),
    )
    return element(
        "div", table, class_="scroll", role="region", aria_label=block.caption, tabindex="0"
    )


def _html_cell(cell: str | Verdict) -> Markup | str:
    if isinstance(cell, Verdict):
        note = element("div", cell.note, class_="place") if cell.note else ""
        return Markup(verdict_mark(cell.word) + note)
    lines = [line for line in cell.split("; ") if line]
    if len(lines) > 1:
        return Markup("".join(element("div", line, class_="line") for line in lines))
    return cell or MISSING


def _markdown(block: Block) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {plain(block.text)}"
    if isinstance(block, Paragraph):
        return f"{'> ' if block.banner else ''}{plain(block.text)}"
    rows = [[plain(text) for text in block.header]]
    rows += [[_markdown_cell(cell) for cell in row] for row in block.rows]
    table = markdown_rows(rows, [False] * len(block.header), escaped=True).rstrip()
    return f"{plain(block.caption)}\n\n{table}"


def _markdown_cell(cell: str | Verdict) -> str:
    if isinstance(cell, Verdict):
        note = f" ({plain(cell.note)})" if cell.note else ""
        return f"{VERDICT_SHAPES[cell.word]} {cell.word}{note}"
    return plain(cell or MISSING)
