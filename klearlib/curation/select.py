"""The examples of one SFT arm: which responses stay, and which of them cover the rest."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from klearlib.curation.chunks import chunks
from klearlib.curation.coverage import k_center_greedy
from klearlib.curation.funnel import Funnel
from klearlib.curation.labels import judge_samples, label_word, labelled
from klearlib.curation.pass_rates import (
    EASY,
    HARD,
    RATES,
    difficulties,
    pass_rates_of,
    read_pass_rates,
    rejected_by_pass_rate,
)
from klearlib.data.lines import LineWriter
from klearlib.data.problems import ProblemFile
from klearlib.data.tables import SampleWriter, read_rows, read_samples
from klearlib.errors import KlearError, Stopped
from klearlib.records import Verdict
from klearlib.run.files import sha256_file, write_json
from klearlib.verify.answers import REASONS

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder

EXAMPLES, REJECTED = "examples.parquet", "rejects.jsonl"
STAGES = ("sources", "difficulty", "pass_rate", "correctness", "max_responses", "coverage")
TEXTS = {"prompt": ["prompt"], "response": ["response"], "both": ["prompt", "response"]}

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
    wrong_share: float | None,
    max_responses: int | None,
    size: int | None,
    embedding: dict | None,
    test_timeout_s: float,
    test_memory_mb: int,
    problems: str = "problems.jsonl",
) -> None:
    """Stage ``select``: the examples of an SFT arm from ``inputs["responses"]/responses.parquet``.

    Filters, in this order; None and ``overall`` leave theirs out:

    - `sources`: only responses to problems of these sources;
    - `difficulty`: ``easy``, ``hard`` or ``overall``, by the pass rates of a reference model in
      ``inputs["reference"]`` and `easy_from`, see `pass_rates.difficulties`;
    - `pass_rate`: only problems that `pass_rates.rejected_by_pass_rate` keeps, ``{"threshold": ...,
      "keep_equal": ...}`` (`pass_rates.MAJORITY` for mathematics, the same for pass@16 of code), by
      the pass rates in ``inputs["pass_rates"]`` or, without that input, by the labels of the
      responses themselves;
    - `wrong_share`: only responses that are labelled correct or wrong, so many of the `size`
      examples wrong; 0.0: only correct ones;
    - `max_responses`: only the first so many of a problem;
    - `size`: so many examples, by `coverage.k_center_greedy` from the first one (of the correct and
      of the wrong ones, each by itself, where there is a `wrong_share`), over `embedding`:
      ``{"kind": "hashed_tfidf", "text": "prompt", "dim": 256, "seed": 0}``, or ``{"kind":
      "hidden_states", "text": "both", "max_tokens": 512}`` of ``inputs["embedder"]/model``; the
      text is ``prompt``, ``response`` or ``both``.

    Where labels are needed and did not come with the data, the responses are judged, with the
    problems of the file `problems` of ``inputs["problems"]``: a kill or a stop goes on from the
    last of the checkpoints in between. A response that the judge could not decide, or whose problem
    has nothing to judge by, is rejected as such and never as wrong.

    Writes examples.parquet (in the old order), rejects.jsonl (`row` counts the responses read,
    `id` is the problem's) and card.json: counts for each filter and source, which add up; labels of
    the examples; licences, parameters and hashes. Texts are streamed: memory holds the other
    columns and, for `size`, the embeddings of what is left.

    Raises:
        Stopped: a stop was asked for; the state is saved.
        KlearError: a bad parameter, a missing input, or fewer responses left than `size`.
    """
    parameters = {
        "sources": sources,
        "difficulty": difficulty,
        "easy_from": easy_from,
        "pass_rate": pass_rate,
        "wrong_share": wrong_share,
        "max_responses": max_responses,
        "size": size,
        "embedding": embedding,
        "test_timeout_s": test_timeout_s,
        "test_memory_mb": test_memory_mb,
    }
    _check(parameters)
    pool = Pool(inputs["responses"] / "responses.parquet")
    if sources is not None:
        pool.keep_sources(sources)
    if difficulty != "overall":
        rates = read_pass_rates(_needed(inputs, "reference", "a difficulty") / RATES)
        found = pool.by_problem(lambda ids: difficulties(ids, rates, easy_from=easy_from))
        pool.reject("difficulty", found != difficulty, f"not {difficulty}", found)
    if wrong_share is not None or (pass_rate is not None and "pass_rates" not in inputs):
        limits = {"test_timeout_s": test_timeout_s, "test_memory_mb": test_memory_mb}
        _judge(folder, pool, inputs, problems, limits)
    if pass_rate is not None:
        rates = (
            read_pass_rates(inputs["pass_rates"] / RATES)
            if "pass_rates" in inputs
            else pool.own_pass_rates()
        )
        reason = pool.by_problem(lambda ids: rejected_by_pass_rate(ids, rates, **pass_rate))
        pool.reject("pass_rate", reason != "", reason)
    if wrong_share is not None:
        label, is_wrong = pool.labels, pool.labels == "wrong"
        if not wrong_share:
            why = np.where(pool.reasons == "", "label of the source", pool.reasons)
            pool.reject("correctness", is_wrong, "wrong", why)
        pool.reject("correctness", (label != "correct") & ~is_wrong, label, pool.reasons)
    if max_responses is not None:
        later = pool.number_in_problem() >= max_responses
        pool.reject("max_responses", later, "enough responses to the problem")
    if size is not None:
        quotas = _quotas(pool, size, wrong_share)
        pool.reject("coverage", _not_chosen(pool, quotas, embedding, inputs), "covered by others")
    counts = pool.write(folder.path)
    card = counts | {
        "licences": _licences(inputs, counts["sources"]),
        "parameters": parameters,
        "inputs": {name: sha256_file(file) for name, file in _files(inputs, problems).items()},
        "outputs": {name: sha256_file(folder.path / name) for name in (EXAMPLES, REJECTED)},
    }
    write_json(folder.path / "card.json", card)


class Pool:
    """The responses of a table, N of them, without their texts: a column for all that filters
    choose by, and one for what they say.

    problem, source: the name's number in `problems`, `sources`, int [N].
    labels: a word of `labels.label_word`; reasons: the verdict's, "" without one; str [N].
    stage, fault, detail: which filter rejected a response and why, "" for what is left; str [N].
    """

    def __init__(self, table: Path):
        self.table = table
        problems: dict[str, int] = {}  # numbers, in the order of first sight
        sources: dict[str, int] = {}
        problem, source, labels, reasons = [], [], [], []
        for row in read_rows(table, columns=["problem_id", "source", "is_correct", "reason"]):
            problem.append(problems.setdefault(row["problem_id"], len(problems)))
            source.append(sources.setdefault(row["source"], len(sources)))
            reasons.append(sys.intern(row["reason"]))
            labels.append(label_word(row["is_correct"], row["reason"]))
        self.problems, self.sources = list(problems), list(sources)
        self.problem, self.source = np.array(problem, np.int64), np.array(source, np.int64)
        self.labels, self.reasons = np.array(labels, object), np.array(reasons, object)
        self.stage, self.fault, self.detail = (np.full(len(reasons), "", object) for _ in range(3))
        self.verdicts = bytearray(len(reasons))  # of this stage: 1 + the place in REASONS, 0 none

    @property
    def left(self) -> np.ndarray:
        """bool [N]: what no filter has rejected."""
        return self.stage == ""

    def reject(self, stage: str, rows: np.ndarray, fault, detail="") -> None:
        """Take out those of `rows`, bool [N], that are left; fault and detail are a word, or one
        for each response."""
        rows = rows & self.left
        self.stage[rows] = stage
        for column, words in ((self.fault, fault), (self.detail, detail)):
            column[rows] = words[rows] if isinstance(words, np.ndarray) else words

    def keep_sources(self, names: Sequence[str]) -> None:
        """Reject what is of no source in `names`, of each of which there must be a response."""
        if missing := sorted(set(names) - set(self.sources)):
            raise KlearError(
                f"no response is to a problem of {', '.join(missing)}; sources that there are: "
                f"{', '.join(sorted(self.sources)) or 'none'}"
            )
        wanted = np.array([name in names for name in self.sources], bool)
        self.reject("sources", ~wanted[self.source], "another source")

    def by_problem(self, choose: Callable[[list[str]], list[str]]) -> np.ndarray:
        """What `choose` says of the problems of the responses that are left, for each response."""
        numbers, place = np.unique(self.problem[self.left], return_inverse=True)
        words = np.array(choose([self.problems[number] for number in numbers]), object)
        found = np.full(len(self.problem), "", object)
        found[self.left] = words[place]
        return found

    def own_pass_rates(self) -> dict:
        """`pass_rates.pass_rates_of` the responses that are left."""
        truth = {"correct": True, "wrong": False}
        return pass_rates_of(
            (self.problems[number] for number in self.problem[self.left]),
            map(truth.get, self.labels[self.left]),
        )

    def number_in_problem(self) -> np.ndarray:
        """How many responses to the same problem, of those that are left, stand before; int [N]."""
        places = np.flatnonzero(self.left)
        places = places[np.argsort(self.problem[places], kind="stable")]
        problem = self.problem[places]
        found = np.zeros(len(self.problem), np.int64)
        found[places] = np.arange(len(places)) - np.searchsorted(problem, problem)
        return found

    def write(self, path: Path) -> dict:
        """Write examples and rejects; the counts of the card."""
        funnel, labels, teachers = Funnel(STAGES), Counter(), Counter()
        with SampleWriter(path / EXAMPLES) as examples, LineWriter(path / REJECTED) as rejects:
            for place, sample in enumerate(read_samples(self.table)):
                if not (stage := self.stage[place]):
                    funnel.keep(sample.source)
                    labels[self.labels[place]] += 1
                    teachers[sample.teacher] += 1
                    if self.verdicts[place]:
                        reason = self.reasons[place]
                        sample = labelled(sample, Verdict(reason == "correct", reason))
                    examples.add(sample)
                    continue
                funnel.reject(sample.source, stage, self.fault[place])
                row = {"source": sample.source, "row": place, "id": sample.problem_id}
                rejects.add(row | {"reason": self.fault[place], "detail": self.detail[place]})
        if not examples.num_rows:
            raise KlearError("no response passes the filters: loosen them, or sample more of them")
        counts = funnel.card(
            num_read=len(self.stage), num_kept=examples.num_rows, num_rejected=rejects.num_rows
        )
        return counts | {"labels": dict(sorted(labels.items())), "teachers": dict(teachers)}


def _judge(
    folder: RunFolder, pool: Pool, inputs: Mapping[str, Path], problems: str, limits: dict
) -> None:
    """Find a verdict for each response that is left and that nobody has judged."""
    saved = folder.load_checkpoint()
    state, done = saved if saved is not None else ({"verdicts": bytes(pool.verdicts)}, 0)
    pool.verdicts[:] = state["verdicts"]
    total = len(pool.verdicts)
    waits = pool.left & (pool.labels == "no label")
    waits[:done] = False
    folder.progress(done, total)
    if waits.any():
        known = ProblemFile(_needed(inputs, "problems", "responses without labels") / problems)
    waiting = (pair for pair in enumerate(read_samples(pool.table)) if waits[pair[0]])
    for number, chunk in enumerate(chunks(waiting, _CHUNK), start=1):
        judged = judge_samples([sample for _, sample in chunk], known, **limits)
        for (place, _), verdict in zip(chunk, judged, strict=True):
            if verdict is not None:
                pool.verdicts[place] = 1 + REASONS.index(verdict.reason)
        done = chunk[-1][0] + 1
        folder.progress(done, total)
        if folder.stop_requested or number % _CHECKPOINT_EVERY == 0:
            folder.save_checkpoint({"verdicts": bytes(pool.verdicts)}, done)
            if folder.stop_requested:
                raise Stopped(f"stopped after {done} of {total} responses; run again")
    for place in np.flatnonzero(np.frombuffer(pool.verdicts, np.uint8)):
        reason = REASONS[pool.verdicts[place] - 1]
        pool.reasons[place], pool.labels[place] = reason, label_word(reason == "correct", reason)


_Quotas = list[tuple[np.ndarray, int]]
"""Of each part of the responses that are left, bool [N], how many are chosen."""


def _quotas(pool: Pool, size: int, wrong_share: float | None) -> _Quotas:
    num_wrong = round(size * (wrong_share or 0.0))
    wrong = pool.left & (pool.labels == "wrong")
    found = [(pool.left & ~wrong, size - num_wrong), (wrong, num_wrong)]
    words = ("correct ", "wrong ")
    if not wrong_share:
        found, words = [(pool.left, size)], ("",)
    for (part, quota), word in zip(found, words, strict=True):
        if part.sum() < quota:
            raise KlearError(
                f"size is {size}, of them {quota} {word}responses, but only {part.sum()} pass the "
                "filters: lower it, loosen the filters, or sample more responses"
            )
        if not quota:
            raise KlearError(
                f"wrong_share {wrong_share} of {size} examples leaves no {word}response: raise "
                "size, or change the share"
            )
    return found


def _not_chosen(
    pool: Pool, quotas: _Quotas, embedding: dict, inputs: Mapping[str, Path]
) -> np.ndarray:
    """bool [N]: what K-center leaves out of the responses that are left."""
    rest = pool.left
    if sum(quota for _, quota in quotas) == rest.sum():
        return ~rest
    places = np.flatnonzero(rest)
    rows = _embedded(Texts(pool, TEXTS[embedding["text"]]), embedding, inputs)
    for part, quota in quotas:
        mine = part[places]
        rest[places[mine][k_center_greedy(rows[mine], quota)]] = False
    return rest


@dataclass(frozen=True)
class Texts:
    """The texts of the responses that are left, read anew in each pass."""

    pool: Pool
    columns: list[str]

    def __iter__(self) -> Iterator[str]:
        rows = read_rows(self.pool.table, columns=self.columns)
        left = self.pool.left
        return ("\n".join(row.values()) for place, row in enumerate(rows) if left[place])


def _embedded(texts: Texts, embedding: dict, inputs: Mapping[str, Path]) -> np.ndarray:
    from klearlib.curation.embeddings import hashed_tfidf, hidden_states

    how = {name: embedding[name] for name in _EMBEDDINGS[embedding["kind"]]}
    if embedding["kind"] == "hashed_tfidf":
        return hashed_tfidf(texts, **how)
    from klearlib.policy.load import load_policy

    model, tokenizer = load_policy(_needed(inputs, "embedder", "hidden states") / "model")
    return hidden_states(model, tokenizer, list(texts), **how)


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


def _needed(inputs: Mapping[str, Path], name: str, what_for: str) -> Path:
    if name not in inputs:
        raise KlearError(f"{what_for} needs the input {name!r}; inputs: {', '.join(inputs)}")
    return inputs[name]


def _check(given: dict) -> None:
    embedding, pass_rate = given["embedding"], given["pass_rate"]
    wrong_share, known = given["wrong_share"], (EASY, HARD, "overall")
    if given["difficulty"] not in known:
        word = given["difficulty"]
        raise KlearError(f"difficulty must be one of {', '.join(known)}, got {word!r}")
    if wrong_share is not None and not 0 <= wrong_share < 1:
        raise KlearError(f"wrong_share must be in [0, 1), or None for any, got {wrong_share}")
    if wrong_share and given["size"] is None:
        raise KlearError(f"wrong_share {wrong_share} needs a size that it is a share of")
    if (given["difficulty"] == "overall") != (given["easy_from"] is None):
        raise KlearError(
            "easy_from belongs to difficulty easy and hard, got "
            f"{given['easy_from']} with {given['difficulty']!r}"
        )
    if pass_rate is not None and set(pass_rate) != {"threshold", "keep_equal"}:
        raise KlearError(f"pass_rate must have keep_equal, threshold, got {sorted(pass_rate)}")
    if (given["size"] is None) != (embedding is None):
        raise KlearError("give size and embedding together, or None for both")
    for name in ("max_responses", "size"):
        if given[name] is not None and given[name] < 1:
            raise KlearError(f"{name} must be at least 1, or None for all, got {given[name]}")
    if embedding is None:
        return
    for name, known in (("kind", _EMBEDDINGS), ("text", TEXTS)):
        if embedding.get(name) not in known:
            raise KlearError(
                f"embedding's {name} must be one of {', '.join(known)}, got {embedding.get(name)!r}"
            )
    if set(embedding) != (expected := {"kind", "text"} | _EMBEDDINGS[embedding["kind"]]):
        raise KlearError(
            f"embedding {embedding['kind']} must have {', '.join(sorted(expected))}, got "
            f"{', '.join(sorted(embedding))}"
        )
