"""Invented finished runs for the tests of notebooks 06 and 09."""

from __future__ import annotations

import numpy as np

from klearlib.evaluate.record_files import save_record
from klearlib.experiments.publish import runs_dir
from klearlib.records import EvalRecord
from klearlib.rl.metrics import METRICS
from klearlib.run.folder import RunFolder

NUM_STEPS, EVERY, N = 20, 10, 8
HOW = {"num_steps": NUM_STEPS, "eval_every": EVERY, "eval_responses": N}
BENCHMARKS = ("math_a", "math_b", "code_a", "code_b", "validation")


def finish(stage, *, end: float | dict[str, float], turned: int = 0, metrics=None) -> None:
    """A finished run: 0.25 of each problem's responses are right at first, 0.5 at step 10, `end` at
    the last step; every 7th problem from number `turned` on has one response turned, so that
    intervals are neither empty nor zero.

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
    for name, last in ends.items():
        for step, rate in {0: 0.25, EVERY: 0.5, NUM_STEPS: last}.items():
            correct = np.zeros((30, N), dtype=bool)
            correct[:, : round(rate * N)] = True
            correct[turned::7, :1] ^= True
            record = EvalRecord(
                name,
                tuple(f"{name}-{i}" for i in range(30)),
                correct,
                np.zeros_like(correct),
                np.ones((30, N), dtype=int),
                np.where(correct, "correct", "wrong"),
                correct.astype(float),
            )
            save_record(record, folder.path / "evaluations" / f"{name}-{step:05d}.npz")
    folder.finish()
