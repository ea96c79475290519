"""Checkpoints, metrics and manifests, and what they say when they are damaged."""

import errno
import json
import math

import numpy as np
import pytest
import torch

from klearlib.errors import DamagedEntry, KlearError
from klearlib.run.entry import read_metrics, read_progress, verify_entry
from klearlib.run.folder import RunFolder


def _lines(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def test_checkpoint_brings_back_state_and_cuts_what_came_after(tmp_path):
    folder = RunFolder(tmp_path)
    assert folder.load_checkpoint() is None
    folder.append_metrics({"step": 0, "a": 1.0})
    folder.append_timings({"step": 0, "time/step_s": 0.5})
    weights = torch.arange(5, dtype=torch.float64)
    folder.save_checkpoint({"weights": weights, "draws": (3, (1, 2), None)}, 1)
    folder.append_metrics({"step": 1, "a": 2.0})  # a kill comes before the next checkpoint
    folder.append_timings({"step": 1, "time/step_s": 0.5})

    resumed = RunFolder(tmp_path)
    state, step = resumed.load_checkpoint()
    assert step == 1
    assert torch.equal(state["weights"], weights)
    assert state["draws"] == (3, (1, 2), None)
    resumed.append_metrics({"step": 1, "a": 3.0})
    assert _lines(tmp_path) == [{"step": 0, "a": 1.0}, {"step": 1, "a": 3.0}]
    assert read_metrics(tmp_path) == [
        {"step": 0, "a": 1.0, "time/step_s": 0.5},
        {"step": 1, "a": 3.0},
    ]


def test_start_without_checkpoint_drops_earlier_lines(tmp_path):
    RunFolder(tmp_path).append_metrics({"step": 0, "a": 1.0})
    folder = RunFolder(tmp_path)
    folder.append_metrics({"step": 0, "a": 2.0})
    assert _lines(tmp_path) == [{"step": 0, "a": 2.0}]


def test_writing_past_a_checkpoint_unread_is_our_own_mistake(tmp_path):
    RunFolder(tmp_path).save_checkpoint({}, 1)
    with pytest.raises(AssertionError, match="load_checkpoint"):
        RunFolder(tmp_path).append_metrics({"step": 1})


def test_numbers_of_every_kind_come_back_exactly(tmp_path):
    folder = RunFolder(tmp_path)
    values = {"step": 0, "a": np.float32(0.1), "b": torch.tensor(0.5), "c": math.nan, "d": 1 / 3}
    folder.append_metrics(values)
    (read,) = read_metrics(tmp_path)
    assert read["a"] == float(np.float32(0.1))
    assert (read["b"], read["d"]) == (0.5, 1 / 3)
    assert math.isnan(read["c"])


def test_half_a_line_is_no_line(tmp_path):
    folder = RunFolder(tmp_path)
    folder.append_metrics({"step": 0})
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 1, "lo')
    assert read_metrics(tmp_path) == [{"step": 0}]
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write("\n")
    with pytest.raises(DamagedEntry, match="has a line that is not JSON"):
        read_metrics(tmp_path)


@pytest.mark.parametrize("line", [b"\xff", b'{"step'])
@pytest.mark.parametrize("name", ["metrics.jsonl", "timings.jsonl"])
def test_line_that_is_no_step(tmp_path, name, line):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 0}\n')
    (tmp_path / name).write_bytes(b'{"step": 0}\n' + line + b"\n")
    with pytest.raises(DamagedEntry) as caught:
        read_metrics(tmp_path)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / name} ")
    assert message.endswith(f": delete the folder {tmp_path}, then run again")


def _flip(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def _state(path):
    (file,) = path.glob("checkpoint-*.pt")
    return file


def _commit(path, **changes):
    file = path / "checkpoint.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: _flip(_state(path)),
        lambda path: _state(path).write_bytes(_state(path).read_bytes()[:-1]),
        lambda path: _state(path).unlink(),
        lambda path: (path / "checkpoint.json").write_text('{"step": 1'),
        lambda path: _commit(path, state="checkpoint-9.pt"),
        lambda path: (path / "metrics.jsonl").write_text(""),
        lambda path: (path / "metrics.jsonl").unlink(),
    ],
)
def test_damaged_checkpoint_names_file_and_fix(tmp_path, damage):
    folder = RunFolder(tmp_path / "run")
    folder.append_metrics({"step": 0})
    folder.save_checkpoint({"weights": torch.ones(1000)}, 1)
    damage(folder.path)
    with pytest.raises(DamagedEntry) as caught:
        RunFolder(folder.path).load_checkpoint()
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{folder.path}/")
    assert message.endswith(f": delete the folder {folder.path}, then run again")


def test_one_state_is_kept_and_a_committed_one_never_written_over(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path)
    folder.save_checkpoint({"x": 1}, 1)
    folder.save_checkpoint({"x": 2}, 2)
    kept = _state(tmp_path)

    def full(*args, **kwargs):
        raise KlearError("full")

    monkeypatch.setattr("klearlib.run.folder.write_json", full)
    with pytest.raises(KlearError):  # the same step, another state, killed before its commit
        folder.save_checkpoint({"x": 3}, 2)
    assert kept.exists()
    assert RunFolder(tmp_path).load_checkpoint() == ({"x": 2}, 2)
    assert _state(tmp_path) == kept


def test_full_disk_says_so_and_keeps_the_previous_checkpoint(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path)
    folder.save_checkpoint({"x": 1}, 1)

    def write(self, content):
        self.error = OSError(errno.ENOSPC, "No space left on device")
        raise self.error

    monkeypatch.setattr("klearlib.run.files.HashingFile.write", write)
    with pytest.raises(KlearError, match="free some disk space, then run again") as caught:
        folder.save_checkpoint({"x": torch.ones(10_000)}, 2)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob(".*.tmp"))
    assert RunFolder(tmp_path).load_checkpoint() == ({"x": 1}, 1)


def test_folder_that_cannot_be_made_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(KlearError, match=r"cannot write .*file") as caught:
        RunFolder(tmp_path / "file" / "run")
    assert "\n" not in str(caught.value)


def test_finish_lists_every_file_and_removes_the_checkpoint(tmp_path):
    folder = RunFolder(tmp_path)
    folder.append_metrics({"step": 0})
    folder.progress(1, 1)
    folder.log("a word")
    folder.save_checkpoint({"x": 1}, 1)
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "log.txt").write_text("mine")
    folder.finish()
    done = json.loads((tmp_path / "done.json").read_text())
    assert sorted(done["files"]) == ["metrics.jsonl", "policy/log.txt"]
    assert done["files"]["policy/log.txt"]["bytes"] == 4
    assert done["seconds"] >= 0
    assert done["provenance"]["torch"] == torch.__version__
    assert not list(tmp_path.glob("checkpoint*"))
    verify_entry(tmp_path)


def test_seconds_add_up_over_sessions(tmp_path):
    folder = RunFolder(tmp_path)
    folder._began -= 100
    folder.save_checkpoint({}, 1)
    resumed = RunFolder(tmp_path)
    resumed.load_checkpoint()
    resumed._began -= 10
    resumed.finish()
    assert 110 <= json.loads((tmp_path / "done.json").read_text())["seconds"] < 115


def test_entry_with_changed_or_missing_file(tmp_path):
    folder = RunFolder(tmp_path)
    (tmp_path / "a.json").write_text("12")
    folder.finish()
    (tmp_path / "a.json").write_text("13")
    verify_entry(tmp_path, hash_below=0)
    with pytest.raises(DamagedEntry, match=r"a\.json has other content"):
        verify_entry(tmp_path)
    (tmp_path / "a.json").unlink()
    with pytest.raises(DamagedEntry, match=r"a\.json is missing"):
        verify_entry(tmp_path, hash_below=0)
    (tmp_path / "done.json").write_text("")
    with pytest.raises(DamagedEntry, match=r"done\.json is not the JSON"):
        verify_entry(tmp_path)


def test_progress_that_a_power_cut_left_is_none(tmp_path):
    (tmp_path / "progress.json").write_bytes(bytes(100))
    assert read_progress(tmp_path) is None
    RunFolder(tmp_path).progress(1, 2)
    assert read_progress(tmp_path)["total"] == 2


def test_flipped_bytes_in_weights(tmp_path):
    """1.76 MB, the size of the mini profile's model."""
    file = tmp_path / "model" / "model.safetensors"
    folder = RunFolder(tmp_path)
    file.parent.mkdir()
    file.write_bytes(bytes(1_760_000))
    folder.finish()
    verify_entry(tmp_path)
    content = bytearray(file.read_bytes())
    content[700_000] ^= 1
    content[900_000] ^= 1
    file.write_bytes(content)
    verify_entry(tmp_path, hash_below=1_760_000)
    for hash_below in ({}, {"hash_below": 1_760_001}, {"hash_below": math.inf}):
        with pytest.raises(DamagedEntry) as caught:
            verify_entry(tmp_path, **hash_below)
        assert str(caught.value) == (
            f"{file} has other content than was written: "
            f"delete the folder {tmp_path}, then run again"
        )


def test_what_a_kill_left_half_written_is_no_result(tmp_path):
    part = tmp_path / "evaluations" / ".x-00001.npz.17.18.tmp"
    part.parent.mkdir()
    folder = RunFolder(tmp_path)
    for finish in (folder.finish, folder.load_checkpoint):
        part.write_text("half")
        finish()
        assert not part.exists()
    assert json.loads((tmp_path / "done.json").read_text())["files"] == {}


def test_done_comes_last(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path)
    folder.save_checkpoint({"x": 1}, 1)

    def killed(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("klearlib.run.folder.write_json", killed)
    with pytest.raises(KeyboardInterrupt):
        folder.finish()
    assert not (tmp_path / "done.json").exists()
    assert RunFolder(tmp_path).load_checkpoint() == ({"x": 1}, 1)
