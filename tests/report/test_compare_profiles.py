"""Two results folders side by side: what both say, what differs, and what is refused."""

from __future__ import annotations

import csv
import re
import shutil

import pytest
import report_fakes as fakes

from klearlib import cli
from klearlib.report import compare
from klearlib.report.compare import paired_tables
from klearlib.report.section import read_sections
from klearlib.report.tables import markdown_lines


def write_comparison(a, b):
    return compare.write_comparison(a, b, notebooks=fakes.NOTEBOOKS)


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """results/mini and results/gpu: one notebook in both, 06 half done in gpu alone."""
    monkeypatch.chdir(tmp_path)
    mini, gpu = tmp_path / "results" / "mini", tmp_path / "results" / "gpu"
    fakes.publish(mini, fakes.section(figures=[]), figures=False)
    parameters = {"profile": "gpu", "rules": ["gppo"], "learning_rate": 1e-4, "options": {"a": 1}}
    verdicts = [
        fakes.verdict("C1", "supported", measured="GPPO - CISPO: +9.9 points [+1.0, +18.8]")
    ]
    other = fakes.section(
        figures=[],
        parameters=parameters,
        verdicts=verdicts,
        provenance=fakes.provenance(gpu="A card of 80 GB", commit="fedcba9876543210+"),
    )
    half = fakes.section(
        notebook="06_alpha_sweep",
        title="The weight alpha",
        status="partial",
        missing=["alpha 0.1, seed 2"],
        figures=[],
        verdicts=[fakes.verdict("C8", "undecided", comparisons=[])],
        parameters={"profile": "gpu"},
    )
    for content in (other, half):
        fakes.publish(gpu, content, figures=False)
    return mini, gpu


def rows_of(markdown):
    lines = [line for line in markdown.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_claims_stand_side_by_side_with_both_verdicts(folders):
    html, markdown = write_comparison(*folders)
    assert (html.name, markdown.name) == ("compare_mini_gpu.html", "compare_mini_gpu.md")
    assert html.parent == folders[0].parent
    claims = {row[0][:3].strip(): row for row in rows_of(markdown.read_text()) if row[0][:1] == "C"}
    assert set(claims) >= {f"C{number}" for number in range(1, 23)}
    assert claims["C1"][2].startswith("GPPO 0.612 (0.580 to 0.644)")
    assert claims["C1"][3:] == [
        "◆ undecided",
        "GPPO - CISPO: +9.9 points \\[+1.0, +18.8\\]",
        "▲ supported",
    ]
    assert claims["C8"][3].startswith("– not run") and claims["C8"][5] == "◆ undecided (interim)"
    # C2 is judged in mini alone, and C1 and C8 differ
    assert "3 of 29 have different verdicts" in markdown.read_text()
    assert "gpu, 06_alpha_sweep: not complete yet" in markdown.read_text()
    assert "alpha 0.1, seed 2" in markdown.read_text()


def test_the_page_says_what_the_markdown_says(folders):
    html, markdown = write_comparison(*folders)
    text = html.read_text(encoding="utf-8")
    assert "<script" not in text and "//" not in text
    shown = [[re.sub(r"\W", "", cell) for cell in row] for row in fakes.Page(text).rows]
    wanted = [
        [re.sub(r"\W", "", cell) for cell in row]
        for row in rows_of(markdown.read_text())
        if not row[0].startswith(":")
    ]
    assert shown == wanted


def test_parameters_and_provenance_that_differ(folders):
    markdown = write_comparison(*folders)[1].read_text()
    rows = rows_of(markdown)
    differing = [row for row in rows if row[0] == "05_clipping" and len(row) == 4]
    assert [row[1] for row in differing] == ["rules", "options.a"]
    assert differing[1][2:] == ["absent", "1"]
    origin = next(row for row in rows if row[0] == "05_clipping" and len(row) == 3)
    assert "commit 0123456789ab, " in origin[1] and "no GPU" in origin[1]
    assert "commit fedcba987654 with local changes" in origin[2] and "A card of 80 GB" in origin[2]
    assert next(r for r in rows if r[0][:2] == "06")[:2] == ["06_alpha_sweep", "not run"]


def write_csv(folder, rows):
    with open(folder / "05_clipping" / "final_scores.csv", "w", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows(rows)
    lines = markdown_lines([], [[]] * (len(rows) - 1), [])  # as many as of the table
    (folder / "05_clipping" / "final_scores.md").write_text(lines)


HEADER = ["rule", "seeds", "score", "low", "high", "gain", "gain_low", "gain_high"]


def pair(folders):
    one, two = (read_sections(folder)[0] for folder in folders)
    return paired_tables(one, two, ("mini", "gpu"))


def test_numbers_of_the_same_row_stand_side_by_side(folders):
    mini = [["gppo", 3, 0.61234, 0.5, 0.7, 0.1, "", ""], ["cispo", 3, 0.2, 0.1, 0.3, 0.0, 0, 0]]
    gpu = [["cispo", 5, 0.9, 0.8, 1.0, 0.4, 0.3, 0.5], ["gppo", 5, 0.7, 0.6, 0.8, 0.2, 0.1, 0.3]]
    write_csv(folders[0], [HEADER, *mini])
    write_csv(folders[1], [HEADER, *gpu])
    (table,) = pair(folders).tables
    titles = ["seeds", "score", "gain"]
    assert table.header == ("rule", *(f"{t}, {side}" for t in titles for side in ("mini", "gpu")))
    assert table.rows[0] == (
        "gppo",
        "3",
        "5",
        "0.612 (0.500 to 0.700)",
        "0.700 (0.600 to 0.800)",
        "0.100 (no interval)",
        "0.200 (0.100 to 0.300)",
    )
    assert table.rows[1][:4] == ("cispo", "3", "5", "0.200 (0.100 to 0.300)")


def test_a_first_column_of_numbers_names_the_rows(folders):
    write_csv(folders[0], [["alpha", "score"], [0.0, 0.5], [0.1, 0.6]])
    write_csv(folders[1], [["alpha", "score"], [0.1, 0.7], [0.0, 0.4]])
    (table,) = pair(folders).tables
    assert table.header == ("alpha", "score, mini", "score, gpu")
    assert table.caption == "final_scores. Scores after the last step."
    assert table.rows == (("0.0", "0.500", "0.400"), ("0.1", "0.600", "0.700"))


def test_what_is_the_same_stands_once_and_captions_that_differ_both(folders):
    header = ["rule", "score", "low", "high", "paper", "rows"]
    write_csv(folders[0], [header, ["gppo", 1, 0, 2, 0.25, 8.0], ["cispo", 1, 0, 2, "", 9.0]])
    write_csv(folders[1], [header, ["cispo", 1, 0, 2, "", 7.0], ["gppo", 1, 0, 3, 0.25, 8.0]])
    path = folders[1] / "05_clipping" / "section.json"
    path.write_text(path.read_text().replace("Scores after the last step.", "avg@64."))
    (table,) = pair(folders).tables
    assert table.caption == "final_scores. mini: Scores after the last step. gpu: avg@64."
    titles = ("rule", "score, mini", "score, gpu", "paper", "rows, mini", "rows, gpu")
    assert table.header == titles
    one = ("gppo", "1.000 (0.000 to 2.000)", "1.000 (0.000 to 3.000)", "0.250", "8", "8")
    same = "1.000 (0.000 to 2.000)"
    assert table.rows == (one, ("cispo", same, same, "–", "9", "7"))


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([HEADER[:3], ["gppo", 3, 0.5]], "other columns"),
        ([HEADER, ["cispo", 3, 0.6, 0.5, 0.7, 0.1, 0, 0]], "other rows"),
        (
            [HEADER, *[["gppo", 3, 0.6, 0.5, 0.7, 0.1, 0, 0]] * 2],
            "rows that their texts do not tell apart",
        ),
    ],
)
def test_a_table_that_cannot_be_paired_is_named_with_the_reason(folders, rows, reason):
    write_csv(folders[0], [HEADER, ["gppo", 3, 0.6, 0.5, 0.7, 0.1, 0, 0]])
    write_csv(folders[1], rows)
    assert not pair(folders).tables
    (text,) = pair(folders).after
    assert text == f"Not side by side: final_scores ({reason})."


def test_the_same_profile_of_two_clones_is_labelled(folders, tmp_path):
    other = tmp_path / "clone" / "results" / "mini"
    shutil.copytree(folders[0], other)
    text = write_comparison(folders[0], other)[1].read_text()
    assert "mini (A): verdict" in text and "mini (B): verdict" in text
    assert "0 of 29 have different verdicts" in text and "with the same parameters" in text
    assert "The same in both: final_scores." in text and "Two profiles" not in text


def test_the_command(folders, capsys):
    words = ["report", "--compare", "results/mini", "results/gpu", "--out", "both/page.html"]
    assert cli.main(words) == 0
    assert capsys.readouterr().out.splitlines() == ["both/page.html", "both/page.md"]
    before = (folders[0].parent.parent / "both" / "page.html").read_bytes()
    assert cli.main(words) == 0
    assert (folders[0].parent.parent / "both" / "page.html").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["--compare", "results/mini", "results/no"], 1, "no folder results/no: make it with"),
        (["--compare", "results/mini", "results/empty"], 1, "holds no published notebook: run"),
        (["--compare", "results/mini", "results/../results/mini/"], 2, "twice: name two different"),
        (["--compare", "results/mini", "results/moved"], 1, "parameters of profile 'gpu', not of"),
        (["--compare", "results/mini", "results/gpu", "--out", "x.pdf"], 2, "ends in .html"),
        (["--compare", "results/mini", "results/gpu", "--readme", "R.md"], 2, "no --readme"),
        (["--compare", "results/mini", "results/gpu", "--profile", "mini"], 2, "no --profile"),
        (["--out", "x.html"], 2, "--out belongs to --compare"),
    ],
)
def test_wrong_words_are_one_line(folders, capsys, words, code, line):
    (folders[0].parent / "empty").mkdir()
    shutil.copytree(folders[1], folders[0].parent / "moved")
    assert cli.main(["report", *words]) == code
    error = capsys.readouterr().err
    assert error.startswith("klear: ") and error.count("\n") == 1 and line in error
    assert not list(folders[0].parent.glob("compare*"))
