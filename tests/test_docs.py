"""What the documents show is what there is: the picture of the flow, the example of a notebook."""

from __future__ import annotations

import ast
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def test_the_picture_of_the_flow_is_that_of_the_stages():
    flow = runpy.run_path(str(REPOSITORY / "docs" / "flow.py"))
    assert flow["page"]() == flow["PAGE"].read_text(encoding="utf-8"), "run python docs/flow.py"


def test_the_example_of_a_new_notebook_plans_its_runs(tmp_path):
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    file, code = re.search(r"`(klearlib/\S+nb13\S+)`.*?```python\n(.*?)```", text, re.S).groups()
    for folder in ("klearlib", "params"):
        shutil.copytree(REPOSITORY / folder, tmp_path / folder)
    (tmp_path / file).write_text(code, encoding="utf-8")
    asked = (
        "from klearlib.experiments.catalogue import check, stages_of;"
        "found = stages_of('13_entropy', check('13_entropy', {'seeds': [0, 1]}));"
        "print(sorted(stage.name for stage in found.values()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", asked],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "KLEAR_ROOT": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    runs = {"base": 1, "evaluate": 4, "rl": 4, "sft": 1, "world": 1}
    assert ast.literal_eval(done.stdout) == sorted(Counter(runs).elements())


def test_the_page_on_gpus_names_every_file_that_goes_another_way_there():
    """By its text: a word of CUDA, or a device that is not the CPU."""
    page = (REPOSITORY / "docs" / "gpu.md").read_text(encoding="utf-8")
    table = page.partition("## What never ran")[2].partition("So these have")[0]
    named = set(re.findall(r"`(\w+/\w+\.py)`", table))
    library = REPOSITORY / "klearlib"
    branches = re.compile(r"cuda|\.type [!=]= \"cpu\"")
    found = {
        path.relative_to(library).as_posix()
        for path in library.rglob("*.py")
        if branches.search(path.read_text(encoding="utf-8"))
    }
    assert named == found


def test_the_numbers_on_rules_stand_in_the_files_that_are_linked_beside_them():
    page = REPOSITORY / "docs" / "which-rule.md"
    link = re.compile(r"\]\((\.\./[^)\s]+)\)")
    checked = 0
    for block in page.read_text(encoding="utf-8").split("\n\n"):
        texts = [(page.parent / file).read_text(encoding="utf-8") for file in link.findall(block)]
        known = [float(x) for text in texts for x in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", text)]
        for number in re.findall(r"[+-]?\d+\.\d+", link.sub("", block)):
            if number in ("0.8", "0.44"):  # of the clip range; millions of parameters
                continue
            digits = len(number.partition(".")[2])
            in_points = [100 * x for x in known]
            assert float(number) in {round(x, digits) for x in known + in_points}, number
            checked += 1
    assert checked > 30
