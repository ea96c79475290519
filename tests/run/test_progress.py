"""What a run shows, and the time it says is left."""

import io
import os
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from klearlib.run import progress
from klearlib.run.folder import RunFolder
from klearlib.run.job import Job
from klearlib.run.progress import Progress, eta_s
from klearlib.run.progress import ProgressRow as Row
from klearlib.run.stage import Stage


def test_eta_is_work_per_worker_or_the_longest_chain():
    rows = [Row("rl", str(i), "waiting", estimate_s=10.0) for i in range(6)]
    assert eta_s(rows, 2) == 30.0
    assert eta_s(rows, 6) == 10.0
    base = Row("base", "b", "running", remaining_s=4.0)
    sft = Row("sft", "s", "waiting", estimate_s=5.0, needs=(base,))
    rl = Row("rl", "r", "waiting", estimate_s=6.0, needs=(sft,))
    assert eta_s([base, sft, rl, Row("rl", "q", "waiting", estimate_s=1.0)], 8) == 15.0


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
    clock = SimpleNamespace(time=lambda: now[0], strftime=lambda *_: "", gmtime=lambda: None)
    monkeypatch.setattr(folder, "time", clock)
    monkeypatch.setattr(job, "time", clock)
    stage = Stage("rl", "toy_stages:walk", {}, label="GPPO, seed 0")
    about = (stage.name, stage.title, "running")
    running = Job(*about, item=stage, log=tmp_path / "log", began=999.0)
    run = RunFolder(tmp_path)
    run.progress(40, 100)
    running.look()
    assert running.remaining_s is None
    now[0] = 1020.0
    run.progress(50, 100, "reward 0.5")
    now[0] = 1025.0
    running.look()
    assert (running.done, running.total, running.note) == (50, 100, "reward 0.5")
    assert (running.elapsed_s, running.remaining_s) == (26.0, 50 * 2.0 - 5.0)
    run.doing("sampled 3 of 8")
    run.warn("step 1 trained nothing")  # within a tenth of a second, and told at once
    running.look()
    assert (running.doing, running.warning) == ("sampled 3 of 8", "step 1 trained nothing")
    assert running.remaining_s == 50 * 2.0 - 5.0
    assert "WARNING: step 1 trained nothing" in (tmp_path / "log.txt").read_text()
    running.began = 1021.0  # what was told before is of an earlier session
    running.look()
    assert running.remaining_s is None


def test_tasks_are_counted_beside_stages(clock):
    def line(*rows):
        stream = io.StringIO()
        Progress(stream).show(rows, 2)
        return stream.getvalue().strip().removeprefix("12:00:00 ")

    done = Row("rl", "a", "done", elapsed_s=4.0)
    notebook = Row("notebook 05", "notebook 05", "running", 9.0, 2.0, is_task=True)
    publishes = Row("p", "p", "waiting", needs=(done,), is_task=True)  # as good as no time
    assert line(done, notebook, publishes) == (
        "1 of 1 stages and 0 of 2 tasks done, 0:00 elapsed, about 0:07 left\n"
        "12:00:00   notebook 05, 0:02 elapsed"
    )
    failed = Row("rl", "b", "failed", elapsed_s=1.0)
    skipped = Row("rl", "c", "skipped", needs=(failed,))
    assert line(done, failed, skipped) == "1 of 3 stages done, 1 failed, 0:00 elapsed"
    assert line(Row("rl", "a", "done"), Row("n", "n", "done", elapsed_s=3.0, is_task=True)) == (
        "1 of 1 stages and 1 of 1 tasks done, 0:00 elapsed"
    )


ROWS = [
    Row("base", "base", "done", elapsed_s=3.0),
    Row("rl", "GPPO, seed 0", "running", 0.0, 75.0, 120.0, 5, 13, "reward 0.5, math_a 0.4"),
]
DONE = [Row("base", "base", "done", elapsed_s=3.0), Row("rl", "g", "done", elapsed_s=9.0)]


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(
        progress, "time", SimpleNamespace(monotonic=lambda: now[0], strftime=lambda _: "12:00:00")
    )
    return now


def test_lines_come_each_half_minute_and_warnings_once_at_once(clock, tmp_path, monkeypatch):
    monkeypatch.setenv("KLEAR_PROGRESS_LOG", str(tmp_path / "progress.log"))
    stream = io.StringIO()
    shown = Progress(stream)
    warned = [ROWS[0], replace(ROWS[1], warning="step 1 trained nothing")]
    for second in range(62):
        clock[0] = float(second)
        shown.show(ROWS if second < 40 else warned, 1)
    shown.show(DONE, 1, last=True)

    def lines(second):
        yield f"12:00:00 1 of 2 stages done, 0:{second:02} elapsed, about 2:00 left"
        yield "12:00:00   GPPO, seed 0, 5/13, about 2:00 left, reward 0.5, math_a 0.4"

    assert stream.getvalue().splitlines() == [
        *lines(0),
        *lines(30),
        "12:00:00 WARNING: GPPO, seed 0: step 1 trained nothing",
        *(line.replace("0:60", "1:00") for line in lines(60)),
        "12:00:00 2 of 2 stages done, 1:01 elapsed",
    ]
    assert (tmp_path / "progress.log").read_text() == stream.getvalue()


LONG = [
    Row("rl", "GPPO, learning rate 0.0003, seed 0", "running", 0, 9.0, 99.0, 5, 40,
        note="reward 0.51, gradient 0.70, math_a 0.40", doing="sampled 30 of 64"),
    Row("notebook 05", "notebook 05", "running", 9.0, 30.0, is_task=True),
    *(Row("rl", str(seed), "waiting", 100.0) for seed in range(9)),
]  # fmt: skip


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(clock, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.get_terminal_size", lambda *_: os.terminal_size((90, 24)))
    return lambda: _be_terminal(monkeypatch)


def _be_terminal(monkeypatch):
    """In the test itself: pytest sets the streams anew after the fixtures."""
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr("sys.stdout", stream)
    return stream


def test_terminal_redraws_in_place_below_what_is_printed(clock, terminal):
    terminal = terminal()
    shown = Progress()
    for second in range(3):
        clock[0] = float(second)
        shown.show([LONG[0], replace(LONG[1], warning="nothing learnt")], 2)
        print("printed meanwhile")
    written = re.sub(r"\x1b\[\??[0-9;]*[A-Za-z]", "", terminal.getvalue())
    assert written.count("WARNING: notebook 05: nothing learnt") == 1
    assert written.count("printed meanwhile") == 3
    assert "0 of 1 stages and 0 of 1 tasks done, 0:02" in written
    rows = [line for line in written.splitlines() if "5/40" in line]
    assert all(len(line) <= 90 for line in rows) and "about 1:39 left" in rows[-1]
    assert "\x1b[1A" in terminal.getvalue()  # it goes up, to redraw
    shown.show(DONE, 2, last=True)
    assert "2 of 2 stages done, 0:02 elapsed" in terminal.getvalue()
    assert "\x1b[?25h" in terminal.getvalue()  # the cursor is back


def test_terminal_that_cannot_redraw_gets_lines(clock, terminal, monkeypatch):
    terminal = terminal()
    monkeypatch.setenv("TERM", "dumb")
    Progress().show(LONG, 2)
    assert "\x1b" not in terminal.getvalue()
    assert terminal.getvalue().startswith("12:00:00 0 of 10 stages")


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
        "GPPO, seed 0, 5/13, about 2:00 left, reward 0.5, math_a 0.4",
    ]
    assert texts[-1] == "2 of 2 stages done, 0:02 elapsed"
    assert len((tmp_path / "progress.log").read_text().splitlines()) == 3
