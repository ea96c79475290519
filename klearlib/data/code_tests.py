"""Tests of code problems in the forms in which data sets write them.

By input and output: `paired_tests` (APPS, TACO), `listed_tests` (LiveCodeBench, DeepCoder). By
statements: `assert_tests` (HumanEval, MBPP, KlearReasoner-CodeSub), `pytest_tests`. Each gives the
tests and the entry point that they call, None for programs that read stdin.
"""

from __future__ import annotations

import ast
import builtins
import json
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from klearlib.data.rows import UnusableRow, parsed
from klearlib.records import TestCase

_STDIN_WORDS = {"stdin", "stdin_stdout", "standard_input"}
_CALL_WORDS = {"functional", "function_call", "call_based"}
_INTEGER = re.compile(r"\s*[-+]?\d+\s*")
_MODULES = "collections copy datetime functools heapq itertools json math random re string sys"
_TYPES = "Any Callable Dict Iterable Iterator List Optional Set Tuple Union"
USUAL = {
    **{name: f"import {name}" for name in _MODULES.split()},
    **{name: f"from typing import {name}" for name in _TYPES.split()},
    **{name: f"from collections import {name}" for name in ("Counter", "OrderedDict", "deque")},
    "defaultdict": "from collections import defaultdict",
    "deepcopy": "from copy import deepcopy",
    "inf": "from math import inf",
}
"""Names that graders import for every program, and how."""
_BUILTINS = {*dir(builtins), "__name__", "__file__", "candidate"}
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

Tests = tuple[TestCase, ...]


def paired_tests(cases: object, column: str) -> tuple[Tests, str | None]:
    """The tests, and the entry point if any, of ``{"inputs": [...], "outputs": [...]}``.

    With ``fn_name`` the tests call that function, see `call_tests`; without it the program reads
    stdin, see `stdin_tests`. A bare text in the place of a list is one test.
    """
    inputs, outputs = (_as_list(cases[k], f"{column}.{k}") for k in ("inputs", "outputs"))
    if len(inputs) != len(outputs):
        message = f"{column} holds {len(inputs)} inputs and {len(outputs)} outputs"
        raise UnusableRow("uneven_tests", message)
    if not inputs:
        raise UnusableRow("no_tests", f"{column} holds no tests")
    name = cases.get("fn_name")
    if not name:
        return stdin_tests(inputs, outputs, column), None
    return call_tests(inputs, outputs, column), entry_point(name)


def listed_tests(
    items: object, column: str, *, func_name: str | None = None
) -> tuple[Tests, str | None]:
    """The tests, and the entry point if any, of a list of ``{"input", "output", "testtype"}``.

    The kind stands in ``testtype`` (LiveCodeBench: ``stdin``, ``functional``) or ``type``
    (PrimeIntellect: ``stdin_stdout``, ``function_call``); an item with neither calls a function if
    it has ``fn_name``. The function is `func_name`, or the items' ``fn_name`` or
    ``metadata.func_name``, the same for all of them.
    """
    if not items:
        raise UnusableRow("no_tests", f"{column} holds no tests")
    are_calls = {_is_call(item, column) for item in items}
    if len(are_calls) > 1:
        raise UnusableRow("mixed_kinds", f"{column} mixes tests of stdin and tests of calls")
    inputs, outputs = [item["input"] for item in items], [item["output"] for item in items]
    if not are_calls.pop():
        return stdin_tests(inputs, outputs, column), None
    own = {item.get("fn_name") or function_in(item.get("metadata")) for item in items} - {None}
    names = {func_name} if func_name else own
    if len(names) != 1:
        message = f"{column} must name one function to call, got {sorted(names) or 'none'}"
        raise UnusableRow("no_entry_point", message)
    return call_tests(inputs, outputs, column), entry_point(names.pop())


def stdin_tests(inputs: Sequence, outputs: Sequence, column: str) -> Tests:
    """Tests by stdin and stdout. A list in the place of a text is its lines, joined by newlines
    (the released code joins by ``", "``)."""
    return tuple(
        TestCase(stdin=_lines(i, column), expected=_lines(o, column))
        for i, o in zip(inputs, outputs, strict=True)
    )


def call_tests(inputs: Sequence, outputs: Sequence, column: str) -> Tests:
    """Tests by calls. An input is the list of positional arguments (APPS, TACO, PrimeIntellect), or
    text with one JSON value in each line (LiveCodeBench), and then its output is JSON text too.

    Outputs of APPS and TACO are bare in some problems and wrapped as ``[result]`` in others. Their
    graders accept either for every test; here they are unwrapped where each output of a problem is
    a list of one value. A function whose right results are all such lists is misread where they are
    bare. Raises UnusableRow ``integer_keys`` where the first argument is a mapping all of whose
    keys are integers: JSON turned them into texts, and a call from JSON cannot turn them back.
    """
    if all(isinstance(i, str) for i in inputs):
        calls = [_arguments(i, column) for i in inputs]
        results = [parsed(o, f"{column} output") for o in outputs]
    else:
        calls, results = list(inputs), list(outputs)
        if all(isinstance(r, list) and len(r) == 1 for r in results):
            results = [r[0] for r in results]
    for call in calls:
        if not isinstance(call, list):
            message = f"{column} must hold lists of arguments, got {type(call).__name__}"
            raise UnusableRow("unknown_format", message)
        first = call[0] if call else None
        if isinstance(first, dict) and first and all(map(_INTEGER.fullmatch, first)):
            message = f"{column} holds a mapping with integer keys as an argument"
            raise UnusableRow("integer_keys", message)
    return tuple(
        TestCase(call=json.dumps(call), expected=json.dumps(result))
        for call, result in zip(calls, results, strict=True)
    )


def entry_point(name: object) -> str:
    """The name of a function; of ``Solution.name`` the part behind the point."""
    last = name.rpartition(".")[2] if isinstance(name, str) else ""
    if not last.isidentifier():
        raise UnusableRow("no_entry_point", f"{name!r} is not a function name")
    return last


def _as_list(value: object, column: str) -> list:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list):
        raise UnusableRow("unknown_format", f"{column} must be a list, got {type(value).__name__}")
    return values


def _lines(value: object, column: str) -> str:
    if isinstance(value, str):
        return value
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(v, str | int | float) for v in values):
        message = f"{column} must hold texts or lists of lines, got {type(value).__name__}"
        raise UnusableRow("unknown_format", message)
    texts = (str(v) if isinstance(v, str | bool) else json.dumps(v) for v in values)
    return "\n".join(texts)


def _arguments(text: str, column: str) -> list:
    lines = text.strip("\r\n").split("\n") if text.strip() else []
    return [parsed(line, f"{column} input") for line in lines]


def _is_call(item: Mapping, column: str) -> bool:
    word = item.get("testtype") or item.get("type")
    if word in _STDIN_WORDS or word in _CALL_WORDS:
        return word in _CALL_WORDS
    if word:
        raise UnusableRow("unknown_format", f"{column} has a test of unknown kind {word!r}")
    return bool(item.get("fn_name"))


def function_in(metadata: object) -> str | None:
    """``func_name`` of a metadata column, which may be a mapping or its JSON, or be empty."""
    value = parsed(metadata, "metadata") if metadata else None
    name = value.get("func_name") if isinstance(value, Mapping) else None
    return name or None


def assert_tests(
    statements: object,
    column: str,
    *,
    setup: str = "",
    reference: str = "",
    entry_point: str | None = None,
) -> tuple[Tests, str]:
    """One test for each text of statements, and the entry point that they share.

    Args:
        statements: Python texts, each run on its own after `setup`; a text is one of them.
        setup: Python text that every test needs first: imports, definitions.
        reference: a reference solution, or "". What it defines may be used by the tests, and its
            functions are preferred as entry point.
        entry_point: the name, where the format has it.

    Statements may use ``Solution().name``; then ``name`` is the entry point. Modules and types that
    the released graders import for every program are imported where a test uses them undefined.

    Raises:
        UnusableRow: what is no list of texts of Python, fits no name or several, or uses what
            nobody defines, such as the ``list_node`` of the released grader's prelude; or
            ``needs_classes``, where the tests use a class of `setup`: no program has it.
    """
    statements = [statements] if isinstance(statements, str) else statements
    if not statements:
        raise UnusableRow("no_tests", f"{column} holds no tests")
    setup_tree = _tree(setup, "setup")
    trees = [_tree(text, column) for text in statements]
    own = _own_names(reference)
    # A solution may have the name of a builtin: MBPP asks for functions such as `sum`.
    provided = _defined([setup_tree]) | _BUILTINS.difference(own)
    free = []
    for tree in trees:
        names = (node for node in _nodes([tree, setup_tree]) if isinstance(node, ast.Name))
        used = {name.id for name in names if isinstance(name.ctx, ast.Load)}
        free.append(used - provided - _defined([tree]))
    if entry_point is None:
        entry_point = _methods(trees) or _shared_name(free, own, column)
    known = {entry_point, "Solution", *own, *USUAL}
    unknown = sorted(set().union(*free) - known)
    if unknown:
        message = f"{column} uses undefined names: {', '.join(unknown[:5])}"
        raise UnusableRow("undefined_names", message)
    if classes := _classes_behind(trees, setup_tree):
        message = f"{column} uses classes of its own: {', '.join(classes[:5])}"
        raise UnusableRow("needs_classes", message)
    tests = []
    for text, names in zip(statements, free, strict=True):
        imports = [USUAL[name] for name in sorted(names - {entry_point, *own} & set(USUAL))]
        whole = "\n".join(
            [*imports, *([setup.rstrip()] if setup.strip() else []), text.strip("\n")]
        )
        tests.append(TestCase(asserts=whole))
    return tuple(tests), entry_point


def pytest_tests(source: str, column: str) -> tuple[Tests, str]:
    """One test for each ``test_*`` function of a file that imports from ``solution``. Raises
    UnusableRow: ``needs_pytest`` for what only pytest can run: fixtures, parameters, decorators,
    classes, async functions, ``import pytest``."""
    body = _tree(source, column).body
    imports = [n for n in body if isinstance(n, ast.ImportFrom) and n.module == "solution"]
    kept = ast.Module([node for node in body if node not in imports], type_ignores=[])
    tests = [n for n in kept.body if isinstance(n, _DEFINITIONS) and n.name.lower()[:4] == "test"]
    text = ast.unparse(kept)
    is_plain = all(
        isinstance(test, ast.FunctionDef) and not test.decorator_list and not ast.unparse(test.args)
        for test in tests
    )
    if not is_plain or re.search(r"^\s*(?:import|from) (?:pytest|solution)\b", text, re.MULTILINE):
        message = f"{column} needs pytest itself: fixtures, parameters, classes or imports"
        raise UnusableRow("needs_pytest", message)
    aliases = [alias for node in imports for alias in node.names if alias.name != "*"]
    renamed = [f"{a.asname} = {a.name}" for a in aliases if a.asname]
    text = "\n".join([*renamed, text])
    return assert_tests(
        [f"{text}\n{test.name}()" for test in tests],
        column,
        entry_point=aliases[0].name if len(aliases) == 1 else None,
    )


def _tree(text: str, column: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the data's own escapes and comparisons
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UnusableRow("bad_python", f"{column} is not valid Python: {error}") from error


def _own_names(reference: str) -> list[str]:
    """What a reference solution defines, functions first; [] where it cannot be parsed."""
    try:
        body = _tree(reference, "reference").body
    except UnusableRow:
        return []
    definitions = [node for node in body if isinstance(node, _DEFINITIONS)]
    return [n.name for n in sorted(definitions, key=lambda n: isinstance(n, ast.ClassDef))]


def _nodes(trees: Iterable[ast.Module]) -> Iterator[ast.AST]:
    return chain.from_iterable(map(ast.walk, trees))


def _defined(trees: Iterable[ast.Module]) -> set[str]:
    names: set[str] = set()
    for node in _nodes(trees):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, (*_DEFINITIONS, ast.ExceptHandler)) and node.name:
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update((a.asname or a.name).partition(".")[0] for a in node.names)
    return names


def _classes_behind(trees: Sequence[ast.Module], setup: ast.Module) -> list[str]:
    """The classes of `setup` that the trees use, by themselves or by functions of `setup`."""
    unseen = {node.name: node for node in setup.body if isinstance(node, _DEFINITIONS)}
    classes, pending = [], [*trees]
    while pending:
        for node in ast.walk(pending.pop()):
            found = unseen.pop(node.id, None) if isinstance(node, ast.Name) else None
            if found is not None:
                pending.append(found)
                classes += [found.name] * isinstance(found, ast.ClassDef)
    return classes


def _methods(trees: Iterable[ast.Module]) -> str | None:
    """The one method that is taken of ``Solution()``, None where there is none."""
    names = {
        node.attr
        for node in _nodes(trees)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id == "Solution"
    }
    if len(names) > 1:
        message = f"the tests call several methods of Solution: {', '.join(sorted(names)[:5])}"
        raise UnusableRow("no_entry_point", message)
    return names.pop() if names else None


def _shared_name(free: Sequence[set[str]], own: Sequence[str], column: str) -> str:
    shared = set.intersection(*free) - set(USUAL)
    preferred = [name for name in own if name in shared]
    names = preferred[:1] or sorted(shared)
    if len(names) != 1:
        message = f"{column} must use one function throughout, got {', '.join(names[:5]) or 'none'}"
        raise UnusableRow("no_entry_point", message)
    return names[0]
