"""The numbers of results/mini agree: sections, claims.json, csv tables, report.html, README.md."""

from __future__ import annotations

import csv
import json
import math
import re
from html import unescape
from pathlib import Path

import pytest

from klearlib.experiments.catalogue import experiments
from klearlib.paper import claim as paper_claim
from klearlib.paper import claims
from klearlib.report.render import VERDICT_SHAPES, plain
from klearlib.report.style import series_style

MINI = Path(__file__).resolve().parents[2] / "results" / "mini"
SCORES_05 = {"label": lambda arm: series_style(arm).label, "column": "end", "by": "rule"}
SCORES_07 = SCORES_05 | {"by": "reward", "benchmark": "code A"}
REWARDS_07 = {"table": "rewards", "label": SCORES_05["label"], "by": "reward"}
REWARDS_09 = {"table": "rewards", "label": SCORES_05["label"], "by": "arm", "comparison": "alpha 0"}
MEAN = {"column": "score", "by": "arm", "benchmark": "mean of both"}

# claim -> by name of its comparison, or None for all: where a csv table has the arms' numbers
PUBLISHED = {
    "C1": {None: SCORES_05 | {"benchmark": "maths A"}},
    "C2": {None: SCORES_05 | {"benchmark": "maths B"}},
    "C4": {None: MEAN | {"label": lambda arm: arm.replace("_", ", ", 1).replace("_", " ")}},
    "C5": {None: MEAN | {"label": lambda arm: f"{arm} teacher"}},
    "C6": {None: MEAN | {"label": lambda arm: f"maths top {arm[3:]}"}},
    "C7": {None: MEAN | {"label": lambda arm: f"code top {arm[3:]}"}},
    "C8": {None: MEAN | {"label": lambda arm: arm.replace("_", " = ")}},
    "C9": {None: SCORES_07},
    "C10": {
        "batch means: hard - soft": REWARDS_07 | {"column": "batch_means_distance"},
        "inside a batch: hard - soft": REWARDS_07 | {"column": "std_in_batch"},
    },
    "C11": {None: SCORES_07 | {"by": "training problems"}},
    "C12": {
        "filter - no filter": SCORES_05
        | {"by": "arm", "benchmark": "maths A", "comparison": "alpha 0"},
        "over steps: no filter - filter": REWARDS_09 | {"column": "correct_off_line"},
        "over seeds: no filter - filter": REWARDS_09 | {"column": "correct_off_seeds"},
    },
}

# claim, comparison -> the row of a csv table that has the difference itself, and its column
DIFFERENCES = {
    ("C5", "middle - weak"): ("differences", {"difference": "middle - weak"}, "value"),
    ("C5", "strong - middle"): ("differences", {"difference": "strong - middle"}, "value"),
    ("C8", "alpha 0.1 - alpha 0"): ("optimum", {"alpha": "0.1"}, "minus_alpha_0"),
    ("C12", "filter - no filter"): (
        "effects",
        {"difference": "filter - no filter, alpha 0", "benchmark": "maths A"},
        "value",
    ),
}


def entries():
    return json.loads((MINI / "claims.json").read_text(encoding="utf-8"))


def published():
    """The claims of results/mini that have comparisons, with their comparisons."""
    return [(entry, row) for entry in entries() for row in entry["comparisons"]]


def ids(pair):
    return f"{pair[0]['claim']}, {pair[1]['name']}"


def rows_of(notebook, table, **wanted):
    with open(MINI / notebook / f"{table}.csv", newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def arm_mean(notebook, place, arms):
    wanted = {key: place[key] for key in ("benchmark", "comparison") if key in place}
    values = []
    for arm in arms:
        wanted[place["by"]] = place["label"](arm)
        (row,) = rows_of(notebook, place.get("table", "scores"), **wanted)
        # Of one seed no distance from the mean over the seeds is published, and it is 0.
        alone = row["seeds"] == "1" and place["column"].endswith("_off_seeds")
        values.append(float(row[place["column"]] or ("0" if alone else "nan")))
    return sum(values) / len(values)


def test_every_claim_with_comparisons_is_held_against_a_table():
    compared = {each.id for each in claims() if each.comparisons}
    assert set(PUBLISHED) == compared
    for name, places in PUBLISHED.items():
        named = {each.name for each in paper_claim(name).comparisons}
        assert set(places) in ({None}, named), name
    names = {(c.id, each.name) for c in claims() for each in c.comparisons}
    assert set(DIFFERENCES) <= names


@pytest.mark.parametrize("pair", published(), ids=ids)
def test_a_difference_is_that_of_the_published_scores(pair):
    entry, row = pair
    places = PUBLISHED[entry["claim"]]
    place = places.get(row["name"]) or places[None]
    (about,) = [c for c in paper_claim(entry["claim"]).comparisons if c.name == row["name"]]
    one, other = (arm_mean(entry["notebook"], place, arms) for arms in (about.a, about.b))
    assert one - other == pytest.approx(row["difference"], abs=1e-9)


@pytest.mark.parametrize("pair", published(), ids=ids)
def test_a_difference_that_a_table_publishes_has_the_same_interval(pair):
    entry, row = pair
    if (entry["claim"], row["name"]) not in DIFFERENCES:
        # No table of that section may publish it unnoticed.
        for path in (MINI / entry["notebook"]).glob("*.csv"):
            assert row["name"] not in [line.get("difference") for line in rows_of(*path_of(path))]
        return
    table, wanted, column = DIFFERENCES[entry["claim"], row["name"]]
    (found,) = rows_of(entry["notebook"], table, **wanted)
    assert float(found[column]) == pytest.approx(row["difference"], abs=1e-12)
    for end in ("low", "high"):
        if row[end] is None:
            assert math.isinf(float(found[end]))
        else:
            assert float(found[end]) == pytest.approx(row[end], abs=1e-12)
    assert int(found["seeds"]) == row["num_seeds"]
    assert int(found["problems"]) == row["num_problems"]


def path_of(path):
    return path.parent.name, path.stem


@pytest.mark.parametrize("pair", published(), ids=ids)
def test_the_measured_text_says_the_numbers_of_the_comparison(pair):
    entry, row = pair
    unit = paper_claim(entry["claim"]).unit
    scale, digits = (100, 1) if unit == "fraction" else (1, 3)

    def text(value):
        return f"{scale * value:+.{digits}f}"

    interval = "no interval"
    if row["low"] is not None:
        interval = f"[{text(row['low'])}, {text(row['high'])}]"
        assert row["low"] <= row["difference"] <= row["high"]
    points = " points" if unit == "fraction" else ""
    size = f"({row['num_seeds']} seeds x {row['num_problems']} "
    said = f"{row['name']}: {text(row['difference'])}{points} {interval} {size}"
    assert said in entry["measured"]


@pytest.mark.parametrize("notebook", experiments(), ids=lambda each: each.name)
def test_every_counterpart_is_published(notebook):
    path = MINI / notebook.name / "section.json"
    if not path.is_file():
        pytest.skip(f"results/mini has no {notebook.name}")
    content = json.loads(path.read_text(encoding="utf-8"))
    there = {item["name"] for item in [*content["figures"], *content["tables"]]}
    assert {name for each in notebook.counterparts for name in each.names} <= there


def test_claims_json_is_what_the_sections_say():
    said = {}
    for path in sorted(MINI.glob("*/section.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        said |= {verdict["claim"]: verdict for verdict in content["verdicts"]}
    found = {entry["claim"]: entry for entry in entries()}
    assert list(found) == [claim.id for claim in claims()]
    for name, entry in found.items():
        if name not in said:
            assert (entry["verdict"], entry["measured"]) == ("not run", ""), name
            continue
        for key in ("verdict", "measured", "comparisons", "settle"):
            assert entry[key] == said[name][key], (name, key)
        assert entry["reason"].endswith(said[name]["reason"]), name
        assert entry["paper"] == paper_claim(name).paper_text(), name


def test_the_page_shows_the_claims_of_claims_json():
    text = (MINI / "report.html").read_text(encoding="utf-8")
    rows = dict(re.findall(r'<tr id="claim-(C\d+)"[^>]*>(.*?)</tr>', text, re.DOTALL))
    assert list(rows) == [entry["claim"] for entry in entries()]
    for entry in entries():
        cells = {
            name: [unescape(line) for line in re.findall(r'class="line">(.*?)</div>', cell)]
            for name, cell in re.findall(
                r'<td class="(\w+)[^"]*"[^>]*>(.*?)</td>', rows[entry["claim"]], re.DOTALL
            )
        }
        assert "; ".join(cells["measured"]) == entry["measured"], entry["claim"]
        assert "; ".join(cells["numbers"]) == entry["paper"], entry["claim"]
        words = re.findall(r'class="shape"[^>]*>(.*?)</span> ([^<]+)<', rows[entry["claim"]])
        assert words == [(VERDICT_SHAPES[entry["verdict"]], entry["verdict"])]
        assert entry["reason"] in unescape(rows[entry["claim"]]), entry["claim"]


def test_the_readme_shows_the_claims_of_claims_json():
    text = (MINI / "README.md").read_text(encoding="utf-8")
    text = text.split("\n## Claims\n")[1].split("\n## ")[0]
    rows = [line for line in text.splitlines() if re.match(r"\| C\d+ ", line)]
    for entry, row in zip(entries(), rows, strict=True):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
        assert cells[0] == f"{entry['claim']} {plain(entry['title'])}"
        wanted = [entry["paper"], entry["measured"] or "–"]
        assert cells[2:4] == [plain(text) for text in wanted]
        assert cells[4] == f"{VERDICT_SHAPES[entry['verdict']]} {entry['verdict']}"
        assert cells[5] == plain(entry["reason"])
