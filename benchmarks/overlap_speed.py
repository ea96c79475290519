r"""How fast prompts are searched for 9-gram overlap and duplicates, beside plain ways in one run.

    .venv/bin/python benchmarks/overlap_speed.py --prompts 1500000

The plain way for overlap is one Python set of all n-grams of all benchmarks and a look at every
n-gram of a prompt until one is found, with the same words; open-r1's way makes the n-grams of a
prompt anew for each benchmark. The plain way for duplicates is a set of normalised texts. Ways take
turns on the same prompts, on one core, and medians of CPU time are compared. Prompts have 80 words,
one in a hundred holds a piece of a benchmark item; "stock phrases" is the hard case, in which
prompts and benchmarks are made of the same 20,000 phrases of 5 words.

The second table has the whole run: `--prompts` prompts as a stream, all different, through the
index, then through the deduplicator; memory is the peak of this process. Writes benchmarks/results/
overlap_speed.csv and overlap_speed_stream.csv.
"""

from __future__ import annotations

import argparse
import itertools
import random
import re
import resource
import statistics
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator

from common import arguments_of, keep

from klearlib.curation.overlap import OverlapIndex, deduplicate

N = 9
NUM_WORDS = 80
NUM_BENCHMARKS, ITEM_WORDS = 5, 150  # AIME to LiveCodeBench, roughly
PLANTED = 100  # one prompt in so many
Benchmarks = dict[str, list[tuple[str, str]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=int, default=150_000, help="of the stream")
    parser.add_argument("--compared", type=int, default=4000, help="prompts, of each kind")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--items", type=int, default=200, help="of each benchmark")
    arguments = arguments_of(parser, prompts=400, compared=100, repeats=1, items=10)
    rows = [
        compare(kind, arguments.compared, arguments.repeats, arguments.items)
        for kind in VOCABULARIES
    ]
    keep(rows, "overlap_speed", arguments)
    rows = stream(arguments.prompts, arguments.items)
    keep(rows, "overlap_speed_stream", arguments)


def compare(kind: str, num_prompts: int, repeats: int, num_items: int) -> dict:
    benchmarks = draw_benchmarks(kind, num_items)
    prompts = draw_prompts(kind, num_prompts, benchmarks)
    index = OverlapIndex(benchmarks, n=N)
    ways: dict[str, Callable[[], list]] = {
        "merged set": merged_set(benchmarks, prompts),
        "open-r1's way": each_benchmark(benchmarks, prompts),
        "ours": lambda: [removal is not None for removal in index.removals(prompts)],
        "set of texts": lambda: keep_texts(prompts),
        "deduplicator": lambda: deduplicate(prompts),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    found: dict[str, list] = {}
    for _ in range(repeats):
        for name, way in ways.items():
            start = time.process_time()
            found[name] = way()
            times[name].append(1e6 * (time.process_time() - start) / num_prompts)
    us = {name: statistics.median(values) for name, values in times.items()}
    return {
        "prompts": kind,
        "removed": sum(found["ours"]) / num_prompts,
        "merged set us": us["merged set"],
        "open-r1's way us": us["open-r1's way"],
        "ours us": us["ours"],
        "ours to merged set": us["merged set"] / us["ours"],
        "verdicts that differ": sum(
            a != b for a, b in zip(found["merged set"], found["ours"], strict=True)
        ),
        "set of texts us": us["set of texts"],
        "deduplicator us": us["deduplicator"],
        "deduplicator to set": us["set of texts"] / us["deduplicator"],
    }


def stream(num_prompts: int, num_items: int) -> Iterator[dict]:
    benchmarks = draw_benchmarks("prose", num_items)
    pool = draw_prompts("prose", min(num_prompts, 20_000), benchmarks)
    index = OverlapIndex(benchmarks, n=N)

    def prompts() -> Iterator[str]:
        return (f"{pool[i % len(pool)]} {i}" for i in range(num_prompts))

    def measured(name: str, run: Callable[[], int], what: str) -> dict:
        start, cpu = time.perf_counter(), time.process_time()
        number = run()
        return {
            "stage": name,
            "prompts": num_prompts,
            what: number,
            "seconds": time.perf_counter() - start,
            "CPU seconds": time.process_time() - cpu,
            "peak MB": peak_mb(),
        }

    def search() -> int:
        return sum(index.removal(prompt) is not None for prompt in prompts())

    def keep() -> int:
        return len(deduplicate(prompts()))

    yield measured("overlap", search, "found")
    yield measured("deduplicate", keep, "found")


def merged_set(benchmarks: Benchmarks, prompts: list[str]) -> Callable[[], list[bool]]:
    known = {g for items in benchmarks.values() for _, text in items for g in ngrams(words(text))}

    def look(prompt: str) -> bool:
        found = words(prompt)
        return any(" ".join(found[i : i + N]) in known for i in range(len(found) - N + 1))

    return lambda: [look(prompt) for prompt in prompts]


def each_benchmark(benchmarks: Benchmarks, prompts: list[str]) -> Callable[[], list[bool]]:
    known = [
        {g for _, text in items for g in ngrams(text.lower().split())}
        for items in benchmarks.values()
    ]

    def look(prompt: str) -> bool:
        return any([not one.isdisjoint(ngrams(prompt.lower().split())) for one in known])

    return lambda: [look(prompt) for prompt in prompts]


def keep_texts(prompts: list[str]) -> list[bool]:
    seen: set[str] = set()
    flags = []
    for prompt in prompts:
        text = " ".join(words(prompt))
        flags.append(text not in seen)
        seen.add(text)
    return flags


def words(text: str) -> list[str]:
    return re.findall(r"\w+", unicodedata.normalize("NFKC", text).lower())


def ngrams(found: list[str]) -> list[str]:
    return [" ".join(found[i : i + N]) for i in range(len(found) - N + 1)]


def prose(rng: random.Random) -> list[str]:
    """Words of 2 to 10 letters, of which the first are the commonest."""
    letters = "etaoinshrdlucmfwyp"
    return ["".join(rng.choices(letters, k=rng.randint(2, 10))) for _ in range(5000)]


def stock_phrases(rng: random.Random) -> list[str]:
    chosen = prose(rng)[:400]
    return [" ".join(rng.choices(chosen, k=5)) for _ in range(20_000)]


def latex(rng: random.Random) -> list[str]:
    formulas = ["$x_{%d}^2+y$", "\\frac{%d}{n}", "\\left(a,\\,b+%d\\right)", "$%d<n$", "\\sqrt{%d}"]
    formulas = [formula % rng.randint(1, 9999) for formula in formulas * 200]
    chosen = prose(rng)
    return [rng.choice(formulas) if i % 4 == 3 else word for i, word in enumerate(chosen)]


def accents(rng: random.Random) -> list[str]:
    return [word.replace("e", "é", 1) for word in prose(rng)]


VOCABULARIES: dict[str, Callable[[random.Random], list[str]]] = {
    "prose": prose,
    "stock phrases": stock_phrases,
    "LaTeX": latex,
    "accents": accents,
}


def draw_texts(kind: str, num: int, num_words: int, seed: str) -> list[str]:
    chosen = VOCABULARIES[kind](random.Random(kind))
    # Zipf's law; phrases come more evenly, or all prompts would share two of them in a row.
    start = 10 if kind != "stock phrases" else 20_000
    weights = list(itertools.accumulate(1 / (rank + start) for rank in range(len(chosen))))
    rng = random.Random(f"{kind} {seed}")
    texts = []
    for _ in range(num):
        # A piece may be several words, so too many are drawn and the text is cut behind the last.
        drawn = " ".join(rng.choices(chosen, cum_weights=weights, k=num_words))
        ends = [match.end() for match in re.finditer(r"\w+", drawn)]
        texts.append(drawn[: ends[num_words - 1]].capitalize() + ".")
    return texts


def draw_benchmarks(kind: str, num_items: int) -> Benchmarks:
    return {
        f"benchmark {b}": [
            (str(number), text)
            for number, text in enumerate(draw_texts(kind, num_items, ITEM_WORDS, f"items {b}"))
        ]
        for b in range(NUM_BENCHMARKS)
    }


def draw_prompts(kind: str, num: int, benchmarks: Benchmarks) -> list[str]:
    prompts = draw_texts(kind, num, NUM_WORDS, "prompts")
    items = [text for rows in benchmarks.values() for _, text in rows]
    for place in range(0, num, PLANTED):
        half = prompts[place][: len(prompts[place]) // 2]
        prompts[place] = half + " " + items[place % len(items)][:300]
    return prompts


def peak_mb() -> float:
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


if __name__ == "__main__":
    main()
