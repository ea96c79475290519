"""Validation problems are learnt by nobody: the search for them in what is trained on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from klearlib.curation.overlap import OverlapIndex

if TYPE_CHECKING:
    from klearlib.records import Problem


def near_held_out(
    prompts: Iterable[str],
    problems: Iterable[Problem],
    *,
    ngram_words: int,
    ngram_mode: str,
    workers: int,
) -> Iterator[bool]:
    """Whether each of `prompts`, in order, has the words of one of the validation `problems` or
    shares an n-gram with one alone.

    Validation problems are drawn from what is trained on, and are worded alike: "the first line
    contains a single integer t, the number of test cases" stands in most of Codeforces. So, unlike
    in the search for benchmarks, an n-gram that several of them hold removes nothing.
    """
    index = OverlapIndex(
        {"validation": [(problem.id, problem.prompt) for problem in problems]},
        n=ngram_words,
        mode=ngram_mode,
        stop_more_than=1,
    )
    return (removal is not None for removal in index.stream(prompts, workers=workers))
