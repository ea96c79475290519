"""From raw data sets to problems and responses that may be trained on, in one streamed pass."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.curation.keep import FILES, PROBLEMS, Pass, text_hash, writer_of
from klearlib.curation.overlap import OverlapIndex, Removal, known_templates
from klearlib.data.benchmarks import SIZES, read_benchmark
from klearlib.data.problems import iter_problems
from klearlib.data.reader import Reject, SourceReader
from klearlib.data.sources import read_source
from klearlib.errors import KlearError, MissingAsset, Stopped
from klearlib.records import SourceRow
from klearlib.run.files import sha256_file, write_json

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder

_LOOK_EVERY = 1000  # rows between two looks at a stop that was asked for


def curate(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    sources: list[dict],
    benchmarks: list[dict],
    ngram_words: int,
    ngram_mode: str,
    templates: list[str],
    stop_more_than: int | None,
    need_gold: bool,
    min_tests: int,
    merge_responses: str,
    workers: int,
) -> None:
    """Stage ``curate``: adapters, exact deduplication, overlap with benchmarks, number of tests.

    A row of a source is rejected by the first of these that has a reason:

    1. adapter: it gives no problem, see `sources.read_source`;
    2. duplicates (``duplicate``): a problem with the same `duplicates.duplicate_key` is kept
       already, and its prompt shares nothing with a benchmark;
    3. overlap (``overlap``): its prompt does, see `overlap.OverlapIndex`;
    4. gold (``no_gold``, where `need_gold`): neither an answer nor tests;
    5. tests (``few_tests``): tests, and fewer than `min_tests`; the paper wants 16.

    So the first usable row of each kind is kept, and which kinds are kept does not depend on the
    order of sources or rows.

    Writes `FILES` (the problems; their responses with the labels of the sources; a `Reject` for
    each other row; a row for each removal by overlap) and card.json: counts for each source and
    stage, which add up; removals by benchmark and those due to boilerplate; licences, parameters,
    hashes. Rows are streamed: in memory are some hundred bytes for each problem that is kept, and
    hashes of responses. A run that was stopped or killed starts anew.

    Args:
        sources: in order of preference, each ``{"name": ..., "location": ...}`` and, where wanted,
            the other arguments of `read_source` but a window. With ``"input"``, locations are
            inside of the upstream stage of that name. What stands at a location elsewhere is no
            part of the stage's key: the card has its hash.
        benchmarks: each ``{"name": ..., "location": ...}``, ``"input"`` as above: one of
            `benchmarks.SIZES` or, under any other name, a file of problems.
        ngram_words, ngram_mode, stop_more_than: n, mode and stop list of `OverlapIndex`.
        templates: texts that are cut out of items and prompts, besides
            `overlap.known_templates` of the mode.
        merge_responses: whose duplicates give their responses to the problem that is kept:
            ``source``, rows of its source; ``all``; ``none``. A response that it has already,
            character by character, is not taken again.
        workers: processes for the overlap. The result is the same for any number.

    Raises:
        Stopped: a stop was asked for.
        KlearError: a source or benchmark that comes twice or cannot be read, no problem left.
    """
    parameters = {
        "sources": sources,
        "benchmarks": benchmarks,
        "ngram_words": ngram_words,
        "ngram_mode": ngram_mode,
        "templates": templates,
        "stop_more_than": stop_more_than,
        "need_gold": need_gold,
        "min_tests": min_tests,
        "merge_responses": merge_responses,
    }
    _check_names([benchmark["name"] for benchmark in benchmarks], "benchmark: name it once")
    index = OverlapIndex(
        {item["name"]: _benchmark_texts(item, inputs) for item in benchmarks},
        n=ngram_words,
        mode=ngram_mode,
        templates=[*templates, *known_templates(ngram_mode)],
        stop_more_than=stop_more_than,
    )
    readers = [_reader(item, inputs) for item in sources]
    _check_names([reader.name for reader in readers], "source: give an alias")
    with ExitStack() as stack:
        files = {name: stack.enter_context(writer_of(folder.path / name)) for name in FILES}
        kept = Pass(
            files, need_gold=need_gold, min_tests=min_tests, merge_responses=merge_responses
        )
        for done, reader in enumerate(readers):
            examined = _examined(reader, index, workers, kept.clean)
            for number, (row, removal) in enumerate(examined):
                kept.take(number, row, removal)
                if number % _LOOK_EVERY == 0:
                    folder.progress(done, len(readers), f"{reader.name}: {number} rows")
                    if folder.stop_requested:
                        raise Stopped(f"stopped in {reader.name}; run again to start anew")
        if not files[PROBLEMS].num_rows:
            raise KlearError("no problem is left: see what the sources hold, and lower min_tests")
    folder.progress(len(readers), len(readers))
    card = kept.card(readers)
    card["overlap"] |= {"num_items": index.num_items, "num_ngrams": index.num_ngrams}
    card["overlap"]["num_stopped"] = index.num_stopped
    card["parameters"] = parameters
    names = [reader.name for reader in readers]
    card["inputs"] = {
        "sources": {
            name: sha256_location(_location(item, inputs))
            for name, item in zip(names, sources, strict=True)
        },
        "benchmarks": {b["name"]: sha256_location(_location(b, inputs)) for b in benchmarks},
    }
    card["outputs"] = {name: sha256_file(folder.path / name) for name in FILES}
    write_json(folder.path / "card.json", card)


def _examined(
    reader: SourceReader, index: OverlapIndex, workers: int, clean: set[int]
) -> Iterator[tuple[SourceRow | Reject, Removal | None]]:
    """All rows of a source in order, usable ones with what they share with a benchmark."""
    waiting: deque[SourceRow | Reject] = deque()

    def prompts() -> Iterator[str]:
        for row in reader.account():
            waiting.append(row)
            # Each row has its place in the search, so that few wait; most duplicates are copies of
            # a prompt that was searched already, and have nothing to search.
            is_known = isinstance(row, Reject) or text_hash(row.problem.prompt) in clean
            yield "" if is_known else row.problem.prompt

    for removal in index.stream(prompts(), workers=workers):
        yield waiting.popleft(), removal
    assert not waiting


def sha256_location(place: Path | None) -> str | None:
    """The sha256 of a file, or of the names and digests of all files of a folder; None for the hub.
    MissingAsset where nothing is there."""
    if place is None:
        return None
    if place.is_file():
        return sha256_file(place)
    if not place.is_dir():
        raise MissingAsset(f"no file or folder at {place}: correct the location")
    files = sorted(file for file in place.rglob("*") if file.is_file())
    lines = [f"{file.relative_to(place).as_posix()} {sha256_file(file)}\n" for file in files]
    return sha256("".join(lines).encode()).hexdigest()


def _reader(item: dict, inputs: Mapping[str, Path]) -> SourceReader:
    options = {key: item[key] for key in item.keys() - {"name", "location", "input"}}
    if "questions" in options:
        options["questions"] = {
            key: _location(item | {"location": place}, inputs)
            for key, place in options["questions"].items()
        }
    return read_source(item["name"], _location(item, inputs), **options)


def _benchmark_texts(item: dict, inputs: Mapping[str, Path]) -> list[tuple[str, str]]:
    place = _location(item, inputs)
    if item["name"] in SIZES:
        problems = read_benchmark(item["name"], place).problems
    elif place is None:
        raise KlearError(
            f"benchmark {item['name']!r} needs a location: only {', '.join(SIZES)} have one"
        )
    else:
        problems = iter_problems(place)
    return [(problem.id, problem.prompt) for problem in problems]


def _location(item: dict, inputs: Mapping[str, Path]) -> Path | None:
    place = item.get("location")
    if "input" not in item:
        return None if place is None else Path(place).expanduser()
    if item["input"] not in inputs:
        raise KlearError(f"{item['name']}: no input {item['input']!r}; inputs: {', '.join(inputs)}")
    return inputs[item["input"]] / (place or "")


def _check_names(names: list[str], fix: str) -> None:
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise KlearError(f"{twice[0]!r} comes twice as {fix}")
