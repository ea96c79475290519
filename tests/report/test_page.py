"""The page: complete, safe, without network, reproducible, and absent rather than wrong."""

from __future__ import annotations

import json
import os
import re
import time
from xml.etree import ElementTree

import pytest
import report_fakes as fakes
from report_fakes import Page

from klearlib.errors import KlearError
from klearlib.paper import claims
from klearlib.report import page as report_page
from klearlib.report.formula import formula_svg
from klearlib.report.render import KINDS, VERDICT_MEANINGS, VERDICT_SHAPES

NAMES = [each.name for each in fakes.NOTEBOOKS]


def build_report(results):
    return report_page.build_report(results, fakes.NOTEBOOKS)


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """A clone with one published notebook whose figures are real, and one that is partial."""
    root = tmp_path_factory.mktemp("clone")
    (root / "docs").mkdir()
    (root / "docs" / "deviations.md").write_text("# Deviations\n")
    results = root / "results" / "mini"
    fakes.publish(results, fakes.section())
    (results / "05_clipping.ipynb").write_text("{}")
    partial = fakes.section(
        notebook="06_alpha_sweep",
        title="The weight alpha",
        status="partial",
        missing=["alpha 0.1, seed 2"],
        figures=[],
        verdicts=[fakes.verdict("C8", "undecided", comparisons=[])],
        provenance=fakes.provenance(commit="fedcba9876543210+", utc="2026-01-03T03:04:05Z"),
    )
    fakes.publish(results, partial, figures=False)
    return build_report(results)


def small(tmp_path, *contents, profile="mini"):
    """A results folder with stand-ins for figures."""
    results = tmp_path / "results" / profile
    results.mkdir(parents=True, exist_ok=True)
    for content in contents:
        fakes.publish(results, content, figures=False)
    return results


def test_the_page_is_without_script_or_network(full):
    text = full.read_text(encoding="utf-8")
    page = Page(text)
    assert len(text.encode()) < 1_000_000
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in page.elements}
    assert "//" not in text
    assert not [key for _, attrs in page.elements for key in attrs if key.startswith("on")]
    sources = [image["src"] for image in page.all("img")]
    assert sources and all((full.parent / source).is_file() for source in sources)


def test_links_and_anchors_lead_somewhere(full):
    page = Page(full.read_text(encoding="utf-8"))
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    parts = {"claims", "counterparts", "05_clipping", "06_alpha_sweep", "deviations"}
    assert parts | {"05_clipping-eq-12"} <= set(ids)
    links = [attrs["href"] for attrs in page.all("a")]
    assert "05_clipping/fig2.svg" in links and "05_clipping.ipynb" in links
    for link in links:
        found = link[1:] in ids if link.startswith("#") else (full.parent / link).is_file()
        assert found, link


def test_the_page_can_be_heard_and_read_in_grey(full):
    page = Page(full.read_text(encoding="utf-8"))
    assert all(image["alt"].strip() for image in page.all("img"))
    assert all(cell.get("scope") in ("col", "row") for cell in page.all("th"))
    assert len(page.all("caption")) >= 2 and page.all("html")[0]["lang"] == "en"
    drawings = {each["class"]: each for each in page.all("svg")}
    assert all(each["role"] == "img" for each in drawings.values())
    assert "frac" in drawings["math"]["aria-label"]
    shapes = list(VERDICT_SHAPES.values())
    assert len(set(shapes)) == len(shapes)
    assert set(VERDICT_SHAPES) == set(VERDICT_MEANINGS)


def test_every_claim_stands_once_with_its_verdict(full):
    page = Page(full.read_text(encoding="utf-8"))
    rows = [attrs["id"] for attrs in page.all("tr") if "id" in attrs]
    ran = {"C1", "C2", "C8"}  # the others are folded away, below those of their kind
    ordered = sorted(claims(), key=lambda claim: (claim.id[0], claim.id not in ran))
    assert rows == [f"claim-{claim.id}" for claim in ordered]
    assert "Not run: C3, C4" in page.text
    # what came out stands first, by kind of test, without the kinds of which nothing was run
    outcome = re.search(r'<table class="outcome">.*?</table>', full.read_text(encoding="utf-8"))[0]
    rows = [[" ".join(cell.split()) for cell in row] for row in Page(outcome).rows]
    assert [row[0] for row in rows] == [f"{kind}{KINDS[kind]}" for kind in ("fair", "partly")]
    assert "◆ undecided C1 C8" in rows[0][1] and "▲ supported C2" in rows[1][1]
    assert "interim, alpha 0.1, seed 2 missing" in page.text
    assert "Section 5.2.1, Figure 2a" in page.text
    assert "GPPO 0.612 (0.580 to 0.644)" in page.text


def test_a_narrow_screen_finds_every_claim_whole(full):
    text = full.read_text(encoding="utf-8")
    page = Page(text)
    heads = [head for head in page.all("th") if head.get("role") == "columnheader"]
    cells = [cell for cell in page.all("td") if "data-label" in cell]
    assert len(heads) == 3 * 5 and len(cells) == len(claims()) * 4
    assert all(cell["role"] == "cell" and cell["data-label"] in page.text for cell in cells)
    rows = [row for row in page.all("tr") if row.get("id", "").startswith("claim-")]
    assert all(row["role"] == "row" for row in rows)
    # a cell is hidden where nothing was measured, never where it says something
    hidden = [cell["class"].split()[0] for cell in cells if cell["class"].endswith(" empty")]
    assert set(hidden) == {"measured", "holm"} and hidden.count("measured") == 21 + 8
    for rule in ("attr(data-label)", ".outcome { grid-column: 1 / -1; order: 0; }"):
        assert rule in text


def test_title_facts_come_from_the_runs(full):
    text = Page(full.read_text(encoding="utf-8")).text
    assert "0123456789ab | fedcba987654 with local changes" in text
    assert "A processor of two cores, 2 cores, 8 GB, no GPU" in text
    assert "2026-01-03 03:04:05 UTC" in text
    assert "missing: alpha 0.1, seed 2" in text


def test_an_unchanged_profile_gives_the_same_bytes_and_no_write(full, monkeypatch):
    names = ("report.html", "README.md", "claims.json")
    before = {name: (full.parent / name).read_bytes() for name in names}
    old = time.time() - 10_000
    for name in names:
        os.utime(full.parent / name, (old, old))
    monkeypatch.setattr(time, "time", lambda: 4e9)
    build_report(full.parent)
    for name in names:
        assert (full.parent / name).read_bytes() == before[name]
        assert (full.parent / name).stat().st_mtime == pytest.approx(old)
    (full.parent / "report.html").unlink()
    build_report(full.parent)
    assert full.read_bytes() == before["report.html"]


def test_the_contents_of_the_readme_lead_to_its_headings(full):
    build_report(full.parent)
    text = (full.parent / "README.md").read_text(encoding="utf-8")
    contents = text.partition("## Contents\n")[2].partition("\n## ")[0]
    anchors = re.findall(r"\]\(#([^)]+)\)", contents)
    titles = re.findall(r"^## (.+)", text, re.M)[1:-1]  # but of the contents and where it ran
    slugs = [re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles]
    assert anchors == slugs and len(anchors) == 4
    assert ": C1 ◆ undecided, C2 ▲ supported\n" in contents


def test_nothing_run_yet_is_a_page_too(tmp_path):
    path = build_report(tmp_path / "results" / "gpu")
    page = Page(path.read_text(encoding="utf-8"))
    assert "Nothing has been run at this profile yet" in page.text
    assert "klear run --profile gpu" in page.text
    assert len(re.findall("– not run", page.text)) >= len(claims())
    assert not page.all("img") and not (path.parent / "claims.svg").exists()


def test_the_banner_stands_below_paper_scale_only(tmp_path):
    words = "far below the paper's scale"
    assert words in Page(build_report(small(tmp_path)).read_text()).text
    paper = build_report(small(tmp_path, profile="paper"))
    assert words not in Page(paper.read_text()).text
    assert "**Below paper scale**" not in (paper.parent / "README.md").read_text()


def test_no_text_becomes_markup(tmp_path):
    bad = "<script>alert(1)</script>&lt;\"'|`"
    content = fakes.section(
        title=bad,
        section=bad,
        question=bad,
        status="partial",
        missing=[bad],
        notes=[bad],
        equations=[{"number": bad, "latex": r"a < b", "says": bad}],
        figures=[{"name": "fig2", "caption": bad, "alt": bad}],
        tables=[{"name": "final_scores", "caption": bad}],
        provenance={**fakes.provenance(cpu=bad, commit=bad, utc=bad, gpu=bad, klear=bad), bad: bad},
        parameters={"profile": "mini", bad: bad},
        verdicts=[fakes.verdict("C1", "undecided", reason=bad, settle=bad, measured=bad)],
    )
    content["verdicts"][0]["comparisons"][0]["name"] = bad
    report = build_report(small(tmp_path, content))
    readme = report.with_name("README.md").read_text(encoding="utf-8")
    assert "\\<script" in readme
    assert not re.search(r"(?<!\\)<", re.sub("```math.*?```", "", readme, flags=re.DOTALL))
    page = Page(report.read_text(encoding="utf-8"))
    assert "script" not in {tag for tag, _ in page.elements}
    shown = "".join(page.texts)
    assert shown.count(bad) >= 15
    figure = next(image for image in page.all("img"))
    assert figure["alt"] == bad


def broken_cases():
    yield "not JSON", "{", "cannot be read"
    titled = fakes.section()
    del titled["title"]
    yield "no title", json.dumps(titled), "argument: 'title'"
    yield "alt", json.dumps(fakes.section(figures=[{"name": "fig2", "caption": "c"}])), "alt"
    absent = [{"name": "absent", "caption": "c"}]
    yield "table", json.dumps(fakes.section(tables=absent)), "names absent.csv, which is missing"


@pytest.mark.parametrize(
    ("text", "message"), [case[1:] for case in broken_cases()], ids=[c[0] for c in broken_cases()]
)
def test_a_damaged_section_is_an_error_and_the_old_page_stays(tmp_path, text, message):
    results = small(tmp_path, fakes.section())
    before = build_report(results).read_bytes()
    (results / "05_clipping" / "section.json").write_text(text)
    with pytest.raises(KlearError, match=re.escape(message)) as caught:
        build_report(results)
    line = str(caught.value)
    assert "05_clipping" in line and "\n" not in line and str(tmp_path) not in line
    assert (results / "report.html").read_bytes() == before


def state_of(tmp_path, *contents):
    text = build_report(small(tmp_path, *contents)).read_text(encoding="utf-8")
    return Page(re.search(r'<(p|div) class="[^"]*state".*?</\1>', text)[0]).text


def test_the_head_names_the_folders_beside_it_that_have_what_it_lacks(tmp_path):
    for folder, names in (("mini-E2", ["E2"]), ("mini-rest", ["E3", "E4"])):
        made = [fakes.verdict(name, "supported") for name in names]
        content = fakes.section(notebook="11_beyond", figures=[], tables=[], verdicts=made)
        fakes.publish(tmp_path / "results" / folder, content, figures=False)
        changes = {"profile": "mini", "changes": {"explorations": names}}
        (tmp_path / "results" / folder / "changes.json").write_text(json.dumps(changes))
        state = state_of(tmp_path, fakes.section())
        assert ("11_beyond (parts are in mini-E2)" in state) == (folder == "mini-E2")
    assert "11_beyond" not in state
    partial = content | {"status": "partial", "missing": ["E4, seed 9"]}
    fakes.publish(tmp_path / "results" / folder, partial, figures=False)
    state = state_of(tmp_path, fakes.section())
    assert "11_beyond (parts are in mini-E2, mini-rest)" in state


def test_the_head_says_how_many_notebooks_are_complete(tmp_path):
    partial = fakes.section(
        notebook="06_alpha_sweep",
        status="partial",
        missing=["alpha 0.1, seed 1", "alpha 0.1, seed 2"],
        verdicts=[],
    )
    state = state_of(tmp_path, fakes.section(), partial)
    assert f"1 of {len(NAMES) - 1} notebooks are complete" in state
    assert "06_alpha_sweep : interim, 2 runs missing" in state
    absent = state.partition("not run yet: ")[2].strip().split(", ")
    others = ("05_clipping", "06_alpha_sweep", "11_beyond")  # the profile mini has no 11
    assert absent == [name for name in NAMES if name not in others]
    whole = [fakes.section(notebook=name, verdicts=[]) for name in NAMES]
    assert state_of(tmp_path, *whole) == f"All {len(NAMES)} notebooks are complete."


def test_the_readme_is_markdown_with_whole_tables_and_images(full):
    text = (full.parent / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?:Claim|Exploration|[CE]\d+) .*", text, re.MULTILINE)
    decided = re.findall(r"^\| ([CE]\d+) ", text, re.MULTILINE)
    not_run = re.findall(r"^- ((?:[CE]\d+(?:, )?)+): \w", text, re.MULTILINE)
    assert len(decided) == 3  # those of the sections
    named = decided + ", ".join(not_run).split(", ")
    assert sorted(named) == sorted(claim.id for claim in claims())
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {10}
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (full.parent / target).is_file(), target
    assert "```math" in text and "◆ undecided" in text


def full_set(tmp_path, **changes):
    """A made-up section of every notebook that has a counterpart, with its figures and tables;
    `changes`: of one of them, by the notebook's number."""
    contents = []
    for notebook in fakes.NOTEBOOKS:
        names = dict.fromkeys(name for each in notebook.counterparts for name in each.names)
        items = [{"name": name, "caption": "c"} for name in names]
        content = {
            "notebook": notebook.name,
            "tables": [item for item in items if item["name"] in ("scores", "table1")],
            "figures": [{**i, "alt": "a"} for i in items if i["name"] not in ("scores", "table1")],
            "verdicts": [],
        }
        contents.append(fakes.section(**content, **changes.get(f"nb{notebook.name[:2]}", {})))
    return small(tmp_path, *contents)


def counterparts_of(page):
    """The rows of the table of counterparts by the item's name."""
    table = re.search(r'<table class="counterparts">.*?</table>', page.read_text())[0]
    return {re.search(r">([^<]+)</th>", row)[1]: row for row in table.split("<tr>")[2:]}


def test_every_table_and_figure_of_the_paper_leads_to_its_counterpart(tmp_path):
    page = build_report(full_set(tmp_path))
    rows, ids = counterparts_of(page), [a.get("id") for _, a in Page(page.read_text()).elements]
    assert list(rows)[:7] == [*(f"Table {number}" for number in range(1, 7)), "Fig. 1"]
    for notebook in fakes.NOTEBOOKS:
        for each in notebook.counterparts:
            anchors = re.findall(r'href="#([^"]+)"', rows[each.item])
            assert anchors == [f"{notebook.name}-{name}" for name in each.names]
            assert all(ids.count(anchor) == 1 for anchor in anchors) and "not run" not in rows
    text = (page.parent / "README.md").read_text()
    for item, row in rows.items():
        (line,) = [line for line in text.splitlines() if line.startswith(f"| {item} |")]
        links = re.findall(r"\]\(([^)]+)\)", line)
        assert len(links) == row.count("href") and all((page.parent / x).is_file() for x in links)
    assert "(06_alpha_sweep/table6.png)" in text and "(06_alpha_sweep/scores.csv)" in text


def test_an_absent_section_or_item_is_not_run(tmp_path):
    lacking = fakes.section(notebook="07_soft_reward", figures=[], tables=[], verdicts=[])
    figures = [{"name": "fig2", "caption": "c", "alt": "a"}]
    half = fakes.section(status="partial", missing=["seed 2"], figures=figures)
    page = build_report(small(tmp_path, lacking, half))
    rows = counterparts_of(page)
    assert "not run (07_soft_reward)" in rows["Fig. 3a"]
    assert "not run (10_headline)" in rows["Table 1"]
    assert 'href="#05_clipping-fig2"' in rows["Fig. 2c"] and "(interim)" in rows["Fig. 2c"]
    assert sum("not run" in row for row in rows.values()) == len(rows) - 2  # 2a and 2c
    text = (page.parent / "README.md").read_text()
    assert "| Table 1 | scores of all models | not run (10_headline) |" in text


def test_tables_are_drawn_from_their_numbers(tmp_path):
    results = small(tmp_path, fakes.section(tables=[{"name": "t", "caption": "c"}]))
    rows = "name,score,seeds\na | \\b,0.26,3\n,,\n"
    (results / "05_clipping" / "t.csv").write_text(rows)
    text = build_report(results).read_text()
    body = re.search(r'id="05_clipping-t".*?<tbody>(.*?)</tbody>', text)[1]
    cells = re.findall(r"<t[hd]([^>]*)>([^<]*)<", body)
    assert [words for _, words in cells] == ["a | \\b", "0.260", "3", "", "–", "–"]
    assert ['"right"' in attributes for attributes, _ in cells] == [False, True, True] * 2


def outline(latex):
    """Width and height of a formula, and how many strokes it has."""
    svg = ElementTree.fromstring(formula_svg(latex))
    return int(svg.get("width")), int(svg.get("height")), svg.find("path").get("d").count("Z")


def test_a_formula_is_drawn_as_it_is_written():
    flat, raised = outline("a b"), outline(r"\frac{a}{b}")
    assert raised[0] < flat[0] and raised[1] > flat[1] and raised[2] == flat[2] + 1  # its line
    assert outline(r"\sum_{t=1}^{T} x_t")[1] > outline("x_t")[1]
    assert outline(r"\mathrm{clip}(x)")[2] == outline("c l i p ( x )")[2]
    for ours, theirs in (("\\iff", "\\Leftrightarrow"), (r"\lVert x\rVert", r"\Vert x\Vert")):
        assert outline(ours) == outline(theirs)
    assert formula_svg("x") == formula_svg.__wrapped__("x")


@pytest.mark.parametrize(
    "latex",
    [
        "a < b",
        r"\text{<script>alert(1)</script>}",
        r"\text{a < b & c}",
        r"""\text{"><script>alert(1)</script>}""",
        r"\mathrm{'}><b>c</b>",
    ],
)
def test_a_formula_holds_strokes_and_its_own_text_only(latex):
    svg = formula_svg(latex)
    assert [tag for tag, _ in Page(svg).elements] == ["svg", "path"]
    assert Page(svg).all("svg")[0]["aria-label"] == latex
    assert set(re.search(r' d="([^"]*)"', svg)[1]) <= set("MLQCZ -0123456789")


@pytest.mark.parametrize("latex", [r"\nosuch{x}", r"\frac{a}", r"\left( a", "a_", "{a"])
def test_a_formula_that_is_not_understood_is_an_error(latex):
    with pytest.raises(KlearError, match="the formula") as caught:
        formula_svg(latex)
    assert "\n" not in str(caught.value)
