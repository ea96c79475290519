"""The forked workers: each is what a new process would be, and none is left."""

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from killing import alive, parent, wait_until
from tiny_world import TINY_MODEL, TINY_WORLD

from klearlib.experiments import experiment
from klearlib.policy.compute import local_compute
from klearlib.run import forkserver, preload, progress
from klearlib.run.folder import RunFolder
from klearlib.run.pool import run_stages
from klearlib.run.preload import ForkedWorker, NewProcess, start_worker, worker_environment
from klearlib.run.progress import Progress
from klearlib.run.stage import Stage, folder_state, is_done

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks with torch are for Linux")
PRELOAD = preload.preload
WALK = Stage("walk", "toy_stages:walk", {"seed": 0, "num_steps": 2, "every": 1000})


def _run(stages, runs_dir, monkeypatch, *, forks, **options):
    monkeypatch.setattr(preload, "preload", PRELOAD if forks else lambda **_: None)
    run_stages(stages, runs_dir=runs_dir, progress=Progress(io.StringIO()), **options)


def _digests(folder):
    """Of all that may not differ between two runs."""
    varying = ("done.json", "log.txt", "progress.json", "timings.jsonl")
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.rglob("*")
        if file.is_file() and file.name not in varying
    }


def _log(stage, runs_dir):
    return (stage.folder(runs_dir) / "log.txt").read_text()


def test_same_bytes_as_a_new_process(tmp_path, monkeypatch):
    """Weights, metrics and whatever else a process could hand to a stage without being asked."""
    world = Stage("world", "klearlib.miniature.world:build", TINY_WORLD)
    base = {"seed": 0, "num_steps": 4, "batch_size": 8, "learning_rate": 6e-3, **TINY_MODEL}
    base["compute"] = asdict(local_compute())
    stages = [
        Stage("base", "klearlib.miniature.base:pretrain", base, {"world": world}),
        Stage("seen", "toy_stages:surroundings", {}),
    ]
    again = Stage("seen", "toy_stages:surroundings", {"again": True})
    # A relative entry would differ in the new folder.
    monkeypatch.setattr(sys, "path", [each for each in sys.path if os.path.isabs(each)])
    monkeypatch.chdir(tmp_path)
    _run([*stages, again], tmp_path / "forked", monkeypatch, forks=True)
    _run(stages, tmp_path / "plain", monkeypatch, forks=False)

    plain, *forked = (
        json.loads((stage.folder(tmp_path / how) / "seen.json").read_text())
        for stage, how in ((stages[1], "plain"), (stages[1], "forked"), (again, "forked"))
    )
    for each in forked:
        assert each["equal"] == plain["equal"]
        assert parent(each["parent"]) == plain["parent"] == os.getpid()
    for name in plain["fresh"]:
        assert len({each["fresh"][name] for each in (plain, *forked)}) == 3
    assert _log(again, tmp_path / "forked") == ""
    for stage in (world, stages[0]):
        digests = [_digests(stage.folder(tmp_path / how)) for how in ("forked", "plain")]
        assert digests[0] == digests[1]
    assert (stages[0].folder(tmp_path / "forked") / "model" / "model.safetensors").is_file()


def test_another_environment_is_a_new_process(tmp_path, monkeypatch):
    assert preload.preload()  # with the environment as it is
    with open(tmp_path / "log", "ab") as log:
        for name, kind in {
            "KLEAR_ANY": ForkedWorker,
            "TORCHINDUCTOR_CACHE_DIR": ForkedWorker,  # importing transformers sets it
            "HF_HUB_OFFLINE": NewProcess,
        }.items():
            environment = worker_environment() | {name: "1 today"}
            worker = start_worker(tmp_path / "spec.json", log, environment)
            assert type(worker) is kind
            assert wait_until(lambda worker=worker: worker.poll() is not None)


@pytest.mark.parametrize(
    ("tasks", "maps", "can"),
    [(1, "", True), (2, "", False), (1, "7f00 r-xp /usr/lib/libcuda.so.1", False)],
)
def test_imports_with_threads_or_cuda_cannot_be_forked(monkeypatch, tasks, maps, can):
    monkeypatch.setattr(os, "listdir", lambda folder: ["1"] * tasks)
    monkeypatch.setattr(Path, "read_text", lambda file, **_: maps)
    assert forkserver._can_be_forked() == can


def test_the_server_knows_nothing_of_this_library():
    """A kernel lives for days, and the code may change meanwhile."""
    assert not any(name.startswith("klearlib") for name in preload.PRELOADED)


# A process with a fork server of its own, whose imports take as long as the test says.
SCRIPT = """
import os, signal, sys, threading, time
sys.path[:0] = {path!r}
from klearlib.run import pool, preload, progress
from klearlib.run.stage import Stage
preload.PRELOADED = {modules!r}
preload.preload()
server = preload._servers[0].process.pid
print(server, flush=True)
stage = Stage({name!r}, {target!r}, {params!r})
{then}
pool.run_stages([stage], runs_dir={runs!r})
"""
SLOW = "slow_to_import"


def _script(stage, tmp_path, then="", modules=(), import_s=2):
    (tmp_path / f"{SLOW}.py").write_text(f"import time; time.sleep({import_s})")
    paths = [str(tmp_path), str(Path(__file__).parent), *sys.path]
    code = SCRIPT.format(
        path=paths,
        modules=tuple(modules),
        name=stage.name,
        target=stage.target,
        params=stage.params,
        then=then,
        runs=str(tmp_path / "runs"),
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def test_server_killed_during_a_stage_and_started_again(tmp_path):
    file = tmp_path / "pids"
    stage = Stage("s", "toy_stages:sleep_with_child", {"file": str(file)}, label="sleeper")
    kills = f"""
def kill():
    while not os.path.exists({str(file)!r}):
        time.sleep(0.02)
    os.kill(server, signal.SIGKILL)
threading.Thread(target=kill).start()
try:
    pool.run_stages([stage], runs_dir={str(tmp_path / "runs")!r})
except Exception as error:
    print(error, flush=True)
stage = Stage("seen", "toy_stages:kill_nobody", {{}})
"""
    printed, told = _script(stage, tmp_path, kills).communicate(timeout=60)
    assert f"s (s/{stage.key}) was killed by SIGKILL (often" in printed
    assert "module 'toy_stages' has no attribute 'kill_nobody'" in told
    pids = [int(pid) for pid in file.read_text().split()]
    assert wait_until(lambda: not any(alive(pid) for pid in pids), 5.0)
    assert "not forked" not in next((tmp_path / "runs").glob("seen/*/log.txt")).read_text()


def test_server_killed_before_it_was_ready(tmp_path):
    then = "threading.Timer(0.5, os.kill, (server, signal.SIGKILL)).start()"
    script = _script(WALK, tmp_path, then, modules=[SLOW])
    _, told = script.communicate(timeout=60)
    assert script.returncode == 0, told
    assert is_done(WALK, tmp_path / "runs")


def test_a_module_that_is_not_there_costs_nothing(tmp_path):
    script = _script(WALK, tmp_path, modules=["torch_of_nobody"])
    _, told = script.communicate(timeout=60)
    assert script.returncode == 0 and "torch_of_nobody" not in told
    assert _log(WALK, tmp_path / "runs").endswith("starts at step 0\n")


@pytest.mark.parametrize(
    ("number", "import_s"),
    [
        (signal.SIGINT, 600),  # ended in the middle of its imports
        (signal.SIGKILL, 2),  # ends by itself when it has imported
    ],
)
def test_a_stop_before_the_imports_are_done_leaves_no_process(tmp_path, number, import_s):
    script = _script(WALK, tmp_path, modules=[SLOW], import_s=import_s)
    server = int(script.stdout.readline())
    assert alive(server)
    script.send_signal(number)
    script.communicate(timeout=20)
    assert script.returncode != 0
    assert wait_until(lambda: not alive(server), 30.0)
    assert folder_state(WALK.folder(tmp_path / "runs")) == "absent"


def test_exit_codes_and_signals_of_a_fork(tmp_path):
    with open(tmp_path / "log.txt", "ab") as log:
        spec = tmp_path / "spec.json"
        worker = start_worker(spec, log, worker_environment())
        assert isinstance(worker, ForkedWorker)
        assert wait_until(lambda: worker.poll() is not None, 60.0)
        assert worker.poll() == 1  # there is no such file
        worker.terminate()
        worker.kill_group()
        assert worker.returncode == 1
    assert "No such file" in (tmp_path / "log.txt").read_text()


def test_where_nothing_can_be_forked(tmp_path, monkeypatch):
    with open(tmp_path / "log.txt", "ab") as log:
        monkeypatch.setattr(sys, "platform", "darwin")
        assert not preload.preload()
        worker = start_worker(tmp_path / "s", log, worker_environment())
    assert isinstance(worker, NewProcess)
    assert worker.wait() == 1


def test_a_notebook_that_shows_its_plan_starts_the_imports(tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "runs_dir", lambda: tmp_path)
    asked = []
    monkeypatch.setattr(preload, "preload", lambda: asked.append(1))
    done = Stage("world", "klearlib.errors:KlearError", {})
    stage = Stage("rl", "klearlib.errors:KlearError", {}, {"world": done})
    planned = type("Planned", (experiment.Experiment,), {"stages": lambda _: [stage]})(None)
    RunFolder(done.folder(tmp_path)).finish()
    planned.plan()
    assert asked == []
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    table = planned.plan()
    assert asked == [1]
    assert list(table["state"]) == ["done", "absent"]
