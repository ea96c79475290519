"""The verdict of notebook 10: absolute scores, on the paper's own benchmarks alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from klearlib.errors import KlearError
from klearlib.experiments.benchmarks import REAL
from klearlib.experiments.headline_scores import Gathered, sampling_interval
from klearlib.experiments.verdict_dicts import decide_absolute, is_paper_scale
from klearlib.paper import claim
from klearlib.params import uses_miniature
from klearlib.records import EvalRecord
from klearlib.report.section import NOT_RUN

if TYPE_CHECKING:
    import numpy as np

_BUDGETS = {"code_rl": "32K", "code_rl_long": "64K"}
_SAMPLING = {"temperature": 0.6, "top_p": 0.95}
_LENGTHS = {
    "32K": {"max_tokens": 32768, "yarn_factor": None},
    "64K": {"max_tokens": 65536, "yarn_factor": 2.5},
}
"""How the paper's numbers were drawn, by the keys of a sampling record."""
_STANDS_FOR = (
    "profile paper, which measures AIME, HMMT and LiveCodeBench with the paper's base model; what "
    "stands for them here is never held against the paper's numbers"
)
_SMALLER = "profile paper: the same benchmarks with the paper's base model, data and budgets"


def measured_numbers(by_budget: Mapping[str, Mapping[str, EvalRecord]]) -> dict[str, np.ndarray]:
    """The numbers of C13 by their names in claims.yaml: correct, bool [P, n].

    Args:
        by_budget: "32K" or "64K" -> benchmark, by its name in
            `klearlib.curation.source_benchmarks.SIZES` -> record. Other benchmarks are left out:
            they are not those of the paper's numbers.

    Raises:
        KlearError: a record that was drawn in another way than the paper's number.

    >>> measured_numbers({"32K": {}})
    {}
    """
    measured = {}
    for budget, found in by_budget.items():
        for name, record in found.items():
            if name not in REAL:
                continue
            number = f"{REAL[name].paper}, {budget}"
            _check_sampling(number, record, _LENGTHS[budget] | _SAMPLING)
            measured[number] = record.correct
    return measured


def decided(have: Gathered) -> list[dict]:
    """The verdict on C13 by the rule of claims.yaml, from the final model of the first seed alone,
    never of the best one."""
    first = have.params.seeds[0]
    by_budget = {
        budget: {
            name: record
            for found in have.records.values()
            for name, record in found.get((series, first), {}).items()
        }
        for series, budget in _BUDGETS.items()
    }
    paper_scale = is_paper_scale(have.params.profile) and not uses_miniature(have.params)
    # Below paper scale the numbers are drawn otherwise, and nothing is decided by them.
    measured = measured_numbers(by_budget) if paper_scale else {}
    found = decide_absolute(claim("C13"), measured, paper_scale=paper_scale)
    if found["verdict"] == NOT_RUN:
        settle = _STANDS_FOR if uses_miniature(have.params) else _SMALLER
        found |= {"settle": settle, "measured": _for_information(have)}
    return [found]


def _check_sampling(number: str, record: EvalRecord, wanted: Mapping[str, float | None]) -> None:
    found = {name: record.sampling.get(name) for name in wanted}
    if found != dict(wanted):
        raise KlearError(
            f"{number}: drawn with {_in_words(found)}, the paper's number with "
            f"{_in_words(wanted)}: evaluate the model in that way"
        )


def _in_words(sampling: Mapping[str, float | None]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sampling.items())


def _for_information(have: Gathered) -> str:
    """Our scores of the final model at the base budget, as a text that compares nothing."""
    texts = []
    for name, about in have.named.items():
        records = have.of_series("code_rl", name)
        if not records:
            continue
        corrects = [record.correct for record in records.values()]
        mean = 100 * sum(correct.mean() for correct in corrects) / len(corrects)
        low, high = (100 * bound for bound in sampling_interval(corrects))
        problems, responses = corrects[0].shape
        size = f"{problems} problems x {responses} responses x {len(corrects)} seeds"
        texts.append(f"{about.title} {mean:.1f} [{low:.1f}, {high:.1f}] ({size})")
    return f"not comparable: {'; '.join(texts)}" if texts else ""
