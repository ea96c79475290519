"""Two results folders side by side in one static page and in markdown: what each measured, what
differs between them, and where each comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from klearlib.errors import MissingAsset, ParameterError
from klearlib.params.place import Place, read_place
from klearlib.report.page import commit_text, header_facts
from klearlib.report.render import duration_text, in_short, render, style_sheet
from klearlib.report.section import NOT_RUN, Notebook, Section, read_sections
from klearlib.report.tables import CsvTable, interval_text, number_text, read_csv
from klearlib.report.verdicts import ledger
from klearlib.run.files import write_text

_TWO_PROFILES = (
    "Two profiles are two sizes of model, data and budget: the heights of scores cannot be "
    "compared across them, only what each says about the claims."
)


@dataclass(frozen=True)
class Side:
    """One results folder: its place, the label of its columns, its sections by notebook, its
    ledger."""

    place: Place
    label: str
    sections: dict[str, Section]
    entries: list[dict]

    @property
    def name(self) -> str:
        return self.place.folder.resolve().name


class VerdictCell(NamedTuple):
    """A cell with the word of a verdict and what qualifies it, such as "interim"."""

    word: str
    note: str = ""


class Table(NamedTuple):
    """A table of texts and verdicts: rows as long as the header, "" for an empty cell; what "; "
    joins in a cell stands on lines of its own where there is room."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str | VerdictCell]]


class Part(NamedTuple):
    """A heading of level 2 or 3, and the sentences before and after its tables."""

    title: str
    tables: Sequence[Table] = ()
    before: Sequence[str] = ()
    after: Sequence[str] = ()
    level: int = 2


def write_comparison(
    first: Path, second: Path, out: Path | None = None, *, notebooks: Sequence[Notebook]
) -> tuple[Path, Path]:
    """Write two results folders, of two profiles or of one from two clones, side by side as a page
    and, beside it, as markdown; the paths of both.

    out: the page, ``*.html`` (default: compare_<first>_<second>.html beside `first`). notebooks:
    all that the suite has. Raises ParameterError for the same folder twice or an `out` with another
    ending, MissingAsset for a folder without published notebooks, KlearError for a damaged section.
    """
    a, b = _read_sides(first, second, notebooks)
    if out is None:
        out = first.resolve().parent / f"compare_{a.name}_{b.name}.html"
    if out.suffix != ".html":
        raise ParameterError(f"--out {out}: expected a name that ends in .html")
    banners = [_TWO_PROFILES] if a.place.profile != b.place.profile else []
    shown = {
        "title": f"Two results: {a.label} and {b.label}",
        "banners": banners + _unfinished(a) + _unfinished(b),
        "parts": _parts(a, b),
    }
    page = render("comparison.html.j2", css=style_sheet("page.css"), **shown)
    write_text(out, page, make_folder=True)
    return out, write_text(out.with_suffix(".md"), render("comparison.md.j2", **shown))


def paired_tables(a: Section, b: Section, labels: tuple[str, str]) -> Part:
    """One table for each name that both sections publish with the same columns and rows.

    A row is known by its first cell and its texts; each column of numbers stands under both labels,
    or once where it is the same, with its interval where the columns of its ends follow. Tables
    that cannot be paired, or are the same in both, are named.
    """
    captions = [{item.name: item.caption for item in section.tables} for section in (a, b)]
    tables, same, apart = [], [], []
    for name, caption in captions[0].items():
        if name not in captions[1]:
            apart.append(f"{name} (only in {labels[0]})")
            continue
        one, two = (read_csv(section.path(name, "csv")) for section in (a, b))
        found = _pairs(one, two)
        if one == two:
            same.append(name)
        elif isinstance(found, str):
            apart.append(f"{name} ({found})")
        else:
            both = [f"{label}: {some[name]}" for label, some in zip(labels, captions, strict=True)]
            words = caption if caption == captions[1][name] else " ".join(both)
            tables.append(_paired(f"{name}. {words}", one.header, *found, labels))
    apart += [f"{name} (only in {labels[1]})" for name in captions[1] if name not in captions[0]]
    said = {"The same in both": same, "Not side by side": apart}
    after = [f"{what}: {', '.join(names)}." for what, names in said.items() if names]
    return Part(a.title, tables, after=after, level=3)


def _read_sides(first: Path, second: Path, notebooks: Sequence[Notebook]) -> tuple[Side, Side]:
    for folder in (first, second):
        if not folder.is_dir():
            name = folder.resolve().name
            raise MissingAsset(
                f"no folder {folder}: make it with `klear run --profile {name}`, or name another"
            )
    if first.resolve() == second.resolve():
        raise ParameterError(f"--compare got the folder {first} twice: name two different ones")
    labels = [folder.resolve().name for folder in (first, second)]
    if labels[0] == labels[1]:
        labels = [f"{name} ({letter})" for name, letter in zip(labels, "AB", strict=True)]
    sides = []
    for folder, label in zip((first, second), labels, strict=True):
        place = read_place(folder)
        sections = {section.notebook: section for section in read_sections(folder)}
        if not sections:
            raise MissingAsset(f"{folder} holds no published notebook: run `{place.command}` first")
        entries = ledger(sections.values(), notebooks, place=place)
        sides.append(Side(place, label, sections, entries))
    return sides[0], sides[1]


def _unfinished(side: Side) -> list[str]:
    return [
        f"{side.label}, {section.notebook}: not complete yet, what is shown rests on the runs that "
        f"are done; missing: {section.lacks}."
        for section in side.sections.values()
        if not section.complete
    ]


def _parts(a: Side, b: Side) -> list[Part]:
    shared = sorted(a.sections.keys() & b.sections.keys())
    differing = _parameters(a, b, shared)
    words = "The notebooks that both have ran with the same parameters."
    alike = Part("Parameters that differ", before=(words,))
    words = "Numbers as published, in brackets the ends of their intervals."
    none = () if shared else ("No notebook has been published in both.",)
    return [
        Part("Claims", (_claims(a, b),)),
        Part("Where they come from", (_facts(a, b), _notebooks(a, b))),
        Part("Parameters that differ", (differing,)) if differing.rows else alike,
        Part("Tables that both have", before=(words, *none)),
        *(paired_tables(a.sections[name], b.sections[name], (a.label, b.label)) for name in shared),
    ]


def _claims(a: Side, b: Side) -> Table:
    header = ["Claim", "Paper"]
    for side in (a, b):
        header += [f"{side.label}: measured, 95 % interval", f"{side.label}: verdict"]
    rows, differ = [], 0
    for one, two in zip(a.entries, b.entries, strict=True):
        cells = [f"{one['claim']} {one['title']}", in_short(one["paper"])]
        for entry in (one, two):
            note = "interim" if entry["interim"] else ""
            note = entry["reason"] if entry["verdict"] == NOT_RUN else note
            cells += [entry["measured"], VerdictCell(entry["verdict"], note)]
        rows.append(cells)
        differ += one["verdict"] != two["verdict"]
    caption = f"The claims of the paper; {differ} of {len(rows)} have different verdicts."
    return Table(caption, header, rows)


def _facts(a: Side, b: Side) -> Table:
    facts = [header_facts(side.sections.values()) for side in (a, b)]
    names = dict.fromkeys([*facts[0], *facts[1]])
    rows = [(name, facts[0].get(name, ""), facts[1].get(name, "")) for name in names]
    return Table("Commit, hardware and time.", ("of the runs", a.label, b.label), rows)


def _notebooks(a: Side, b: Side) -> Table:
    names = sorted(a.sections.keys() | b.sections.keys())
    rows = [(name, *(_origin(side.sections.get(name)) for side in (a, b))) for name in names]
    return Table("The notebooks, one by one.", ("notebook", a.label, b.label), rows)


def _origin(section: Section | None) -> str:
    if section is None:
        return NOT_RUN
    record, seconds = section.provenance, duration_text(section.seconds)
    parts = [section.status, seconds, f"commit {commit_text(record.get('commit'))}"]
    parts += [f"{name} {record.get(name) or 'unknown'}" for name in ("klear", "torch")]
    parts += [str(record.get("gpu") or "no GPU"), str(record.get("utc") or "time unknown")]
    return ", ".join(parts)


def _parameters(a: Side, b: Side, shared: Sequence[str]) -> Table:
    rows = []
    for notebook in shared:
        values = [_flat(side.sections[notebook].parameters) for side in (a, b)]
        for name in dict.fromkeys([*values[0], *values[1]]):
            texts = [value.get(name, "absent") for value in values]
            if name != "profile" and texts[0] != texts[1]:
                rows.append((notebook, name, *texts))
    words = (
        "Of the notebooks that both have; the sizes of model and world are in params/<profile>/."
    )
    return Table(words, ("notebook", "parameter", a.label, b.label), rows)


def _flat(values: dict, prefix: str = "") -> dict[str, str]:
    """Name -> text, with the entries of a group as ``group.name``."""
    texts: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, dict) and value:
            texts |= _flat(value, f"{prefix}{name}.")
        else:
            texts[prefix + name] = "none" if value in (None, {}, []) else str(value)
    return texts


def _pairs(one: CsvTable, two: CsvTable) -> tuple[list[int], list[tuple]] | str:
    """The columns that tell rows apart, which are the first and those that hold texts, and the rows
    of both tables that belong together; or why they cannot be paired."""
    if one.header != two.header:
        return "other columns"
    numeric = [all(pair) for pair in zip(one.numeric, two.numeric, strict=True)]
    texts = [index for index, number in enumerate(numeric) if index == 0 or not number]
    if len(texts) == len(one.header):
        return "no numbers, other texts"
    mine, others = (
        {tuple(row[index] for index in texts): row for row in table.rows} for table in (one, two)
    )
    if mine.keys() != others.keys():
        return "other rows"
    if len(mine) < max(len(one.rows), len(two.rows)):
        return "rows that their texts do not tell apart"
    return texts, [(row, others[key]) for key, row in mine.items()]


def _paired(
    caption: str, header: list[str], texts: list[int], pairs: list[tuple], labels: tuple[str, str]
) -> Table:
    titles = [header[index] for index in texts]
    columns = [[row[index] for row, _ in pairs] for index in texts]
    for shown in _numbers(header, texts):
        name = header[shown[0]]
        sides = [
            [[row[index] for index in shown] for row in side] for side in zip(*pairs, strict=True)
        ]
        if sides[0] == sides[1]:
            sides, names = sides[:1], [name]
        else:
            names = [f"{name}, {label}" for label in labels]
        texts_of_all = [text for side in sides for values in side for text in values]
        whole = all(not text or float(text).is_integer() for text in texts_of_all)
        titles += names
        columns += [[_cell(values, whole) for values in side] for side in sides]
    return Table(caption, tuple(titles), tuple(zip(*columns, strict=True)))


def _numbers(header: list[str], texts: list[int]) -> list[tuple[int, ...]]:
    """The columns of numbers, each with those of its interval's ends where they follow it."""
    shown, done = [], set(texts)
    for index, name in enumerate(header):
        if index in done:
            continue
        named = header[index + 1 : index + 3] in (["low", "high"], [f"{name}_low", f"{name}_high"])
        wide = named and not {index + 1, index + 2} & done
        shown.append((index, index + 1, index + 2) if wide else (index,))
        done |= set(shown[-1])
    return shown


def _cell(values: list[str], whole: bool) -> str:
    """A value, with the ends of its interval where they are there; `whole`: of whole numbers."""
    value, *ends = (float(text or "nan") for text in values)
    if ends:
        return interval_text(value, *ends, digits=3)
    return number_text(int(value) if whole and value == value else value)
