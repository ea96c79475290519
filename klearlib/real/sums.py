"""Sums for a small real model, made from a seed: what the profile ``smol`` learns and is measured
on. ``python -m klearlib.real.sums FOLDER`` writes them.

RL draws from problems.jsonl, "What is 34 + 57?" and "What is 57 - 34?" with numbers from 11 to 79;
held_out.jsonl has others of the kind. examples.jsonl has for SFT as many of three kinds, none of
them in the other files: such sums, chains of two steps and word problems, each with a response.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from random import Random

from klearlib.data.lines import write_lines

SMALLEST, LARGEST = 11, 79
NUM_PROBLEMS, NUM_HELD_OUT, NUM_OF_KIND = 2000, 200, 64
_STORIES = (
    ("Tom has {a} apples and buys {b} more. How many apples does he have?", "+"),
    ("A bus has {a} seats and {b} are taken. How many seats are free?", "-"),
    ("There are {a} red and {b} blue balls. How many balls are there?", "+"),
    ("Ann has {a} coins and gives away {b}. How many coins are left?", "-"),
    ("A farm has {a} cows and {b} sheep. How many animals are there?", "+"),
    ("A book has {a} pages and Ben has read {b}. How many pages are left?", "-"),
    ("Mia walks {a} steps and then {b} more. How many steps does she walk?", "+"),
    ("A shop has {a} eggs and sells {b}. How many eggs are left?", "-"),
)


def sums(draw: Random) -> list[dict]:
    """All sums and differences of two numbers, in an order of `draw`."""
    numbers = range(SMALLEST, LARGEST + 1)
    pairs = [(a, b) for a, b in itertools.product(numbers, repeat=2)]
    rows = [_row(f"What is {a} + {b}?", a + b) for a, b in pairs]
    rows += [_row(f"What is {a} - {b}?", a - b) for a, b in pairs if a > b]
    return draw.sample(rows, len(rows))


def chain(draw: Random) -> dict:
    """A sum of which a number is taken, worked out in two steps."""
    a, b, c = (draw.randint(SMALLEST, LARGEST) for _ in range(3))
    if a + b <= c:
        return chain(draw)
    steps = f"{a} + {b} = {a + b}. {a + b} - {c} = {a + b - c}."
    return _row(f"What is {a} + {b} - {c}?", a + b - c, steps)


def story(draw: Random) -> dict:
    """A sum or a difference in words, worked out in one step."""
    text, sign = draw.choice(_STORIES)
    b, a = sorted(draw.sample(range(SMALLEST, LARGEST + 1), 2))
    answer = a + b if sign == "+" else a - b
    return _row(text.format(a=a, b=b), answer, f"{a} {sign} {b} = {answer}.")


def write(folder: Path, *, seed: int = 0) -> None:
    """The three files; those of one seed are the same everywhere."""
    draw = Random(seed)
    every = sums(draw)
    ends = itertools.accumulate((NUM_HELD_OUT, NUM_PROBLEMS, NUM_OF_KIND), initial=0)
    held_out, problems, plain = (every[a:b] for a, b in itertools.pairwise(ends))
    longer = [make(draw) for make in (chain, story) for _ in range(NUM_OF_KIND)]
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("held_out", held_out), ("problems", problems)):
        asked = ({key: row[key] for key in ("question", "answer")} for row in rows)
        write_lines(asked, folder / f"{name}.jsonl")
    write_lines(iter([*plain, *longer]), folder / "examples.jsonl")


def _row(question: str, answer: int, steps: str = "") -> dict:
    response = f"{steps} Answer: {answer}".strip()
    return {"question": question, "answer": str(answer), "response": response}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition(".")[0])
    parser.add_argument("folder", type=Path)
    write(parser.parse_args().folder)
