"""Notebook 10: from curated data to final scores (sections 3 and 4, Table 1, Fig. 1)."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from klearlib.errors import ParameterError
from klearlib.experiments.arms import Start, filtered_code_start, rl_stage, rule_spec
from klearlib.experiments.data_arms import DataArms
from klearlib.experiments.running import finished, plan_table, train
from klearlib.miniature.joint import BENCHMARK_SIZE, CODE_BENCHMARKS, MATHS_BENCHMARKS
from klearlib.miniature.stages import joint_stages
from klearlib.params import HeadlineParams, code_miniature, joint_miniature, miniature
from klearlib.params.declared_headline import CodeRLPhase, MathsRLPhase
from klearlib.params.worlds import JointMiniatureParams
from klearlib.run.stage import Stage

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

NOTEBOOK = "10_headline"
DOMAINS = {"math": MATHS_BENCHMARKS, "code": CODE_BENCHMARKS}
"""Domain -> its benchmarks in the miniature."""
DOMAIN_WORDS = {"math": "maths", "code": "code"}
MODELS = {
    "base": "base model",
    "sft": "SFT",
    "maths_rl": "maths RL",
    "code_rl": "code RL",
    "code_rl_yarn": "code RL, YaRN",
    "code_rl_long": "code RL, longer budget",
}
"""What is measured, by series: each model at the base budget, the final one also with YaRN at the
base budget, which shows what the static factor does, and at the longer one, which needs it."""
TRAINED = ("maths_rl", "code_rl")
"""The two phases of RL, by the series of the models that they end with."""
_NOT_OF_RL = ("teacher_responses", "threshold")  # fields of a phase that choose its problems
_TOP = 2  # sources of each domain: the best one or two are the paper's advice (Tables 4, 5)


class Pipeline:
    """The stages of a profile's pipelines: one base model and one SFT checkpoint for all seeds,
    then RL on mathematics and on code for each, by GPPO.

    Raises:
        ParameterError: the longer budget does not fit into the positions that YaRN makes.
    """

    def __init__(self, params: HeadlineParams):
        self._params = params
        self._joint = joint_miniature(params.profile)
        _check_positions(self._joint, params.yarn_factor)
        maths, code = miniature(params.profile), code_miniature(params.profile)
        data, sft = DataArms(params.profile, params.curation), params.sft_phase
        self.curated = {domain: data.curated(domain) for domain in DOMAINS}
        sizes = {"math": self._joint.sft_maths, "code": self._joint.sft_code}
        self.selections = {
            domain: data.chosen_sources(domain, most=_TOP, size=size)
            for domain, size in sizes.items()
        }
        self.stages = joint_stages(
            maths,
            code,
            self._joint,
            selections=list(self.selections.values()),
            seed=params.seeds[0],
            **asdict(sft),
        )
        # The problems whose answer most of the strong teacher's responses reach (3.2.1), and those
        # whose tests a teacher's programs pass (5.2.4).
        phase = params.maths_phase
        self.pools = {
            "math": Stage(
                "majority_filter",
                "klearlib.curation.filters:keep_by_pass_rate",
                {
                    "threshold": phase.threshold,
                    "keep_equal": False,
                    "problems": "problems.parquet",
                },
                {
                    "world": data.curated("math", pool_only=True),
                    "pass_rates": data.responses("strong", num_responses=phase.teacher_responses),
                },
                label="maths problems kept by the majority of a teacher's responses",
                estimate_s=2.0,
            ),
            "code": filtered_code_start(
                params.profile, options=params.filter_options, limits=params.rl_options
            ).pool,
        }
        start = Start(
            world=self.stages["world"],
            sft=self.stages["sft"],
            benchmarks={},  # every model is measured at the end of its phase, at both budgets
            num_validation=self._joint.num_validation,
            validation_responses=self._joint.validation_responses,
            max_new_tokens=self._joint.max_new_tokens,
        )
        self.trained: dict[tuple[str, int], Stage] = {}
        for seed in params.seeds:
            first = replace(start, pool=self.pools["math"])
            after = self._rl(first, params.maths_phase, label="maths RL", seed=seed)
            second = replace(start, pool=self.pools["code"], sft=after)
            final = self._rl(second, params.code_phase, label="code RL", seed=seed)
            self.trained |= {("maths_rl", seed): after, ("code_rl", seed): final}

    def setting(self, series: str) -> dict:
        """The token budget at which a series of `MODELS` is measured, and the factor of YaRN where
        it has one."""
        joint, yarn = self._joint, {"yarn_factor": self._params.yarn_factor}
        if series == "code_rl_long":
            return {"max_new_tokens": joint.extended_max_new_tokens, **yarn}
        base = {"max_new_tokens": joint.max_new_tokens}
        return base | yarn if series == "code_rl_yarn" else base

    def measured(self, domain: str) -> dict[tuple[str, int], Stage]:
        """(series of `MODELS`, seed) -> that model on the benchmarks of a domain, round-robin over
        seeds; base model and SFT checkpoint, of which there is one, under the first seed."""
        first = self._params.seeds[0]
        found = {
            (series, first): self._evaluate(domain, self.stages[series], series, first)
            for series in ("base", "sft")
        }
        for seed in self._params.seeds:
            for series in list(MODELS)[2:]:
                model = self.trained[series if series in TRAINED else TRAINED[-1], seed]
                found[series, seed] = self._evaluate(domain, model, series, seed)
        return found

    def _rl(
        self, start: Start, phase: MathsRLPhase | CodeRLPhase, *, label: str, seed: int
    ) -> Stage:
        params = self._params
        schedule = {k: v for k, v in asdict(phase).items() if k not in _NOT_OF_RL}
        rule = rule_spec(
            "gppo", eps_low=params.eps_low, eps_high=params.eps_high, options=params.rl_options
        )
        return rl_stage(
            start,
            label=label,
            rule=rule,
            seed=seed,
            alpha=params.alpha,
            eval_every=phase.num_steps,
            eval_responses=1,
            options=params.rl_options,
            **schedule,
        )

    def _evaluate(self, domain: str, model: Stage, series: str, seed: int) -> Stage:
        options, params = self._params.curation, self._params
        num_responses = params.maths_responses if domain == "math" else params.code_responses
        return Stage(
            "evaluate",
            "klearlib.evaluate.stage:evaluate_benchmarks",
            {
                "seed": seed,
                "benchmarks": _sizes(domain),
                "num_responses": num_responses,
                "temperature": options.eval_temperature,
                "top_p": options.eval_top_p,
                "test_timeout_s": options.test_timeout_s,
                "test_memory_mb": options.test_memory_mb,
                **self.setting(series),
            },
            {"world": self.stages["world"], "model": model},
            label=f"{DOMAIN_WORDS[domain]} benchmarks: {MODELS[series]}, seed {seed}",
            estimate_s=3 + len(DOMAINS[domain]) * BENCHMARK_SIZE * num_responses / 80,
        )


def _check_positions(joint: JointMiniatureParams, yarn_factor: float) -> None:
    # max_positions holds the base budget and the longest prompt.
    needed = joint.max_positions - joint.max_new_tokens + joint.extended_max_new_tokens
    stretched = int(joint.max_positions * yarn_factor)
    if needed > stretched:
        raise ParameterError(
            f"yarn_factor {yarn_factor:g} stretches max_positions {joint.max_positions} to "
            f"{stretched}, but extended_max_new_tokens {joint.extended_max_new_tokens} after the "
            f"longest prompt needs {needed}: give a factor of {needed / joint.max_positions:.2f} "
            "or more, or a smaller budget"
        )


def _sizes(domain: str) -> dict[str, int]:
    return dict.fromkeys(DOMAINS[domain], BENCHMARK_SIZE)


def domain_of(benchmark: str) -> str:
    """The domain of a benchmark.

    >>> domain_of("math_c")
    'math'
    """
    return next(domain for domain, names in DOMAINS.items() if benchmark in names)


def stages(params: HeadlineParams) -> list[Stage]:
    """All that the notebook asks for: every phase of RL and every evaluation."""
    made = Pipeline(params)
    return [
        *made.trained.values(),
        *made.measured("math").values(),
        *made.measured("code").values(),
    ]


def plan(params: HeadlineParams) -> pd.DataFrame:
    """The stages of this notebook; see `running.plan_table`."""
    return plan_table(stages(params))


def run(params: HeadlineParams) -> None:
    """Run all stages that are not done yet, and publish what there is as they finish."""
    from klearlib.experiments.headline_section import publish

    train(stages(params), workers=params.workers, publish=lambda: publish(params))


def finished_training(params: HeadlineParams) -> dict[tuple[str, int], Path]:
    """(series, seed) -> folder, of the phases of RL that are done."""
    return finished(Pipeline(params).trained)
