"""Notebook 01: from raw sources to the sets for SFT and RL (sections 3.1 and 3.2.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klearlib.experiments.data_arms import DataArms
from klearlib.experiments.running import plan_table, train
from klearlib.params.notebooks import CurationParams
from klearlib.run.stage import Stage

if TYPE_CHECKING:
    import pandas as pd

NOTEBOOK = "01_data_curation"
DOMAINS = ("math", "code")
RULES = ("used", "strict", "stop list")
"""Rules of overlap that are compared: phrases that all items of a family hold are cut out; nothing
is cut out; nothing is cut out, and what several items hold removes nothing."""


def curated(params: CurationParams) -> dict[tuple[str, str], Stage]:
    """(domain, rule of overlap) -> the sources after that rule."""
    data = DataArms(params.profile, params.data_options)
    how: dict[str, dict] = {
        "used": {},
        "strict": {"templates": (), "words": "strict overlap"},
        "stop list": {
            "templates": (),
            "stop_more_than": params.stop_list,
            "words": "overlap with a stop list",
        },
    }
    return {
        (domain, rule): data.curated(domain, **how[rule]) for rule in RULES for domain in DOMAINS
    }


def responses(params: CurationParams) -> dict[str, Stage]:
    """The judged responses to the maths pool: of the reference, for difficulty, and of the strong
    teacher, for the majority filter, unless the problems have passed it already."""
    data = DataArms(params.profile, params.data_options)
    found = {"reference": data.responses("reference", num_responses=params.reference_responses)}
    teacher = data.origin.majority_teacher()
    if teacher is not None:
        found["strong"] = data.responses(teacher, num_responses=params.num_responses)
    return found


def stages(params: CurationParams) -> list[Stage]:
    """All that the notebook asks for."""
    return [*curated(params).values(), *responses(params).values()]


def plan(params: CurationParams) -> pd.DataFrame:
    """The stages of this notebook; see `running.plan_table`."""
    return plan_table(stages(params))


def run(params: CurationParams) -> None:
    """Run all stages that are not done yet, and publish what there is as they finish."""
    from klearlib.experiments.curation_section import publish

    train(stages(params), workers=params.workers, publish=lambda: publish(params))
