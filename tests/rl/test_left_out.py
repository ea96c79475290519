"""Updates with one corner left out, from the very same weights, averages and rollouts."""

from dataclasses import asdict

import pytest
from rollout_fakes import SETTINGS
from tiny_runs import SPECS, lines

from klearlib.policy.compute import local_compute
from klearlib.rl import left_out
from klearlib.rl.coefficients import CORNERS
from klearlib.run.folder import RunFolder

PARTS = [*left_out.PARTS]
METRICS = ("score", "moved_negative", "moved_positive", "moved_low", "entropy", "grad_norm")


def measured(path, inputs, *, learning_rate=3e-2, rule=SPECS["gppo"], **changes):
    left_out.leave_corners_out(
        RunFolder(path),
        {"world": inputs["world"], "rl": inputs["sft"]},
        seed=3,
        rule=rule,
        settings=SETTINGS | {"num_steps": 2} | changes,
        compute=asdict(local_compute(micro_batch_tokens=400)),
        learning_rate=learning_rate,
        num_updates=4,
    )
    (line,) = lines(path)
    return line


def of(line, part):
    return {metric: line[f"{metric}/{part}"] for metric in METRICS}


@pytest.fixture(scope="module")
def line(inputs, tmp_path_factory):
    return measured(tmp_path_factory.mktemp("left"), inputs)


def test_a_corner_counts_where_tokens_stand_in_it(line):
    assert len(line) == 2 + len(METRICS) * len(PARTS)
    assert 0 <= line["score/before"] <= 1
    whole = of(line, "nothing")
    assert whole["moved_low"] < 0, "the floor goes on pushing what has left the range"
    for part in ("low_negative", "floor"):
        assert of(line, part) != whole
    assert line["moved_low/low_negative"] > line["moved_low/nothing"]


def test_each_part_starts_from_the_same_point(line, inputs, tmp_path, monkeypatch):
    """Averages of AdamW or weights that were carried over would depend on the order."""
    monkeypatch.setattr(left_out, "PARTS", dict(reversed(left_out.PARTS.items())))
    assert measured(tmp_path, inputs) == line


def test_inside_of_the_range_nothing_can_be_left_out(inputs, tmp_path):
    line = measured(tmp_path, inputs, learning_rate=1e-6)
    for part in PARTS:
        assert of(line, part) == of(line, "nothing")
    assert line["moved_low/nothing"] is None


def test_a_corner_left_out_is_a_rule_without_it(inputs, tmp_path):
    """With one update before, at ratio 1, the weights that the parts start from are the same."""
    how = {"num_problems": 4, "mini_batch_problems": 4}
    whole = measured(tmp_path / "whole", inputs, **how)
    without = SPECS["gppo"] | {"beta_low": 0.0}
    assert of(whole, "low_negative") == of(
        measured(tmp_path / "without", inputs, rule=without, **how), "nothing"
    )
    assert set(CORNERS) < set(PARTS)
