"""Notebook 09: groups without advantage, dropped or kept (section 5.2.5, Fig. 5)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from klearlib import paper
from klearlib.errors import ParameterError
from klearlib.experiments.benchmarks import counterparts, standing_for, titles
from klearlib.experiments.experiment import Experiment
from klearlib.experiments.nb07_soft_reward import SoftReward, SoftRewardParams
from klearlib.experiments.origins import Start, origins
from klearlib.experiments.results import Arm, Results
from klearlib.experiments.rl_stages import filtered_code_start, rl_arm
from klearlib.experiments.score_tables import difference, learning_table, paper_last, score_panel
from klearlib.experiments.shown import Figure, Frame, Rows, figure, table
from klearlib.params.fields import amended, count, parameter
from klearlib.params.options import NOT_STATED
from klearlib.params.rl import ALPHA, MATHS_RATE, MathsRLParams
from klearlib.report.curves import Panel, paper_beside_ours
from klearlib.report.section import Counterpart
from klearlib.report.verdicts import Evidence
from klearlib.run.stage import Stage

_FILTERS = {"filter": "advantage", "no_filter": "off"}  # arm -> `zero_advantage_filter`
_SOFT = "soft code reward"
# Only here no solved group feeds the LM loss; the arms still differ in the number of updates per
# step, which follows from the filter.
_DECIDED_AT = 0.0
_REWARD, _TRAINED = "rollout/reward_mean", "rollout/reward_mean_trained"


@dataclass(frozen=True)
class ZeroAdvantageParams(MathsRLParams):
    """Notebook 09: groups without advantage, dropped or kept (Section 5.2.5, Fig. 5)."""

    worlds: ClassVar[tuple[str, ...]] = ("miniature", "code_miniature")

    seeds = amended(paper="1 run per arm", place="Fig. 5: one line per arm, no error bars")
    alphas: list[float] = parameter(
        [0.0, 0.1],
        **ALPHA | {"help": "weights of the LM loss, each with and without filter"},
        unique=True,
        paper=NOT_STATED,
        place="Fig. 5 does not say; 0.1 for the final model (Table 6)",
    )
    soft_filters: list[str] = parameter(
        ["advantage", "accuracy"],
        choices=("off", "advantage", "accuracy"),
        may_be_empty=True,
        unique=True,
        help="filters compared on 07's soft reward",
        paper="advantage (text), accuracy (released code)",
        place="5.2.5",
    )
    branch_steps: int = count(
        "RL steps with the filter that the maths arms branch from, 0: from SFT",
        minimum=0,
        default=2,
        paper=30,
        place="5.2.5: intermediate RL checkpoint; Fig. 5: first plotted step",
    )
    num_steps = amended(
        help="RL steps after it", paper=70, place="Fig. 5: from the first to the last plotted step"
    )
    learning_rate: float = parameter(3.0e-4, **MATHS_RATE)
    eval_every = amended(paper=5, place="Fig. 5a: distance of the points")
    eval_responses = amended(paper=32, place="Fig. 5a: avg@32")

    def __post_init__(self) -> None:
        super().__post_init__()
        if "zero_advantage_filter" in self.options:
            raise ParameterError(
                "options: zero_advantage_filter is what this notebook compares: leave it out"
            )


class ZeroAdvantage(Experiment):
    """Several comparisons of filters: on mathematics at each alpha, and on the soft code reward."""

    name = "09_zero_advantage"
    title = "Groups without advantage, dropped or kept"
    section = "5.2.5"
    question = (
        "Does leaving out the groups whose advantages are all zero train a better policy, and more "
        "steadily?"
    )
    phase = "RL for mathematics"
    Params = ZeroAdvantageParams
    counterparts = (
        Counterpart("Fig. 5a", "zero-advantage filter, scores", ("fig5",)),
        Counterpart("Fig. 5b", "zero-advantage filter, rewards", ("fig5",)),
    )

    @cached_property
    def soft(self) -> SoftRewardParams:
        """How the runs on the soft code reward are trained: as the profile's notebook 07."""
        return SoftReward.params_of(self.params.profile)

    @property
    def avg_on_code(self) -> str:
        return f", avg@{self.soft.eval_responses} for code" if self.params.soft_filters else ""

    def reads(self) -> dict[str, object]:
        return {SoftReward.name: self.soft} if self.params.soft_filters else {}

    @cached_property
    def comparisons(self) -> list[str]:
        return [*map(_at, self.params.alphas), *([_SOFT] if self.params.soft_filters else [])]

    @cached_property
    def arms(self) -> dict[Arm, Stage]:
        """("comparison: arm", seed) -> its run by GPPO. On mathematics both arms continue from one
        checkpoint of RL with the filter, at their alpha, which may be an arm of 05 or 06;
        "advantage" on the code reward is 07's soft arm, if that notebook has the same engine."""
        p = self.params

        def arm(params, start: Start, kind: str, **how) -> Stage:
            options = replace(params.rl_options, zero_advantage_filter=kind)
            return rl_arm(params, start, options=options, **how)

        found = {}
        for seed, of in origins(p.profile, p.seeds).items():
            for alpha in p.alphas:
                maths, how = of.start("math"), {"seed": seed, "alpha": alpha}
                if steps := p.branch_steps:
                    label = f"checkpoint to branch from, {_at(alpha)}"
                    first = arm(p, maths, "advantage", label=label, num_steps=steps, **how)
                    maths, how = replace(maths, sft=first), how | {"steps_before": steps}
                for name, kind in _FILTERS.items():
                    label = f"{name.replace('_', ' ')}, {_at(alpha)}"
                    found[f"{_at(alpha)}: {name}", seed] = arm(p, maths, kind, label=label, **how)
            for kind in p.soft_filters:
                soft = replace(self.soft, engine=p.engine)
                code = filtered_code_start(of, soft)
                how = {"seed": seed, "code_reward": "soft", "label": f"soft reward, {kind} filter"}
                found[f"{_SOFT}: {kind}", seed] = arm(soft, code, kind, **how)
        return found

    @cached_property
    def drawn(self) -> str:
        return standing_for(self.params.profile, "AIME 2024")

    @figure(
        "The paper's Fig. 5 and ours, at the alpha of the first panel. Middle: the mean reward of "
        "the groups that the filter leaves, as in the paper; right: of all rollouts, before any "
        "filter.",
        alt="Six panels. Top: the paper's curves for AIME 2024 and the mean reward with and "
        "without the filter, dashed. Below: ours for the first maths benchmark, the mean reward of "
        "the groups trained on, and that of all rollouts, mean over seeds; last, the score with "
        "the filter minus that without, paired by seed, with a 95 % band.",
    )
    def fig5(self) -> Figure:
        p, printed = self.params, paper.figure("5b")
        at = _at(_DECIDED_AT if _DECIDED_AT in p.alphas else p.alphas[0])
        runs = self.runs.under(at)
        left, everything = map(runs.curve, (_TRAINED, _REWARD))
        title, y_label = "reward, groups trained on", "reward"
        return paper_beside_ours(
            [
                score_panel(p, runs, self.drawn, "5a", less="no_filter", also=f", {at}"),
                Panel(printed.attrs["metric"], title, printed, left, y_label),
                Panel("before any filter", "reward, all rollouts", None, everything, y_label),
            ]
        )

    @table(
        "Scores at the first and last step: avg@{p.eval_responses} for maths{e.avg_on_code}, "
        "temperature 0.6; share right at temperature 1 for "
        "the validation sets; mean over seeds, 95 % t interval. The paper's last value is shown at "
        "both alphas, since the paper does not state its own.",
    )
    def scores(self) -> Frame:
        import pandas as pd

        parts = []
        for comparison in self.comparisons:
            domain, printed = ("code", {}) if comparison == _SOFT else ("math", {self.drawn: "5a"})
            how = {"paper_figures": printed, "what": "arm"}
            part = learning_table(self.runs.under(comparison), self.params.profile, domain, **how)
            part.insert(0, "comparison", comparison)
            parts.append(part)
        return pd.concat([each for each in parts if len(each)] or parts[-1:], ignore_index=True)

    @table(
        "What the filter changes at the last step, 95 % intervals paired by seed, not corrected.",
        columns="difference, benchmark, seeds, problems, value, low, high, interval_over, paper",
    )
    def effects(self) -> Rows:
        maths, code = (tuple(counterparts(self.params.profile, each)) for each in ("math", "code"))
        arms = {alpha: (_at(alpha), *_FILTERS) for alpha in self.params.alphas}
        printed = paper_last("5a", "filter") - paper_last("5a", "no_filter")
        for alpha, names in itertools.product(arms, [*((each,) for each in maths), maths]):
            # The paper does not state its alpha, so its difference is shown with each.
            beside = printed if names == (self.drawn,) else float("nan")
            name = f"filter - no filter, {_at(alpha)}"
            yield from self._effect(name, names, arms[alpha], paper=beside)
        for alpha in arms if 0.0 in arms else ():
            if alpha:  # the confound of D8
                name = f"the same, {_at(alpha)} less {_at(0.0)}"
                yield from self._effect(name, maths, arms[alpha], arms[0.0])
        for other, words in (("accuracy", "accuracy"), ("off", "no filter")):
            if {"advantage", other} <= set(self.params.soft_filters):
                for names in [*((each,) for each in code), code]:
                    name = f"advantage - {words}, {_SOFT}"
                    yield from self._effect(name, names, (_SOFT, "advantage", other))

    def _effect(
        self, name: str, benchmarks: Sequence[str], *terms: tuple[str, str, str], paper=np.nan
    ) -> Rows:
        """The row of a - b for a term (comparison, a, b), minus that of the next one; none without
        a common seed."""
        seeds = self.runs.common_seeds(f"{term[0]}: {arm}" for term in terms for arm in term[1:])
        if not seeds:
            return

        def scores(comparison: str, arm: str) -> np.ndarray:
            return self.runs.problem_scores(f"{comparison}: {arm}", seeds, benchmarks)

        deltas = [scores(comparison, a) - scores(comparison, b) for comparison, a, b in terms]
        total = deltas[0] - sum(deltas[1:])
        found = difference(total)
        where = titles(self.params.profile)[benchmarks[0]] if len(benchmarks) == 1 else "both"
        yield [name, where, *total.shape, *found, paper]

    def judged_on(self) -> dict[str, Results]:
        decided = self.runs.of(*(f"{_at(_DECIDED_AT)}: {arm}" for arm in _FILTERS))
        return super().judged_on() | dict.fromkeys(("C12", "C21"), decided)

    def evidence(self) -> dict[str, Evidence | str]:
        if _DECIDED_AT not in self.params.alphas:
            return dict.fromkeys(("C12", "C21"), f"alpha {_DECIDED_AT:g} was not asked for")
        runs = self.runs.under(_at(_DECIDED_AT))
        filtered = runs.of("filter").with_seeds(self.deciding_seeds)
        left = filtered.mean("rollout/groups_trained") / self.params.num_problems if filtered else 1
        checked = {"groups without advantage": 1 - left}
        return {
            "C12": self.compared("C12", runs, "math", where=", at alpha 0", checked=checked),
            "C21": self.compared("C21", runs, "math", checked=checked),
        }

    def notes(self) -> list[str]:
        start = "The arms start from the SFT checkpoint, the paper's from an RL checkpoint."
        if steps := self.params.branch_steps:
            start = (
                f"The arms on mathematics branch from RL with the filter after {steps} steps of "
                "the same seed, and continue with its order of problems and a new AdamW. Steps "
                "count from there; the paper's Fig. 5 starts at step 30."
            )
        return [
            *self.departures("options"),
            start,
            "AdamW undoes a factor that all updates share. What remains of keeping groups without "
            "advantage: mini-batches are diluted unequally; a step has as many updates as the "
            "groups drawn allow, not only as many as the groups left allow; and a mini-batch "
            "without any advantage still moves the weights, by momentum.",
            "Dilution alone makes the gradient norm smaller without the filter, so a smaller norm "
            "is no sign of steadier training.",
            "At alpha 0 no solved group feeds the loss on correct responses; the arms still differ "
            "in the number of updates per step, which follows from the filter.",
            "The paper does not say which alpha Fig. 5 used. At alpha above 0 solved groups that "
            "stay feed the loss on correct responses, so the filter switches two things at once "
            "(D8 of docs/deviations.md).",
            "The paper's reward curve with the filter falls because solved groups leave its mean. "
            "Its counterpart here is the mean reward of the groups that are trained on; the mean "
            "over all rollouts, which no filter touches, is shown next to it.",
            "The accuracy filter is the released code's: on a soft reward it also drops groups "
            "whose programs differ only in partial credit. Those runs have the settings of "
            "notebook 07, whose soft arm is the arm with the advantage filter.",
            "The arms of a seed share the order of problems. "
            + self.note_on_seeds("the SFT checkpoint"),
        ]


def _at(alpha: float) -> str:
    return f"alpha {alpha:g}"
