"""HumanEval's reference solutions, each with one operator or constant changed: how many fail?

    .venv/bin/python benchmarks/humaneval_mutants.py --seed 0

A judge that passes what is broken pays for it. Every solution is parsed, one of its places that can
be changed is drawn by the seed, and the program is judged by HumanEval's own tests: comparisons and
arithmetic turn into their neighbours, `and` into `or`, numbers grow by one, texts get a letter.
Some mutants are right (a bound that does not matter) or right on all that the tests ask; some
solutions have no place to change. Writes benchmarks/results/humaneval_mutants.csv, one row for each
kind of change, and prints the tasks whose mutant passed.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import json
import os
import random
from collections import Counter
from pathlib import Path

from common import arguments_of, keep

from klearlib.data.sources import read_source
from klearlib.records import OUTCOMES
from klearlib.run.seeding import derive_seed
from klearlib.verify.pool import close_pool
from klearlib.verify.programs import ProgramJob, run_many

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("KLEAR_SHARED", ROOT.parent / "shared" / "data"))
_NEIGHBOURS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitXor: ast.BitOr,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.USub: ast.UAdd,
}
_TINY = [
    {
        "task_id": f"tiny/{name}",
        "prompt": f'def {name}(a, b):\n    """{solution}"""\n',
        "canonical_solution": f"    return {solution}\n",
        "entry_point": name,
        "test": f"def check(candidate):\n    assert candidate(2, 3) == {expected}\n",
    }
    for name, solution, expected in (("plus", "a + b", 5), ("less", "a < b", True), ("one", "a", 2))
]
_KINDS = {bool: "truth value", int: "number", float: "number", str: "text"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout-s", type=float, default=2.0)
    arguments = arguments_of(parser)
    rows = _TINY if arguments.tiny else humaneval()
    problems = [row.problem for row in read_source("humaneval", rows)]
    mutants = [
        mutant(row["prompt"] + row["canonical_solution"], row["entry_point"],
               seed=derive_seed(arguments.seed, "mutant", row["task_id"]))
        for row in rows
    ]  # fmt: skip
    jobs = [
        ProgramJob(source, problem.tests, arguments.timeout_s, 1024, problem.entry_point)
        for (source, _), problem in zip(mutants, problems, strict=True)
    ]
    reports = run_many(jobs)
    close_pool()
    outcomes = [report.outcomes[0] for report in reports]
    by_kind: dict[str, Counter] = {}
    for (_, kind), outcome in zip(mutants, outcomes, strict=True):
        by_kind.setdefault(kind or "nothing to change", Counter())[outcome] += 1
    columns = [outcome for outcome in OUTCOMES if outcome in outcomes]
    table = [
        {"change": kind, "mutants": counts.total()} | {o: counts[o] for o in columns}
        for kind, counts in sorted(by_kind.items())
    ]
    keep(table, "humaneval_mutants", arguments)
    passed = [
        row["task_id"]
        for row, (_, kind), outcome in zip(rows, mutants, outcomes, strict=True)
        if kind and outcome == "passed"
    ]
    print("mutants that pass:", *passed)


def humaneval() -> list[dict]:
    with gzip.open(SHARED / "HumanEval.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def mutant(source: str, entry_point: str, *, seed: int) -> tuple[str, str]:
    """The source with one change in the function, and its kind; "" where there is no place.

    >>> mutant("def f(x):\\n    return x + x", "f", seed=0)
    ('def f(x):\\n    return x - x', 'arithmetic')
    """
    tree = ast.parse(source)
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == entry_point]
    places = _places(functions[-1])
    if not places:
        return source, ""
    node, field, index = random.Random(seed).choice(places)
    held = getattr(node, field)
    old = held if index is None else held[index]
    new = _changed(old)
    if index is None:
        setattr(node, field, new)
    else:
        held[index] = new
    return ast.unparse(tree), _KINDS[type(old)] if field == "value" else _kind_of_node(node)


def _kind_of_node(node: ast.AST) -> str:
    if isinstance(node, ast.Compare):
        return "comparison"
    return "and, or" if isinstance(node, ast.BoolOp) else "arithmetic"


def _places(function: ast.FunctionDef) -> list[tuple[ast.AST, str, int | None]]:
    nodes = [n for statement in function.body for n in ast.walk(statement)]
    texts = {id(n.value) for n in nodes if isinstance(n, ast.Expr)}  # docstrings do nothing
    found = []
    for node in nodes:
        if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp | ast.UnaryOp):
            if type(node.op) in _NEIGHBOURS:
                found.append((node, "op", None))
        elif isinstance(node, ast.Compare):
            found += [(node, "ops", i) for i in range(len(node.ops))]
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, bool | int | float | str)
            and id(node) not in texts
        ):
            found.append((node, "value", None))
    return found


def _changed(old: object) -> object:
    if isinstance(old, ast.AST):
        return _NEIGHBOURS[type(old)]()
    if isinstance(old, bool):
        return not old
    return old + "x" if isinstance(old, str) else old + 1


if __name__ == "__main__":
    main()
