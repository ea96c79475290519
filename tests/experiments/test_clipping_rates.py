"""Notebook 05 with several learning rates: which is chosen, and what is said before one is."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from klearlib.experiments.publish import runs_dir
from maths_rl_fakes import HOW, finish

from klearlib import params as parameters
from klearlib.errors import ParameterError
from klearlib.experiments import clipping, clipping_rates, clipping_section
from klearlib.experiments.nb05_clipping import ClippingParams

REPOSITORY = Path(__file__).resolve().parents[2]
RATES = [1e-3, 1e-4, 3e-4]
PARAMS = ClippingParams(**HOW, seeds=[0, 1], learning_rates=RATES)
# Rule -> rate -> share right at the end, in eighths.
EQUAL = {rule: dict.fromkeys(RATES, 4) for rule in PARAMS.rules}


@pytest.fixture
def project(tmp_path, monkeypatch):
    shutil.copytree(REPOSITORY / "params", tmp_path / "params")
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv("KLEAR_ROOT", str(tmp_path))


def finish_grid(
    validation=EQUAL,
    benchmarks=EQUAL,
    *,
    turned=lambda cell: 5 * cell[2],
    without=lambda cell: False,
):
    """All runs of the grid but those `without`; the validation set and the benchmarks end at rates
    of their own."""
    for cell, stage in clipping.grid(PARAMS).items():
        if without(cell):
            continue
        rule, rate, _ = cell
        ends = dict.fromkeys(("math_a", "math_b"), benchmarks[rule][rate] / 8)
        ends["validation"] = validation[rule][rate] / 8
        finish(stage, end=ends, turned=turned(cell))


def verdicts() -> dict[str, dict]:
    return {each["claim"]: each for each in clipping_section.verdicts(PARAMS)}


def test_validation_chooses_and_no_benchmark_does(project):
    best = {"clip_higher": 1e-3, "gppo": 1e-4, "cispo": 3e-4}
    worst = {"clip_higher": 1e-4, "gppo": 3e-4, "cispo": 1e-3}
    validation = {rule: {rate: 6 if rate == best[rule] else 3 for rate in RATES} for rule in best}
    benchmarks = {rule: {rate: 8 if rate == worst[rule] else 2 for rate in RATES} for rule in best}
    finish_grid(validation, benchmarks)
    assert clipping.chosen_rates(PARAMS) == best
    cells, arms = clipping.grid(PARAMS), clipping.arms(PARAMS)
    assert len(arms) == 6 and [seed for _, seed in arms] == [0, 0, 0, 1, 1, 1]
    for (rule, seed), stage in arms.items():
        assert stage.key == cells[rule, best[rule], seed].key
    # The scores that decide are those of the chosen runs: 2 of 8, not the benchmarks' best 8 of 8.
    ends = clipping_section.score_table(PARAMS).set_index(["benchmark", "rule"])["end"]
    assert ends["maths A", "GPPO"] < 0.3 < ends["validation", "GPPO"]
    said = "Clip-Higher 0.001, GPPO 0.0001, CISPO 0.0003"
    for name in ("C1", "C2", "C3"):
        assert said in verdicts()[name]["reason"]
    section = json.loads(clipping_section.publish(PARAMS).read_text())
    assert section["status"] == "complete" and said in section["notes"][0]
    captions = {table["name"]: table["caption"] for table in section["tables"]}
    assert said in captions["scores"] and said not in captions["rules"]
    table = clipping_rates.rate_table(PARAMS)
    assert len(table) == 9 and table["seeds"].eq(2).all()
    chosen = table[table["chosen"] == "yes"].set_index("rule")["learning_rate"]
    assert set(chosen) == {"0.001", "0.0001", "0.0003"} and len(chosen) == 3
    assert (table["maths A low"] < table["maths A"]).all()


def test_of_equal_rates_the_smallest_is_kept_however_the_seeds_differ(project):
    finish_grid(turned=lambda cell: 0)
    assert set(clipping.chosen_rates(PARAMS).values()) == {1e-4}
    # The same right responses at both rates, one seed up and one down: still equal.
    for (rule, rate, seed), stage in clipping.grid(PARAMS).items():
        if rule == "gppo" and rate in (1e-3, 3e-4):
            up = (seed == 0) == (rate == 1e-3)
            shutil.rmtree(stage.folder(runs_dir()))
            finish(stage, end=5 / 8 if up else 7 / 8, turned=0)
    assert clipping.chosen_rates(PARAMS)["gppo"] == 3e-4


def test_an_unfinished_grid_decides_nothing_and_says_why(project):
    finish_grid(without=lambda cell: cell == ("gppo", 3e-4, 1))
    assert clipping.chosen_rates(PARAMS).keys() == {"clip_higher", "cispo"}
    found = verdicts()
    why = "no learning rate is chosen for GPPO: 5 of 6 runs are done"
    for name in ("C1", "C2", "C3"):
        assert (found[name]["verdict"], found[name]["reason"]) == ("not run", why)
    assert found["C14"]["verdict"] == "reproduced"
    section = json.loads(clipping_section.publish(PARAMS).read_text())
    assert section["missing"] == ["GPPO, learning rate 0.0003, seed 1"]
    table = clipping_rates.rate_table(PARAMS)
    assert not (table[table["rule"] == "GPPO"]["chosen"] == "yes").any() and len(table) == 9


def test_nothing_done_yet_publishes(project):
    section = json.loads(clipping_section.publish(PARAMS).read_text())
    assert len(section["missing"]) == 18 and clipping_rates.rate_table(PARAMS).empty
    words = {name: each["verdict"] for name, each in verdicts().items()}
    assert words == {"C14": "reproduced", "C1": "not run", "C2": "not run", "C3": "not run"}


def test_one_rate_needs_no_grid(project):
    one = dataclasses.replace(PARAMS, learning_rates=[3e-4])
    assert clipping.chosen_rates(one) == dict.fromkeys(PARAMS.rules, 3e-4)
    stages = clipping.grid(one)
    first = stages["gppo", 3e-4, 0]
    finish(first, end=0.5)
    assert clipping.finished_runs(one).keys() == {("gppo", 0)}
    section = json.loads(clipping_section.publish(one).read_text())
    assert "rates" not in {table["name"] for table in section["tables"]}
    assert "One learning rate for all rules (0.0003)" in section["notes"][0]
    assert first.title == "GPPO, seed 0"
    assert np.isnan(clipping_rates.rate_table(one)["maths A low"]).all()  # one seed, no interval


def test_rates_that_print_alike_are_refused():
    with pytest.raises(ParameterError, match=r"learning_rates \[.*\] print alike"):
        parameters.check("05_clipping", {"learning_rates": [1e-4, 1.0000001e-4]})
