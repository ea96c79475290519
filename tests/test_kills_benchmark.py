"""What benchmarks/kills.py takes for a difference between two runs, and what not."""

import json
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture
def kills(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import kills

    return kills


def results(folder):
    """A stage, and a notebook that published."""
    files = {
        "runs/rl/0a1b/metrics.jsonl": '{"step": 1}\n',
        "runs/rl/0a1b/model/weights": "0123",
        "runs/rl/0a1b/timings.jsonl": '{"step": 1, "time/step": 2.5}\n',
        "runs/rl/0a1b/done.json": '{"seconds": 3.1}',
        "smoke/05_clipping/scores.csv": "rule,score,seconds\ngppo,0.5,4\n",
        "smoke/05_clipping/section.json": json.dumps({"title": "GPPO", "seconds": 5}),
        "smoke/05_clipping.ipynb": "{}",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("name", "text", "is_seen"),
    [
        ("runs/rl/0a1b/metrics.jsonl", '{"step": 2}\n', True),
        ("runs/rl/0a1b/model/weights", "0124", True),
        ("runs/rl/0a1b/timings.jsonl", "", False),
        ("runs/rl/0a1b/done.json", '{"seconds": 3.2}', False),
        ("runs/rl/0a1b/.state.77.tmp", "half", True),
        ("runs/rl/ffff/metrics.jsonl", "", True),
        ("smoke/05_clipping/scores.csv", "rule,score,seconds\ngppo,0.6,4\n", True),
        ("smoke/05_clipping/scores.csv", "rule,score,seconds\ngppo,0.5,9\n", False),
        ("smoke/05_clipping/section.json", json.dumps({"title": "PPO", "seconds": 5}), True),
        ("smoke/05_clipping/section.json", json.dumps({"title": "GPPO", "seconds": 6}), False),
        ("smoke/05_clipping.ipynb", '{"ran": "later"}', False),
        ("smoke/.05_clipping.partial.ipynb", "{}", True),
    ],
)
def test_differences_are_all_but_the_time_of_day(kills, tmp_path, name, text, is_seen):
    whole, other = (results(tmp_path / each) for each in ("whole", "other"))
    expected = kills.outcome(whole)
    assert kills.differences(expected, kills.outcome(other)) == []
    (other / name).parent.mkdir(exist_ok=True)
    (other / name).write_text(text)
    found = kills.outcome(other)
    assert kills.differences(expected, found) == ([name] if is_seen else [])
    assert kills.differences(found, expected) == ([name] if is_seen else [])
