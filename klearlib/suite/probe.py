"""``klear new --probe``: a learning rate at which clipping acts, by a few RL steps at several."""

from __future__ import annotations

import shutil
from dataclasses import replace

from klearlib.errors import KlearError
from klearlib.experiments.catalogue import check
from klearlib.experiments.experiment import runs_dir
from klearlib.experiments.origins import origin
from klearlib.experiments.rl_stages import rl_arm
from klearlib.params import load_profile
from klearlib.rl.alarms import share_outside, untrained
from klearlib.run.entry import read_metrics

FACTORS, NUM_STEPS, ENOUGH = (1, 4, 16), 3, 0.01
"""Multiples of the guessed rate; RL steps at each; the share of tokens outside the clip range below
which rules hardly differ."""


def probe(profile: str, guess: float) -> tuple[float, str]:
    """The smallest of the rates `FACTORS` x `guess` at which `ENOUGH` of the tokens of GPPO's first
    steps in `profile` are outside the clip range, or the largest rate if there is none; and what
    was found, in words. No run is kept.

    Raises KlearError: nothing was trained.
    """
    from klearlib.run.pool import run_stages  # 80 modules

    params = check("05_clipping", load_profile(profile, "05_clipping"))
    start = replace(origin(profile).start("math"), benchmarks={}, deciding={})
    how = {"seed": 0, "num_steps": NUM_STEPS, "eval_every": NUM_STEPS}
    stages = {
        rate: rl_arm(params, start, label=f"probe of {rate:.1e}", learning_rate=rate, **how)
        for rate in (factor * guess for factor in FACTORS)
    }
    run_stages([*stages.values()], runs_dir=runs_dir(), workers=params.workers)
    logged = {}
    for rate, stage in stages.items():
        logged[rate] = read_metrics(stage.folder(runs_dir()))
        shutil.rmtree(stage.folder(runs_dir()))
    if why := untrained(logged[min(logged)]):
        raise KlearError(f"the probe trained nothing, so the rate is still a guess: {why}")
    shares = {rate: share_outside(lines) for rate, lines in logged.items()}
    found = ", ".join(f"{100 * share:.2f} % at {rate:.1e}" for rate, share in shares.items())
    enough = [rate for rate, share in shares.items() if share >= ENOUGH]
    which = "the smallest with 1 %" if enough else "the largest, because none has 1 %"
    found = f"{which} of tokens outside the clip range ({found})"
    return min(enough, default=max(shares)), found
