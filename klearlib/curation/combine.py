"""The examples of several arms as one training set, such as those of mathematics and of code."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.curation.select import EXAMPLES
from klearlib.data.tables import SampleWriter, read_samples
from klearlib.run.files import read_json, write_json

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder


def combine(folder: RunFolder, inputs: dict[str, Path]) -> None:
    """Stage ``combine``: the samples of ``examples.parquet`` of every input, which are stages of
    `klearlib.curation.select.select`.

    Writes examples.parquet, the inputs one after the other in the order of their names and each in
    its old order (SFT shuffles), and card.json: counts for each input and source, which add up;
    licences.
    """
    counts: Counter[str] = Counter()
    sources: Counter[str] = Counter()
    licences: dict[str, str] = {}
    problems: set[str] = set()
    with SampleWriter(folder.path / EXAMPLES) as table:
        for name in sorted(inputs):
            for sample in read_samples(inputs[name] / EXAMPLES):
                problems.add(sample.problem_id)
                counts[name] += 1
                sources[sample.source] += 1
                table.add(sample)
            if (card := inputs[name] / "card.json").is_file():
                licences |= read_json(card).get("licences", {})
    card = {
        "num_kept": table.num_rows,
        "num_problems": len(problems),
        "selections": counts,
        "sources": sources,
        "licences": licences,
    }
    write_json(folder.path / "card.json", card)
