"""The block of claims in README.md: made from claims.json, between its markers and nowhere else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest
import report_fakes as fakes

from klearlib.errors import KlearError
from klearlib.report.front_page import END, claims_block, start_marker, write_front_page
from klearlib.report.page import build_report
from klearlib.report.render import holm_word, in_short

ROOT = Path(__file__).resolve().parents[2]
MINI, GPU = start_marker("mini"), start_marker("gpu")


@pytest.fixture
def results(tmp_path):
    """results/mini with one notebook and its claims.json."""
    folder = tmp_path / "results" / "mini"
    measured = "a - b: +1.5 points [-2.0, +5.0] (5 replicates)"
    verdicts = [fakes.verdict("C1", "supported", measured=measured)]
    fakes.publish(folder, fakes.section(verdicts=verdicts, figures=[]), figures=False)
    build_report(folder, fakes.NOTEBOOKS)
    return folder


def page(results, text):
    path = results.parent.parent / "README.md"
    path.write_bytes(text.encode())
    return path


def test_the_block_holds_every_claim_with_numbers_and_verdict(results):
    path = page(results, f"# Title\nbefore\n\n{MINI}\nold | table\n{END}\nafter\n")
    assert write_front_page(path, results) == path
    text = path.read_bytes().decode()
    assert text.startswith(f"# Title\nbefore\n\n{MINI}\n\n") and text.endswith(f"\n{END}\nafter\n")
    assert "old | table" not in text
    counts = "Fair tests: 1 supported, 7 not run."
    assert f"[results/mini](results/mini/README.md): {counts}" in text
    (row,) = (line for line in text.splitlines() if re.match(r"\| C\d", line))
    measured = "a - b: +1.5 points [-2.0, +5.0]"
    assert row.endswith(f"| fair, 5 | {measured} | ▲ supported | falls |")
    assert re.search(r"^Not run: C2, C3, C4, .*, C26, E1, .*E8\.$", text, re.M)


def test_the_clearest_difference_against_a_claim_comes_first():
    compared = [{"p_less": 0.4, "p_greater": 0.6}, {"p_less": 0.001, "p_greater": 0.999}]
    compared += [{"p_less": 1.0, "p_greater": 1e-9}]
    entry = {
        "measured": "; ".join(f"{arm} - b: {'long ' * 12}" for arm in "acd"),
        "comparisons": compared,
        "kind": "ordering",
        "survives_holm": None,
    }
    first = {
        (verdict, kind): in_short(entry | {"verdict": verdict, "kind": kind})[0]
        for verdict in ("contradicted", "undecided")
        for kind in ("ordering", "equivalence")
    }
    assert first["contradicted", "ordering"] == "c" and first["contradicted", "equivalence"] == "d"
    assert first["undecided", "ordering"] == first["undecided", "equivalence"] == "a"
    assert holm_word(entry | {"verdict": "contradicted", "kind": "equivalence"}) == "within claim"
    assert holm_word(entry | {"verdict": "undecided", "kind": "equivalence"}) == ""
    assert holm_word(entry | {"verdict": "supported", "survives_holm": False}) == "falls"


def test_a_link_stays_one(results):
    path = page(results, f"before\n{MINI}\nold\n{END}\nafter\n")
    link = path.with_name("link.md")
    link.symlink_to(path.name)
    write_front_page(link, results)
    assert link.is_symlink()
    text = path.read_bytes().decode()
    assert "1 supported" in text and text.startswith("before\n") and "old" not in text


def test_a_folder_with_a_space_is_linked(results):
    path = page(results, f"{MINI}\n{END}")
    results.parent.rename(results.parent.with_name("my results (2)"))
    write_front_page(path, results.parent.with_name("my results (2)") / "mini")
    assert "](my%20results%20%282%29/mini/README.md)" in path.read_text("utf-8")


def test_again_changes_nothing_and_a_new_verdict_does(results):
    path = page(results, f"{MINI}\n{END}")
    write_front_page(path, results)
    first = path.read_bytes()
    write_front_page(path, results)
    assert path.read_bytes() == first
    entries = json.loads((results / "claims.json").read_text("utf-8"))
    entries[0]["verdict"], entries[0]["interim"] = "undecided", True
    (results / "claims.json").write_text(json.dumps(entries))
    write_front_page(path, results)
    assert "◆ undecided (interim)" in path.read_text("utf-8")


def test_the_blocks_of_other_profiles_stay(results):
    path = page(results, f"{GPU}\nkept\n{END}\n\n{MINI}\n{END}\n\ntail\n")
    write_front_page(path, results)
    text = path.read_text("utf-8")
    assert text.startswith(f"{GPU}\nkept\n{END}\n\n{MINI}\n") and text.endswith(f"{END}\n\ntail\n")
    assert text.count("| C1 ") == 1


@pytest.mark.parametrize(
    "text",
    [
        "no marker\n",
        f"{GPU}\n{END}\n",
        f"in `{MINI}` a text\n{END}\n",
        f"{MINI}\n{END}\n{MINI}\n{END}\n",
        f"{MINI}\n",
        f"{END}\n{MINI}\n",
        f"{MINI}\n{GPU}\n{END}\n{END}\n",
    ],
)
def test_wrong_markers_are_an_error_and_the_file_stays(results, text):
    path = page(results, text)
    line = f"expected the line {MINI!r} once, and {END!r} after it"
    with pytest.raises(KlearError, match=re.escape(line)) as caught:
        write_front_page(path, results)
    assert "\n" not in str(caught.value) and path.read_text("utf-8") == text


def test_a_missing_file_is_an_error(results):
    with pytest.raises(KlearError, match=r"no file .*absent\.md"):
        write_front_page(results / "absent.md", results)


@pytest.mark.parametrize("profile", ["mini", "full"])
def test_the_front_page_of_the_project_is_not_stale(profile):
    text, marker = (ROOT / "README.md").read_text(encoding="utf-8"), start_marker(profile)
    if marker not in text:
        pytest.skip(f"README.md has no block of results/{profile}")
    block = text.split(f"{marker}\n")[1].split(END)[0]
    path = ROOT / "results" / profile / "claims.json"
    entries = json.loads(path.read_text(encoding="utf-8"))
    fix = f"stale: klear report --profile {profile} --readme README.md"
    assert block.strip() == claims_block(entries, f"results/{profile}").strip(), fix


def test_what_the_front_page_says_is_what_was_measured():
    """Each number with an interval is one of the claim, or the table, that is named next."""
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    measured: dict[str, str] = {}
    for name in sorted(set(re.findall(r"\(results/([\w-]+)/", text))):
        path = ROOT / "results" / name / "claims.json"
        for entry in json.loads(path.read_text(encoding="utf-8")):
            claim = entry["claim"]
            measured[claim] = measured.get(claim, "") + entry["measured"]
    source = r"(?=.*?(?:\(([CE]\d+)|\]\((results/\S+?\.csv)\)))"
    found = re.findall(r"([+-][\d.]+(?: points)? \[[^]]+\])" + source, text)
    assert len(found) > 8
    for words, claim, table in found:
        if claim:
            assert words in measured[claim], claim
            continue
        rows = pd.read_csv(ROOT / table)[["difference", "diff_low", "diff_high"]].to_numpy()
        assert words in [f"{at:+.1f} points [{low:+.1f}, {high:+.1f}]" for at, low, high in rows]


def test_a_result_on_the_front_page_names_its_kind_of_test_and_its_replicates():
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    found = text.partition("## What was found")[2].partition("<!-- claims")[0]
    entries = {}
    for name in ("smol", "full-E2", "full-E4", "full"):
        path = ROOT / "results" / name / "claims.json"
        for entry in json.loads(path.read_text(encoding="utf-8")):
            if entry["comparisons"]:
                entries.setdefault(entry["claim"], []).append(entry)
    named = [*re.finditer(r"\(([CE]\d+), ([\w-]+), n = (\d+)", found)]
    assert len(named) > 6
    for each in named:
        claim, kind, number = each.groups()
        interval = re.findall(r"\[[+-][\d.]+, [+-][\d.]+\]", found[: each.start()])[-1]
        own = [entry for entry in entries[claim] if interval in entry["measured"]]
        of_it = {(one["test"], one["comparisons"][0]["num_replicates"]) for one in own}
        assert of_it == {(kind, int(number))}, claim
    # no interval stands without them
    sentences = re.split(r"(?<=\.) (?=[A-Z*\d])", found)
    for sentence in sentences:
        count = len(re.findall(r"\[[+-][\d.]+, [+-][\d.]+\]", sentence))
        named = re.findall(r"\((?:[CE]\d+, [\w-]+|not registered), n = \d+", sentence)
        assert count <= 2 * len(named), sentence
    falls = {c for c, every in entries.items() if every[-1]["survives_holm"] is False}
    under = next(each for each in sentences if "fall under Holm" in each)
    assert {*re.findall(r"\(([CE]\d+),", under)} <= falls
    drawn = pd.read_csv(ROOT / "results/full/12_rules/rates.csv").groupby("rule")
    counts = {int(mine["seeds"].min()) for _, mine in drawn if len(mine) == 4}
    words = " or ".join(map(str, sorted(counts)))
    assert f"{words} worlds" in text and sum(len(mine) == 4 for _, mine in drawn) == 7


def test_the_front_page_is_read_in_a_minute():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 110 and len(text) <= 9000
    rows = [line.split("|") for line in text.splitlines() if line.startswith("|")]
    assert max(len(cell.strip()) for row in rows for cell in row) <= 120
