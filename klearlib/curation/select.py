"""The examples of one SFT arm: which responses stay, and which of them cover the rest."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.curation.chunks import chunks
from klearlib.curation.coverage import k_center_greedy
from klearlib.curation.difficulty import EASY, HARD
from klearlib.curation.labels import judge_samples, needs_label
from klearlib.curation.majority import pass_rates_of
from klearlib.curation.pass_rates import RATES, read_pass_rates
from klearlib.curation.select_pool import (
    EXAMPLES,
    REJECTED,
    TEXTS,
    Pool,
    Taken,
    Texts,
    beyond,
    by_difficulty,
    by_label,
    by_pass_rate,
    by_source,
)
from klearlib.data.problems import ProblemFile
from klearlib.errors import KlearError, Stopped
from klearlib.records import Problem
from klearlib.run.files import sha256_file, write_json
from klearlib.verify.answers import REASONS

if TYPE_CHECKING:
    import numpy as np

    from klearlib.run.folder import RunFolder

_CHUNK = 256  # responses that are judged together, and between two looks at the clock
_CHECKPOINT_EVERY = 16  # chunks
_EMBEDDINGS = {"hashed_tfidf": {"dim", "seed"}, "hidden_states": {"max_tokens"}}


def select(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    sources: list[str] | None,
    difficulty: str,
    easy_from: float | None,
    pass_rate: dict | None,
    correctness: str,
    max_responses: int | None,
    size: int | None,
    embedding: dict | None,
    test_timeout_s: float,
    test_memory_mb: int,
    problems: str = "problems.jsonl",
) -> None:
    """Stage ``select``: the examples of an SFT arm from ``inputs["responses"]/responses.parquet``.

    Filters, in this order; None, ``overall`` and ``mixed`` leave theirs out:

    - `sources`: only responses to problems of these sources;
    - `difficulty`: ``easy``, ``hard`` or ``overall``, by the pass rates of a reference model in
      ``inputs["reference"]`` and `easy_from`, see `difficulty.difficulties`;
    - `pass_rate`: only problems that `filters.rejected_by_pass_rate` keeps, ``{"threshold": ...,
      "keep_equal": ...}`` (`majority.MAJORITY` for mathematics, the same for pass@16 of code), by
      the pass rates in ``inputs["pass_rates"]`` or, without that input, by the labels of the
      responses themselves;
    - `correctness`: ``correct``, only responses with that label, or ``mixed``;
    - `max_responses`: only the first so many of a problem;
    - `size`: so many examples, by `coverage.k_center_greedy` from the first one, over `embedding`:
      ``{"kind": "hashed_tfidf", "text": "prompt", "dim": 256, "seed": 0}``, or ``{"kind":
      "hidden_states", "text": "both", "max_tokens": 512}`` of ``inputs["embedder"]/model``; the
      text is ``prompt``, ``response`` or ``both``.

    Where labels are needed and did not come with the data, the responses are judged, with the
    problems of the file `problems` of ``inputs["problems"]``: a kill or a stop goes on from the
    last of the checkpoints in between. A response that the judge could not decide, or whose problem
    has nothing to judge by, is rejected as such and never as wrong.

    Writes examples.parquet (in the old order), rejects.jsonl (`row` counts the responses read,
    `id` is the problem's) and card.json: counts for each filter and source, which add up; labels of
    the examples; licences, parameters and hashes. Texts are streamed: memory holds some bytes for
    each response and, for `size`, the embeddings of those that are left.

    Raises:
        Stopped: a stop was asked for; the state is saved.
        KlearError: a bad parameter, a missing input, or fewer responses left than `size`.
    """
    _check(difficulty, easy_from, pass_rate, correctness, max_responses, size, embedding)
    _need(inputs, "reference" if difficulty != "overall" else None, "a difficulty")
    table = inputs["responses"] / "responses.parquet"
    pool = Pool(table)
    pool.reject("sources", by_source(pool, sources))
    if difficulty != "overall":
        rates = read_pass_rates(inputs["reference"] / RATES)
        pool.reject("difficulty", by_difficulty(pool, rates, difficulty, easy_from))
    if correctness == "correct" or (pass_rate is not None and "pass_rates" not in inputs):
        limits = {"test_timeout_s": test_timeout_s, "test_memory_mb": test_memory_mb}
        _judge(folder, pool, inputs, problems, limits)
    if pass_rate is not None:
        rates = (
            read_pass_rates(inputs["pass_rates"] / RATES)
            if "pass_rates" in inputs
            else pass_rates_of(sample for _, sample in pool)
        )
        pool.reject("pass_rate", by_pass_rate(pool, rates, pass_rate))
    if correctness == "correct":
        pool.reject("correctness", by_label(pool))
    if max_responses is not None:
        pool.reject("max_responses", beyond(pool, max_responses))
    if size is not None:
        pool.reject("coverage", _not_chosen(pool, size, embedding, inputs))
    counts = pool.write(folder.path)
    card = counts | {
        "licences": _licences(inputs, counts["sources"]),
        "parameters": {
            "sources": sources,
            "difficulty": difficulty,
            "easy_from": easy_from,
            "pass_rate": pass_rate,
            "correctness": correctness,
            "max_responses": max_responses,
            "size": size,
            "embedding": embedding,
            "test_timeout_s": test_timeout_s,
            "test_memory_mb": test_memory_mb,
        },
        "inputs": {name: sha256_file(file) for name, file in _files(inputs, problems).items()},
        "outputs": {name: sha256_file(folder.path / name) for name in (EXAMPLES, REJECTED)},
    }
    write_json(folder.path / "card.json", card)


def _not_chosen(pool: Pool, size: int, embedding: dict, inputs: Mapping[str, Path]) -> Taken:
    places = [place for place, rejected in enumerate(pool.rejected) if not rejected]
    if len(places) < size:
        raise KlearError(
            f"size is {size}, but only {len(places)} responses pass the filters: lower it, loosen "
            "the filters, or sample more responses"
        )
    if len(places) == size:
        return
    rows = _embedded(Texts(pool, embedding["text"]), embedding, inputs)
    chosen = {places[index] for index in k_center_greedy(rows, size)}
    yield from ((place, "covered by others", "") for place in places if place not in chosen)


def _embedded(texts: Texts, embedding: dict, inputs: Mapping[str, Path]) -> np.ndarray:
    from klearlib.curation.embeddings import hashed_tfidf, hidden_states

    how = {name: embedding[name] for name in _EMBEDDINGS[embedding["kind"]]}
    if embedding["kind"] == "hashed_tfidf":
        return hashed_tfidf(texts, **how)
    from klearlib.policy.load import load_policy

    _need(inputs, "embedder", "hidden states")
    model, tokenizer = load_policy(inputs["embedder"] / "model")
    return hidden_states(model, tokenizer, list(texts), **how)


def _judge(
    folder: RunFolder, pool: Pool, inputs: Mapping[str, Path], problems: str, limits: dict
) -> None:
    """Find a verdict for each response that is left and has no label."""
    saved = folder.load_checkpoint()
    state, done = saved if saved is not None else ({"verdicts": bytes(pool.verdicts)}, 0)
    pool.verdicts[:] = state["verdicts"]
    waiting = ((place, sample) for place, sample in pool if needs_label(sample))
    known: Mapping[str, Problem] | None = None
    folder.progress(done, len(pool.verdicts))
    for number, chunk in enumerate(chunks(waiting, _CHUNK), start=1):
        if known is None:
            _need(inputs, "problems", "responses without labels")
            known = ProblemFile(inputs["problems"] / problems)
        judged = judge_samples([sample for _, sample in chunk], known, **limits)
        for (place, _), sample in zip(chunk, judged, strict=True):
            if sample.reason:
                pool.verdicts[place] = 1 + REASONS.index(sample.reason)
        done = chunk[-1][0] + 1
        folder.progress(done, len(pool.verdicts))
        if folder.stop_requested or number % _CHECKPOINT_EVERY == 0:
            folder.save_checkpoint({"verdicts": bytes(pool.verdicts)}, done)
            if folder.stop_requested:
                raise Stopped(f"stopped after {done} of {len(pool.verdicts)} responses; run again")


def _licences(inputs: Mapping[str, Path], sources: Iterable[str]) -> dict:
    """The licences of the sources, from the card of the stage that read them."""
    for name in ("problems", "responses"):
        card = inputs[name] / "card.json" if name in inputs else None
        if card is not None and card.is_file():
            known = json.loads(card.read_text(encoding="utf-8")).get("licences", {})
            if known:
                return {source: known[source] for source in sources if source in known}
    return {}


def _files(inputs: Mapping[str, Path], problems: str) -> dict[str, Path]:
    """The files that the stage may have read, by input."""
    names = {"responses": "responses.parquet", "problems": problems}
    names |= {"reference": RATES, "pass_rates": RATES}
    return {
        f"{name}/{file}": inputs[name] / file
        for name, file in names.items()
        if name in inputs and (inputs[name] / file).is_file()
    }


def _need(inputs: Mapping[str, Path], name: str | None, what_for: str) -> None:
    if name is not None and name not in inputs:
        raise KlearError(f"{what_for} needs the input {name!r}; inputs: {', '.join(inputs)}")


def _check(
    difficulty: str,
    easy_from: float | None,
    pass_rate: dict | None,
    correctness: str,
    max_responses: int | None,
    size: int | None,
    embedding: dict | None,
) -> None:
    words = {"difficulty": (difficulty, (EASY, HARD, "overall"))}
    words["correctness"] = (correctness, ("correct", "mixed"))
    for name, (word, known) in words.items():
        if word not in known:
            raise KlearError(f"{name} must be one of {', '.join(known)}, got {word!r}")
    if (difficulty == "overall") != (easy_from is None):
        raise KlearError(
            f"easy_from belongs to difficulty easy and hard, got {easy_from} with {difficulty!r}"
        )
    if pass_rate is not None and set(pass_rate) != {"threshold", "keep_equal"}:
        raise KlearError(f"pass_rate must have keep_equal, threshold, got {sorted(pass_rate)}")
    if (size is None) != (embedding is None):
        raise KlearError("give size and embedding together, or None for both")
    for name, number in (("max_responses", max_responses), ("size", size)):
        if number is not None and number < 1:
            raise KlearError(f"{name} must be at least 1, or None for all, got {number}")
    if embedding is not None:
        kind = embedding.get("kind")
        if kind not in _EMBEDDINGS:
            raise KlearError(f"embedding's kind must be one of {', '.join(_EMBEDDINGS)}: {kind!r}")
        expected = {"kind", "text"} | _EMBEDDINGS[kind]
        if set(embedding) != expected:
            raise KlearError(
                f"embedding {kind} must have {', '.join(sorted(expected))}, got "
                f"{', '.join(sorted(embedding))}"
            )
        if embedding["text"] not in TEXTS:
            raise KlearError(f"embedding's text must be one of {', '.join(TEXTS)}")
