"""What curation found of what was planted in the miniature's sources, row by row."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path

from klearlib.data.lines import read_lines
from klearlib.data.problems import iter_problems
from klearlib.data.sources import read_source
from klearlib.miniature.source_plan import curate_sources
from klearlib.miniature.sources import TRUTH

Place = tuple[str, int]
"""Name of a source, and the number of the row in its file."""

_WORD = re.compile(r"\w+")
# Planted kind -> what the rejects may say about it; None: anything.
_FINDS = {
    "duplicate": ("duplicate", "overlap"),
    "contamination": ("overlap",),
    "broken": None,
    "few_tests": ("few_tests", "overlap"),
}


def truth(sources: Path, domain: str) -> dict[Place, dict]:
    """The planted rows of a domain, by their place: kind, how, of."""
    names = {source["alias"] for source in curate_sources(domain, with_pool=True)}
    return {at: row for at, row in by_place(sources / TRUTH).items() if at[0] in names}


def by_place(file: Path) -> dict[Place, dict]:
    """The rows that curation took away, ``rejects.jsonl`` or, for overlap with its n-gram,
    benchmark and item, ``removals.jsonl``."""
    return {(row["source"], row["row"]): row for row in read_lines(file)}


def found(curated: Path, sources: Path, domain: str) -> dict[tuple[str, str], list[bool]]:
    """Kind and way of what was planted in a domain -> for each row whether curation found it.

    A repeated prompt, or a problem with few tests, that shares something with a benchmark counts as
    found where it is removed for that: the search for overlap comes first.
    """
    rejects, groups = by_place(curated / "rejects.jsonl"), {}
    for place, row in truth(sources, domain).items():
        how = "1 to 15 tests" if row["kind"] == "few_tests" else row["how"]
        reasons = _FINDS[row["kind"]]
        hit = place in rejects and (reasons is None or rejects[place]["reason"] in reasons)
        groups.setdefault((row["kind"], how), []).append(hit)
    return dict(sorted(groups.items()))


@functools.lru_cache(maxsize=4)
def prompts(sources: Path, domain: str) -> Mapping[Place, str]:
    found = {}
    for source in curate_sources(domain, with_pool=True):
        reader = read_source(source["name"], sources / source["location"], alias=source["alias"])
        for row in reader:
            found[source["alias"], reader.num_read - 1] = row.problem.prompt
    return found


def items(world: Path, names: list[str]) -> dict[tuple[str, str], str]:
    return {
        (name, problem.id): problem.prompt
        for name in names
        for problem in iter_problems(world / f"{name}.jsonl")
    }


def truly_shared(ngram: str, prompt: str, item: str, *, num_words: int) -> bool:
    """Whether prompt and item both hold `ngram`, of `num_words` words; a shorter one must be all of
    both. Words are runs of letters, digits and underscores in lower case, as a reader counts them,
    apart from the search that found the n-gram; signs do not count.

    >>> truly_shared("find f 3", "Now find f(3).", "Find f(3) modulo 7.", num_words=3)
    True
    >>> truly_shared("find f", "find f", "Find f(3) modulo 7.", num_words=3)
    False
    """
    ngram, *texts = (" ".join(_WORD.findall(text.lower())) for text in (ngram, prompt, item))
    if len(ngram.split()) < num_words:
        return texts == [ngram, ngram]
    return all(f" {ngram} " in f" {text} " for text in texts)
