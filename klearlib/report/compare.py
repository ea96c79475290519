"""Two results folders side by side in one static page and in markdown: what each measured, what
differs between them, and where each comes from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from klearlib.errors import KlearError, MissingAsset, ParameterError
from klearlib.report.blocks import Block, Heading, Paragraph, Table, Verdict, to_html, to_markdown
from klearlib.report.claims_view import paper_in_short
from klearlib.report.ledger import ledger
from klearlib.report.markup import Markup, element
from klearlib.report.page import header_facts
from klearlib.report.paired_tables import paired_tables
from klearlib.report.sections import Section, read_sections
from klearlib.report.sections_view import duration_text
from klearlib.report.verdicts import NOT_RUN
from klearlib.run.files import write_text


@dataclass(frozen=True)
class Side:
    """One results folder: its profile, the label of its columns, its sections by notebook, its
    ledger."""

    profile: str
    label: str
    sections: dict[str, Section]
    entries: list[dict]


def write_comparison(first: Path, second: Path, out: Path | None = None) -> tuple[Path, Path]:
    """Write two results folders side by side as a page and, beside it, as markdown.

    Args:
        first, second: results/<profile> of any two profiles, or of one profile from two clones.
        out: the page, ``*.html`` (default: compare_<first>_<second>.html in the folder of
            `first`).

    Returns:
        The paths of the page and of the markdown. Both follow from the folders alone.

    Raises:
        ParameterError: the same folder twice, or an `out` with another ending.
        MissingAsset: a folder that is not there, or that holds no published notebook.
        KlearError: a section is damaged, or of another profile than its folder's name.
    """
    sides = read_sides(Path(first), Path(second))
    if out is None:
        names = "_".join(side.profile for side in sides)
        out = Path(first).resolve().parent / f"compare_{names}.html"
    if out.suffix != ".html":
        raise ParameterError(f"--out {out}: expected a name that ends in .html")
    blocks = comparison(*sides)
    title = f"Two results: {sides[0].label} and {sides[1].label}"
    write_text(out, _page(title, blocks), make_folder=True)
    markdown = out.with_suffix(".md")
    write_text(markdown, f"# {title}\n\n{to_markdown(blocks)}")
    return out, markdown


def read_sides(first: Path, second: Path) -> tuple[Side, Side]:
    """Both folders, checked; see `write_comparison` for the errors."""
    for folder in (first, second):
        if not folder.is_dir():
            name = folder.resolve().name
            raise MissingAsset(
                f"no folder {folder}: make it with `klear run --profile {name}`, or name another"
            )
    if first.resolve() == second.resolve():
        raise ParameterError(f"--compare got the folder {first} twice: name two different ones")
    profiles = [folder.resolve().name for folder in (first, second)]
    labels = profiles
    if profiles[0] == profiles[1]:
        labels = [f"{profile} ({place})" for profile, place in zip(profiles, "AB", strict=True)]
    sides = []
    for folder, profile, label in zip((first, second), profiles, labels, strict=True):
        sections = {section.notebook: section for section in read_sections(folder)}
        if not sections:
            raise MissingAsset(
                f"{folder} holds no published notebook: run `klear run --profile {profile}` first"
            )
        try:
            contents = [section.content for section in sections.values()]
            entries = ledger(contents, profile=profile)
        except KlearError as error:
            raise KlearError(f"{folder}: {error}: run that notebook again with --force") from error
        sides.append(Side(profile, label, sections, entries))
    return sides[0], sides[1]


def comparison(a: Side, b: Side) -> list[Block]:
    """Everything that is said of both, in reading order."""
    blocks: list[Block] = []
    if a.profile != b.profile:
        text = (
            "Two profiles are two sizes of model, data and budget: the heights of scores cannot "
            "be compared across them, only what each says about the claims."
        )
        blocks.append(Paragraph(text, banner=True))
    for side in (a, b):
        blocks += [Paragraph(text, banner=True) for text in _unfinished(side)]
    blocks += [Heading("Claims"), _claims(a, b)]
    blocks += [Heading("Where they come from"), _facts(a, b), _notebooks(a, b)]
    blocks += [Heading("Parameters that differ"), _parameters(a, b)]
    words = "Numbers as published, in brackets the ends of their intervals."
    blocks += [Heading("Tables that both have"), Paragraph(words)]
    shared = sorted(a.sections.keys() & b.sections.keys())
    if not shared:
        blocks.append(Paragraph("No notebook has been published in both."))
    for notebook in shared:
        pair = a.sections[notebook], b.sections[notebook]
        blocks.append(Heading(pair[0].content["title"], level=3))
        blocks += paired_tables(*pair, (a.label, b.label))
    return blocks


def _unfinished(side: Side) -> list[str]:
    return [
        f"{side.label}, {notebook}: not complete yet, what is shown rests on the runs that are "
        f"done; missing: {', '.join(section.content['missing']) or 'some runs'}."
        for notebook, section in side.sections.items()
        if section.content["status"] != "complete"
    ]


def _claims(a: Side, b: Side) -> Table:
    header = ["Claim", "Paper"]
    for side in (a, b):
        header += [f"{side.label}: measured, 95 % interval", f"{side.label}: verdict"]
    rows = []
    for one, two in zip(a.entries, b.entries, strict=True):
        cells = [f"{one['claim']} {one['title']}", paper_in_short(one["paper"])]
        for entry in (one, two):
            note = "interim" if entry["interim"] else ""
            if entry["verdict"] == NOT_RUN:
                note = entry["reason"]
            cells += [entry["measured"], Verdict(entry["verdict"], note)]
        rows.append(tuple(cells))
    words = [
        (one["verdict"], two["verdict"]) for one, two in zip(a.entries, b.entries, strict=True)
    ]
    differ = sum(one != two for one, two in words)
    caption = f"The claims of the paper; {differ} of {len(words)} have different verdicts."
    return Table(caption, tuple(header), tuple(rows))


def _facts(a: Side, b: Side) -> Table:
    facts = [header_facts(list(side.sections.values())) for side in (a, b)]
    names = dict.fromkeys([*facts[0], *facts[1]])
    rows = [(name, facts[0].get(name, ""), facts[1].get(name, "")) for name in names]
    return Table("Commit, hardware and time.", ("of the runs", a.label, b.label), tuple(rows))


def _notebooks(a: Side, b: Side) -> Table:
    rows = []
    for notebook in sorted(a.sections.keys() | b.sections.keys()):
        rows.append((notebook, *(_origin(side.sections.get(notebook)) for side in (a, b))))
    return Table("The notebooks, one by one.", ("notebook", a.label, b.label), tuple(rows))


def _origin(section: Section | None) -> str:
    if section is None:
        return NOT_RUN
    content, record = section.content, section.content["provenance"]
    commit = str(record.get("commit") or "unknown")
    local = " with local changes" if commit.endswith("+") else ""
    parts = (
        content["status"],
        duration_text(content["seconds"]),
        f"commit {commit[:12]}{local}",
        f"klear {record.get('klear') or 'unknown'}",
        f"torch {record.get('torch') or 'unknown'}",
        str(record.get("gpu") or "no GPU"),
        str(record.get("utc") or "time unknown"),
    )
    return ", ".join(parts)


def _parameters(a: Side, b: Side) -> Table | Paragraph:
    rows = []
    for notebook in sorted(a.sections.keys() & b.sections.keys()):
        values = [_flat(side.sections[notebook].content["parameters"]) for side in (a, b)]
        for name in dict.fromkeys([*values[0], *values[1]]):
            texts = [value.get(name, "absent") for value in values]
            if name != "profile" and texts[0] != texts[1]:
                rows.append((notebook, name, *texts))
    if not rows:
        return Paragraph("The notebooks that both have ran with the same parameters.")
    header = ("notebook", "parameter", a.label, b.label)
    caption = (
        "Of the notebooks that both have; the sizes of model and world are in params/<profile>/."
    )
    return Table(caption, header, tuple(rows))


def _flat(values: dict, prefix: str = "") -> dict[str, str]:
    """Name -> text, with the entries of a group as ``group.name``."""
    texts: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, dict) and value:
            texts |= _flat(value, f"{prefix}{name}.")
        else:
            texts[prefix + name] = "none" if value in (None, {}, []) else str(value)
    return texts


def _page(title: str, blocks: list[Block]) -> str:
    css = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    head = [
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Markup(css)),
    ]
    body = [element("header", element("h1", title)), element("main", to_html(blocks))]
    document = element("html", element("head", head), element("body", body), lang="en")
    return f"<!DOCTYPE html>\n{document}\n"
