"""How long `klear evaluate --responses` takes for 30 problems with 64 responses each.

    .venv/bin/python benchmarks/response_scoring.py

Writes files of responses in the released format and scores each by the command, in a process of
its own, as a user would: reading, finding the problems, judging, writing. A response has some
thousand words of thinking with formulas and boxes in it, then a solution with the answer in a
box. Integers are as in AIME; LaTeX answers (surds, fractions, pairs of roots, factorials) are as
the half of HMMT that has no integers, in spellings of which no two are the same text. "all LaTeX"
has no integer at all, which no benchmark of the paper has. Writes
benchmarks/results/response_scoring.csv.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from common import arguments_of, keep

from klearlib.data.problems import write_problems
from klearlib.records import Problem

NUM_PROBLEMS = 30
KINDS = {"integers": 0.0, "half LaTeX": 0.5, "all LaTeX": 1.0}
# A gold answer and a maker of right and wrong spellings of it, number k.
Kind = tuple[str, Callable[[int], str], Callable[[int], str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=64)
    parser.add_argument("--words", type=int, nargs=2, default=[3000, 12000], help="of thinking")
    parser.add_argument("--answers", nargs="+", choices=KINDS, default=list(KINDS))
    arguments = arguments_of(parser, n=1, words=[20, 40], answers=["half LaTeX"])
    rows = []
    for name in arguments.answers:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(name, KINDS[name], Path(folder), arguments.n, arguments.words))
        print(rows[-1], flush=True)
    keep(rows, "response_scoring", arguments)


def measure(name: str, share: float, folder: Path, n: int, words: list[int]) -> dict:
    """One file: its size, the seconds and the memory of the command, and its score."""
    rng = random.Random(name)
    kinds = list(latex_kinds(rng))
    golds = [
        kinds[i % len(kinds)] if i < share * NUM_PROBLEMS else integer_kind(rng)
        for i in range(NUM_PROBLEMS)
    ]
    problems = [
        Problem(f"p-{i}", f"Problem {i}: find the value of $x_{{{i}}}$.", gold)
        for i, (gold, _, _) in enumerate(golds)
    ]
    write_problems(problems, folder / "problems.jsonl")
    num_right = write_responses(folder / "responses.jsonl", problems, golds, n, words, rng)
    call = [sys.executable, "-m", "klearlib.cli", "evaluate", "--responses", "responses.jsonl"]
    call += ["--benchmark", "problems.jsonl", "--n", str(n), "--out", "out"]
    start = time.perf_counter()
    process = subprocess.Popen(call, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)  # with its judges, and nothing of other rows
    wall_s = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"the command failed with exit code {process.returncode}")
    scores = json.loads((folder / "out" / "scores.json").read_text())
    return {
        "answers": name,
        "responses": n * NUM_PROBLEMS,
        "MB": (folder / "responses.jsonl").stat().st_size / 1e6,
        "cores": len(os.sched_getaffinity(0)),
        "wall s": wall_s,
        "CPU s": usage.ru_utime + usage.ru_stime,
        "peak MB": usage.ru_maxrss * 1024 / 1e6,
        "avg@n": 100 * scores["avg_at_n"],
        "made right": 100 * num_right / (n * NUM_PROBLEMS),
        "not judged": scores["not_judged"],
    }


def write_responses(
    path: Path,
    problems: list[Problem],
    golds: list[Kind],
    n: int,
    words: list[int],
    rng: random.Random,
) -> int:
    """All problems n times over, as the released code repeats them. Returns how many are right."""
    num_right = 0
    stock = [thought(rng) for _ in range(400)]
    with path.open("w", encoding="utf-8") as file:
        for k in range(n):
            for problem, (_, right, wrong) in zip(problems, golds, strict=True):
                is_right = rng.random() < 0.7
                num_right += is_right
                answer = (right if is_right else wrong)(k)
                file.write(json.dumps(released_row(problem, answer, stock, words, rng)) + "\n")
    return num_right


def released_row(
    problem: Problem, answer: str, stock: list[str], words: list[int], rng: random.Random
) -> dict:
    thinking, length, wanted = [], 0, rng.randint(*words)
    while length < wanted:
        thinking.append(rng.choice(stock))
        length += thinking[-1].count(" ") + 1
    text = "\n\n".join(thinking)
    response = (
        f"<think>\n{text}\n</think>\n\nWe set up the equations and solve them.\n\n"
        f"{stock[0]}\n\n**Final answer.** \\[ \\boxed{{{answer}}} \\]"
    )
    asked = [{"role": "user", "content": problem.prompt}]
    meta = {"unique_id": problem.id, "problem": problem.prompt, "solution": problem.answer}
    return {
        "id": 0,
        "meta": {"messages": asked, "meta": meta},
        "messages": [*asked, {"role": "assistant", "content": response}],
    }


def thought(rng: random.Random) -> str:
    """A paragraph of thinking; one in eight has a box that is no final answer."""
    a, b, c = (rng.randint(2, 999) for _ in range(3))
    lines = [
        f"Let me see whether $x^{{2}} - {a}x + {b} = 0$ has a root modulo {c}.",
        f"So $\\frac{{{a}}}{{{b}}} + \\sqrt{{{c}}}$ should be about {a / b + c**0.5:.4f}.",
        "Wait, that is not right, since the two cases are not disjoint; try again with care.",
        f"By symmetry we may take $a \\le b \\le c$, and then $\\sum_{{k=1}}^{{{a}}} k = {a * b}$.",
    ]
    if rng.random() < 0.125:
        lines.append(f"That would make it \\boxed{{{a}}}, but I have to check the other case.")
    rng.shuffle(lines)
    return " ".join(lines)


def integer_kind(rng: random.Random) -> Kind:
    value = rng.randint(0, 999)
    return str(value), lambda k: str(value), lambda k: str((value + 1 + k) % 1000)


def latex_kinds(rng: random.Random) -> Iterator[Kind]:
    """Answers of the kinds that HMMT has; spelling k of each is a text of its own."""
    for _ in range(3):
        a, b, c = (rng.randint(2, 30) for _ in range(3))
        d = a + b
        yield (
            f"{a}\\sqrt{{{b}}}",
            lambda k, a=a, b=b: f"{a + k} \\sqrt{{{b}}} - {k}\\sqrt{{{b}}}",
            lambda k, a=a, b=b: f"{a + k + 1}\\sqrt{{{b}}}",
        )
        yield (
            f"\\frac{{{a}}}{{{b}\\pi}}",
            lambda k, a=a, b=b: f"\\frac{{{a * (k + 2)}}}{{{b * (k + 2)}\\pi}}",
            lambda k, a=a, b=b: f"\\frac{{{a + k + 1}}}{{{b}\\pi}}",
        )
        yield (
            f"{a}-\\sqrt{{{c}}}, {a}+\\sqrt{{{c}}}",
            lambda k, a=a, c=c: f"{a + k}-{k}+\\sqrt{{{c}}}, {a}-\\sqrt{{{c}}}",
            lambda k, a=a, c=c: f"{a + k + 1}+\\sqrt{{{c}}}, {a}-\\sqrt{{{c}}}",
        )
        yield (
            f"2^{{{b}}}\\cdot {c}!",
            lambda k, b=b, c=c: f"{c}!\\cdot 2^{{{b + k + 1}}} / 2^{{{k + 1}}}",
            lambda k, b=b, c=c: f"2^{{{b + k + 1}}}\\cdot {c}!",
        )
        yield (
            f"\\frac{{{a}+\\sqrt{{{b}}}}}{{{d}}}",
            lambda k, a=a, b=b, d=d: f"\\frac{{{a + k}}}{{{d}}}+\\frac{{\\sqrt{{{b}}}-{k}}}{{{d}}}",
            lambda k, a=a, b=b, d=d: f"\\frac{{{a + k + 1}-\\sqrt{{{b}}}}}{{{d}}}",
        )


if __name__ == "__main__":
    main()
