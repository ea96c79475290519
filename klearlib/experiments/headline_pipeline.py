"""The stages of notebook 10, and what is measured of its models so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from klearlib.data.benchmarks import SIZES
from klearlib.errors import ParameterError
from klearlib.experiments.benchmarks import REAL, WINDOW_SIZE, Named, named
from klearlib.experiments.experiment import Experiment
from klearlib.experiments.origins import DOMAIN_WORDS, Joint, Origin, Start, origins
from klearlib.experiments.results import Arm
from klearlib.experiments.rl_stages import filtered_code_start, rl_arm
from klearlib.experiments.shown import changed_options
from klearlib.params import SMOKE, DataOptions, RLOptions, require_profile
from klearlib.params.data import SFTPhase
from klearlib.params.fields import amended, count, parameter
from klearlib.params.options import check_schedule
from klearlib.params.rl import ALPHA, RATE, FilteredParams, RLSchedule
from klearlib.params.statistics import WORLDS
from klearlib.real.assets import located
from klearlib.rl.settings import JUDGED_BY
from klearlib.run.stage import Stage

if TYPE_CHECKING:
    from klearlib.evaluate.counts import Evaluation

DOMAINS = tuple(DOMAIN_WORDS)
MODELS = {
    "base": "base model",
    "sft": "SFT",
    "maths_rl": "maths RL",
    "code_rl": "code RL",
    "code_rl_yarn": "code RL, YaRN",
    "code_rl_long": "code RL, longer budget",
}
"""What is measured, by series: each model at the base budget; the final one also with YaRN at the
base budget, to show what the static factor does, and at the longer budget, which needs YaRN."""
_FINAL = ("code_rl", "code_rl_yarn", "code_rl_long")  # settings of one model
_TRAINED = ("maths_rl", "code_rl")  # a model for each seed; of the others only one
_WORLDS = ("miniature", "code_miniature", "data_miniature", "joint_miniature")
_NOT_OF_RL = ("teacher_responses", "threshold")  # fields of a phase that choose its problems
BUDGET = "64K"
"""Of the published responses, by Table 1's scores."""
_NUM_RESPONSES = 64
PUBLISHED = "benchmarks/*_inference_avg64.jsonl.zip of github.com/suu990901/KlearReasoner, unpacked"


@dataclass(frozen=True)
class MathsRLPhase(RLSchedule):
    """RL on mathematics, from the SFT checkpoint."""

    mini_batch_problems = amended(paper=16)
    learning_rate: float = parameter(3.0e-4, **RATE, paper=1.0e-6, place="RL settings")
    teacher_responses: int = count(
        "strong teacher's responses per problem, for its pass rate",
        default=4,
        paper=16,
        place="3.2.1: majority of 16 responses",
    )
    threshold: float = parameter(
        0.0,
        minimum=0.0,
        maximum=1.0,
        help="pass rate above which a problem is kept",
        paper=0.5,
        place="3.2.1: majority of n responses",
    )


@dataclass(frozen=True)
class CodeRLPhase(RLSchedule):
    """RL on code, from the checkpoint of the RL on mathematics."""

    num_problems = amended(4)
    mini_batch_problems = amended(paper=32)
    learning_rate: float = parameter(3.0e-4, **RATE, paper=5.0e-7, place="RL settings")


_PHASES = {"sft": SFTPhase, "maths_rl": MathsRLPhase, "code_rl": CodeRLPhase}


def _phase(name: str, place: str) -> dict:
    record = _PHASES[name]
    words = f"all values of {record.__name__}; {{}} means smoke's values"
    return parameter({}, record=record, help=words, place=place)


@dataclass(frozen=True)
class ReleasedParams:
    """The published responses to one benchmark of Table 1."""

    responses: str = parameter(help="the file of 64 responses to each problem")
    problems: str | None = parameter(None, help="a file of the benchmark, null for the hub")


@dataclass(frozen=True)
class HeadlineParams(FilteredParams):
    """Notebook 10: from curated data to the scores of Table 1 (Sections 3, 4; Fig. 1)."""

    worlds: ClassVar[tuple[str, ...]] = _WORLDS

    seeds = amended(
        help="one pipeline per seed; the first decides C13",
        paper="1 run",
        place="Table 1: one number per cell, no error bars",
    )
    sft: dict = _phase("sft", "SFT")
    maths_rl: dict = _phase("maths_rl", "RL settings, maths")
    code_rl: dict = _phase("code_rl", "RL settings, code")
    alpha: float = parameter(0.1, **ALPHA, paper=0.1, place="RL settings, Table 6")
    maths_responses: int = count(
        "responses per maths problem", default=1, paper=64, place="Table 1: avg@64"
    )
    code_responses: int = count(
        "responses per code problem", default=1, paper=8, place="Table 1: avg@8"
    )
    yarn_factor: float = parameter(
        2.5, above=1.0, help="of the longer budget", paper=2.5, place="main results, 64K budget"
    )
    data_options: dict = parameter({}, record=DataOptions, help="fields of DataOptions that differ")
    released_responses: dict = parameter(
        {},
        entries=ReleasedParams,
        may_be_empty=True,
        help="benchmark -> the authors' published responses",
    )

    def __post_init__(self) -> None:
        for name, record in _PHASES.items():
            values = getattr(self, name)
            missing = [each.name for each in fields(record) if each.name not in values]
            if not values and require_profile(self.profile) != SMOKE:
                raise ParameterError(
                    f"{name} is {{}}, which means smoke's values: give all values of "
                    f"{record.__name__} for profile {self.profile!r}"
                )
            if values and missing:
                raise ParameterError(f"{name} lacks {', '.join(missing)}: give all of its values")
            # What runs is what is shown, kept in the section and compared.
            object.__setattr__(self, name, asdict(record(**values)))
        for phase in map(self.phase, _TRAINED):
            check_schedule(
                num_problems=phase.num_problems,
                mini_batch_problems=phase.mini_batch_problems,
                options=self.options,
                eps_high=self.eps_high,
            )

    def phase(self, name: str):
        return _PHASES[name](**getattr(self, name))


@dataclass(frozen=True)
class Groundwork:
    """What one world has before RL: its data, its model for both domains, and RL's problems.

    seed: of the SFT.
    """

    params: HeadlineParams
    data: Origin
    seed: int

    @cached_property
    def joint(self) -> Joint:
        """The model for both domains.

        Raises:
            ParameterError: the profile names no longer budget, or it does not fit into the
                positions that YaRN makes.
        """
        joint, yarn_factor = self.data.joint, self.params.yarn_factor
        positions, budget = joint.params.max_positions, joint.params.extended_max_new_tokens
        if budget is None:
            raise ParameterError("extended_max_new_tokens is missing in real.yaml: add it")
        needed, stretched = joint.longest_prompt + budget, int(positions * yarn_factor)
        if needed > stretched:
            raise ParameterError(
                f"yarn_factor {yarn_factor:g} stretches max_positions {positions} to {stretched}, "
                f"but extended_max_new_tokens {budget} after the longest prompt needs {needed}: "
                f"give a factor of {needed / positions:.2f} or more, or a smaller budget"
            )
        return joint

    @cached_property
    def selections(self) -> dict[str, Stage]:
        return self.data.joint_selections()

    @cached_property
    def models(self) -> dict[str, Stage]:
        """The stages ``world``, ``base``, ``examples`` and ``sft``."""
        p, chosen = self.params, list(self.selections.values())
        how = {"sft": p.phase("sft"), "yarn_factor": p.yarn_factor}
        return self.data.joint_stages(chosen, seed=self.seed, **how)

    @cached_property
    def pools(self) -> dict[str, Stage]:
        """Domain -> the problems that RL draws from: maths problems that most of a teacher's
        responses solve (3.2.1), code problems whose tests a teacher's programs pass (5.2.4)."""
        p, phase, data = self.params, self.params.phase("maths_rl"), self.data
        trusted = filtered_code_start(data, p)
        teacher, (pool, file) = data.majority_teacher(), data.pool()
        if teacher is not None:
            answers = data.responses(teacher, num_responses=phase.teacher_responses)
            pool = Stage(
                "majority_filter",
                "klearlib.curation.pass_rates:keep_by_pass_rate",
                {"threshold": phase.threshold, "keep_equal": False, "problems": file},
                {"world": pool, "pass_rates": answers},
                label="maths problems kept by the majority of a teacher's responses",
                estimate_s=2.0,
            )
        return {"math": pool, "code": trusted.pool or trusted.world}

    def start(self, domain: str, model: Stage | None = None) -> Start:
        """RL on a domain from `model`, None for the SFT checkpoint; during it only validation is
        measured."""
        joint = self.joint.params
        return Start(
            profile=self.params.profile,
            world=self.models["world"],
            sft=model or self.models["sft"],
            benchmarks={},  # every model is measured at the end of its phase, at both budgets
            num_validation=joint.num_validation,
            validation_responses=joint.validation_responses,
            max_new_tokens=joint.max_new_tokens,
            compute=self.data.compute,
            pool=self.pools[domain],
        )


class Pipeline(Experiment):
    """A profile's pipelines: base model and SFT checkpoint, one of each world, then RL on
    mathematics and on code for each seed, by GPPO."""

    name = "10_headline"
    replicated = "headline"
    Params = HeadlineParams

    @cached_property
    def groundworks(self) -> dict[int, Groundwork]:
        """Seed -> what its RL starts from: one for all, with the first seed's SFT, or that of its
        own world."""
        p = self.params
        found = origins(p.profile, p.seeds, DataOptions(**p.data_options))
        if self.statistics.design == WORLDS:
            return {seed: Groundwork(p, data, seed=seed) for seed, data in found.items()}
        return dict.fromkeys(p.seeds, Groundwork(p, found[p.seeds[0]], seed=p.seeds[0]))

    @property
    def first(self) -> Groundwork:
        """The first seed's, which tables on data and on models before RL show."""
        return self.groundworks[self.params.seeds[0]]

    @property
    def joint(self) -> Joint:
        return self.first.joint

    @cached_property
    def arms(self) -> dict[Arm, Stage]:
        """(phase of RL, seed) -> its run, which ends with the model of that name."""
        p, found = self.params, {}
        for seed, ground in self.groundworks.items():
            model = ground.models["sft"]
            for series, domain in zip(_TRAINED, DOMAINS, strict=True):
                how = {k: v for k, v in getattr(p, series).items() if k not in _NOT_OF_RL}
                how |= {"eval_every": how["num_steps"], "eval_responses": 1, "seed": seed}
                start = ground.start(domain, model)
                model = found[series, seed] = rl_arm(p, start, label=MODELS[series], **how)
        return found

    def setting(self, series: str) -> dict:
        """The token budget at which a series of `MODELS` is measured, and any YaRN factor."""
        joint = self.joint
        yarn = {"yarn_factor": self.params.yarn_factor, "yarn_original": joint.yarn_original}
        if series == "code_rl_long":
            return {"max_new_tokens": joint.params.extended_max_new_tokens, **yarn}
        base = {"max_new_tokens": joint.params.max_new_tokens}
        return base | yarn if series == "code_rl_yarn" else base

    def setting_text(self, series: str) -> str:
        setting = self.setting(series)
        words = f"{setting['max_new_tokens']} tokens"
        return f"{words}, YaRN {setting['yarn_factor']:g}" if "yarn_factor" in setting else words

    @cached_property
    def measured(self) -> dict[str, dict[Arm, Stage]]:
        """Domain -> (series of `MODELS`, seed) -> that model on the benchmarks of the domain,
        round-robin over seeds; base model and SFT checkpoint under the first seed of a world."""
        worlds = {id(each): seed for seed, each in reversed(self.groundworks.items())}
        arms = [(series, seed) for seed in worlds.values() for series in ("base", "sft")]
        arms += [(series, seed) for seed in self.params.seeds for series in list(MODELS)[2:]]
        return {domain: {arm: self._evaluate(domain, *arm) for arm in arms} for domain in DOMAINS}

    def responses_to(self, domain: str) -> int:
        """How many responses each problem of a domain's benchmarks has."""
        return self.params.maths_responses if domain == "math" else self.params.code_responses

    def _evaluate(self, domain: str, series: str, seed: int) -> Stage:
        sizes, num_responses = self.joint.benchmarks[domain], self.responses_to(domain)
        num_problems = sum(size or WINDOW_SIZE for size in sizes.values())
        trained = series if series in _TRAINED else _TRAINED[-1]
        setting, ground = self.setting(series), self.groundworks[seed]
        if domain == "math" and series in _FINAL and self.joint.deciding:
            setting["deciding"] = self.joint.deciding
        changed = changed_options(asdict(self.params.rl_options), RLOptions)
        setting |= {name: changed[name] for name in JUDGED_BY if name in changed}
        return ground.data.measured(
            domain,
            ground.models.get(series) or self.arms[trained, seed],
            world=ground.models["world"],
            label=f"{DOMAIN_WORDS[domain]} benchmarks: {MODELS[series]}, seed {seed}",
            seed=seed,
            num_responses=num_responses,
            estimate_s=3 + num_problems * num_responses / 80,
            benchmarks=sizes,
            **setting,
        )

    @cached_property
    def released(self) -> dict[Arm, Stage]:
        """(benchmark, 0) -> the stage that judges the published responses to it.

        Raises:
            ParameterError: a benchmark that is not a maths one of Table 1, or a missing file.
        """
        known, found = [name for name, about in REAL.items() if about.domain == "math"], {}
        for name, where in self.params.released_responses.items():
            if name not in known:
                raise ParameterError(f"released_responses: {name} is not one of {', '.join(known)}")
            places = {key: place and str(located(place)) for key, place in where.items()}
            if absent := [each for each in places.values() if each and not Path(each).exists()]:
                raise ParameterError(
                    f"released_responses: {name}: no file at {absent[0]}: fetch {PUBLISHED}, or "
                    "correct the path"
                )
            found[name, 0] = Stage(
                "released",
                "klearlib.evaluate.judging:judge_released",
                {"benchmark": name, **places, "num_responses": _NUM_RESPONSES},
                label=f"released responses to {REAL[name].title}",
                estimate_s=SIZES[name] * _NUM_RESPONSES / 40,
            )
        return found

    def run_sets(self) -> dict[str, Mapping[Arm, Stage]]:
        return super().run_sets() | self.measured | {"released": self.released}

    # what is measured so far

    @cached_property
    def named(self) -> dict[str, Named]:
        return named(self.params.profile)

    @cached_property
    def released_records(self) -> dict[str, Evaluation]:
        """The paper's benchmark -> the record of the published responses to it, where judged."""
        runs = self.done("released")
        return {REAL[name].paper: runs.end((name, 0), name) for name, _ in runs.runs}

    def records(self, series: str, benchmark: str) -> dict[int, Evaluation]:
        """Seed -> what was measured of a model on a benchmark, where it is done."""
        return self.done(self.named[benchmark].domain).ends(series, benchmark)
