"""The stages of every notebook, by the notebook's name."""

from __future__ import annotations

import hashlib
import json
from importlib import import_module

from klearlib.run.stage import Stage

_MODULES = {
    "01_data_curation": "curation",
    "02_data_correctness": "correctness",
    "03_teacher_ablation": "teachers",
    "04_topk_diversity": "topk",
    "05_clipping": "clipping",
    "06_alpha_sweep": "alpha_sweep",
    "07_soft_reward": "soft_reward",
    "08_test_filter": "filtering",
    "09_zero_advantage": "zero_advantage",
    "10_headline": "headline",
}


def stages_of(notebook: str, params) -> dict[str, Stage]:
    """All stages that a notebook with these parameters runs, those that they need included, in an
    order in which they can run; none for 00_overview, which gathers.

    Each stands once, under a digest of what it computes. That of the code is left out, which a
    stage's key has: the digests tell the stages of one moment apart, and take no file to make.

    Raises:
        ParameterError: the profile lacks what the notebook needs.
    """
    if notebook not in _MODULES:
        return {}
    module = import_module(f"klearlib.experiments.{_MODULES[notebook]}")
    assert notebook == module.NOTEBOOK
    found: dict[str, Stage] = {}
    known: dict[int, str] = {}
    asked = module.stages(params)  # kept: `known` goes by the objects

    def visit(stage: Stage) -> str:
        if id(stage) not in known:
            inputs = {name: visit(upstream) for name, upstream in stage.inputs.items()}
            content = [stage.name, stage.target, stage.params, inputs]
            digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
            known[id(stage)] = digest
            found.setdefault(digest, stage)
        return known[id(stage)]

    for stage in asked:
        visit(stage)
    return found
