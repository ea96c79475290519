"""The true answers to the maths problems of the sources, which most of the sources do not have."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.data.problems import read_problems, write_problems
from klearlib.errors import KlearError
from klearlib.miniature.sources import ANSWERS

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder


def add_true_answers(folder: RunFolder, inputs: dict[str, Path]) -> None:
    """Stage ``true_answers``: problems.jsonl of ``inputs["curated"]``, each with the answer that
    ``inputs["sources"]`` wrote down when it made the problem, whatever its data set says.

    Raises:
        KlearError: a problem of a benchmark is among them, which has no answer here.
    """
    with (inputs["sources"] / ANSWERS).open(encoding="utf-8") as lines:
        answers = {row["prompt"]: row["answer"] for row in map(json.loads, lines)}
    curated = read_problems(inputs["curated"] / "problems.jsonl")
    if unknown := sum(problem.prompt not in answers for problem in curated):
        raise KlearError(
            f"{unknown} problems of benchmarks passed the search for overlap, and have no answer "
            "here: lower ngram_words or stop_more_than"
        )
    write_problems(
        (replace(problem, answer=answers[problem.prompt]) for problem in curated),
        folder.path / "problems.jsonl",
    )
