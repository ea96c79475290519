"""Stages on a real Ray: the files of processes of this machine, a lost node, stops, nothing left.
One small cluster here serves most tests: a head and two nodes of one core each."""

import functools
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import ray
from killing import alive, parent
from killing import wait_until as _wait_until
from ray.cluster_utils import Cluster

from klearlib.errors import KlearError, StageFailed
from klearlib.run.entry import read_metrics
from klearlib.run.pool import run_stages
from klearlib.run.progress import Progress
from klearlib.run.stage import Stage, folder_state, is_done
from klearlib.scale import ray_cluster, ray_places

# The first process of a node takes many seconds to start where others use this machine's cores.
pytestmark = pytest.mark.timeout(900)
wait_until = functools.partial(_wait_until, timeout_s=240.0)
HERE = Path(__file__).parent
STAGES = str(HERE.parent / "run")  # toy_stages


@pytest.fixture(scope="module")
def cluster():
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    head = {"num_cpus": 0, "ray_client_server_port": port}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    cluster.client = f"ray://127.0.0.1:{port}"
    cluster.nodes = [cluster.add_node(num_cpus=1, wait=False) for _ in range(2)]
    cluster.wait_for_nodes()
    yield cluster
    cluster.shutdown()


@pytest.fixture
def joined(cluster, monkeypatch):
    """RAY_ADDRESS names the cluster."""
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    monkeypatch.syspath_prepend(STAGES)
    return cluster


@pytest.fixture(scope="module")
def connection(cluster):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", cluster.address)
        with ray_cluster.connected():
            yield


@pytest.fixture
def kept(joined, connection):
    """This process is connected to it, for all tests that do not connect by themselves."""
    return joined


def _walk(seed, num_steps=4, *, step_s=0.0, every=1000, **fields):
    params = {"seed": seed, "num_steps": num_steps, "step_s": step_s, "every": every}
    if fields.get("inputs"):
        params["start_from"] = next(iter(fields["inputs"]))
    return Stage("walk", "toy_stages:walk", params, **fields)


def _run(stages, runs_dir, *, workers="ray", **options):
    """The lines of progress that it showed."""
    stream = io.StringIO()
    run_stages(
        stages,
        runs_dir=runs_dir,
        workers=workers,
        progress=Progress(stream),
        **options,
    )
    return [line[9:] for line in stream.getvalue().splitlines()]  # without the time of day


def _log(stage, runs_dir):
    return (stage.folder(runs_dir) / "log.txt").read_text()


def _process(stage, runs_dir):
    """The process that runs a walk."""
    return read_metrics(stage.folder(runs_dir))[-1]["time/process"]


def _same_files(stages, one, other):
    for stage in stages:
        for name in ("metrics.jsonl", "end.json", "spec.json"):
            first, second = (stage.folder(runs) / name for runs in (one, other))
            assert first.read_bytes() == second.read_bytes()


SCRIPT = """
import sys
sys.path[:0] = {path!r}
from klearlib.run.pool import run_stages
from klearlib.run.stage import Stage
run_stages([Stage(*{stage!r})], runs_dir={runs!r}, workers="ray")
"""


def _caller(stage, runs_dir):
    """A process of its own that runs `stage`."""
    fields = (stage.name, stage.target, stage.params)
    code = SCRIPT.format(path=[STAGES, *sys.path], stage=fields, runs=str(runs_dir))
    return subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.DEVNULL, start_new_session=True
    )


def test_the_same_files_as_the_process_pool_in_the_same_places(joined, tmp_path, monkeypatch):
    monkeypatch.setenv("A_WORD", "of the caller")
    base = Stage("base", "toy_stages:walk", {"seed": 9, "num_steps": 2})
    arms = [_walk(seed, label=f"seed {seed}", inputs={"base": base}) for seed in (0, 1)]
    seen = Stage("seen", "toy_stages:surroundings", {})
    stages = [*arms, seen]
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    finished = []
    lines = _run(stages, tmp_path / "ray", on_done=lambda stage: finished.append(stage.title))
    assert {number: signal.getsignal(number) for number in handlers} == handlers
    assert sorted(finished) == ["base", "seed 0", "seed 1", "seen"]
    assert lines[-1].startswith("4 of 4 stages done, ")
    assert not ray.is_initialized()
    monkeypatch.setattr("klearlib.run.preload.preload", lambda **_: None)
    _run(stages, tmp_path / "here", workers=2)
    _same_files([base, *arms], tmp_path / "ray", tmp_path / "here")
    there, here = (
        json.loads((seen.folder(runs) / "seen.json").read_text())["equal"]
        for runs in (tmp_path / "ray", tmp_path / "here")
    )
    for name in ("mask", "umask"):  # Ray's own
        del there[name], here[name]
    assert there == here

    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")  # what is done needs no cluster
    assert _run(stages, tmp_path / "ray") == ["3 of 3 stages done (cached)"]


def test_a_client_of_the_cluster(joined, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", joined.client)
    stages = [_walk(0), Stage("f", "toy_stages:fail", {"how": "asset"}, {"first": _walk(0)})]
    join, joins = ray.init, []

    def dies_once(*args, **given):
        joins.append(args)
        if len(joins) == 1:
            raise RuntimeError("Starting Ray client server failed.")
        return join(*args, **given)

    monkeypatch.setattr(ray, "init", dies_once)
    with pytest.raises(StageFailed, match="no model toy-8b: download it, then run again"):
        _run(stages, tmp_path)
    assert is_done(stages[0], tmp_path) and len(joins) > 1


def test_a_cluster_that_does_not_answer(monkeypatch, tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        for named in (address, f"ray://{address}"):
            monkeypatch.setenv("RAY_ADDRESS", named)
            with pytest.raises(KlearError, match=f"^the Ray cluster at {named} does not answer"):
                _run([_walk(0)], tmp_path)


def test_a_stage_that_asks_the_cluster_for_gpus_finds_it(kept, tmp_path):
    names = ["RAY_ADDRESS", "CUDA_VISIBLE_DEVICES"]
    stage = Stage("e", "toy_stages:environment", {"names": names, "cluster": {}})
    _run([stage], tmp_path)
    seen = json.loads((stage.folder(tmp_path) / "environment.json").read_text())
    assert seen["RAY_ADDRESS"] == kept.address


def test_a_folder_that_a_node_does_not_see_is_named(kept, tmp_path, monkeypatch):
    known = ray_places.run_stage

    def elsewhere(spec_file, log, *rest):
        return known(spec_file, f"/nowhere{log}", *rest)

    monkeypatch.setattr(ray_places, "run_stage", elsewhere)
    with pytest.raises(StageFailed, match=r"No such file .*/nowhere/.*at the same paths") as caught:
        _run([_walk(0)], tmp_path)
    assert "\n" not in str(caught.value)


def test_what_is_lost_again_and_again(kept, tmp_path, monkeypatch):
    monkeypatch.setattr(ray_places, "MAX_LOST", 1)
    stage = Stage("f", "toy_stages:kill_parent", {}, label="arm 1")
    with pytest.raises(StageFailed) as caught:
        _run([stage], tmp_path)
    assert str(caught.value).startswith(f"arm 1 (f/{stage.key}) failed: the Ray cluster at ")
    assert "\n" not in str(caught.value)
    assert _log(stage, tmp_path).count(", by Ray\n") == 2


def test_a_stage_that_is_killed_on_a_sound_node_is_not_started_again(kept, tmp_path):
    stage = Stage("f", "toy_stages:fail", {"how": "kill"})
    with pytest.raises(StageFailed, match=r"^f .* was killed by SIGKILL .*: running again starts"):
        _run([stage], tmp_path)
    assert _log(stage, tmp_path).count("\n") == 1


def test_ctrl_c_saves_the_state_and_leaves_nothing(kept, tmp_path):
    stage = _walk(0, 200, step_s=0.05)
    caller = _caller(stage, tmp_path)
    assert wait_until(lambda: len(read_metrics(stage.folder(tmp_path))) > 5)
    worker = _process(stage, tmp_path)
    caller.send_signal(signal.SIGINT)
    assert caller.wait(60) != 0
    assert not alive(worker)
    assert folder_state(stage.folder(tmp_path)) == "partial"
    num_saved = json.loads((stage.folder(tmp_path) / "checkpoint.json").read_text())["step"]
    assert num_saved == len(read_metrics(stage.folder(tmp_path)))
    _run([stage], tmp_path)
    assert f"starts at step {num_saved}" in _log(stage, tmp_path)


def test_a_worker_that_does_not_stop_is_killed_with_its_children(kept, tmp_path, monkeypatch):
    monkeypatch.setenv("KLEAR_STOP_GRACE_S", "0.5")
    file = tmp_path / "pids"

    def interrupt(stage):
        assert wait_until(file.exists)
        raise KeyboardInterrupt

    stages = [Stage("s", "toy_stages:sleep_with_child", {"file": str(file)}), _walk(0, 1)]
    with pytest.raises(KeyboardInterrupt):
        _run(stages, tmp_path, on_done=interrupt)
    pids = [int(pid) for pid in file.read_text().split()]
    assert wait_until(lambda: not any(alive(pid) for pid in pids))


@pytest.mark.parametrize("own", [False, True], ids=["a cluster", "a Ray of its own"])
def test_a_killed_caller_leaves_no_process(joined, tmp_path, monkeypatch, own):
    if own:
        monkeypatch.delenv("RAY_ADDRESS")
    file = tmp_path / "pids"
    caller = _caller(Stage("s", "toy_stages:sleep_with_child", {"file": str(file)}), tmp_path)
    assert wait_until(file.exists)
    pids = [int(pid) for pid in file.read_text().split()]
    task = parent(pids[0])
    rays = [pid for pid in _processes() if _parent_or_0(pid) == caller.pid]
    assert bool(rays) == own
    assert all(alive(pid) for pid in [*pids, task])
    caller.kill()
    caller.wait()
    assert wait_until(lambda: not any(alive(pid) for pid in [*pids, task, *rays]))


def _processes():
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _parent_or_0(pid):
    try:
        return parent(pid)
    except (FileNotFoundError, ProcessLookupError):
        return 0


def test_a_lost_node_is_another_start_on_the_other(kept, tmp_path):
    """The run goes on from a checkpoint. The last test but one, as the cluster has one node less
    after it."""
    stage = _walk(0, 80, step_s=0.1, every=4)

    def lose_its_node():
        assert wait_until(lambda: len(read_metrics(stage.folder(tmp_path))) > 5)
        raylet = parent(parent(_process(stage, tmp_path)))
        (node,) = (each for each in kept.nodes if _raylet(each) == raylet)
        kept.remove_node(node, allow_graceful=False)

    thread = threading.Thread(target=lose_its_node)
    thread.start()
    _run([stage], tmp_path)
    thread.join()
    log = _log(stage, tmp_path)
    assert log.count(", by Ray\n") == 2
    first, again = map(int, re.findall(r"starts at step (\d+)", log))
    assert first == 0 < again and again % 4 == 0
    processes = {line["time/process"] for line in read_metrics(stage.folder(tmp_path))}
    assert len(processes) == 2 and not any(map(alive, processes))
    _run([stage], tmp_path / "whole", workers=1)
    _same_files([stage], tmp_path, tmp_path / "whole")


def test_a_gpu_each(cluster, tmp_path, monkeypatch):
    """After which the cluster has GPUs, of which Ray alone knows."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    cluster.add_node(num_cpus=1, num_gpus=2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    monkeypatch.syspath_prepend(STAGES)
    params = {"names": ["CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"]}
    stages = [Stage(f"e{i}", "toy_stages:environment", params) for i in range(2)]
    _run(stages, tmp_path)
    seen = [json.loads((s.folder(tmp_path) / "environment.json").read_text()) for s in stages]
    assert {each["CUDA_VISIBLE_DEVICES"] for each in seen} <= {"5", "7"}
    assert {each["OMP_NUM_THREADS"] for each in seen} == {"1"}


def _raylet(node):
    return node.all_processes["raylet"][0].process.pid
