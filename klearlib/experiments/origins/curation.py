"""The two stages that make training data of raw sources: curation, and the choice of examples."""

from __future__ import annotations

from collections.abc import Sequence

from klearlib.params import DataOptions
from klearlib.run.stage import Stage

DOMAIN_WORDS = {"math": "maths", "code": "code"}


def curate_stage(
    domain: str,
    *,
    sources: list[dict],
    benchmarks: list[dict],
    inputs: dict[str, Stage],
    options: DataOptions,
    templates: Sequence[str],
    stop_more_than: int | None,
    workers: int,
    what: str,
    estimate_s: float,
) -> Stage:
    """`klearlib.curation.curate` of a domain's `sources`. what: they in words, for the label."""
    return Stage(
        "curate",
        "klearlib.curation.curate:curate",
        {
            "sources": sources,
            "benchmarks": benchmarks,
            "ngram_words": options.ngram_words,
            "ngram_mode": options.ngram_mode,
            "templates": list(templates),
            "stop_more_than": stop_more_than,
            "need_gold": False,
            "min_tests": options.min_tests if domain == "code" else 0,
            "merge_responses": options.merge_responses,
            "workers": workers,
        },
        inputs,
        label=what,
        estimate_s=estimate_s,
    )


def selection_stage(
    inputs: dict[str, Stage],
    *,
    size: int | None,
    label: str,
    options: DataOptions,
    sources: list[str] | None = None,
    difficulty: str = "overall",
    easy_from: float | None = None,
    correctness: str = "mixed",
    **problems: str,
) -> Stage:
    """`klearlib.curation.select`: `size` examples by K-center after the filters, or all of
    them.

    problems: ``problems``, the file of problems where it is not the usual one.
    """
    embedding = {
        "kind": "hashed_tfidf",
        "text": options.embedding_text,
        "dim": options.embedding_dim,
        "seed": options.embedding_seed,
    }
    return Stage(
        "select",
        "klearlib.curation.select:select",
        {
            "sources": sources,
            "difficulty": difficulty,
            "easy_from": easy_from,
            "pass_rate": None,
            "correctness": correctness,
            "max_responses": None,
            "size": size,
            "embedding": embedding if size is not None else None,
            "test_timeout_s": options.test_timeout_s,
            "test_memory_mb": options.test_memory_mb,
            **problems,
        },
        inputs,
        label=label,
        estimate_s=4.0,
    )
