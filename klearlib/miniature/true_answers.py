"""The true answers to the maths problems of the sources, which most of the sources do not have."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.data.problems import read_problems, write_problems
from klearlib.miniature.sources import ANSWERS

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder


def add_true_answers(folder: RunFolder, inputs: dict[str, Path]) -> None:
    """Stage ``true_answers``: problems.jsonl of ``inputs["curated"]``, each with the answer that
    ``inputs["sources"]`` wrote down when it made the problem, whatever its data set says.

    Raises:
        KeyError: a problem that is of no source, which curation cannot bring about.
    """
    with (inputs["sources"] / ANSWERS).open(encoding="utf-8") as lines:
        answers = {row["prompt"]: row["answer"] for row in map(json.loads, lines)}
    write_problems(
        (
            replace(problem, answer=answers[problem.prompt])
            for problem in read_problems(inputs["curated"] / "problems.jsonl")
        ),
        folder.path / "problems.jsonl",
    )
