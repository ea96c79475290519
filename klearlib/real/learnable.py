"""What SFT may learn of curated data sets: one domain of those that hold both, and no response to a
validation problem."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.data.problems import iter_problems, read_problems
from klearlib.data.tables import (
    SAMPLES,
    TableWriter,
    read_samples,
    sample_row,
)
from klearlib.errors import KlearError
from klearlib.real.held_out import near_held_out
from klearlib.real.links import link_file
from klearlib.real.world import VALIDATION
from klearlib.run.entry import read_own_json
from klearlib.run.files import write_json

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder

_PROBLEMS = "problems.jsonl"


def keep_learnable(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    domain: str,
    mixed: list[str],
    ngram_words: int,
    ngram_mode: str,
    workers: int,
) -> None:
    """Stage ``learnable``: the responses of ``inputs["curated"]`` (a stage ``curate``) to problems
    of one domain that are in neither world's validation set, as ``responses.parquet``, and a link
    to its ``problems.jsonl``.

    Writes card.json: the curation's, with the responses left out in ``learnable``: those of the
    other kinds, by source and kind, and those that `near_held_out` finds, by source; read, kept and
    left out add up.

    Args:
        inputs: also ``math_world`` and ``code_world``, stages of `klearlib.real.world.build`.
        domain: ``math`` or ``code``, as `Problem.family` says. mixed: the sources that hold both;
            problems of all others are of the domain.
        ngram_words, ngram_mode, workers: as of `klearlib.curation.curate`.

    Raises:
        KlearError: no response is left.
    """
    kinds, held_out = {}, set()
    table = inputs["curated"] / _PROBLEMS
    near = near_held_out(
        (problem.prompt for problem in iter_problems(table)),
        chain(*(read_problems(inputs[f"{name}_world"] / VALIDATION) for name in ("math", "code"))),
        ngram_words=ngram_words,
        ngram_mode=ngram_mode,
        workers=workers,
    )
    for problem, is_near in zip(iter_problems(table), near, strict=True):
        if is_near:
            held_out.add(problem.id)
        elif problem.source in mixed:
            kinds[problem.id] = problem.family
    # By the source of the response, which need not be that of the problem.
    left_out: dict[str, Counter[str]] = {}
    num_held_out: Counter[str] = Counter()
    num_read = 0
    with TableWriter(folder.path / "responses.parquet", SAMPLES) as written:
        for sample in read_samples(inputs["curated"] / "responses.parquet"):
            num_read += 1
            kind = kinds.get(sample.problem_id, domain)
            if sample.problem_id in held_out:
                num_held_out[sample.source] += 1
            elif kind != domain:
                left_out.setdefault(sample.source, Counter())[kind] += 1
            else:
                written.add(sample_row(sample))
    if not written.num_rows:
        raise KlearError(
            f"no response to a problem of {domain} is left: raise the limits in real.yaml"
        )
    link_file(inputs["curated"] / _PROBLEMS, folder.path / _PROBLEMS)
    dropped = sum(counts.total() for counts in left_out.values()) + num_held_out.total()
    assert written.num_rows + dropped == num_read
    card = read_own_json(inputs["curated"] / "card.json")
    card["learnable"] = {
        "domain": domain,
        "num_read": num_read,
        "num_kept": written.num_rows,
        "other_domain": {name: dict(counts) for name, counts in left_out.items()},
        "held_out": dict(num_held_out),
    }
    write_json(folder.path / "card.json", card)
