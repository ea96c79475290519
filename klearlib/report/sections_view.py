"""One published notebook as a part of the page: formulas, figures, tables, links, provenance."""

from __future__ import annotations

import base64
import json
import re

from klearlib.errors import KlearError
from klearlib.report.claims_view import verdict_mark
from klearlib.report.markup import Markup, element
from klearlib.report.mathml import to_mathml
from klearlib.report.sections import Section
from klearlib.report.tables import read_markdown_table

_PROVENANCE_ORDER = (
    "utc",
    "commit",
    "klear",
    "python",
    "torch",
    "transformers",
    "numpy",
    "gpu",
    "cpu",
)


def section_view(section: Section, images: dict[str, str]) -> Markup:
    """The section's <section>; `images` maps a figure's name to the address of its image."""
    content = section.content
    parts = [
        element("h2", content["title"]),
        element(
            "p",
            f"Section {content['section']} of the paper · notebook {section.notebook} · "
            f"{duration_text(content['seconds'])}",
            class_="place",
        ),
        element("p", content["question"], class_="question"),
        _verdicts(content["verdicts"]),
        _missing(content),
        [_equation(section, item) for item in content["equations"]],
        [_figure(section, item, images[item["name"]]) for item in content["figures"]],
        [_table(section, item) for item in content["tables"]],
        _notes(content["notes"]),
        _executed(section),
        _definitions("Parameters", content["parameters"]),
        _definitions("Provenance", _ordered(content["provenance"])),
    ]
    return element("section", parts, id=section.notebook)


def duration_text(seconds: float) -> str:
    """A duration for people.

    >>> duration_text(42.4), duration_text(600), duration_text(7300)
    ('42 s', '10 min', '2.0 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def svg_data(section: Section, name: str) -> str:
    """The figure as a data address of an image."""
    data = section.path(name, "svg").read_bytes()
    return "data:image/svg+xml;base64," + base64.b64encode(data).decode()


def _missing(content: dict) -> Markup | None:
    if content["status"] == "complete":
        return None
    items = [element("li", item) for item in content["missing"]] or [element("li", "some runs")]
    return element(
        "div",
        element("strong", "Not complete yet."),
        " What is shown rests on the runs that are done; missing:",
        element("ul", items),
        class_="banner",
    )


def _equation(section: Section, item: dict) -> Markup:
    try:
        formula = Markup(to_mathml(item["latex"]))
    except KlearError as error:
        raise KlearError(
            f"{section.notebook}/section.json, Eq. {item['number']}: {error}"
        ) from error
    return element(
        "div",
        element("div", formula, class_="formula"),
        element("div", f"({item['number']})", class_="number"),
        element("p", item["says"]),
        class_="equation",
        id=f"{section.notebook}-eq-{_anchor(item['number'])}",
    )


def _figure(section: Section, item: dict, image: str) -> Markup:
    name = item["name"]
    links = _links(section, name, ("svg", "png"))
    # At a phone's width the letters in a figure would be too small to read, so it scrolls.
    box = element(
        "div",
        element("img", src=image, alt=item["alt"]),
        class_="scroll",
        role="region",
        aria_label=f"Figure {name}, scrolls sideways on a narrow screen",
        tabindex="0",
    )
    return element(
        "figure",
        box,
        element("p", "The figure scrolls sideways.", class_="hint", aria_hidden="true"),
        element("figcaption", item["caption"], " ", links),
        id=f"{section.notebook}-{_anchor(name)}",
    )


def _table(section: Section, item: dict) -> Markup:
    figures = {figure["name"] for figure in section.content["figures"]}
    suffix = "-table" if item["name"] in figures else ""  # an id stands once in a page
    path = section.path(item["name"], "md")
    try:
        header, numeric, rows = read_markdown_table(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise KlearError(
            f"{section.notebook}/{path.name} is {error}: run the notebook again with --force"
        ) from error
    classes = ["right" if right else None for right in numeric]
    head = [
        element("th", text, scope="col", class_=kind)
        for text, kind in zip(header, classes, strict=True)
    ]
    body = []
    for row in rows:
        cells = [
            element("td" if index else "th", text, scope=None if index else "row", class_=kind)
            for index, (text, kind) in enumerate(zip(row, classes, strict=True))
        ]
        body.append(element("tr", cells))
    links = _links(section, item["name"], ("csv", "md"))
    table = element(
        "table",
        element("caption", item["caption"], " ", links),
        element("thead", element("tr", head)),
        element("tbody", body),
        id=f"{section.notebook}-{_anchor(item['name'])}{suffix}",
    )
    return element(
        "div", table, class_="scroll", role="region", aria_label=item["caption"], tabindex="0"
    )


def _links(section: Section, name: str, kinds: tuple[str, ...]) -> Markup:
    there = [kind for kind in kinds if section.path(name, kind).is_file()]
    links = [element("a", kind, href=f"{section.notebook}/{name}.{kind}") for kind in there]
    return element("span", [part for link in links for part in (" ", link)], class_="links")


def _notes(notes: list[str]) -> Markup | None:
    if not notes:
        return None
    return Markup(
        element("h3", "How to read it") + element("ul", [element("li", note) for note in notes])
    )


def _executed(section: Section) -> Markup | None:
    links = [element("a", path.name, href=path.name) for path in section.executed()]
    if not links:
        return None
    return element("p", "Executed notebook:", [part for link in links for part in (" ", link)])


def _verdicts(verdicts: list[dict]) -> Markup | None:
    if not verdicts:
        return None
    marks = [
        element(
            "span",
            element("a", verdict["claim"], href=f"#claim-{verdict['claim']}"),
            " ",
            verdict_mark(verdict["verdict"]),
        )
        for verdict in verdicts
    ]
    return element("p", marks, class_="counts")


def _definitions(title: str, values: dict) -> Markup:
    rows = [
        element("tr", element("th", key, scope="row"), element("td", _value_text(value)))
        for key, value in values.items()
    ]
    return element(
        "details",
        element("summary", title),
        element("table", element("tbody", rows), class_="definitions"),
    )


def _ordered(provenance: dict) -> dict:
    first = {key: provenance[key] for key in _PROVENANCE_ORDER if key in provenance}
    return first | {key: value for key, value in provenance.items() if key not in first}


def _value_text(value) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _anchor(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text)
