"""What the notebooks on RL with mathematics share: their arms' settings, benchmarks and words."""

from __future__ import annotations

from klearlib.experiments.arms import Start, rl_stage, rule_spec
from klearlib.params import RLOptions
from klearlib.params.notebooks import AlphaSweepParams, ClippingParams, ZeroAdvantageParams
from klearlib.run.stage import Stage

MathsRLParams = ClippingParams | AlphaSweepParams | ZeroAdvantageParams


def maths_arm(
    params: MathsRLParams,
    start: Start,
    *,
    label: str,
    seed: int,
    learning_rate: float,
    alpha: float,
    rule: str = "gppo",
    options: RLOptions | None = None,
) -> Stage:
    """One maths-RL run with the settings of `params`; equal arms of the notebooks are one run.

    Args:
        label: for people. options: those of `params` where None.
    """
    options = params.rl_options if options is None else options
    return rl_stage(
        start,
        label=label,
        rule=rule_spec(rule, eps_low=params.eps_low, eps_high=params.eps_high, options=options),
        seed=seed,
        num_steps=params.num_steps,
        num_problems=params.num_problems,
        group_size=params.group_size,
        mini_batch_problems=params.mini_batch_problems,
        learning_rate=learning_rate,
        alpha=alpha,
        eval_every=params.eval_every,
        eval_responses=params.eval_responses,
        options=options,
        engine=params.engine,
    )
