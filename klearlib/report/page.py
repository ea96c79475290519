"""One page for each profile, results/<profile>/report.html: no network, no script, and in one file
but for its largest figures, which lie beside it.

The page follows from the published sections alone, so it is byte for byte the same until one of
them changes: it holds the time of the runs and never that of its building.
"""

from __future__ import annotations

import json
from pathlib import Path

from klearlib.errors import KlearError
from klearlib.report.claims_view import (
    VERDICT_MEANINGS,
    claims_table,
    verdict_counts,
    verdict_mark,
)
from klearlib.report.counterparts import counterparts_view
from klearlib.report.ledger import ledger
from klearlib.report.markup import Markup, element
from klearlib.report.readme import readme
from klearlib.report.sections import Section, read_sections
from klearlib.report.sections_view import section_view, svg_data
from klearlib.report.state_view import state_view
from klearlib.report.verdicts import is_paper_scale
from klearlib.run.files import write_text

MAX_FIGURE_BYTES = 400_000
"""Budget of the figures inside the page, which keeps the whole of a profile below 5 MB."""

BELOW_PAPER_SCALE = (
    "Below paper scale: only directions are tested here, and exact mathematics, which holds at any "
    "scale. Model, data and budgets are far smaller than the paper's, so the heights of scores and "
    "curves cannot be compared, and a direction tells what the same method does at this scale only."
)


def build_report(results_dir: Path) -> Path:
    """Write report.html, README.md and claims.json of a profile from what its notebooks published.

    Args:
        results_dir: results/<profile>; it is made if it is absent, and its name is the profile.

    Returns:
        The path of report.html. Files are replaced whole, and left alone where nothing changed.

    Raises:
        KlearError: a section is damaged or names an artefact that is not there.
    """
    results_dir = Path(results_dir)
    profile = results_dir.resolve().name
    sections = read_sections(results_dir)
    try:
        entries = ledger([section.content for section in sections], profile=profile)
    except KlearError as error:
        raise KlearError(
            f"{error}: run that notebook again with `klear run --profile {profile} --force`"
        ) from error
    page = _page(profile, sections, entries, _deviations(results_dir))
    _write_changed(
        results_dir / "README.md", readme(profile, sections, entries, header_facts(sections))
    )
    ledger_text = json.dumps(entries, indent=1, ensure_ascii=False) + "\n"
    _write_changed(results_dir / "claims.json", ledger_text)
    return _write_changed(results_dir / "report.html", page)


def header_facts(sections: list[Section]) -> dict[str, str]:
    """Commit, hardware and time of the runs behind the page; several values stand side by side."""
    records = [section.content["provenance"] for section in sections]
    times = sorted(str(record["utc"]) for record in records if record.get("utc"))
    facts = {
        "commit": _distinct(_commit_text(record.get("commit")) for record in records),
        "klear": _distinct(str(record.get("klear") or "unknown") for record in records),
        "hardware": _distinct(map(_hardware_text, records)),
        "time": times[-1].replace("T", " ").replace("Z", " UTC") if times else "",
    }
    return {name: text for name, text in facts.items() if text}


def _page(
    profile: str, sections: list[Section], entries: list[dict], deviations: Markup | None
) -> str:
    title = f"Klear-Reasoner reproduced: profile {profile}"
    published = {section.notebook for section in sections}
    images = _images(sections)
    counts = [verdict_mark(word, count) for word, count in verdict_counts(entries).items()]
    body = [
        element(
            "header",
            element("h1", title),
            element(
                "p", "GPPO and the other experiments of arXiv 2508.07629, held against the paper."
            ),
            _facts(header_facts(sections)),
        ),
        state_view(profile, sections),
        None
        if is_paper_scale(profile)
        else element("p", BELOW_PAPER_SCALE, class_="banner", role="note"),
        _contents(sections),
        element(
            "main",
            element(
                "section",
                element("h2", "Claims"),
                element("p", counts, class_="counts", aria_label="Number of claims by verdict"),
                claims_table(entries, published),
                _legend(entries),
                id="claims",
            ),
            element(
                "section",
                element("h2", "The paper's tables and figures"),
                counterparts_view(sections),
                id="counterparts",
            ),
            [section_view(section, images[section.notebook]) for section in sections],
            deviations,
        ),
    ]
    css = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    head = [
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Markup(css)),
    ]
    document = element("html", element("head", head), element("body", body), lang="en")
    return f"<!DOCTYPE html>\n{document}\n"


def _facts(facts: dict[str, str]) -> Markup | None:
    if not facts:
        return None
    items = [Markup(element("dt", name) + element("dd", text)) for name, text in facts.items()]
    return element("dl", items)


def _contents(sections: list[Section]) -> Markup | None:
    if not sections:
        return None
    links = [("claims", "Claims"), ("counterparts", "The paper's tables and figures")]
    links += [(each.notebook, each.content["title"]) for each in sections]
    items = [element("li", element("a", text, href=f"#{anchor}")) for anchor, text in links]
    return element("nav", element("ul", items), aria_label="Contents")


def _legend(entries: list[dict]) -> Markup:
    items = [
        element("li", verdict_mark(word), " ", VERDICT_MEANINGS[word])
        for word in verdict_counts(entries)
    ]
    return element(
        "details",
        element("summary", "What the verdicts mean"),
        element("ul", items, class_="legend"),
    )


def _deviations(results_dir: Path) -> Markup | None:
    path = results_dir.resolve().parent.parent / "docs" / "deviations.md"
    if not path.is_file():
        return None
    link = element("a", "docs/deviations.md", href="../../docs/deviations.md")
    return element(
        "section",
        element("h2", "Deviations"),
        element(
            "p",
            "The default everywhere is the paper. Where paper, released code and peers "
            "differ, each difference is a named option; all of them are listed in ",
            link,
            ".",
        ),
        id="deviations",
    )


def _images(sections: list[Section]) -> dict[str, dict[str, str]]:
    """The address of each figure's image, by notebook and name: the figure itself as data, or the
    neighbouring file for the largest ones where all together would be more than the budget."""
    images = {
        section.notebook: {
            item["name"]: svg_data(section, item["name"]) for item in section.content["figures"]
        }
        for section in sections
    }
    largest = sorted(
        (
            (len(data), notebook, name)
            for notebook, all_ in images.items()
            for name, data in all_.items()
        ),
        reverse=True,
    )
    total = sum(size for size, _, _ in largest)
    for size, notebook, name in largest:
        if total <= MAX_FIGURE_BYTES:
            break
        images[notebook][name] = f"{notebook}/{name}.svg"
        total -= size
    return images


def _hardware_text(record: dict) -> str:
    cpu = record.get("cpu") or "unknown CPU"
    cores, memory = record.get("cores"), record.get("memory_gb")
    parts = [f"{cpu}, {cores} cores" if cores else cpu, f"{memory:g} GB" if memory else ""]
    parts.append(record.get("gpu") or "no GPU")
    return ", ".join(part for part in parts if part)


def _commit_text(commit: str | None) -> str:
    if not commit:
        return "unknown"
    return commit[:12] + (" with local changes" if commit.endswith("+") else "")


def _distinct(texts) -> str:
    return " | ".join(dict.fromkeys(texts))


def _write_changed(path: Path, text: str) -> Path:
    if not path.is_file() or path.read_bytes() != text.encode():
        write_text(path, text, durable=False, make_folder=True)
    return path
