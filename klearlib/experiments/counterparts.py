"""Which of the paper's tables and figures each notebook has a counterpart of."""

from __future__ import annotations

from dataclasses import dataclass

from klearlib.params import NOTEBOOKS
from klearlib.report.section import Counterpart

_COUNTERPARTS = {
    "02_data_correctness": (
        Counterpart("Table 2", "correct or mixed responses, by difficulty", ("table2",)),
    ),
    "03_teacher_ablation": (Counterpart("Table 3", "students of several teachers", ("table3",)),),
    "04_topk_diversity": (
        Counterpart("Table 4", "few or many sources, mathematics", ("tables4_5",)),
        Counterpart("Table 5", "few or many sources, code", ("tables4_5",)),
    ),
    "05_clipping": (
        Counterpart("Fig. 2a", "clipping rules, mathematics", ("fig2",)),
        Counterpart("Fig. 2b", "clipping rules, code", ("fig2",)),
        Counterpart("Fig. 2c", "clipping rules, gradient norm", ("fig2",)),
    ),
    "06_alpha_sweep": (Counterpart("Table 6", "the weight of the LM loss", ("table6", "scores")),),
    "07_soft_reward": (
        Counterpart("Fig. 3a", "soft or hard reward, scores", ("fig3",)),
        Counterpart("Fig. 3b", "soft or hard reward, rewards", ("fig3",)),
    ),
    "08_test_filter": (Counterpart("Fig. 4", "flawed tests filtered or not", ("fig4",)),),
    "09_zero_advantage": (
        Counterpart("Fig. 5a", "zero-advantage filter, scores", ("fig5",)),
        Counterpart("Fig. 5b", "zero-advantage filter, rewards", ("fig5",)),
    ),
    "10_headline": (
        Counterpart("Table 1", "scores of all models", ("table1",)),
        Counterpart("Fig. 1", "final scores of all models", ("fig1",)),
    ),
}


@dataclass(frozen=True)
class Notebook:
    """A notebook as the report sees it."""

    name: str
    counterparts: tuple[Counterpart, ...]


def notebooks() -> list[Notebook]:
    """All notebooks of the suite, in the order of their numbers."""
    return [Notebook(name, _COUNTERPARTS.get(name, ())) for name in NOTEBOOKS]
