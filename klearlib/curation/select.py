"""The examples of one SFT arm: which responses stay, and which of them cover the rest."""

from __future__ import annotations

import json
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
from klearlib.curation.pass_rates import RATES, difficulties, read_pass_rates
from klearlib.data.lines import LineWriter
from klearlib.data.problems import ProblemFile
from klearlib.data.tables import SampleWriter, read_columns, read_rows, read_samples
from klearlib.errors import KlearError, Stopped
from klearlib.records import REASONS, Verdict
from klearlib.run.files import sha256_file, write_json

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder

EXAMPLES, REJECTED = "examples.parquet", "rejects.jsonl"
STAGES = ("sources", "difficulty", "correctness", "coverage")
TEXTS = {"prompt": ["prompt"], "response": ["response"], "both": ["prompt", "response"]}

_CHUNK = 256  # responses that are judged together, and between two looks at the clock
_CHECKPOINT_EVERY = 16  # chunks


def select(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    sources: list[str] | None,
    difficulty: str,
    easy_from: float | None,
    wrong_share: float | None,
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
    - `wrong_share`: only responses that are labelled correct or wrong, so many of the `size`
      examples wrong; 0.0: only correct ones;
    - `size`: so many examples, by `coverage.k_center_greedy` from the first one (of the correct and
      of the wrong ones, each by itself, where there is a `wrong_share`), over `embedding`:
      ``{"kind": "hashed_tfidf", "text": "prompt", "dim": 256, "seed": 0}``; text: a key of `TEXTS`.

    Where labels are needed and did not come with the data, the responses are judged, with the
    problems of the file `problems` of ``inputs["problems"]``; a stop or a kill goes on from the
    last checkpoint. A response that the judge could not decide, or whose problem has nothing to
    judge by, is rejected as such and never as wrong.

    Writes examples.parquet (in the old order), rejects.jsonl (`row` counts the responses read, `id`
    is the problem's) and card.json: counts for each filter and source, which add up; labels of the
    examples; licences, parameters and hashes. Texts are streamed.

    Raises:
        Stopped: a stop was asked for; the state is saved.
        KlearError: a missing input, or fewer responses left than `size`.
    """
    parameters = {
        "sources": sources,
        "difficulty": difficulty,
        "easy_from": easy_from,
        "wrong_share": wrong_share,
        "size": size,
        "embedding": embedding,
        "test_timeout_s": test_timeout_s,
        "test_memory_mb": test_memory_mb,
    }
    assert not wrong_share or size is not None, "a share of the examples"
    pool = Pool(inputs["responses"] / "responses.parquet")
    if sources is not None:
        pool.keep_sources(sources)
    if difficulty != "overall":
        rates = read_pass_rates(_needed(inputs, "reference", "a difficulty") / RATES)
        found = pool.by_problem(lambda ids: difficulties(ids, rates, easy_from=easy_from))
        pool.reject("difficulty", found != difficulty, f"not {difficulty}", found)
    if wrong_share is not None:
        limits = {"test_timeout_s": test_timeout_s, "test_memory_mb": test_memory_mb}
        _judge(folder, pool, inputs, problems, limits)
        label, is_wrong = pool.labels, pool.labels == "wrong"
        if not wrong_share:
            why = np.where(pool.reasons == "", "label of the source", pool.reasons)
            pool.reject("correctness", is_wrong, "wrong", why)
        pool.reject("correctness", (label != "correct") & ~is_wrong, label, pool.reasons)
    if size is not None:
        quotas = _quotas(pool, size, wrong_share)
        pool.reject("coverage", _not_chosen(pool, quotas, embedding), "covered by others")
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
        columns = read_columns(table, ["problem_id", "source", "is_correct", "reason"])
        problem, source = columns["problem_id"], columns["source"]
        self.problems, self.sources = problem.dictionary.to_pylist(), source.dictionary.to_pylist()
        self.problem, self.source = problem.indices.to_numpy(), source.indices.to_numpy()
        reasons = columns["reason"].to_pylist()
        labels = map(label_word, columns["is_correct"].to_pylist(), reasons)
        self.labels, self.reasons = np.array([*labels], object), np.array(reasons, object)
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


def _not_chosen(pool: Pool, quotas: _Quotas, embedding: dict) -> np.ndarray:
    """bool [N]: what K-center leaves out of the responses that are left."""
    from klearlib.curation.embeddings import hashed_tfidf

    rest = pool.left
    if sum(quota for _, quota in quotas) == rest.sum():
        return ~rest
    places = np.flatnonzero(rest)
    texts = Texts(pool, TEXTS[embedding["text"]])
    rows = hashed_tfidf(texts, dim=embedding["dim"], seed=embedding["seed"])
    for part, quota in quotas:
        own = part[places]
        rest[places[own][k_center_greedy(rows[own], quota)]] = False
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
    names["reference"] = RATES
    return {
        f"{name}/{file}": inputs[name] / file
        for name, file in names.items()
        if name in inputs and (inputs[name] / file).is_file()
    }


def _needed(inputs: Mapping[str, Path], name: str, what_for: str) -> Path:
    if name not in inputs:
        raise KlearError(f"{what_for} needs the input {name!r}; inputs: {', '.join(inputs)}")
    return inputs[name]
