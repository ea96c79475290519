"""The stages of every notebook, by the notebook's name."""

from __future__ import annotations

import hashlib
import json
from importlib import import_module

from klearlib.experiments.experiment import Experiment
from klearlib.run.stage import Stage

_MODULES = {
    "01_data_curation": "curation",
    "02_data_correctness": "correctness",
    "03_teacher_ablation": "teachers",
    "04_topk_diversity": "topk",
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
    if notebook == "00_overview":
        return {}
    found: dict[str, Stage] = {}
    known: dict[int, str] = {}
    if notebook in _MODULES:
        asked = import_module(f"klearlib.experiments.{_MODULES[notebook]}").stages(params)
    else:
        asked = experiment_of(notebook)(params).stages()  # kept: `known` goes by the objects

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


def experiment_of(notebook: str) -> type[Experiment]:
    """The experiment of a notebook, which stands in the module of its name."""
    module = import_module(f"klearlib.experiments.nb{notebook}")
    (found,) = (
        each
        for each in vars(module).values()
        if isinstance(each, type) and each.__module__ == module.__name__
        if issubclass(each, Experiment)
    )
    assert found.name == notebook
    return found
