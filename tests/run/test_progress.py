"""What a run shows, and the time it says is left."""

import io
from types import SimpleNamespace

import pytest

from klearlib.run import progress
from klearlib.run.folder import RunFolder
from klearlib.run.job import Job, row_of
from klearlib.run.progress import Progress, Row, eta_s
from klearlib.run.stage import Stage


def test_eta_is_work_per_worker_or_the_longest_chain():
    rows = [Row("rl", str(i), "waiting", estimate_s=10.0) for i in range(6)]
    assert eta_s(rows, 2) == 30.0
    assert eta_s(rows, 6) == 10.0
    chain = [
        Row("base", "b", "running", remaining_s=4.0),
        Row("sft", "s", "waiting", estimate_s=5.0, needs=(0,)),
        Row("rl", "r", "waiting", estimate_s=6.0, needs=(1,)),
        Row("rl", "q", "waiting", estimate_s=1.0),
    ]
    assert eta_s(chain, 8) == 15.0


def test_measured_stages_replace_the_estimate_of_their_kind():
    rows = [
        Row("rl", "a", "done", estimate_s=1.0, elapsed_s=20.0),
        Row("rl", "b", "running", estimate_s=1.0, elapsed_s=10.0, remaining_s=30.0),
        Row("rl", "c", "waiting", estimate_s=1.0),
        Row("rl", "d", "running", estimate_s=1.0, elapsed_s=5.0),
        Row("sft", "e", "waiting", estimate_s=2.0),
    ]
    assert eta_s(rows, 1) == 30.0 + 30.0 + 25.0 + 2.0


def test_eta_is_unknown_without_any_estimate():
    assert eta_s([Row("rl", "a", "waiting"), Row("x", "b", "done")], 1) is None
    assert eta_s([Row("x", "b", "done")], 1) == 0.0


def test_remaining_time_of_a_running_stage_counts_this_session(tmp_path, monkeypatch):
    from klearlib.run import folder, job

    now = [1000.0]
    clock = SimpleNamespace(time=lambda: now[0], strftime=None, gmtime=None)
    monkeypatch.setattr(folder, "time", clock)
    monkeypatch.setattr(job, "time", clock)
    stage = Stage("rl", "toy_stages:walk", {}, label="GPPO, seed 0")
    here = SimpleNamespace(is_queued=False)
    running = Job(stage, "k", tmp_path, tmp_path / "log", state="running", process=here)
    running.began = 999.0
    run = RunFolder(tmp_path)
    run.progress(40, 100)
    assert row_of(running, ()).remaining_s is None
    now[0] = 1020.0
    run.progress(50, 100, "reward 0.5")
    now[0] = 1025.0
    row = row_of(running, ())
    assert (row.done, row.total, row.note, row.elapsed_s) == (50, 100, "reward 0.5", 26.0)
    assert row.remaining_s == 50 * 2.0 - 5.0
    running.began = 1021.0  # what was told before is of an earlier session
    assert row_of(running, ()).total == 0


def test_tasks_are_counted_beside_stages(clock):
    def line(*rows):
        stream = io.StringIO()
        Progress(stream).show(rows, 2)
        return stream.getvalue().strip()

    done = Row("rl", "a", "done", elapsed_s=4.0)
    notebook = Row("notebook 05", "notebook 05", "running", 9.0, 2.0, is_task=True)
    publishes = Row("p", "p", "waiting", needs=(0,), is_task=True)  # as good as no time
    assert line(done, notebook, publishes) == (
        "1 of 1 stages and 0 of 2 tasks done, 0:00 elapsed, about 0:07 left; "
        "notebook 05, 0:02 elapsed"
    )
    failed = [Row("rl", "b", "failed", elapsed_s=1.0), Row("rl", "c", "skipped", needs=(1,))]
    assert line(done, *failed) == "1 of 3 stages done, 1 failed, 0:00 elapsed"
    assert line(Row("rl", "a", "done"), Row("n", "n", "done", elapsed_s=3.0, is_task=True)) == (
        "1 of 1 stages and 1 of 1 tasks done, 0:00 elapsed"
    )


ROWS = [
    Row("base", "base", "done", elapsed_s=3.0),
    Row("rl", "GPPO, seed 0", "running", 0.0, 75.0, 120.0, 5, 13, "reward 0.5", needs=(0,)),
]
DONE = [Row("base", "base", "done", elapsed_s=3.0), Row("rl", "g", "done", elapsed_s=9.0)]


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_lines_come_each_five_seconds_and_at_each_end(clock, tmp_path, monkeypatch):
    monkeypatch.setenv("KLEAR_PROGRESS_LOG", str(tmp_path / "progress.log"))
    stream = io.StringIO()
    shown = Progress(stream)
    for second in range(12):
        clock[0] = float(second)
        shown.show(ROWS, 1)
    shown.show(DONE, 1)
    assert stream.getvalue().splitlines() == [
        f"1 of 2 stages done, 0:{second:02} elapsed, about 2:00 left; "
        "GPPO, seed 0, 5/13, 1:15 elapsed, about 2:00 left, reward 0.5"
        for second in (0, 5, 10)
    ] + ["2 of 2 stages done, 0:11 elapsed"]
    assert (tmp_path / "progress.log").read_text() == stream.getvalue()


def test_notebook_shows_one_output_that_is_updated(clock, tmp_path, monkeypatch):
    import IPython.display

    outputs = []

    def display(content, *, raw, display_id):
        assert raw and display_id
        outputs.append([content["text/plain"]])
        return SimpleNamespace(update=lambda new, raw: outputs[-1].append(new["text/plain"]))

    monkeypatch.setattr(IPython.display, "display", display)
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    monkeypatch.setenv("KLEAR_PROGRESS_LOG", str(tmp_path / "progress.log"))
    shown = Progress()
    for tenth in range(25):
        clock[0] = tenth / 10
        shown.show(ROWS, 1)
    shown.show(DONE, 1, last=True)
    (texts,) = outputs
    assert len(texts) == 4  # at 0, 1 and 2 seconds, and the end
    assert texts[0].splitlines() == [
        "1 of 2 stages done, 0:00 elapsed, about 2:00 left",
        "  GPPO, seed 0, 5/13, 1:15 elapsed, about 2:00 left, reward 0.5",
    ]
    assert texts[-1] == "2 of 2 stages done, 0:02 elapsed"
    assert len((tmp_path / "progress.log").read_text().splitlines()) == 2
