"""The tables that two published sections have in common, with the numbers of both in each row."""

from __future__ import annotations

import csv

from klearlib.errors import KlearError
from klearlib.report.blocks import Block, Paragraph, Table
from klearlib.report.sections import Section
from klearlib.report.tables import interval_text, number_text

_DIGITS = 3


def paired_tables(a: Section, b: Section, labels: tuple[str, str]) -> list[Block]:
    """One table for each name that both sections publish with the same columns and rows.

    A row is known by its first cell and its texts; each column of numbers stands twice, under both
    labels, or once where it is the same in both, with its interval where the columns of its ends
    follow. A table that cannot be paired is named with the reason, and so is one that is the same
    in both.

    Raises KlearError for a csv file that cannot be read or whose rows are not as long as its
    header.
    """
    captions = [
        {item["name"]: item["caption"] for item in section.content["tables"]} for section in (a, b)
    ]
    blocks: list[Block] = []
    same, apart = [], []
    for name, caption in captions[0].items():
        if name not in captions[1]:
            apart.append(f"{name} (only in {labels[0]})")
            continue
        one, two = (_read(section, name) for section in (a, b))
        reason = _unlike(one, two)
        if one == two:
            same.append(name)
        elif reason:
            apart.append(f"{name} ({reason})")
        else:
            both = [f"{label}: {some[name]}" for label, some in zip(labels, captions, strict=True)]
            words = caption if caption == captions[1][name] else " ".join(both)
            blocks.append(_paired(f"{name}. {words}", one, two, labels))
    apart += [f"{name} (only in {labels[1]})" for name in captions[1] if name not in captions[0]]
    if same:
        blocks.append(Paragraph(f"The same in both: {', '.join(same)}."))
    if apart:
        blocks.append(Paragraph(f"Not side by side: {', '.join(apart)}."))
    return blocks


def _read(section: Section, name: str) -> list[list[str]]:
    path = section.path(name, "csv")
    where = f"{section.notebook}/{path.name}"
    try:
        rows = list(csv.reader(path.read_text(encoding="utf-8").splitlines(keepends=True)))
    except (OSError, ValueError, csv.Error) as error:
        raise KlearError(
            f"{where} cannot be read ({error}): run the notebook with --force"
        ) from error
    if not rows or any(len(row) != len(rows[0]) for row in rows):
        raise KlearError(
            f"{where} has no rows as long as its header: run the notebook with --force"
        )
    return rows


def _unlike(one: list[list[str]], two: list[list[str]]) -> str:
    """Why the tables cannot be paired; empty where they can."""
    if one[0] != two[0]:
        return "other columns"
    texts = _key_columns(one, two)
    if len(texts) == len(one[0]):
        return "no numbers, other texts"
    keys = [[tuple(row[index] for index in texts) for row in rows[1:]] for rows in (one, two)]
    if set(keys[0]) != set(keys[1]):
        return "other rows"
    if any(len(set(some)) != len(some) for some in keys):
        return "rows that their texts do not tell apart"
    return ""


def _key_columns(one: list[list[str]], two: list[list[str]]) -> list[int]:
    """The columns that tell rows apart: the first, and those that hold texts."""
    values = [*one[1:], *two[1:]]
    columns = range(len(one[0]))
    return [c for c in columns if not c or not all(_is_number(row[c]) for row in values)]


def _is_number(text: str) -> bool:
    if not text:
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True


def _paired(
    caption: str, one: list[list[str]], two: list[list[str]], labels: tuple[str, str]
) -> Table:
    header, texts = one[0], _key_columns(one, two)
    others = {tuple(row[index] for index in texts): row for row in two[1:]}
    pairs = [(row, others[tuple(row[index] for index in texts)]) for row in one[1:]]
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
        whole = all(_is_whole(value) for side in sides for values in side for value in values)
        titles += names
        columns += [[_cell(values, whole) for values in side] for side in sides]
    return Table(caption, tuple(titles), tuple(zip(*columns, strict=True)))


def _numbers(header: list[str], texts: list[int]) -> list[tuple[int, ...]]:
    """The columns of numbers, each with those of its interval's ends where they follow it."""
    shown, index = [], 0
    while index < len(header):
        if index in texts:
            index += 1
            continue
        name, ends = header[index], header[index + 1 : index + 3]
        wide = ends in (["low", "high"], [f"{name}_low", f"{name}_high"])
        wide = wide and not {index + 1, index + 2} & set(texts)
        shown.append((index, index + 1, index + 2) if wide else (index,))
        index += 3 if wide else 1
    return shown


def _is_whole(text: str) -> bool:
    return not text or float(text).is_integer()


def _cell(values: list[str], whole: bool) -> str:
    """A value, with the ends of its interval where they are there; `whole`: of whole numbers."""
    value, *ends = (float(text or "nan") for text in values)
    if ends:
        return interval_text(value, *ends, digits=_DIGITS)
    return number_text(int(value) if whole and value == value else value, digits=_DIGITS)
