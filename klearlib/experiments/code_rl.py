"""What the notebooks on RL with programs, 07 and 08, share."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

from klearlib.experiments.benchmarks import curve_titles, standing_for
from klearlib.experiments.experiment import Experiment
from klearlib.experiments.origins import Origin, Start, origins
from klearlib.experiments.registered import CODE_RL
from klearlib.experiments.rl_stages import filtered_code_start, rl_arm
from klearlib.experiments.score_tables import learning_table, score_panel
from klearlib.experiments.shown import Frame, table
from klearlib.report.curves import Panel
from klearlib.run.stage import Stage

DECIDED_ON = "LiveCodeBench V5"
"""The paper's benchmark that the claims about scores are about."""


class CodeRL(Experiment):
    """Two arms of RL on programs by GPPO.

    series: the arms. paper_figure: the paper's figure of their scores. what: they differ in.
    """

    phase = "RL for code"
    replicated = CODE_RL
    series: ClassVar[tuple[str, str]]
    paper_figure: ClassVar[str]
    what: ClassVar[str]

    @cached_property
    def origins(self) -> dict[int, Origin]:
        return origins(self.params.profile, self.params.seeds)

    def filtered(self, of: Origin) -> Start:
        """World and SFT checkpoint, without the problems that the test filter drops."""
        p = self.params
        return filtered_code_start(of, options=p.filter_options, limits=p.rl_options)

    def arm(self, start: Start, *, seed: int, code_reward: str) -> Stage:
        problems = "all" if start.pool is None else "kept"
        label = f"{code_reward} reward, {problems} problems"
        return rl_arm(self.params, start, label=label, seed=seed, code_reward=code_reward)

    @cached_property
    def drawn(self) -> str:
        """The benchmark where the paper has LiveCodeBench V5."""
        return standing_for(self.params.profile, DECIDED_ON)

    def score_panel(self) -> Panel:
        return score_panel(self.params, self.runs, self.drawn, self.paper_figure)

    @table(
        "Scores at the first and last step: avg@{p.eval_responses} at temperature 0.6 for the two "
        "windows, rate right at temperature 1 for the validation set; right is a program that "
        "passes every test; mean over seeds, 95 % t interval.",
    )
    def scores(self) -> Frame:
        return learning_table(
            self.runs,
            series=self.series,
            benchmarks=curve_titles(self.params.profile, "code"),
            paper_figures={self.drawn: self.paper_figure},
            what=self.what,
            tests=True,
        )

    def notes(self) -> list[str]:
        return [
            *self.departures("options", "test_filter"),
            "A score counts a program as right if it passes every test of its problem. "
            + self.note_on_seeds("the SFT checkpoint"),
            "Clipping by GPPO, with the loss on correct responses at the weight alpha; the paper "
            "does not say what its Figs. 3 and 4 used.",
        ]
