"""results/<profile>/README.md: the report for a code host, which shows markdown and png files."""

from __future__ import annotations

from klearlib.report.claims_view import VERDICT_SHAPES, place_text, verdict_counts
from klearlib.report.counterparts import COUNTERPARTS, published_names
from klearlib.report.sections import Section
from klearlib.report.tables import MISSING, markdown_rows
from klearlib.report.verdicts import NOT_RUN, is_paper_scale

_SPECIAL = "\\`*_[]<>#"


def readme(
    profile: str, sections: list[Section], entries: list[dict], facts: dict[str, str]
) -> str:
    """The markdown text: facts, verdict counts, claims table, then each section with its
    figures."""
    blocks = [f"# Results of profile {plain(profile)}"]
    blocks.append("The same with formulas and intervals drawn: `report.html` beside this file.")
    if not is_paper_scale(profile):
        blocks.append("> **Below paper scale**: only directions are tested here.")
    if facts:
        blocks.append("\n".join(f"- {name}: {plain(text)}" for name, text in facts.items()))
    if not sections:
        blocks.append(
            f"Nothing has been run at this profile yet. Start with `klear run --profile {profile}`."
        )
    counts = verdict_counts(entries).items()
    blocks += ["## Claims", ", ".join(f"{count} {word}" for word, count in counts)]
    blocks.append(_claims(entries).rstrip())
    blocks += ["## The paper's tables and figures", _counterparts(sections).rstrip()]
    for section in sections:
        blocks += _section(section)
    return "\n\n".join(blocks) + "\n"


def plain(text: str) -> str:
    """Text that markdown shows as it is, on one line and inside a table cell too."""
    escaped = "".join("\\" + letter if letter in _SPECIAL else letter for letter in text)
    return escaped.replace("|", "\\|").replace("\n", " ")


def _claims(entries: list[dict]) -> str:
    rows = [["Claim", "Place", "Paper", "Measured here", "Verdict", "Why"]]
    for entry in entries:
        word = entry["verdict"]
        verdict = f"{VERDICT_SHAPES[word]} {word}"
        cells = (entry["title"], place_text(entry), entry["paper"], entry["measured"] or MISSING)
        texts = [plain(cell) for cell in cells]
        rows.append([f"{entry['claim']} {texts[0]}", *texts[1:], verdict, plain(entry["reason"])])
    return markdown_rows(rows, [False] * len(rows[0]), escaped=True)


def _counterparts(sections: list[Section]) -> str:
    known = {section.notebook: section for section in sections}
    rows = [["In the paper", "What it shows", "Here"]]
    for each in COUNTERPARTS:
        here = []
        for name in published_names(each, sections):
            tables = {item["name"] for item in known[each.notebook].content["tables"]}
            kind = "md" if name in tables else "png"
            here.append(f"[{plain(each.notebook)}, {plain(name)}]({each.notebook}/{name}.{kind})")
        missing = f"{NOT_RUN} ({plain(each.notebook)})"
        rows.append([each.item, plain(each.shows), ", ".join(here) or missing])
    return markdown_rows(rows, [False] * len(rows[0]), escaped=True)


def _section(section: Section) -> list[str]:
    content, notebook = section.content, section.notebook
    blocks = [f"## {plain(content['title'])}", plain(content["question"])]
    if content["status"] != "complete":
        missing = ", ".join(content["missing"]) or "some runs"
        blocks.append(f"> **Not complete yet**, missing: {plain(missing)}")
    for item in content["equations"]:
        blocks.append(f"Eq. {plain(item['number'])}: {plain(item['says'])}")
        blocks.append(f"```math\n{item['latex'].strip()}\n```")
    for item in content["figures"]:
        links = _links(section, item["name"], ("svg",))
        blocks.append(f"![{plain(item['alt'])}]({notebook}/{item['name']}.png)")
        blocks.append(f"{plain(item['caption'])} {links}")
    for item in content["tables"]:
        text = section.path(item["name"], "md").read_text(encoding="utf-8").rstrip()
        blocks += [f"{plain(item['caption'])} {_links(section, item['name'], ('csv',))}", text]
    if content["notes"]:
        blocks.append("\n".join(f"- {plain(note)}" for note in content["notes"]))
    # The .html beside it is for a browser: a code host renders the notebook itself.
    executed = [path.name for path in section.executed() if path.suffix == ".ipynb"]
    if executed:
        blocks.append(f"Executed notebook: [{executed[0]}]({executed[0]})")
    return blocks


def _links(section: Section, name: str, kinds: tuple[str, ...]) -> str:
    there = [kind for kind in kinds if section.path(name, kind).is_file()]
    return " ".join(f"[{kind}]({section.notebook}/{name}.{kind})" for kind in there)
