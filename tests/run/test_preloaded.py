"""The fork server: its workers are those that a new process would be, and it leaves nothing."""

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path

import pytest
from killing import alive, wait_until
from klearlib.run.fanout import run_stages
from klearlib.run.preloaded import ForkedWorker, Preloaded, preload, preload_ahead, take_preloaded
from tiny_world import TINY_MODEL, TINY_WORLD

import klearlib
from klearlib.errors import StageFailed
from klearlib.experiments import running
from klearlib.policy.compute import local_compute
from klearlib.run import fork_server, places, preloaded, shared_server
from klearlib.run.folder import RunFolder, read_metrics
from klearlib.run.progress import Progress
from klearlib.run.stage import Stage, is_done, state

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks with torch are for Linux")


def _run(stages, runs_dir, server, monkeypatch, **options):
    monkeypatch.setattr(places, "take_preloaded", lambda: server)
    monkeypatch.setattr(places, "preload", lambda stages: None)
    with open(os.devnull, "w") as stream:
        run_stages(stages, runs_dir=runs_dir, progress=Progress(stream), poll_s=0.05, **options)


def _digests(folder):
    """Of all that may not differ between two runs."""
    varying = ("done.json", "log.txt", "progress.json", "timings.jsonl")
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.rglob("*")
        if file.is_file() and file.name not in varying
    }


@pytest.fixture
def shared(monkeypatch):
    """The process that several fork servers are forks of; its number."""
    with shared_server.shared_server(preloaded.worker_environment()) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        (pid,) = (
            int(folder.name)
            for folder in Path("/proc").glob("[0-9]*")
            if alive(int(folder.name))
            and b"klearlib.run.shared_server" in (folder / "cmdline").read_bytes()
            and f"KLEAR_PARENT_PID={os.getpid()}".encode()
            in (folder / "environ").read_bytes().split(b"\0")
        )
        yield pid


@pytest.mark.parametrize("is_shared", [False, True], ids=["of its own", "shared"])
def test_same_bytes_as_a_new_process(tmp_path, monkeypatch, is_shared, request):
    """Weights, metrics and whatever else a process could hand to a stage without being asked."""
    world = Stage("world", "klearlib.miniature.world:build", TINY_WORLD)
    base = {"seed": 0, "num_steps": 4, "batch_size": 8, "learning_rate": 6e-3, **TINY_MODEL}
    base["compute"] = asdict(local_compute())
    stages = [
        Stage("base", "klearlib.miniature.base:pretrain", base, {"world": world}),
        Stage("seen", "toy_stages:surroundings", {}),
        Stage("seen", "toy_stages:surroundings", {"again": True}),
    ]
    # A relative entry would differ in the new folder, and nothing would be forked.
    monkeypatch.setattr(sys, "path", [each for each in sys.path if os.path.isabs(each)])
    if is_shared:
        request.getfixturevalue("shared")
    server = preload(stages)
    assert (server.pid is None) == is_shared
    monkeypatch.chdir(tmp_path)
    mask = os.umask(0o077)
    _run(stages, tmp_path / "forked", server, monkeypatch)
    _run(stages, tmp_path / "plain", None, monkeypatch)
    os.umask(mask)

    seen = []
    for stage in stages[1:]:
        forked, plain = (
            json.loads((stage.folder(tmp_path / how) / "seen.json").read_text())
            for how in ("forked", "plain")
        )
        assert forked["equal"] == plain["equal"]
        assert forked["parent"] != os.getpid()
        assert forked["parent"] == (server.pid or forked["parent"])
        assert plain["parent"] == os.getpid()
        seen += [forked["fresh"], plain["fresh"]]
    assert all(len({each[name] for each in seen}) == 4 for name in seen[0])
    for stage in (world, stages[0]):
        digests = [_digests(stage.folder(tmp_path / how)) for how in ("forked", "plain")]
        assert digests[0] == digests[1]
    assert (stages[0].folder(tmp_path / "forked") / "model" / "model.safetensors").is_file()
    assert not alive(server.pid)


def test_server_killed_during_a_stage(tmp_path, monkeypatch):
    file = tmp_path / "pids"
    stage = Stage("s", "toy_stages:sleep_with_child", {"file": str(file)}, label="sleeper")
    server = Preloaded(["toy_stages"])

    def kill():
        assert wait_until(file.exists)
        os.kill(server.pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(StageFailed, match=r"^sleeper .* was killed by SIGKILL"):
        _run([stage], tmp_path, server, monkeypatch)
    thread.join()
    pids = [int(pid) for pid in file.read_text().split()]
    assert wait_until(lambda: not any(alive(pid) for pid in pids), 5.0)


def test_server_killed_before_it_was_ready(tmp_path, monkeypatch):
    stage = Stage("walk", "toy_stages:walk", {"seed": 0, "num_steps": 2})
    server = Preloaded(["toy_stages"])
    os.kill(server.pid, signal.SIGKILL)
    _run([stage], tmp_path, server, monkeypatch)
    assert is_done(stage, tmp_path)


def test_failed_imports_cost_a_line_in_the_log(tmp_path, monkeypatch):
    stage = Stage("walk", "toy_stages:walk", {"seed": 0, "num_steps": 2})
    _run([stage], tmp_path, Preloaded(["klearlib.nowhere"]), monkeypatch)
    first = (stage.folder(tmp_path) / "log.txt").read_text().splitlines()[0]
    assert first == (
        "not forked from a process that has torch (ModuleNotFoundError: No module named "
        "'klearlib.nowhere'): a new one"
    )
    assert is_done(stage, tmp_path)


STALE = """
import sys
sys.path[:0] = {path!r}
import os
from klearlib.run import fanout, places, preloaded
from klearlib.run.stage import Stage
server = preloaded.Preloaded(["klearlib.errors"])
while not server.is_ready:
    server.listen(1.0)
with open({source!r}, "a") as file:
    file.write("\\nADDED = 1\\n")
places.take_preloaded = lambda: server
stage = Stage("walk", "toy_stages:walk", {{"seed": 0, "num_steps": 2}})
fanout.run_stages([stage], runs_dir={runs!r})
"""


def test_never_forks_older_code_than_that_on_disk(tmp_path):
    copy = tmp_path / "library" / "klearlib"
    shutil.copytree(Path(klearlib.__file__).parent, copy)
    path = [str(copy.parent), str(Path(__file__).parent)]
    source, runs = str(copy / "errors.py"), str(tmp_path / "runs")
    code = STALE.format(path=path, source=source, runs=runs)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    answer = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, env=environment
    )
    assert answer.returncode == 0, answer.stderr
    (log,) = Path(runs).glob("walk/*/log.txt")
    assert log.read_text().startswith(f"not forked from a process that has torch ({source} changed")


def test_stop_before_the_imports_are_done(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "slow_to_import.py").write_text("import time; time.sleep(30)")
    stage = Stage("walk", "toy_stages:walk", {"seed": 0, "num_steps": 2})
    server = Preloaded(["slow_to_import"])
    began = time.monotonic()
    spec = tmp_path / "spec.json"
    with open(tmp_path / "log.txt", "ab") as log:
        job = server.start(spec, log, preloaded.worker_environment())
    assert isinstance(job, ForkedWorker)
    assert job.poll() is None
    job.terminate()
    assert job.wait(1.0) == -signal.SIGTERM
    server.close()
    assert time.monotonic() - began < 10.0
    assert state(stage, tmp_path) == "absent"


def test_exit_code_is_told_again(tmp_path):
    """An interrupt may come between the message and its reader."""
    server = Preloaded(["toy_stages"])
    with open(tmp_path / "log.txt", "ab") as log:
        job = server.start(tmp_path / "spec.json", log, preloaded.worker_environment())
    assert job.wait(20.0) == 1  # there is no such file
    assert job.pid is not None
    job._returncode = None
    job.terminate()
    assert job.wait(5.0) == 1
    server.close()


def test_another_environment_wants_a_new_process(tmp_path):
    server = Preloaded(["toy_stages"])
    with open(tmp_path / "log.txt", "ab") as log:
        environment = {**preloaded.worker_environment(), preloaded.CUDA: "7"}
        assert isinstance(server.start(tmp_path / "s", log, environment), ForkedWorker)
        environment["HF_HUB_OFFLINE"] = "1 today"
        plain = server.start(tmp_path / "s", log, environment)
    assert not isinstance(plain, ForkedWorker)
    assert plain.wait() == 1
    server.close()


def test_started_ahead_and_taken_once(monkeypatch):
    stages = [Stage("x", "klearlib.errors:KlearError", {})]
    preload_ahead(stages)
    preload_ahead(stages)
    server = take_preloaded()
    assert server is not None
    assert take_preloaded() is None
    server.close()
    assert not alive(server.pid)

    preload_ahead(stages)
    monkeypatch.setenv("KLEAR_SOMETHING", "changed")
    assert take_preloaded() is None

    preload_ahead(stages)
    first = preloaded._ahead[0]
    os.kill(first.pid, signal.SIGKILL)  # as if it had ended by itself
    first._process.wait()
    preload_ahead(stages)
    server = take_preloaded()
    assert server is not None and server is not first
    server.close()

    preload_ahead(stages)
    monkeypatch.setattr(fork_server, "sources", lambda: {"of": (1, 2)})
    assert take_preloaded() is None


def test_a_notebook_that_shows_its_plan_starts_the_imports(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "runs_dir", lambda: tmp_path)
    asked = []
    monkeypatch.setattr(running, "preload_ahead", asked.append)
    done = Stage("world", "klearlib.errors:KlearError", {})
    stage = Stage("rl", "klearlib.errors:KlearError", {}, {"world": done})
    RunFolder(done.folder(tmp_path)).finish()
    running.plan_table([stage])
    assert asked == []
    monkeypatch.setattr(running, "in_notebook", lambda: True)
    table = running.plan_table([stage])
    assert asked == [[stage]]
    assert list(table["state"]) == ["done", "absent"]


def test_nothing_to_preload(monkeypatch):
    assert preload([Stage("walk", "toy_stages:walk", {})]) is None
    monkeypatch.setattr(sys, "platform", "darwin")
    assert preload([Stage("x", "klearlib.errors:KlearError", {})]) is None


def test_a_server_that_nobody_uses_ends():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    known = signal.getsignal(signal.SIGCHLD)
    try:
        assert fork_server.serve(theirs, {}, idle_s=0.05) is None
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, known)
        ours.close()
        theirs.close()


def test_a_server_that_is_kept_waits():
    for kept in (False, True):
        server = Preloaded(["toy_stages"], idle_s=1.0)
        if kept:
            server.keep()
        assert wait_until(lambda each=server: not alive(each.pid), 4.0) != kept
        server.close()


def test_server_dies_with_its_caller(tmp_path):
    code = (
        f"import sys, time; sys.path[:0] = {[str(Path(__file__).parent), *sys.path]!r}\n"
        "from klearlib.run.preloaded import Preloaded\n"
        "server = Preloaded(['toy_stages'])\n"
        "print(server.pid, flush=True); time.sleep(60)"
    )
    caller = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    pid = int(caller.stdout.readline())
    assert alive(pid)
    caller.kill()
    caller.wait()
    caller.stdout.close()
    assert wait_until(lambda: not alive(pid), 5.0)


def test_log_and_metrics_of_two_at_once(tmp_path, monkeypatch):
    params = {"num_steps": 5, "step_s": 0.02, "every": 1000}
    stages = [Stage("walk", "toy_stages:walk", {"seed": seed, **params}) for seed in (0, 1)]
    _run(stages, tmp_path, Preloaded(["toy_stages"]), monkeypatch, workers=2)
    processes = set()
    for stage in stages:
        lines = (stage.folder(tmp_path) / "log.txt").read_text().splitlines()
        assert [line.split(" ", 1)[1] for line in lines] == ["starts at step 0"]
        processes |= {line["time/process"] for line in read_metrics(stage.folder(tmp_path))}
    assert len(processes) == 2


SHARES = """
import sys
sys.path[:0] = {path!r}
from klearlib.run import fanout, places
from klearlib.run.preloaded import Preloaded
from klearlib.run.stage import Stage
places.take_preloaded = lambda: Preloaded(["toy_stages"])
stage = Stage("s", "toy_stages:sleep_with_child", {{"file": {file!r}}})
fanout.run_stages([stage], runs_dir={runs!r}, poll_s=0.05)
"""


@pytest.mark.parametrize("killed", ["the caller", "the shared process"])
def test_a_kill_beside_a_shared_process_leaves_no_process(tmp_path, killed, request):
    shared = request.getfixturevalue("shared")  # now: pytest changes the environment before a test
    path = [str(Path(__file__).parent), *sys.path]
    file, runs = str(tmp_path / "pids"), str(tmp_path / "runs")
    code = SHARES.format(path=path, file=file, runs=runs)
    caller = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    try:
        assert wait_until(Path(file).exists, 40)
        pids = [int(pid) for pid in Path(file).read_text().split()]
        server = _parent(pids[0])
        assert _parent(server) == shared
        os.kill(caller.pid if killed == "the caller" else shared, signal.SIGKILL)
        assert caller.wait(10) != 0
        assert wait_until(lambda: not any(alive(pid) for pid in [*pids, server]), 5.0)
        assert alive(shared) == (killed == "the caller")
    finally:
        caller.kill()
        caller.wait()


def _parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_shared_process_forks_none_into_another_environment(tmp_path, monkeypatch, request):
    request.getfixturevalue("shared")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1 today")
    stage = Stage("walk", "toy_stages:walk", {"seed": 0, "num_steps": 2})
    _run([stage], tmp_path, Preloaded(["toy_stages"]), monkeypatch)
    assert is_done(stage, tmp_path)
    first = (stage.folder(tmp_path) / "log.txt").read_text().splitlines()[0]
    assert first.endswith("(HF_HUB_OFFLINE differs): a new one")


def test_a_shared_process_that_has_gone_is_done_without(tmp_path, monkeypatch, request):
    shared = request.getfixturevalue("shared")
    os.kill(shared, signal.SIGKILL)
    assert wait_until(lambda: not alive(shared))
    stage = Stage("walk", "toy_stages:walk", {"seed": 0, "num_steps": 2})
    server = Preloaded(["toy_stages"])
    assert server.pid is not None
    _run([stage], tmp_path, server, monkeypatch)
    assert is_done(stage, tmp_path)
