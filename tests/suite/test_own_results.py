"""Changed parameters: the folder that their results go to in every way to run, and what it says."""

from __future__ import annotations

import json
import shlex
import shutil

import pytest
from toy_suite import Toy

from klearlib import cli
from klearlib.errors import KlearError, ParameterError
from klearlib.experiments import catalogue
from klearlib.params import place
from klearlib.params.place import OUT, differences
from klearlib.report.page import build_report
from klearlib.report.section import read_sections
from klearlib.suite.plan import describe, plan, weighed

OWN = "results/own-05"


def toy(**values) -> Toy:
    """Notebook 05 as bare papermill or JupyterLab has it; the profile's file says num_steps: 3."""
    return Toy(catalogue.check("05_toy", {"num_steps": 3} | values))


def planned(*settings: str, **more):
    return plan("smoke", settings=settings, **more)


def test_changed_values_need_a_folder_and_bare_notebooks_have_one(project):
    with pytest.raises(ParameterError, match="num_steps: 7 is not what profile smoke has: name a"):
        planned("num_steps=7")
    place = toy(num_steps=7).place
    assert place.folder == project / "results/own-05"
    (each,) = planned("num_steps=7", out=OWN)  # the other notebook has no such parameter
    assert each.place == place and each.values["num_steps"] == 7
    # What cannot change a result is no change, nor is the profile's own value.
    for own in (toy(), toy(workers=2), planned("num_steps=3", only=["05"])[0].experiment):
        assert own.place.folder == project / "results/smoke" and own.place.changes == {}


def test_what_one_notebook_had_already_is_a_change_where_another_had_not(monkeypatch):
    found = {"03_a": {"seeds": ([0, 1], [1])}, "05_b": {"steps": (3, 4)}}
    monkeypatch.setattr(place, "differences", lambda notebook, _: found[notebook])
    assert place.changes_of(dict.fromkeys(found)) == {"seeds": [1], "steps": 4}


def test_the_command_of_a_folder_leads_there(project):
    place = planned("rates=[1.0e-5]", "kind=it's", out="results/mine")[0].place
    parsed = cli._parser().parse_args(shlex.split(place.command)[1:])
    assert (parsed.set, parsed.out) == (["kind=it's", "rates=[1.0e-05]"], "results/mine")
    assert planned(*parsed.set, out=parsed.out)[0].place == place


def test_the_plan_says_what_is_changed(project):
    text = describe(weighed("smoke", planned("num_steps=7", out=OWN)))
    assert "Results: results/own-05" in text
    assert "Changed from profile smoke: num_steps: 7" in text
    assert "00_gather" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert "Results:" not in describe(weighed("smoke", planned("num_steps=3")))


def test_published_results_say_what_differs_and_the_profile_stays(project):
    toy().publish()
    before = (project / "results/smoke/05_toy/section.json").read_bytes()
    changed = toy(num_steps=7)
    changed.publish()
    folder = changed.place.folder
    assert (project / "results/smoke/05_toy/section.json").read_bytes() == before
    (section,) = read_sections(folder)
    assert section.changed == {"num_steps": [3, 7]}
    page = build_report(folder, catalogue.experiments()).read_text()
    readme = (folder / "README.md").read_text()
    assert "Not the results of profile smoke" in page and "Not the results of" in readme
    for text in (page, readme):
        assert "num_steps: 7" in text and "num_steps 3 → 7" in text.replace("\\_", "_")
    assert "<code>klear run --profile smoke --set num_steps=7 --out results/own-05</code>" in page
    own_page = build_report(project / "results/smoke", catalogue.experiments()).read_text()
    assert "Not the results" not in own_page and "changed" not in json.loads(before)

    # Carried by hand into the profile's folder, it is refused.
    shutil.copytree(folder / "05_toy", project / "results/smoke/05_toy", dirs_exist_ok=True)
    with pytest.raises(KlearError, match="ran with num_steps changed, unlike its folder"):
        read_sections(project / "results/smoke")


def test_a_folder_that_the_user_names_holds_one_set_of_parameters(project, monkeypatch):
    mine = project / "results/mine"
    (each,) = planned("num_steps=7", only=["05"], out=str(mine))
    command = "klear run --profile smoke --set num_steps=7 --out results/mine"
    assert each.place.command == command
    each.place.claim()
    each.place.claim()
    for settings in ([], ["num_steps=8"], ["num_steps=7", "rates=[0.1]"]):
        with pytest.raises(ParameterError, match="results/mine holds results of profile smoke "):
            planned(*settings, only=["05"], out=str(mine))[0].place.claim()
    for steps in (7, 8):  # without a name the next values take the place of the last
        (section,) = read_sections(toy(num_steps=steps).publish().parent.parent)
        assert section.folder == project / OWN / "05_toy"
        assert section.changed == {"num_steps": [3, steps]}
    monkeypatch.setenv(OUT, str(mine))
    assert toy(num_steps=7).place == each.place
    for other in (toy(), toy(num_steps=8), toy(num_steps=7, rates=[0.1])):
        with pytest.raises(ParameterError, match="results/mine holds results of"):
            other.publish()
    monkeypatch.setenv(OUT, str(project / "results/smoke"))
    with pytest.raises(ParameterError, match="for profile smoke's own results"):
        toy(num_steps=7).publish()


def test_status_and_report_find_the_folders(project, capsys):
    assert differences("05_toy", toy(num_steps=7).params) == {"num_steps": (3, 7)}
    toy(num_steps=7).publish()
    folder = toy(num_steps=7).place.folder
    assert cli.main(["report", "--profile", "smoke"]) == 0
    assert capsys.readouterr().out == f"{folder / 'report.html'}\n"
    assert cli.main(["status", "--profile", "smoke"]) == 0
    lines = capsys.readouterr().out.splitlines()
    place = lines.index(f"{folder.name} (num_steps: 7)")
    assert place == 0 and lines[1].startswith("  05_toy              partial   missing: ")
    assert not [line for line in lines if "00" in line]
