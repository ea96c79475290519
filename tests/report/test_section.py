"""Sections and the ledger of claims: what does not belong together is refused with its fix."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import report_fakes as fakes

from klearlib.errors import KlearError
from klearlib.paper import FIGURES, NUM_TABLES, claim, claims
from klearlib.params.place import Place
from klearlib.report.curves import learning_curves
from klearlib.report.page import build_report
from klearlib.report.section import Equation, in_paper_order, read_sections, write_section
from klearlib.report.verdicts import ledger

SUITE = [SimpleNamespace(name=name) for name in ("00_overview", "05_clipping", "06_alpha_sweep")]


@pytest.fixture
def mini(tmp_path):
    folder = tmp_path / "results" / "mini"
    fakes.publish(folder, fakes.section(figures=[]), figures=False)
    return folder


def by_claim(*sections, profile="mini"):
    return {
        entry["claim"]: entry
        for entry in ledger(sections, SUITE, place=Place(Path(profile), profile, {}))
    }


# section.json


def written(results, **changes):
    """`write_section` of a small notebook."""
    known = fakes.record()
    given = {
        **{name: getattr(known, name) for name in ("title", "section", "question", "verdicts")},
        "equations": (Equation("a = b", "1", "says"),),
        "figures": {"curve": (learning_curves(fakes.curves(seeds=(0,))), "caption", "alt")},
        "tables": {"scores": (pd.DataFrame({"rule": ["a"], "score": [1 / 3]}), "words")},
        "notes": ["note"],
        "missing": [],
        "provenance": fakes.provenance(),
        "seconds": 1.26,
        "parameters": {"profile": "mini", "seeds": (0, 1)},
        "changed": {},
    }
    return write_section(results / "mini" / "05_clipping", **{**given, **changes})


def test_what_is_written_is_read_again_and_the_same_bytes_come_twice(tmp_path):
    path = written(tmp_path)
    (section,) = read_sections(tmp_path / "mini")
    assert section.complete and section.seconds == 1.3 and section.profile == "mini"
    assert section.verdicts == fakes.record().verdicts and section.folder == path.parent
    assert section.published(["scores", "absent", "curve"]) == ["scores", "curve"]
    names = {file.name for file in path.parent.iterdir()}
    assert names == {*("curve.svg", "curve.png", "scores.csv", "section.json")}
    before = {file: file.read_bytes() for file in path.parent.iterdir()}
    written(tmp_path)
    assert before == {file: file.read_bytes() for file in path.parent.iterdir()}


def test_missing_stages_make_it_partial(tmp_path):
    written(tmp_path, missing=["seed 2"])
    (section,) = read_sections(tmp_path / "mini")
    assert (section.status, section.lacks) == ("partial", "seed 2")


def test_what_an_earlier_section_had_goes_and_files_of_a_user_stay(tmp_path):
    folder = written(tmp_path).parent
    (folder / "mine.csv").write_text("1")
    written(tmp_path, figures={})
    assert (folder / "scores.csv").exists() and (folder / "mine.csv").exists()
    assert not [*folder.glob("curve.*")]


def test_a_folder_that_would_be_an_address_is_no_notebook(tmp_path):
    path = written(tmp_path)
    folder = path.parent.rename(path.parent.with_name("javascript:alert(1)"))
    content = json.loads((folder / path.name).read_text())
    (folder / path.name).write_text(json.dumps(content | {"notebook": folder.name}))
    with pytest.raises(KlearError, match="expected letters, digits and _"):
        read_sections(tmp_path / "mini")


@pytest.mark.parametrize("parameters", [{"profile": "smoke"}, {"rules": []}, {"profile": None}])
def test_a_section_of_another_profile_is_refused_and_the_page_stays(mini, parameters):
    before = build_report(mini, fakes.NOTEBOOKS).read_bytes()
    fakes.publish(mini, fakes.section(figures=[], parameters=parameters), figures=False)
    with pytest.raises(KlearError, match=r"has parameters of profile .*, not of 'mini'") as caught:
        build_report(mini, fakes.NOTEBOOKS)
    line = str(caught.value)
    assert line.startswith("mini/05_clipping/section.json") and "\n" not in line
    assert "klear run --profile mini --only 05 --force" in line
    assert (mini / "report.html").read_bytes() == before


def test_a_renamed_folder_is_refused_and_a_link_to_a_folder_is_not(mini):
    (mini.parent / "alias").symlink_to(mini, target_is_directory=True)
    assert [section.notebook for section in read_sections(mini.parent / "alias")] == ["05_clipping"]
    renamed = mini.parent / "gpu"
    shutil.move(mini, renamed)
    with pytest.raises(KlearError, match="of profile 'mini', not of 'gpu'"):
        read_sections(renamed)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"extra": 1}, "unexpected keyword argument 'extra'"),
        ({"verdicts": [{"claim": "C1"}]}, "comparisons"),
        ({"tables": [{"caption": "c", "name": "none"}]}, "names none.csv, which is missing"),
    ],
)
def test_a_section_of_another_version_or_without_its_files_is_refused(mini, changes, words):
    path = mini / "05_clipping" / "section.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(KlearError) as caught:
        read_sections(mini)
    assert words in str(caught.value) and "--only 05 --force" in str(caught.value)


# the ledger


def test_every_claim_stands_once_in_order_and_says_why_not():
    entries = ledger([], SUITE, place=Place(Path("gpu"), "gpu", {}))
    assert [entry["claim"] for entry in entries] == [claim.id for claim in claims()]
    assert {entry["verdict"] for entry in entries} == {"not run"}
    names = [notebook.name for notebook in SUITE]
    for entry in entries:
        in_suite, number = entry["notebook"] in names, entry["notebook"][:2]
        assert ("has not been run" if in_suite else "not yet in the suite") in entry["reason"]
        assert entry["settle"] == (f"klear run --profile gpu --only {number}" if in_suite else None)
        assert entry["paper"] and entry["title"] and entry["rule"]["below_paper"]
    json.dumps(entries, allow_nan=False)
    assert by_claim(fakes.record())["C8"]["settle"] == "klear run --profile mini --only 06"


def test_the_ledger_takes_the_published_verdicts():
    verdicts = [fakes.verdict("C14", "reproduced"), fakes.verdict("C1", "contradicted")]
    entries = by_claim(fakes.record(verdicts=verdicts))
    assert entries["C14"]["verdict"] == "reproduced" and entries["C1"]["verdict"] == "contradicted"
    assert entries["C1"]["comparisons"][1]["name"] == "GPPO - CISPO"
    assert entries["C3"]["verdict"] == "not run" and "not reached" in entries["C3"]["reason"]
    assert not entries["C1"]["interim"]


@pytest.mark.parametrize(
    ("p_values", "survives"),
    [
        ({"C1": 0.02}, {"C1": True}),
        ({"C1": 0.02, "C2": 0.02}, {"C1": False, "C2": False}),  # twice 0.02
        ({"C1": 0.012, "C2": 0.02}, {"C1": True, "C2": True}),  # step by step, not twice both
    ],
)
def test_a_verdict_says_whether_it_would_survive_holm_over_all_claims(p_values, survives):
    def supported(name, p):
        found = fakes.verdict(name, "supported")
        rows = [row | {"p_greater": p, "p_less": 1 - p} for row in found["comparisons"]]
        return found | {"comparisons": rows}

    verdicts = [supported(*pair) for pair in p_values.items()]
    entries = by_claim(fakes.record(verdicts=[*verdicts, fakes.verdict("C14", "reproduced")]))
    assert {name: entries[name]["survives_holm"] for name in survives} == survives
    assert entries["C5"]["survives_holm"] is None and entries["C14"]["survives_holm"] is None


def explored(results, folder, changes, **verdicts):
    """Notebook 11 in a folder of changed parameters beside results/mini."""
    made = [fakes.verdict(name, word) for name, word in verdicts.items()]
    content = fakes.section(notebook="11_beyond", figures=[], tables=[], verdicts=made)
    fakes.publish(results / folder, content, figures=False)
    (results / folder / "changes.json").write_text(
        json.dumps({"profile": "mini", "changes": changes})
    )


def test_explorations_that_ran_in_folders_of_their_own_count_together(tmp_path):
    results = tmp_path / "results"
    only = {"explorations": ["E2"]}
    explored(results, "mini-E2", only, E2="supported", E4="not run")
    explored(results, "mini-E4", {"explorations": ["E4"]}, E2="not run", E4="contradicted")
    explored(results, "mini-E3", only | {"seeds": [7]}, E3="supported")  # another experiment
    place = Place(results / "mini", "mini", {})
    own = [fakes.record()]

    entries = {entry["claim"]: entry for entry in ledger(own, SUITE, place=place)}
    words = {name: entries[name]["verdict"] for name in ("E2", "E4", "E3", "C1")}
    assert words == {"E2": "supported", "E4": "contradicted", "E3": "not run", "C1": "undecided"}
    assert [entries[n]["elsewhere"] for n in words] == ["mini-E2", "mini-E4", None, None]
    assert entries["E2"]["reason"].startswith("results/mini-E2: neither")
    assert entries["E2"]["survives_holm"] is not None

    verdicts = [fakes.verdict("E2", "no difference"), fakes.verdict("E4", "not run")]
    own += [fakes.record(notebook="11_beyond", verdicts=verdicts)]
    entries = {entry["claim"]: entry for entry in ledger(own, SUITE, place=place)}
    assert entries["E2"]["verdict"] == "no difference" and entries["E2"]["elsewhere"] is None
    assert entries["E4"]["verdict"] == "contradicted"
    changed = Place(results / "mini-x", "mini", {"seeds": [0]})
    assert all(entry["elsewhere"] is None for entry in ledger(own[:1], SUITE, place=changed))


def test_interim_verdicts_say_so(monkeypatch):
    verdicts = [fakes.verdict("C14", "reproduced"), fakes.verdict("C1", "supported")]
    partial = fakes.record(verdicts=verdicts, status="partial", missing=["GPPO, seed 2"])
    entries = by_claim(partial)
    assert entries["C1"]["interim"] and entries["C1"]["reason"].startswith("interim, GPPO, seed 2")
    assert "interim" not in entries["C14"]["reason"]

    # What is missing counts for another claim: C1 has all of its replicates, which are five.
    def is_interim(num_seeds: int) -> bool:
        parameters = partial.parameters | {"seeds": [*range(num_seeds)]}
        return by_claim(replace(partial, parameters=parameters))["C1"]["interim"]

    assert is_interim(6) and not is_interim(5)
    about = replace(claim("C1"), unrunnable=(5,))  # all that can be run are there
    monkeypatch.setattr(
        "klearlib.report.verdicts.claims",
        lambda: [about if each.id == "C1" else each for each in claims()],
    )
    assert is_interim(7) and not is_interim(6)


def test_counterparts_stand_in_the_order_of_the_papers_numbers():
    items = [each.item for _, each in in_paper_order(reversed(fakes.NOTEBOOKS))]
    tables = [f"Table {number}" for number in range(1, NUM_TABLES + 1)]
    assert items == tables + [f"Fig. {name}" for name in FIGURES]
