"""Keys and states of stages."""

import fcntl
import json
import subprocess
import sys
from pathlib import Path

import pytest

from klearlib.errors import DamagedEntry
from klearlib.run import entry, provenance
from klearlib.run.folder import RunFolder
from klearlib.run.stage import Stage, folder_state, is_done

WALK = "toy_stages:walk"


def test_key_ignores_order_label_and_estimate():
    one = Stage("rl", WALK, {"a": 1, "b": {"c": 2, "d": [3]}}, label="x", estimate_s=3.0)
    other = Stage("rl", WALK, {"b": {"d": [3], "c": 2}, "a": 1})
    assert one.key == other.key
    assert len(one.key) == 16
    int(one.key, 16)


@pytest.mark.parametrize(
    "change",
    [{"name": "sft"}, {"target": "toy_stages:fail"}, {"params": {"a": 2}}, {"inputs": {}}],
)
def test_key_depends_on_each_ingredient(change):
    base = Stage("base", WALK, {"a": 0})
    fields = {"name": "rl", "target": WALK, "params": {"a": 1}, "inputs": {"base": base}}
    assert Stage(**fields).key != Stage(**{**fields, **change}).key


def test_results_of_two_versions_of_torch_or_vllm_never_mix(monkeypatch):
    def key(torch, vllm="0.32.0", engine="transformers"):
        versions = {"torch": torch, "transformers": "5.19.0", "vllm": vllm}
        monkeypatch.setattr(provenance, "version", versions.get)
        provenance.computing_versions.cache_clear()
        return Stage("rl", WALK, {"seed": 0, "compute": {"engine": engine}}).key

    try:
        assert key("2.13.0") == key("2.13.0+cpu") != key("2.12.0")
        assert key("2.13.0", vllm="0.33.0") == key("2.13.0")
        assert key("2.13.0", "0.33.0", "vllm") != key("2.13.0", "0.32.0", "vllm")
    finally:
        provenance.computing_versions.cache_clear()


def test_upstream_change_reaches_every_downstream_key():
    def last(seed):
        base = Stage("base", WALK, {"seed": seed})
        sft = Stage("sft", WALK, {"a": 1}, {"base": base})
        return Stage("rl", WALK, {"a": 1}, {"policy": sft})

    assert last(0).key == last(0).key != last(1).key


def test_key_is_the_same_in_another_process():
    stage = Stage("rl", WALK, {"z": 1, "a": "é"}, {"base": Stage("base", WALK, {"s": 0.1})})
    code = (
        f"import sys; sys.path[:0] = {[str(Path(__file__).parent), *sys.path]!r}\n"
        "from klearlib.run.stage import Stage\n"
        f"base = Stage('base', {WALK!r}, {{'s': 0.1}})\n"
        f"print(Stage('rl', {WALK!r}, {{'a': 'é', 'z': 1}}, {{'base': base}}).key)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.stdout.strip() == stage.key, answer.stderr


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"rate": float("nan")}, "not JSON compliant"),
        ({"a": [1.0, float("inf")]}, "not JSON compliant"),
        ({"path": Path("x")}, "of type PosixPath"),
    ],
)
def test_params_that_json_cannot_hold(params, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Stage("rl", WALK, params)


def test_params_are_a_copy():
    params = {"rules": ["gppo"]}
    stage = Stage("rl", WALK, params)
    key = stage.key
    params["rules"].append("cispo")
    assert stage.params == {"rules": ["gppo"]}
    assert stage.key == key


def test_states(tmp_path):
    stage = Stage("rl", WALK, {"seed": 0})
    assert folder_state(stage.folder(tmp_path)) == "absent"
    assert not is_done(stage, tmp_path)
    folder = RunFolder(stage.folder(tmp_path))
    folder.save_checkpoint({"x": 1}, 1)
    assert folder_state(stage.folder(tmp_path)) == "partial"
    with open(folder.path / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert folder_state(stage.folder(tmp_path)) == "running"
    assert folder_state(stage.folder(tmp_path)) == "partial"
    folder.finish()
    assert folder_state(stage.folder(tmp_path)) == "done"
    assert is_done(stage, tmp_path)


def test_is_done_sees_a_file_of_another_size(tmp_path):
    stage = Stage("rl", WALK, {"seed": 0})
    folder = RunFolder(stage.folder(tmp_path))
    (folder.path / "policy").mkdir()
    (folder.path / "policy" / "weights").write_bytes(b"abc")
    folder.finish()
    (folder.path / "policy" / "weights").write_bytes(b"ab")
    with pytest.raises(DamagedEntry) as caught:
        is_done(stage, tmp_path)
    assert str(caught.value) == (
        f"{folder.path}/policy/weights has 2 bytes, not the 3 written: "
        f"delete the folder {folder.path}, then run again"
    )


def test_stages_are_looked_up_without_reading_their_files(tmp_path, monkeypatch):
    base = Stage("base", WALK, {"seed": 0})
    stages = [Stage("rl", WALK, {"seed": seed}, {"base": base}) for seed in range(30)]
    for stage in stages:
        folder = RunFolder(stage.folder(tmp_path))
        folder.path.joinpath("end.json").write_text("1")
        written = {"end.json": {"bytes": 1, "sha256": ""}}
        done = {"files": written, "provenance": {"utc": ""}, "seconds": 1.0}
        (folder.path / "done.json").write_text(json.dumps(done))
    monkeypatch.setattr(entry, "sha256_file", None)
    assert all(is_done(stage, tmp_path) for stage in stages)


def test_a_process_keeps_the_keys_of_the_code_that_it_first_read(tmp_path, monkeypatch):
    """Else it would look for the results of code that it has not loaded."""
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "edited_stages.py"
    file.write_text("def run(folder, inputs): return 1")
    key = Stage("walk", "edited_stages:run", {}).key
    file.write_text("def run(folder, inputs): return 2")
    assert Stage("walk", "edited_stages:run", {}).key == key
