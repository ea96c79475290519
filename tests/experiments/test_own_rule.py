"""docs/own-rule.md, followed to the letter: its rules beside a GPPO that has run."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from klearlib.experiments.catalogue import check
from klearlib.experiments.experiment import with_inputs
from klearlib.experiments.nb05_clipping import Clipping
from klearlib.run.entry import DONE

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def small(tiny_project):
    shutil.copy(REPOSITORY / "notebooks" / "05_clipping.ipynb", tiny_project / "notebooks")
    return tiny_project


def of_the_page() -> tuple[str, list[str]]:
    """The Python of docs/own-rule.md and the words of its command."""
    text = (REPOSITORY / "docs" / "own-rule.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", text, re.S).group(1)
    (command,) = re.findall(r"^(?:\.venv/bin/)?(papermill .*05_clipping.*)$", text, re.M)[:1]
    return code, shlex.split(command)


def done_at(e: Clipping) -> dict[str, int]:
    """Title of each finished stage -> when it finished, in ns."""
    stages = with_inputs(e.stages()).values()
    return {s.title: (e.folder(s) / DONE).stat().st_mtime_ns for s in stages if e.is_done(s)}


def test_the_page_followed_to_the_letter(small):
    gppo = Clipping(check("05_clipping", {"rules": ["gppo"], "code": False}))
    gppo.run()
    before = done_at(gppo)
    assert {"GPPO, seed 0", "GPPO, seed 1"} <= before.keys()

    code, command = of_the_page()
    (small / "my_rules.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=small,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "KLEAR_ROOT": str(small)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]

    # In whichever folder of results they are.
    found = (small / "results").glob("**/05_clipping/section.json")
    (file,) = (each for each in found if "my_rules.py" in each.read_text())
    folder, made = file.parent, json.loads(file.read_text())
    assert made["status"] == "complete" and {f["name"] for f in made["figures"]} == {
        *("fig2", "rules", "corners")
    }
    for name in ("rules", "scores"):
        with open(folder / f"{name}.csv", newline="") as lines:
            assert {"GPPO", "half", "fade"} <= {row["rule"] for row in csv.DictReader(lines)}, name
    e = Clipping(check("05_clipping", made["parameters"]))  # with the text of the file in it
    assert [arm.title for arm in e.rules.values()] == ["GPPO", "half", "fade"]
    assert len(e.runs) == 6
    for name in ("fig2", "rules", "corners"):
        figure = e.figure(name)
        kept = [axis.get_legend() for axis in figure.axes if axis.get_legend()]
        words = {each.get_text() for legend in (*figure.legends, *kept) for each in legend.texts}
        words |= {axis.get_title(loc="left") for axis in figure.axes}
        assert {"GPPO", "half", "fade"} <= words and (folder / f"{name}.png").is_file()
    now = done_at(e)
    assert {title: now[title] for title in before} == before  # cached, GPPO's runs included
    assert {"half, seed 0", "fade, seed 1"} <= now.keys()
    assert {v["claim"]: v["verdict"] for v in made["verdicts"]} == {
        **dict.fromkeys(("C1", "C2", "C3", "C18", "C25", "C26", "E6"), "not run"),
        "C14": "reproduced",
    }
