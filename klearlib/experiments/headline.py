"""Notebook 10: from curated data to final scores (sections 3 and 4, Table 1, Fig. 1)."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from klearlib.errors import ParameterError
from klearlib.experiments.arms import Start, filtered_code_start, rl_stage, rule_spec
from klearlib.experiments.curation_stages import DOMAIN_WORDS
from klearlib.experiments.data_arms import DataArms
from klearlib.experiments.origins.base import Joint
from klearlib.experiments.running import finished, plan_table, train
from klearlib.params.declared_headline import CodeRLPhase, MathsRLPhase
from klearlib.params.notebooks import HeadlineParams
from klearlib.run.stage import Stage
from klearlib.suite.estimate import WINDOW_SIZE

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

NOTEBOOK = "10_headline"
DOMAINS = tuple(DOMAIN_WORDS)
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


class Pipeline:
    """The stages of a profile's pipelines: one base model and one SFT checkpoint for all seeds,
    then RL on mathematics and on code for each, by GPPO.

    Raises:
        ParameterError: the longer budget does not fit into the positions that YaRN makes.
    """

    def __init__(self, params: HeadlineParams):
        data = DataArms(params.profile, params.curation)
        self._params, self._origin, joint = params, data.origin, data.origin.joint
        self.joint = joint
        _check_positions(joint, params.yarn_factor)
        self.curated = {domain: data.curated(domain) for domain in DOMAINS}
        self.selections = {
            domain: data.chosen_sources(domain, most=joint.num_sources[domain], size=size)
            for domain, size in joint.sft_sizes.items()
        }
        self.stages = self._origin.joint_stages(
            list(self.selections.values()), seed=params.seeds[0], sft=params.sft_phase
        )
        self.pools = {
            "math": self._majority(data, params.maths_phase),
            "code": self._trusted(params),
        }
        start = Start(
            profile=params.profile,
            world=self.stages["world"],
            sft=self.stages["sft"],
            benchmarks={},  # every model is measured at the end of its phase, at both budgets
            num_validation=joint.num_validation,
            validation_responses=joint.validation_responses,
            max_new_tokens=joint.max_new_tokens,
            compute=self._origin.compute,
        )
        self.trained: dict[tuple[str, int], Stage] = {}
        for seed in params.seeds:
            first = replace(start, pool=self.pools["math"])
            after = self._rl(first, params.maths_phase, label="maths RL", seed=seed)
            second = replace(start, pool=self.pools["code"], sft=after)
            final = self._rl(second, params.code_phase, label="code RL", seed=seed)
            self.trained |= {("maths_rl", seed): after, ("code_rl", seed): final}

    def _majority(self, data: DataArms, phase: MathsRLPhase) -> Stage:
        """The problems whose answer most of a teacher's responses reach (3.2.1)."""
        teacher, (pool, file) = self._origin.majority_teacher(), data.pool()
        if teacher is None:
            return pool
        return Stage(
            "majority_filter",
            "klearlib.curation.filters:keep_by_pass_rate",
            {"threshold": phase.threshold, "keep_equal": False, "problems": file},
            {
                "world": pool,
                "pass_rates": data.responses(teacher, num_responses=phase.teacher_responses),
            },
            label="maths problems kept by the majority of a teacher's responses",
            estimate_s=2.0,
        )

    def _trusted(self, params: HeadlineParams) -> Stage:
        """The problems whose tests a teacher's programs pass (5.2.4)."""
        start = filtered_code_start(
            params.profile, options=params.filter_options, limits=params.rl_options
        )
        return start.pool or start.world

    def setting(self, series: str) -> dict:
        """The token budget at which a series of `MODELS` is measured, and the factor of YaRN where
        it has one."""
        joint, yarn = self.joint, {"yarn_factor": self._params.yarn_factor}
        if joint.yarn_original is not None:
            yarn["yarn_original"] = joint.yarn_original
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
            engine=params.engine,
            **schedule,
        )

    def _evaluate(self, domain: str, model: Stage, series: str, seed: int) -> Stage:
        options, params = self._params.curation, self._params
        num_responses = params.maths_responses if domain == "math" else params.code_responses
        sizes = self.joint.benchmarks[domain]
        num_problems = sum(size or WINDOW_SIZE for size in sizes.values())
        return Stage(
            "evaluate",
            "klearlib.evaluate.stage:evaluate_benchmarks",
            {
                "seed": seed,
                "benchmarks": sizes,
                "num_responses": num_responses,
                "temperature": options.eval_temperature,
                "top_p": options.eval_top_p,
                "test_timeout_s": options.test_timeout_s,
                "test_memory_mb": options.test_memory_mb,
                "compute": self._origin.compute,
                **self.setting(series),
            },
            {"world": self.stages["world"], "model": model},
            label=f"{DOMAIN_WORDS[domain]} benchmarks: {MODELS[series]}, seed {seed}",
            estimate_s=3 + num_problems * num_responses / 80,
        )


def _check_positions(joint: Joint, yarn_factor: float) -> None:
    needed = joint.longest_prompt + joint.extended_max_new_tokens
    stretched = int(joint.max_positions * yarn_factor)
    if needed > stretched:
        raise ParameterError(
            f"yarn_factor {yarn_factor:g} stretches max_positions {joint.max_positions} to "
            f"{stretched}, but extended_max_new_tokens {joint.extended_max_new_tokens} after the "
            f"longest prompt needs {needed}: give a factor of {needed / joint.max_positions:.2f} "
            "or more, or a smaller budget"
        )


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
