"""What the result of a run on verl is named by: the code of the library that makes it."""

from pathlib import Path

import klearlib
from klearlib.run import fingerprint

ROOT = Path(klearlib.__file__).parent
# Where the stages of a fan-out run does not change what they compute.
FAN_OUT = {"ray_places.py"}


def test_all_that_verl_finds_by_name_belongs_to_a_run_and_no_fan_out_does(monkeypatch):
    known, read = fingerprint._scan, set()

    def scan(file, package):
        read.add(file)
        return known(file, package)

    monkeypatch.setattr(fingerprint, "_scan", scan)
    fingerprint.code_fingerprint("klearlib.scale.stage")
    scale = ROOT / "scale"
    assert {file.name for file in scale.glob("*.py") if file not in read} == FAN_OUT
    names = {file.name for file in read if file.parent == ROOT / "run"}
    assert not names & {"pool.py", "preload.py", "task.py", "progress.py", "machine.py"}
