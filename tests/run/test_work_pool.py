"""Stages in real workers: order, cache, failures, stops, and that no process is left."""

import io
import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from killing import alive, parent, wait_until

from klearlib.errors import DamagedEntry, KlearError, ParameterError, StageFailed
from klearlib.run import job, pool, preload, provenance
from klearlib.run.entry import read_metrics
from klearlib.run.folder import RunFolder
from klearlib.run.pool import run_stages
from klearlib.run.progress import Progress
from klearlib.run.stage import Stage, folder_state, is_done

PRELOAD = preload.preload


@pytest.fixture(autouse=True)
def forks_only_where_asked(monkeypatch):
    monkeypatch.setattr(preload, "preload", lambda **_: None)


@pytest.fixture(params=["a new process", "a fork"])
def worker_is(request, monkeypatch, forks_only_where_asked):
    """A test that takes it runs with both kinds of worker."""
    if request.param == "a fork":
        if sys.platform != "linux":
            pytest.skip("forks of a process that has torch are for Linux")
        monkeypatch.setattr(preload, "PRELOADED", ("torch",))
        monkeypatch.setattr(preload, "preload", PRELOAD)
    return request.param


def _walk(seed, num_steps=4, step_s=0.0, **fields):
    params = {"seed": seed, "num_steps": num_steps, "every": 1000}
    if fields.get("inputs"):
        params["start_from"] = next(iter(fields["inputs"]))
    # How long a step takes is no part of the key: what was stopped slow goes on fast.
    return Stage("walk", "toy_stages:walk", params, placing={"step_s": step_s}, **fields)


def _run(stages, runs_dir, **options):
    """The lines of progress that it showed."""
    stream = io.StringIO()
    run_stages(stages, runs_dir=runs_dir, progress=Progress(stream), **options)
    return [line[9:] for line in stream.getvalue().splitlines()]  # without the time of day


def test_upstream_first_then_in_order_and_never_twice(tmp_path, worker_is):
    base = Stage("base", "toy_stages:walk", {"seed": 9, "num_steps": 2})
    stages = [_walk(seed, 2, label=f"seed {seed}", inputs={"base": base}) for seed in (1, 0)]
    finished = []
    lines = _run(stages, tmp_path, workers=1, on_done=lambda s: finished.append(s.title))
    assert finished == ["base", "seed 1", "seed 0"]
    assert lines[0].startswith("0 of 3 stages done")
    assert lines[-1].startswith("3 of 3 stages done, ")
    starts = [json.loads((s.folder(tmp_path) / "end.json").read_text()) for s in stages]
    assert starts[0] != starts[1]
    first = read_metrics(stages[0].folder(tmp_path))[0]["walk/position"]
    end_of_base = json.loads((base.folder(tmp_path) / "end.json").read_text())
    assert first == 0.9 * end_of_base + random.Random(1).gauss(0.0, 1.0)

    finished.clear()
    again = _run([*stages, *stages], tmp_path, on_done=lambda s: finished.append(s.title))
    assert finished == []
    assert again == ["2 of 2 stages done (cached)"]


def test_environment_of_a_worker(tmp_path, monkeypatch, worker_is):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    names = ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "TOKENIZERS_PARALLELISM", "PYTHONHASHSEED"]
    names += ["HF_HUB_OFFLINE", "CUDA_VISIBLE_DEVICES"]
    stages = [
        Stage(f"e{i}", "toy_stages:environment", {"names": names}, estimate_s=i) for i in range(2)
    ]
    _run(stages, tmp_path)
    seen = [json.loads((s.folder(tmp_path) / "environment.json").read_text()) for s in stages]
    assert [list(values.values()) for values in seen] == [
        ["1", "1", "false", "0", None, device] for device in ("3", "5")
    ]


def test_a_stage_that_asks_for_gpus_by_itself_is_given_none_and_runs_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    names = {"names": ["CUDA_VISIBLE_DEVICES"]}
    spans = Stage("e", "toy_stages:environment", {**names, "cluster": {}})
    crowd = {"place": str(tmp_path / "crowd")}
    (tmp_path / "crowd").mkdir()
    stages = [
        Stage("c", "toy_stages:crowd", crowd | ({"cluster": i} if i % 2 else {"seed": i}))
        for i in range(4)
    ]
    _run([spans, *stages], tmp_path, workers=3)
    seen = json.loads((spans.folder(tmp_path) / "environment.json").read_text())
    assert seen == {"CUDA_VISIBLE_DEVICES": "3,5"}
    most = [json.loads((s.folder(tmp_path) / "seen.json").read_text()) for s in stages]
    assert most[1] == most[3] == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_places_are_never_exceeded(tmp_path, workers):
    place = tmp_path / "crowd"
    place.mkdir()
    stages = [Stage(f"s{i}", "toy_stages:crowd", {"place": str(place)}) for i in range(4)]
    _run(stages, tmp_path, workers=workers)
    seen = [json.loads((s.folder(tmp_path) / "seen.json").read_text()) for s in stages]
    assert max(seen) == workers


def test_gpus_to_share_out(monkeypatch):
    monkeypatch.setattr(provenance, "gpu_names", lambda: ("H", "H"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert provenance.gpus() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert provenance.gpus() == []


@pytest.mark.parametrize("workers", [-1, 1.0, True, "2", "rays"])
def test_bad_workers(tmp_path, workers):
    with pytest.raises(ParameterError, match="workers is"):
        _run([_walk(0)], tmp_path, workers=workers)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("asset", r"^arm 1 \(f/\w+\) failed: no model toy-8b: download it, then run again \(log: "),
        ("kill", r"^arm 1 .* was killed by SIGKILL .*: running again starts it over \(log: "),
        ("crash", r"^arm 1 .* was killed by SIGSEGV: running again starts it over \(log: "),
        ("full disk", r"^arm 1 .* failed: no space left for .*weights: free some disk space"),
        ("value", r"^arm 1 .* failed: ValueError: eps_low is 2: give less than 1 \(log: .*\)$"),
        ("bug", r"^arm 1 .* failed: RuntimeError: the toy broke \(log: .*\)$"),
        ("exit", r"(?s)^arm 1 .* failed: exit code 7; its last lines:\n  its last word \(log: "),
    ],
)
def test_failure_of_an_upstream_stage_names_it(tmp_path, worker_is, how, message):
    failing = Stage("f", "toy_stages:fail", {"how": how}, label="arm 1")
    with pytest.raises(StageFailed, match=message) as caught:
        _run([_walk(0, inputs={"base": failing})], tmp_path)
    assert how == "exit" or "\n" not in str(caught.value)
    assert folder_state(failing.folder(tmp_path)) == "absent"
    log = (failing.folder(tmp_path) / "log.txt").read_text()
    assert ("Traceback" in log) == (how in ("value", "bug"))


def test_failure_stops_the_others_with_their_state_saved(tmp_path, worker_is):
    long = _walk(0, 10_000, step_s=0.01)
    failing = Stage("f", "toy_stages:fail", {"how": "bug"}, {"first": _walk(1, 40, step_s=0.05)})
    with pytest.raises(StageFailed):
        _run([long, failing], tmp_path, workers=2)
    assert folder_state(long.folder(tmp_path)) == "partial"


def test_missing_function_and_changed_code(tmp_path, monkeypatch):
    with pytest.raises(StageFailed, match="module 'toy_stages' has no attribute 'wlak'"):
        _run([Stage("walk", "toy_stages:wlak", {})], tmp_path)
    monkeypatch.setattr(Stage, "code", "of yesterday")
    with pytest.raises(StageFailed, match="the code of toy_stages changed since"):
        _run([_walk(0)], tmp_path)


def _with_weights(tmp_path):
    """A stage, its finished upstream stage with two flipped bytes in its weights, and the line."""
    base = Stage("base", "toy_stages:walk", {"seed": 0, "num_steps": 1})
    folder = RunFolder(base.folder(tmp_path))
    weights = folder.path / "model.safetensors"
    weights.write_bytes(bytes(1_760_000))
    folder.finish()
    content = bytearray(weights.read_bytes())
    content[1_000_000:1_000_002] = b"ab"
    weights.write_bytes(content)
    fix = f"delete the folder {folder.path}, then run again"
    stage = Stage("walk", "toy_stages:walk", {"seed": 1, "num_steps": 1}, {"base": base})
    return stage, f"{weights} has other content than was written: {fix}"


def test_damaged_weights_stop_the_plan(tmp_path):
    stage, line = _with_weights(tmp_path)
    with pytest.raises(DamagedEntry) as caught:
        _run([stage], tmp_path)
    assert str(caught.value) == line
    assert not stage.folder(tmp_path).exists()


def test_worker_reads_weights_of_any_size(tmp_path, monkeypatch):
    stage, line = _with_weights(tmp_path)
    # As if they were larger than what a plan reads.
    monkeypatch.setattr(pool, "verify_entry", lambda folder: None)
    with pytest.raises(StageFailed) as caught:
        _run([stage], tmp_path)
    log = stage.folder(tmp_path) / "log.txt"
    assert str(caught.value) == f"walk (walk/{stage.key}) failed: {line} (log: {log})"
    assert "starts at step" not in log.read_text()
    assert "Traceback" not in log.read_text()


def test_only_what_is_missing_runs(tmp_path):
    base = Stage("base", "toy_stages:walk", {"seed": 0, "num_steps": 1, "every": 1000})
    stage = _walk(0, inputs={"base": base})
    _run([stage], tmp_path)
    (base.folder(tmp_path) / "done.json").unlink()
    finished = []
    _run([stage], tmp_path, on_done=finished.append)
    assert finished == []


def _in_a_thread(stages, runs_dir, **options):
    """A call beside that of the test; what it showed and raised is in the lists."""
    shown, raised = [], []

    def run():
        try:
            shown.extend(_run(stages, runs_dir, workers=2, **options))
        except StageFailed as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, shown, raised


def test_a_stage_that_runs_elsewhere_takes_no_place(tmp_path):
    """The first call's stage ends when a stage of the second has run, which has one place."""
    sign = tmp_path / "sign"
    waits = Stage("w", "toy_stages:wait_for", {"file": str(sign)}, label="the shared one")
    signs = Stage("t", "toy_stages:count_runs", {"file": str(sign), "sleep_s": 0.0})
    thread, _, _ = _in_a_thread([waits], tmp_path)
    assert wait_until(lambda: folder_state(waits.folder(tmp_path)) == "running")
    told = []
    lines = _run([waits, signs], tmp_path, workers=1, on_done=told.append)
    thread.join(20)
    assert {stage.name for stage in told} == {"w", "t"}  # done elsewhere is told like done here
    assert is_done(waits, tmp_path) and is_done(signs, tmp_path)
    assert "the shared one" in lines[1]
    assert lines[-1].startswith("2 of 2 stages done")


def test_what_failed_elsewhere_is_tried_here(tmp_path):
    stage = Stage("f", "toy_stages:fail_once", {"file": str(tmp_path / "failed")})
    calls = [_in_a_thread([stage], tmp_path) for _ in range(2)]
    for thread, _, _ in calls:
        thread.join(20)
        assert not thread.is_alive()
    assert sum(len(raised) for _, _, raised in calls) == 1
    assert is_done(stage, tmp_path)


def test_two_callers_run_a_stage_once(tmp_path):
    file = tmp_path / "runs.txt"
    stage = Stage("c", "toy_stages:count_runs", {"file": str(file), "sleep_s": 1.0})
    calls = [_in_a_thread([stage], tmp_path) for _ in range(2)]
    assert wait_until(lambda: folder_state(stage.folder(tmp_path)) == "running")
    for thread, _, _ in calls:
        thread.join(20)
    assert file.read_text() == "ran\n"
    assert is_done(stage, tmp_path)


SCRIPT = """
import sys
sys.path[:0] = {path!r}
import signal
from klearlib.run import pool, preload
from klearlib.run.stage import Stage
preload.PRELOADED = ()  # the imports of a stage that needs none
if not {forks}:
    preload.preload = lambda **_: None
def stop(*_):
    raise KeyboardInterrupt
if {stops}:
    signal.signal(signal.SIGTERM, stop)
pool.run_stages([Stage(*{stage!r})], runs_dir={runs!r})
"""


def _caller(stage, runs_dir, worker_is, *, stops=False):
    """A process of its own that runs `stage`."""
    path = [str(Path(__file__).parent), *sys.path]
    code = SCRIPT.format(
        path=path,
        stage=(stage.name, stage.target, stage.params, {}, "", 0.0, stage.placing),
        runs=str(runs_dir),
        forks=worker_is == "a fork",
        stops=stops,
    )
    command = [sys.executable, "-c", code]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)


def test_interrupt_saves_the_state_and_the_next_call_goes_on(tmp_path, worker_is):
    stage = _walk(0, 200)
    caller = _caller(_walk(0, 200, step_s=0.1), tmp_path, worker_is, stops=True)
    assert wait_until(lambda: len(read_metrics(stage.folder(tmp_path))) > 10)
    worker_pid = read_metrics(stage.folder(tmp_path))[0]["time/process"]
    assert (parent(worker_pid) == caller.pid) == (worker_is != "a fork")
    # The whole group: a terminal does so, and so do batch systems and `timeout`.
    os.killpg(caller.pid, signal.SIGTERM if worker_is == "a fork" else signal.SIGINT)
    assert caller.wait(20) != 0
    assert not alive(worker_pid)
    assert folder_state(stage.folder(tmp_path)) == "partial"
    num_saved = json.loads((stage.folder(tmp_path) / "checkpoint.json").read_text())["step"]
    assert num_saved == len(read_metrics(stage.folder(tmp_path)))

    _run([stage], tmp_path)
    log = (stage.folder(tmp_path) / "log.txt").read_text()
    assert f"starts at step {num_saved}" in log
    _run([stage], tmp_path / "whole")
    for name in ("metrics.jsonl", "end.json"):
        resumed, whole = (stage.folder(runs) / name for runs in (tmp_path, tmp_path / "whole"))
        assert resumed.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_killed_caller_leaves_no_process(tmp_path, number, worker_is):
    file = tmp_path / "pids"
    stage = Stage("s", "toy_stages:sleep_with_child", {"file": str(file)})
    caller = _caller(stage, tmp_path, worker_is)
    assert wait_until(file.exists)
    pids = [int(pid) for pid in file.read_text().split()]
    if worker_is == "a fork":
        pids.append(parent(pids[0]))  # the server
    assert all(alive(pid) for pid in pids)
    caller.send_signal(number)
    caller.wait()
    assert wait_until(lambda: not any(alive(pid) for pid in pids), 5.0)


def test_worker_that_does_not_stop_is_killed_with_its_children(tmp_path, monkeypatch, worker_is):
    monkeypatch.setenv("KLEAR_STOP_GRACE_S", "0.5")
    file = tmp_path / "pids"

    def interrupt(stage):
        assert wait_until(file.exists)
        raise KeyboardInterrupt

    stages = [_walk(0, 1), Stage("s", "toy_stages:sleep_with_child", {"file": str(file)})]
    with pytest.raises(KeyboardInterrupt):
        _run(stages, tmp_path, workers=2, on_done=interrupt)
    pids = [int(pid) for pid in file.read_text().split()]
    assert wait_until(lambda: not any(alive(pid) for pid in pids), 5.0)
    assert is_done(stages[0], tmp_path)


def test_the_time_to_stop_is_that_of_the_environment(tmp_path, monkeypatch):
    assert job.stop_grace_s() == 60.0
    monkeypatch.setenv("KLEAR_STOP_GRACE_S", "840")
    assert job.stop_grace_s() == 840.0
    for wrong in ("soon", "0", "-1", "inf", "nan"):
        monkeypatch.setenv("KLEAR_STOP_GRACE_S", wrong)
        with pytest.raises(ParameterError, match=f"KLEAR_STOP_GRACE_S is '{wrong}': give seconds"):
            _run([_walk(0, 1)], tmp_path)
    assert not (tmp_path / "walk").exists()  # said before anything starts


def test_children_of_a_killed_worker_die(tmp_path, worker_is):
    file = tmp_path / "pids"
    stage = Stage("s", "toy_stages:sleep_with_child", {"file": str(file)})
    caller = _caller(stage, tmp_path, worker_is)
    assert wait_until(file.exists)
    worker_pid, child = (int(pid) for pid in file.read_text().split())
    os.kill(worker_pid, signal.SIGKILL)
    assert caller.wait(10) == 1
    assert wait_until(lambda: not alive(child), 5.0)


def test_runs_folder_without_permission(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(KlearError, match=r"cannot write .*file") as caught:
        _run([_walk(0)], tmp_path / "file")
    assert "\n" not in str(caught.value)


def test_a_result_that_another_process_left_damaged_fails_its_stage(tmp_path):
    stage, other = _walk(0), _walk(1)

    def damage(_):
        RunFolder(stage.folder(tmp_path)).finish()
        done = stage.folder(tmp_path) / "done.json"
        done.write_text(done.read_text().replace('"files": {}', '"files": {"x": 1}'))

    stages = [other, _walk(2), stage]
    with pytest.raises(DamagedEntry):
        _run(stages, tmp_path, workers=1, on_done=damage)
