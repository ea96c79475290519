"""Results that do not belong together are refused with a line that names the fix."""

from __future__ import annotations

import shutil

import pytest
import report_fakes as fakes

from klearlib.errors import KlearError
from klearlib.report.ledger import ledger
from klearlib.report.page import build_report
from klearlib.report.sections import read_sections

SUITE = ["05_clipping", "06_alpha_sweep"]


@pytest.fixture
def mini(tmp_path):
    folder = tmp_path / "results" / "mini"
    fakes.publish(folder, fakes.section(figures=[]), figures=False)
    return folder


@pytest.mark.parametrize("parameters", [{"profile": "smoke"}, {"rules": []}, {"profile": None}])
def test_a_section_of_another_profile_is_refused_and_the_page_stays(mini, parameters):
    before = build_report(mini).read_bytes()
    fakes.publish(mini, fakes.section(figures=[], parameters=parameters), figures=False)
    with pytest.raises(KlearError, match=r"has parameters of profile .*, not of 'mini'") as caught:
        build_report(mini)
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


def test_sections_of_two_profiles_make_no_ledger():
    other = fakes.section(notebook="06_alpha_sweep", parameters={"profile": "gpu"}, verdicts=[])
    with pytest.raises(KlearError, match="06_alpha_sweep: of profile 'gpu', expected 'mini'"):
        ledger([fakes.section(), other], SUITE)
    with pytest.raises(KlearError, match="05_clipping: of profile 'mini', expected 'gpu'"):
        ledger([fakes.section()], SUITE, profile="gpu")


def test_provenance_may_differ():
    other = fakes.section(
        notebook="06_alpha_sweep", verdicts=[], provenance=fakes.provenance(commit="f" * 40)
    )
    assert len(ledger([fakes.section(), other], SUITE)) == 14


def test_a_claim_without_its_notebook_is_not_run_with_the_command():
    absent = {entry["claim"]: entry for entry in ledger([fakes.section()], SUITE)}["C8"]
    assert (absent["verdict"], absent["measured"], absent["comparisons"]) == ("not run", "", [])
    assert absent["settle"] == "klear run --profile mini --only 06"
    asked = {entry["claim"]: entry for entry in ledger([], SUITE, profile="gpu")}["C8"]
    assert asked["settle"] == "klear run --profile gpu --only 06"
