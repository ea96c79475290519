"""Peak memory and speed of the streamed curation over synthetic rows.

    .venv/bin/python benchmarks/curation_memory.py --rows 1500000

Every row is a problem of 80 words with a response of 400 and, one in eight, a prompt that came
before; one in a thousand shares a 9-gram with a benchmark of 1,000 items. The rows are made as they
are read, so what is measured is the stage `curate`: adapter, deduplication, overlap, tables. Peak
memory is the largest resident size of its process;
CPU seconds are its own. Writes benchmarks/results/curation_memory.csv.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from common import arguments_of, keep

from klearlib.curation import curate as stage
from klearlib.curation.curate import curate
from klearlib.data.files import Table
from klearlib.data.problems import write_problems
from klearlib.data.reader import SourceReader
from klearlib.data.rows import Row
from klearlib.data.sources import source_named
from klearlib.records import LabelledResponse, Problem, SourceRow
from klearlib.run.folder import RunFolder

NUM_WORDS, PROMPT_WORDS, RESPONSE_WORDS, NUM_ITEMS = 20_000, 80, 400, 1_000
LIMIT_GIB = 6.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_500_000)
    arguments = arguments_of(parser, rows=2000)
    with tempfile.TemporaryDirectory() as path:
        row = measure(Path(path), arguments.rows)
    keep([row], "curation_memory", arguments)
    if row["peak GiB"] > LIMIT_GIB:
        raise SystemExit(f"peak memory is above {LIMIT_GIB} GiB")


def measure(path: Path, num_rows: int) -> dict:
    """One curation of `num_rows` rows under `path`."""
    words = [f"w{number}" for number in range(NUM_WORDS)]
    items = [sentence(random.Random(f"item {i}"), words, PROMPT_WORDS) for i in range(NUM_ITEMS)]
    write_problems([Problem(f"i{i}", text, "1") for i, text in enumerate(items)], path / "b.jsonl")
    reader = SourceReader(
        source_named("acereason_math"),
        [Table(None, lambda: rows(num_rows, words, items))],
        read,
        limit=None,
        alias=None,
    )
    stage._reader = lambda item, inputs: reader  # rows that are made while they are read
    before, start, worked = peak_gib(), time.perf_counter(), time.process_time()
    curate(
        RunFolder(path / "out"),
        {"here": path},
        sources=[{"name": "acereason_math"}],
        benchmarks=[{"name": "synthetic", "input": "here", "location": "b.jsonl"}],
        ngram_words=9,
        templates=[],
        stop_more_than=None,
        need_gold=True,
        min_tests=16,
    )
    seconds, worked = time.perf_counter() - start, time.process_time() - worked
    card = json.loads((path / "out" / "card.json").read_text())
    rejected = card["sources"]["acereason_math"]["rejected"]
    files = sum((path / "out" / name).stat().st_size for name in stage.FILES)
    return {
        "rows": card["num_read"],
        "kept": card["num_kept"],
        "duplicates": rejected.get("duplicate", 0),
        "overlap": rejected.get("overlap", 0),
        "seconds": seconds,
        "CPU seconds": worked,
        "rows/CPU s": num_rows / worked,
        "GiB written": files / 2**30,
        "GiB before": before,
        "peak GiB": peak_gib(),
    }


def rows(num_rows: int, words: list[str], items: list[str]) -> Iterator[dict]:
    """Rows of prompt and response; equal numbers give equal rows."""
    # A long text to cut from is faster than a draw for each word, and as different.
    tape = " ".join(random.Random(0).choices(words, k=2_000_000)).split()
    for number in range(num_rows):
        first = number if number % 8 else number // 2
        place = (first * 7_919) % (len(tape) - PROMPT_WORDS)
        prompt = f"{first} " + " ".join(tape[place : place + PROMPT_WORDS])
        if number % 1000 == 999:
            prompt += " " + " ".join(items[number % NUM_ITEMS].split()[:12])
        place = (number * 104_729) % (len(tape) - RESPONSE_WORDS)
        response = f"<think>{number}</think> " + " ".join(tape[place : place + RESPONSE_WORDS])
        yield {"id": number, "problem": prompt, "answer": "1", "response": response}


def read(row: Row) -> SourceRow:
    """An adapter that does what the real ones do at least."""
    row.own_id("id")
    problem = Problem(row.id, row.question("problem"), row.answer("answer"))
    return SourceRow(problem, (LabelledResponse(row.text("response")),))


def sentence(draw: random.Random, words: list[str], count: int) -> str:
    return " ".join(draw.choices(words, k=count))


def peak_gib() -> float:
    """The largest resident size so far, of this process or of any that it started."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(w).ru_maxrss for w in who) / 2**20


if __name__ == "__main__":
    main()
