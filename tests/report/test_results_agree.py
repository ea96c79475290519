"""The numbers of committed results agree: sections, claims.json, csv tables, report, README."""

from __future__ import annotations

import csv
import json
import re
import shutil
from html import unescape
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from klearlib import cli
from klearlib.evaluate.statistics import compare, replicates_needed
from klearlib.experiments.catalogue import experiments, rebuild
from klearlib.paper import claim as paper_claim
from klearlib.paper import claims
from klearlib.report.render import VERDICT_SHAPES, holm_word, plain, without_counts

RESULTS = Path(__file__).resolve().parents[2] / "results"
COMMITTED = ("mini", "full", "full-E2", "full-E4")
FOLDERS = [RESULTS / name for name in COMMITTED if (RESULTS / name / "claims.json").is_file()]
each_folder = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
MEGABYTES = 16  # that the results of a profile may have


def entries(folder):
    return json.loads((folder / "claims.json").read_text(encoding="utf-8"))


def where(folder, entry):
    """The folder that an entry's verdict is from."""
    return folder.parent / (entry["elsewhere"] or folder.name)


PUBLISHED = [
    pytest.param(folder, entry, row, id=f"{folder.name}, {entry['claim']}, {row['name']}")
    for folder in FOLDERS
    for entry in entries(folder)
    for row in entry["comparisons"]
]
each_comparison = pytest.mark.parametrize(("folder", "entry", "row"), PUBLISHED)


def pairs_of(folder, entry, row):
    """The two arms of a comparison, one number for each replicate, as replicates.csv has them."""
    path = where(folder, entry) / entry["notebook"] / "replicates.csv"
    with open(path, newline="", encoding="utf-8") as stream:
        wanted = (entry["claim"], row["name"])
        rows = [r for r in csv.DictReader(stream) if (r["claim"], r["comparison"]) == wanted]
    assert len({line["replicate"] for line in rows}) == len(rows) == row["num_replicates"]
    return ([float(line[side]) for line in rows] for side in "ab")


@each_comparison
def test_a_comparison_follows_from_the_published_replicates_by_a_t_test(folder, entry, row):
    if entry["kind"] == "absolute":
        pytest.skip("against the paper's numbers")
    a, b = pairs_of(folder, entry, row)
    assert sum(x - y for x, y in zip(a, b, strict=True)) / len(a) == pytest.approx(
        row["difference"], abs=1e-12
    )
    if row["low"] is None or row["low"] == row["high"]:
        return  # equal differences, which no t-test knows
    ends = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert (ends.low, ends.high) == pytest.approx((row["low"], row["high"]), abs=1e-9)
    for p, way in (("p_greater", "greater"), ("p_less", "less")):
        assert stats.ttest_rel(a, b, alternative=way).pvalue == pytest.approx(row[p])


@pytest.mark.parametrize(
    ("folder", "entry"),
    [
        pytest.param(folder, entry, id=f"{folder.name}, {entry['claim']}")
        for folder in FOLDERS
        for entry in entries(folder)
        if entry["comparisons"]
    ],
)
def test_a_verdict_follows_from_the_published_replicates(folder, entry):
    """The words in their order, typed from docs/statistics.md."""
    if entry["kind"] in ("absolute", "equivalence") or entry["verdict"] in (
        "not run",
        "not tested",
    ):
        pytest.skip(entry["verdict"])
    if "replicates so far" in entry["reason"]:
        assert entry["verdict"] == "undecided"
        return
    greater, less, inside = [], [], []
    for row in entry["comparisons"]:
        a, b = pairs_of(folder, entry, row)
        differences = np.subtract(a, b)
        if np.ptp(differences) == 0:  # the t statistic does not exist, the sign-flip test does
            rare, value = 2.0 ** -len(differences), differences[0]
            greater.append(rare if value > 0 else 1.0)
            less.append(rare if value < 0 else 1.0)
            inside.append(rare <= 0.05 and abs(value) < row["margin"])
            continue
        greater.append(stats.ttest_rel(a, b, alternative="greater").pvalue)
        less.append(stats.ttest_rel(a, b, alternative="less").pvalue)
        ends = stats.ttest_rel(a, b).confidence_interval(0.90)
        inside.append(ends.low > -row["margin"] and ends.high < row["margin"])
    if entry["kind"] == "plateau":  # the first has its sign, no other one is below
        below = [len(less) * p <= 0.025 and not i for p, i in zip(less, inside, strict=True)]
        others = zip(greater[1:], inside[1:], strict=True)
        has_sign = greater[0] <= 0.025 and all(p <= 0.025 or i for p, i in others)
        is_flat = "no difference" if all(inside) else "undecided"
        word = "contradicted" if any(below) else "supported" if has_sign else is_flat
    elif len(greater) * min(less) <= 0.025:
        word = "contradicted"
    elif max(greater) <= 0.025:
        word = "supported"
    elif all(inside):
        word = "no difference"
    elif all(i or g * len(greater) <= 0.025 for i, g in zip(inside, greater, strict=True)):
        word = "mixed"
    else:
        assert entry["verdict"] in ("undecided", "mixed")  # Holm's later steps are not retyped
        return
    assert entry["verdict"] == word


@each_folder
def test_what_an_undecided_claim_takes_follows_from_the_published_replicates(folder):
    """Or more, where the notebook's pooled spread is wider."""
    for entry in entries(folder):
        if entry["comparisons"] and entry["settle"] and entry["settle"][0].isdigit():
            found = [
                compare(*pairs_of(folder, entry, row), margin=row["margin"])
                for row in entry["comparisons"]
            ]
            needed = replicates_needed(found, margin=entry["comparisons"][0]["margin"])
            assert int(entry["settle"].split()[0]) >= needed, entry["claim"]


@each_comparison
def test_the_measured_text_says_the_numbers_of_the_comparison(folder, entry, row):
    unit = paper_claim(entry["claim"]).unit
    scale, digits = (100, 1) if unit == "fraction" else (1, 3)

    def text(value):
        return f"{scale * value:+.{digits}f}"

    interval = "no interval"
    if row["low"] is not None:
        interval = f"[{text(row['low'])}, {text(row['high'])}]"
        assert row["low"] <= row["difference"] <= row["high"]
    points = " points" if unit == "fraction" else ""
    size = f"({row['num_replicates']} replicates)"
    said = f"{row['name']}: {text(row['difference'])}{points} {interval} {size}"
    assert said in entry["measured"].replace(" log10", "")  # which 0.15's results do not say


@each_folder
@pytest.mark.parametrize("notebook", experiments(), ids=lambda each: each.name)
def test_every_counterpart_is_published(notebook, folder):
    path = folder / notebook.name / "section.json"
    if not path.is_file():
        pytest.skip(f"{folder.name} has no {notebook.name}")
    content = json.loads(path.read_text(encoding="utf-8"))
    there = {item["name"] for item in [*content["figures"], *content["tables"]]}
    on_code = content["parameters"].get("code", content["parameters"].get("joint"))  # until 0.20
    if (runs := path.with_name("runs.parquet")).is_file():  # a piece may have none on code
        on_code = on_code and "code" in {*pd.read_parquet(runs, columns=["set"])["set"]}
    without = {"code_scores"} if notebook.name == "05_clipping" and not on_code else set()
    assert {name for each in notebook.counterparts for name in each.names} - without <= there


def said_in(folder):
    """Claim -> the verdict in a folder's sections."""
    sections = [json.loads(path.read_text()) for path in sorted(folder.glob("*/section.json"))]
    return {verdict["claim"]: verdict for each in sections for verdict in each["verdicts"]}


@each_folder
def test_claims_json_is_what_the_sections_say(folder):
    found = {entry["claim"]: entry for entry in entries(folder)}
    assert list(found) == [claim.id for claim in claims()]
    for name, entry in found.items():
        said = said_in(where(folder, entry)).get(name)
        if said is None:
            assert (entry["verdict"], entry["measured"]) == ("not run", ""), name
            continue
        named = {each.name for each in paper_claim(name).comparisons}
        if not {each["name"] for each in said["comparisons"]} <= named:  # of an earlier rule
            assert (entry["verdict"], entry["comparisons"]) == ("not run", []), name
            assert f"published as {said['verdict']!r} by an earlier rule" in entry["reason"]
            continue
        for key in ("verdict", "measured", "comparisons", "settle", "exploratory"):
            assert entry[key] == said[key], (name, key)
        assert entry["rule_digest"] == said["rule"], name
        assert entry["reason"].endswith(said["reason"]), name
        assert entry["paper"] == paper_claim(name).paper_text(), name


@each_folder
def test_the_page_shows_the_claims_of_claims_json(folder):
    text = (folder / "report.html").read_text(encoding="utf-8")
    found = re.findall(r'<tr id="claim-([CE]\d+)"[^>]*>(.*?)</tr>', text, re.DOTALL)
    folded = sorted(entries(folder), key=lambda e: (e["claim"][0], e["verdict"] == "not run"))
    assert [name for name, _ in found] == [entry["claim"] for entry in folded]
    rows = dict(found)
    for entry in entries(folder):
        head, _, cells = rows[entry["claim"]].partition("</th>")
        measured = without_counts(entry["measured"])
        for part, text in ((cells, measured), (head, entry["paper"])):
            lines = re.findall(r'class="line">(.*?)</div>', part)
            assert "; ".join(map(unescape, lines)) == text, entry["claim"]
        words = re.findall(r'class="shape"[^>]*>(.*?)</span> ([^<]+)<', rows[entry["claim"]])
        assert words == [(VERDICT_SHAPES[entry["verdict"]], entry["verdict"])]
        assert entry["reason"] in unescape(rows[entry["claim"]]), entry["claim"]


@each_folder
def test_the_readme_shows_the_claims_of_claims_json(folder):
    text = (folder / "README.md").read_text(encoding="utf-8")
    text = text.split("\n## Claims\n")[1].split("\n## ")[0]
    rows = [line for line in text.splitlines() if re.match(r"\| [CE]\d+ ", line)]
    known = entries(folder)
    others = [entry for entry in known if entry["verdict"] == "not run"]
    for entry in others:
        line = next(x for x in text.splitlines() if re.match(rf"- .*\b{entry['claim']}[,:]", x))
        assert line.endswith(f": {plain(entry['reason'])}")
    for entry, row in zip([e for e in known if e not in others], rows, strict=True):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
        assert cells[0] == f"{entry['claim']} {plain(entry['title'])}"
        wanted = [entry["paper"], entry["measured"] or "–"]
        assert cells[2:4] == [plain(text) for text in wanted]
        young = " (exploratory)" if entry["exploratory"] else ""
        assert cells[4] == f"{VERDICT_SHAPES[entry['verdict']]} {entry['verdict']}{young}"
        assert cells[5] == entry["test"] == paper_claim(entry["claim"]).test
        assert cells[6] == plain(entry["reason"])
        assert cells[8] == holm_word(entry)


@pytest.mark.parametrize(
    "folder",
    # The pieces of runs that go on are rebuilt by `make test-all` alone: they grow.
    [pytest.param(f, marks=pytest.mark.slow if f.name == "full" else ()) for f in FOLDERS],
    ids=lambda folder: folder.name,
)
def test_what_is_published_is_rebuilt_to_the_byte(folder, tmp_path, monkeypatch):
    """From its tables of runs; where a figure's bytes are compared is test_tidy.py."""
    if not any(folder.glob("*/runs.parquet")):
        pytest.skip("of a version without tables of runs")
    monkeypatch.setattr("klearlib.report.section.save_figure", lambda figure, place, name: None)
    ours = Path(shutil.copytree(folder, tmp_path / folder.name))
    for table in ours.glob("*/runs.parquet"):
        for path in table.parent.glob("*.csv"):
            path.write_text("damaged\n")
    rebuild(ours)
    there = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    assert there == {path.relative_to(ours) for path in ours.rglob("*") if path.is_file()}
    assert not [n for n in there if (folder / n).read_bytes() != (ours / n).read_bytes()]


@each_folder
def test_committed_results_are_small(folder):
    kept = [path for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in kept) < MEGABYTES * 1e6


def test_a_notebook_is_executed_from_what_is_committed(tmp_path, monkeypatch):
    for name in ("notebooks", "params"):
        shutil.copytree(RESULTS.parent / name, tmp_path / name)
    shutil.copytree(
        RESULTS / "mini" / "03_teacher_ablation", tmp_path / "results/mini/03_teacher_ablation"
    )
    monkeypatch.setenv("KLEAR_ROOT", str(tmp_path))
    assert cli.main(["report", "--profile", "mini", "--notebooks"]) == 0
    executed = (tmp_path / "results" / "mini" / "03_teacher_ablation.ipynb").read_text()
    assert "image/png" in executed and '"output_type": "error"' not in executed
    assert not (tmp_path / "results" / "runs").exists()
