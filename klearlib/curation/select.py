"""The examples of one SFT arm: which responses stay, and which of them cover the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import compress, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq

from klearlib.curation.coverage import k_center_greedy
from klearlib.curation.funnel import funnel
from klearlib.curation.labels import judge_samples, label_word, labelled
from klearlib.curation.pass_rates import RATES, difficulties, read_pass_rates
from klearlib.data.lines import LineWriter
from klearlib.data.problems import iter_problems
from klearlib.data.tables import SampleWriter, read_rows, read_samples
from klearlib.errors import KlearError, Stopped
from klearlib.records import Verdict
from klearlib.run.files import read_json, write_json

if TYPE_CHECKING:
    import pandas as pd

    from klearlib.run.folder import RunFolder

RESPONSES, EXAMPLES, REJECTED = "responses.parquet", "examples.parquet", "rejects.jsonl"
STAGES = ("sources", "difficulty", "correctness", "coverage")
TEXTS = {"prompt": ["prompt"], "response": ["response"], "both": ["prompt", "response"]}

_CHUNK = 256  # responses that are judged together, between two looks at a stop that was asked for


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
      ``{"text": "prompt", "dim": 256, "seed": 0}``, see `embeddings.hashed_tfidf`; text: a key of
      `TEXTS`.

    Where labels are needed and did not come with the data, the responses are judged, with the
    problems of the file `problems` of ``inputs["problems"]``. A response that the judge could not
    decide, or whose problem has nothing to judge by, is rejected as such and never as wrong.

    Writes examples.parquet (in the old order), rejects.jsonl (`row` counts the responses read, `id`
    is the problem's) and card.json: counts for each filter and source, which add up; labels and
    teachers of the examples; licences. Texts are streamed. A run that was stopped or killed starts
    anew.

    Raises:
        Stopped: a stop was asked for.
        KlearError: an unknown source, or fewer responses left than `size`.
    """
    assert not wrong_share or size is not None, "a share of the examples"
    table = inputs["responses"] / RESPONSES
    pool, judged = _read_pool(table), {}
    if sources is not None:
        known = sorted(pool["source"].unique())
        if missing := ", ".join(sorted(set(sources).difference(known))):
            raise KlearError(
                f"no response belongs to a problem of {missing}: choose from {', '.join(known)}"
            )
        _reject(pool, "sources", ~pool["source"].isin(sources), "another source")
    if difficulty != "overall":
        rates = read_pass_rates(inputs["reference"] / RATES)
        ids = pool["problem_id"][_left(pool)].unique()
        words = dict(zip(ids, difficulties(ids, rates, easy_from=easy_from), strict=True))
        level = pool["problem_id"].astype(object).map(words)
        _reject(pool, "difficulty", level != difficulty, f"not {difficulty}", level)
    if wrong_share is not None:
        limits = {"test_timeout_s": test_timeout_s, "test_memory_mb": test_memory_mb}
        judged = _judge(folder, pool, table, inputs["problems"] / problems, limits)
        label, reason = pool["label"], pool["reason"]
        if not wrong_share:
            why = reason.where(reason != "", "label of the source")
            _reject(pool, "correctness", label == "wrong", "wrong", why)
        _reject(pool, "correctness", ~label.isin(["correct", "wrong"]), label, reason)
    if size is not None:
        covered = _covered(pool, table, size, wrong_share, embedding)
        _reject(pool, "coverage", covered, "covered by others")
    if not _left(pool).any():
        raise KlearError("no response passes the filters: loosen them, or sample more responses")
    _write(pool, judged, table, folder.path)
    fates = Counter(zip(pool["source"], pool["stage"], pool["fault"], strict=True))
    card = funnel(fates, STAGES)
    kept = pool[_left(pool)]
    card |= {
        "labels": Counter(kept["label"]),
        "teachers": Counter(kept["teacher"]),
        "licences": _licences(inputs, card["sources"]),
    }
    write_json(folder.path / "card.json", card)


def _read_pool(table: Path) -> pd.DataFrame:
    """The N responses without their texts: what filters choose by and what they say.

    label: a word of `labels.label_word`; reason: the verdict's, "" without one. stage, fault,
    detail: which filter rejected it and why, "" for what is left.
    """
    columns = ["problem_id", "source", "teacher", "is_correct", "reason"]
    pool = pq.read_table(table, columns=columns, read_dictionary=columns[:3]).to_pandas()
    pool["label"] = [*map(label_word, pool.pop("is_correct"), pool["reason"])]
    return pool.assign(stage="", fault="", detail="")


def _left(pool: pd.DataFrame) -> pd.Series:
    """bool [N]: what no filter has rejected."""
    return pool["stage"] == ""


def _reject(pool: pd.DataFrame, stage: str, rows: pd.Series, fault, detail="") -> None:
    """Take out those of `rows`, bool [N], that are left; fault and detail are a word, or one for
    each response."""
    rows = rows & _left(pool)
    for column, words in (("stage", stage), ("fault", fault), ("detail", detail)):
        pool.loc[rows, column] = words if isinstance(words, str) else words[rows]


def _judge(
    folder: RunFolder, pool: pd.DataFrame, table: Path, problems: Path, limits: dict
) -> dict[int, str]:
    """Judge each response that is left and that nobody has judged; row -> reason of the verdict."""
    waits = (_left(pool) & (pool["label"] == "no label")).to_numpy()
    if not waits.any():
        return {}
    known = {problem.id: problem for problem in iter_problems(problems)}
    folder.progress(0, len(pool))
    places, samples = np.flatnonzero(waits), compress(read_samples(table), waits)
    reasons: dict[int, str] = {}
    for start in range(0, len(places), _CHUNK):
        own = places[start : start + _CHUNK].tolist()
        judged = judge_samples([*islice(samples, _CHUNK)], known, **limits)
        for place, verdict in zip(own, judged, strict=True):
            if verdict is not None:
                reasons[place] = verdict.reason
        done = own[-1] + 1
        folder.progress(done, len(pool))
        if folder.stop_requested and done < len(pool):
            raise Stopped(f"stopped after {done} of {len(pool)} responses; run again to start anew")
    # At once: an assignment to a frame takes as long for one row as for many.
    pool.loc[[*reasons], "reason"] = [*reasons.values()]
    pool.loc[[*reasons], "label"] = [label_word(r == "correct", r) for r in reasons.values()]
    return reasons


def _covered(
    pool: pd.DataFrame, table: Path, size: int, wrong_share: float | None, embedding: dict
) -> pd.Series:
    """bool [N]: what K-center leaves out of the responses that are left."""
    from klearlib.curation.embeddings import hashed_tfidf

    rest, is_wrong = _left(pool), pool["label"] == "wrong"
    num_wrong = round(size * (wrong_share or 0.0))
    right, wrong = (rest & ~is_wrong, size - num_wrong), (rest & is_wrong, num_wrong)
    quotas = {"correct ": right, "wrong ": wrong} if wrong_share else {"": (rest.copy(), size)}
    for word, (part, quota) in quotas.items():
        if not quota:
            raise KlearError(
                f"size {size} at a wrong share of {wrong_share:g} has no {word}responses: raise "
                "size, or change the share"
            )
        if part.sum() < quota:
            raise KlearError(
                f"size {size} needs {quota} {word}responses, but only {part.sum()} pass the "
                "filters: lower size, loosen the filters, or sample more responses"
            )
    if size == rest.sum():
        return ~rest
    texts = read_rows(table, columns=TEXTS[embedding["text"]])
    rows = hashed_tfidf(
        ("\n".join(row.values()) for row in compress(texts, rest)),
        dim=embedding["dim"],
        seed=embedding["seed"],
    )
    places = np.flatnonzero(rest)
    for part, quota in quotas.values():
        own = part.to_numpy()[places]
        rest.iloc[places[own][k_center_greedy(rows[own], quota)]] = False
    return rest


def _write(pool: pd.DataFrame, judged: Mapping[int, str], table: Path, path: Path) -> None:
    """Write examples and rejects, with the verdicts of this stage."""
    rows = zip(read_samples(table), pool["stage"], pool["fault"], pool["detail"], strict=True)
    with SampleWriter(path / EXAMPLES) as examples, LineWriter(path / REJECTED) as rejects:
        for place, (sample, stage, fault, detail) in enumerate(rows):
            if stage:
                row = {"source": sample.source, "row": place, "id": sample.problem_id}
                rejects.add(row | {"reason": fault, "detail": detail})
            elif reason := judged.get(place):
                examples.add(labelled(sample, Verdict(reason == "correct", reason)))
            else:
                examples.add(sample)


def _licences(inputs: Mapping[str, Path], sources: Iterable[str]) -> dict:
    """The licences of the sources, from the card of the stage that read them."""
    cards = [inputs[name] / "card.json" for name in ("problems", "responses") if name in inputs]
    for card in filter(Path.is_file, cards):
        if known := read_json(card).get("licences"):
            return {source: known[source] for source in sources if source in known}
    return {}
