"""How many stages run at once over several fan-outs, and that nobody waits for a place in vain."""

import errno
import io
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from killing import wait_until
from klearlib.run.fanout import run_stages
from klearlib.run.slots import SLOTS, Slots

from klearlib.errors import KlearError, StageFailed
from klearlib.run import slots
from klearlib.run.progress import Progress
from klearlib.run.stage import Stage, is_done, state

HERE = str(Path(__file__).parent)


def _threads(tmp_path, *calls, workers=2):
    """One fan-out per list of stages, at the same time; what each showed."""
    streams = [io.StringIO() for _ in calls]

    def run(stages, stream):
        run_stages(
            stages, runs_dir=tmp_path, workers=workers, progress=Progress(stream), poll_s=0.02
        )

    pairs = zip(calls, streams, strict=True)
    threads = [threading.Thread(target=run, args=pair, daemon=True) for pair in pairs]
    for thread in threads:
        thread.start()
    return threads, streams


def _join(threads):
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize("workers", [1, 2])
def test_places_are_never_exceeded(tmp_path, workers):
    crowd = tmp_path / "crowd"
    crowd.mkdir()
    calls = [
        [Stage(f"s{c}{i}", "toy_stages:crowd", {"place": str(crowd)}) for i in range(3)]
        for c in range(3)
    ]
    threads, _ = _threads(tmp_path, *calls, workers=workers)
    _join(threads)
    seen = [
        json.loads((stage.folder(tmp_path) / "seen.json").read_text())
        for stages in calls
        for stage in stages
    ]
    assert len(seen) == 9
    assert max(seen) == workers


def test_a_stage_that_runs_elsewhere_takes_no_place(tmp_path):
    """The first fan-out's stage ends when a stage of the second has run, which needs a place."""
    sign = tmp_path / "sign"
    waits = Stage("w", "toy_stages:wait_for", {"file": str(sign)}, label="the shared one")
    signs = Stage("t", "toy_stages:count_runs", {"file": str(sign), "sleep_s": 0.0})
    (first,), _ = _threads(tmp_path, [waits])
    assert wait_until(lambda: state(waits, tmp_path) == "running")
    (second,), (stream,) = _threads(tmp_path, [waits, signs])
    _join([first, second])
    assert is_done(waits, tmp_path) and is_done(signs, tmp_path)
    lines = stream.getvalue().splitlines()
    assert "the shared one" in lines[0]
    assert lines[-1].startswith("2 of 2 stages done")


def test_done_elsewhere_is_told_like_done_here(tmp_path):
    stage = Stage("c", "toy_stages:count_runs", {"file": str(tmp_path / "ran"), "sleep_s": 0.5})
    threads, _ = _threads(tmp_path, [stage])
    assert wait_until(lambda: state(stage, tmp_path) == "running")
    told = []
    run_stages([stage], runs_dir=tmp_path, on_done=told.append, progress=Progress(io.StringIO()))
    _join(threads)
    assert told == [stage]
    assert (tmp_path / "ran").read_text() == "ran\n"


def test_what_failed_elsewhere_is_tried_here(tmp_path):
    stage = Stage("f", "toy_stages:fail_once", {"file": str(tmp_path / "failed")})
    failures = []

    def run():
        try:
            run_stages([stage], runs_dir=tmp_path, progress=Progress(io.StringIO()), poll_s=0.02)
        except StageFailed as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    _join(threads)
    assert len(failures) == 1
    assert is_done(stage, tmp_path)


HOLDS = """import os, sys, time
from klearlib.run.slots import Slots
slots = Slots(sys.argv[1], 2)
print(slots.take(), slots.take(), flush=True)
if os.fork() == 0:
    print("forked", flush=True)
time.sleep(30)"""


def test_a_killed_holder_frees_its_places(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert [holder.stdout.readline() for _ in range(2)] == ["0 1\n", "forked\n"]
        with Slots(tmp_path, 2) as ours:
            assert ours.take() is None
            holder.kill()  # and not what it has forked
            holder.wait()
            assert [ours.take(), ours.take(), ours.take()] == [0, 1, None]
            ours.free(0)
            assert ours.take() == 0
    finally:
        os.killpg(holder.pid, signal.SIGKILL)
        holder.stdout.close()


def test_a_folder_that_takes_no_places(tmp_path):
    (tmp_path / SLOTS).write_text("")
    with pytest.raises(KlearError, match=r"cannot write .*\.slots") as caught:
        Slots(tmp_path, 1).take()
    assert "\n" not in str(caught.value)


def test_who_has_no_place_is_next(tmp_path):
    """One who has places would otherwise take each that becomes free."""
    with Slots(tmp_path, 2) as greedy, Slots(tmp_path, 2) as late:
        assert [greedy.take(), greedy.take(), late.take()] == [0, 1, None]
        greedy.free(0)
        assert greedy.take() is None
        assert late.take() == 0
        greedy.free(1)
        assert greedy.take() == 1


def test_who_wants_no_place_any_more_blocks_nobody(tmp_path):
    with Slots(tmp_path, 1) as first, Slots(tmp_path, 1) as second, Slots(tmp_path, 1) as third:
        assert [first.take(), second.take()] == [0, None]
        first.free(0)
        assert first.take() is None
        second.wait_no_more()
        assert first.take() == 0
        assert third.take() is None
        third.close()
        first.free(0)
        assert second.take() == 0


def test_other_gpus_are_other_places(tmp_path):
    with Slots(tmp_path, 2, ["0"]) as ours, Slots(tmp_path, 1, ["1"]) as other:
        assert [ours.take(), other.take(), ours.take()] == [0, 0, 1]
        with Slots(tmp_path, 2, ["1", "0"]) as both:
            assert both.take() is None


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    def refused(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(slots.fcntl, "flock", refused)
    with pytest.raises(KlearError, match=r"cannot lock .*\.slots.*: keep the results on a file"):
        Slots(tmp_path, 1).take()
