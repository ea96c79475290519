"""Invented finished runs, and what the tests of several experiments do with them."""

from __future__ import annotations

import functools
import itertools
import json
from dataclasses import asdict
from unittest import mock

import numpy as np
from metric_names import METRICS

from klearlib.evaluate.record_files import save_record
from klearlib.experiments.experiment import Experiment, runs_dir
from klearlib.records import EvalRecord
from klearlib.run.folder import RunFolder
from klearlib.run.provenance import provenance

NUM_STEPS, EVERY, N = 20, 10, 8
HOW = {"num_steps": NUM_STEPS, "eval_every": EVERY, "eval_responses": N}
DECIDING = ("math_decide", "code_decide")
BENCHMARKS = ("math_a", "math_b", "code_a", "code_b", "validation")


def record(name: str, right: int, *, n: int = N, size: int = 30, turned: int = 0) -> EvalRecord:
    """`right` of n responses to each problem are right; every 7th problem from number `turned` on
    has one response turned, so that intervals are neither empty nor zero. A wrong program passes
    half of its tests."""
    correct = np.zeros((size, n), dtype=bool)
    correct[:, :right] = True
    correct[turned::7, :1] ^= True
    return EvalRecord(
        name,
        tuple(f"{name}-{i}" for i in range(size)),
        correct,
        np.zeros_like(correct),
        np.ones(correct.shape, dtype=int),
        np.where(correct, "correct", "wrong"),
        np.where(correct, 1.0, 0.5),
        np.where(correct, "boxed", ""),
    )


def deciding(name: str, share: float, turned: int) -> EvalRecord:
    """One response to each of 240 problems, `share` of them right but for a few by `turned`."""
    right = min(240, round(240 * share) + 3 * turned**2 % 7 - 3)
    correct = (np.arange(240) < right)[:, None]
    tokens, reasons = np.ones(correct.shape, dtype=int), np.where(correct, "correct", "wrong")
    ids = tuple(f"{name}-{i}" for i in range(240))
    passed = correct.astype(float)
    found = np.where(correct, "boxed", "")
    return EvalRecord(name, ids, correct, np.zeros_like(correct), tokens, reasons, passed, found)


def finish(stage, *, end: float | dict[str, float], turned: int = 0, metrics=None) -> None:
    """A finished run: 0.25 of each problem's responses are right at first, 0.5 at step 10, `end` at
    the last step, but for those turned, as in `record`.

    end: for all sets, or by their names, where absent ones are not evaluated.
    metrics: step -> the metrics of its line that are not 0.5.
    """
    folder = RunFolder(stage.folder(runs_dir()))
    folder.load_checkpoint()
    for step in range(1, NUM_STEPS + 1):
        line = dict.fromkeys(METRICS, 0.5) | {"step": step, "train/skipped_updates": 0}
        line |= {"rollout/judge_failures": 0}
        folder.append_metrics(line | (metrics(step) if metrics else {}))
    ends = end if isinstance(end, dict) else dict.fromkeys(BENCHMARKS, end)
    share = end.get("math_a") if isinstance(end, dict) else end
    if share is not None:
        for name, step in itertools.product(DECIDING, (EVERY, NUM_STEPS)):
            found = deciding(name, share, turned)
            save_record(found, folder.path / "evaluations" / f"{name}-{step:05d}.npz")
    for name, last in ends.items():
        for step, rate in {0: 0.25, EVERY: 0.5, NUM_STEPS: last}.items():
            found = record(name, round(rate * N), turned=turned)
            save_record(found, folder.path / "evaluations" / f"{name}-{step:05d}.npz")
    with mock.patch("klearlib.run.folder.provenance", _asked_once):  # git takes 30 ms
        folder.finish()


_asked_once = functools.cache(provenance)


def finish_all(e: Experiment, ends: dict[str, float], metrics=None) -> None:
    """All arms of `e`: `ends` by series, each turned by seed and series; metrics: (series, seed,
    step) -> as in `finish`."""
    for (series, seed), stage in e.arms.items():
        how = {"end": ends[series], "turned": seed + 3 * list(ends).index(series)}
        mine = (lambda step, s=series, n=seed: metrics(s, n, step)) if metrics else None
        finish(stage, **how, metrics=mine)


def finish_same_rollouts(e: Experiment, soft: dict[int, float] | None = None) -> None:
    """The rollouts of notebook 07 that both rewards score: four batches, in the third of which the
    hard reward has no gradient. soft: seed -> the cosine of the soft one."""
    for (_, seed), stage in e.same_rollouts.items():
        folder = RunFolder(stage.folder(runs_dir()))
        folder.load_checkpoint()
        for step in range(1, 5):
            hard = None if step == 3 else 0.3 + 0.05 * (-1) ** step
            both = {"half_cosine/soft": (soft or {}).get(seed, 0.4), "half_cosine/hard": hard}
            folder.append_metrics({"step": step} | both)
        folder.finish()


def again(e: Experiment) -> Experiment:
    """The same experiment, that looks anew."""
    return type(e)(e.params)


def published(e: Experiment) -> dict[str, bytes]:
    """What `e` publishes from the runs that are there now, by file name."""
    again(e).publish()
    folder = e.place.folder / e.name
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def section(e: Experiment) -> dict:
    """The section.json that `e` publishes from the runs that are there now, its figures made and
    not drawn."""
    with mock.patch("klearlib.report.section.save_figure"):
        return json.loads(published(e)["section.json"])


def verdicts(e: Experiment) -> dict[str, dict]:
    """Claim -> the verdict from the runs that are there now."""
    return {each.claim: asdict(each) for each in again(e).verdicts()}
