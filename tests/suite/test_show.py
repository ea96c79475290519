"""klear show and the numbers for TensorBoard."""

import json
import sys
from types import ModuleType

import numpy as np
import pytest

from klearlib import cli
from klearlib.errors import MissingAsset
from klearlib.evaluate.record_files import save_record
from klearlib.records import EvalRecord
from klearlib.run.folder import RunFolder
from klearlib.suite.tensorboard import Mirror

SAMPLE = {
    **{"step": 1, "problem": "p\x1b1", "response": 0, "prompt": "2 + 2?", "text": "\x1b[2Jfour"},
    **{"chars": 8, "tokens": 3, "truncated": True, "reason": "wrong", "reward": -1.0},
    **{"found": "last", "advantage": -0.5},
}


@pytest.fixture
def runs(tmp_path, monkeypatch):
    (tmp_path / "params" / "smoke").mkdir(parents=True)
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv("KLEAR_ROOT", str(tmp_path))
    path = tmp_path / "results" / "runs" / "rl" / "aa01"
    folder = RunFolder(path)
    (path / "spec.json").write_text(json.dumps({"name": "rl", "label": "GPPO, seed 0"}))
    for step in (1, 2):
        folder.append_metrics({"step": step, "rollout/reward_mean": step / 4, "train/entropy": 1.0})
    folder.append_timings({"step": 1, "seconds/training": 3.0})
    folder.append_samples([SAMPLE])
    return path


def test_show_prints_what_was_written_and_steers_no_terminal(runs, capsys):
    assert cli.main(["show", "aa"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(
        "== step 1, p\\x1b1, response 0: wrong (last), reward -1.00, advantage -0.50, 3"
    )
    assert "truncated" in printed and "2 + 2?" in printed
    assert "\x1b" not in printed and "\\x1b[2Jfour" in printed
    assert cli.main(["show", "aa02"]) == 2
    assert "klear: there is no run 'aa02': " in capsys.readouterr().err
    (runs / "samples.jsonl").unlink()
    assert cli.main(["show", "aa01"]) == 1
    assert "rl/aa01 has no samples" in capsys.readouterr().err


def test_show_begins_with_the_scores_and_what_stands_beside_them(runs, capsys):
    correct = np.array([[True, True], [False, True]])
    for step, cut, found in ((0, False, ""), (2, True, "boxed")):
        record = EvalRecord(
            "math_a",
            ("p", "q"),
            correct & cut,
            np.full((2, 2), cut),
            np.full((2, 2), 7 + step),
            np.where(correct & cut, "correct", "wrong"),
            correct.astype(float),
            np.where(correct, found, ""),
        )
        save_record(record, runs / "evaluations" / f"math_a-{step:05d}.npz")
    lines = [
        {"step": step, "rollout/truncated_rate": share, "rollout/correct_rate": share}
        for step, share in ((1, 0.1), (2, 0.9))
    ]
    (runs / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert cli.main(["show", "aa"]) == 0
    head, first, last, alarm, sample = capsys.readouterr().out.splitlines()[:5]
    assert " ".join(head.split()).startswith("step score truncated tokens not worked out right")
    assert " ".join(first.split()) == "0 0 % 0 % 7 0 % - - -"
    assert " ".join(last.split()) == "2 75 % 100 % 9 0 % 100 % 0 % 0 %"
    assert alarm.startswith("!! truncation rose from 10 % to 90 %")
    assert sample.startswith("== step 1")


def test_tensorboard_that_is_not_installed_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingAsset, match=r"not installed: pip install 'klear\[tensorboard\]'"):
        Mirror(tmp_path / "tb", [])


def test_tensorboard_gets_each_number_once_under_its_key(runs, monkeypatch, tmp_path):
    written = []

    class Writer:
        def __init__(self, place):
            assert place == str(tmp_path / "tb" / "rl-aa01-GPPO__seed_0")

        def add_scalar(self, key, value, step):
            written.append((step, key, value))

        def flush(self): ...

        def close(self): ...

    for name, fields in {"tensorboard": {}, "tensorboard.summary": {"Writer": Writer}}.items():
        module = ModuleType(name)
        vars(module).update(fields)
        monkeypatch.setitem(sys.modules, name, module)
    mirror = Mirror(tmp_path / "tb", [runs])
    mirror()
    mirror()  # too soon to look again
    assert sorted(written) == [
        (1, "rollout/reward_mean", 0.25),
        (1, "seconds/training", 3.0),
        (1, "train/entropy", 1.0),
        (2, "rollout/reward_mean", 0.5),
        (2, "train/entropy", 1.0),
    ]
    folder = RunFolder(runs)
    folder._append("metrics.jsonl", '{"step": 3, "train/entropy": null}\n')
    folder._append("metrics.jsonl", '{"step": 4, "train/entropy": 0.5}\n')
    mirror(True)
    assert written[5:] == [(4, "train/entropy", 0.5)]
