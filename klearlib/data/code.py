"""Data sets of code problems with tests, to train on and as benchmarks: one declaration each, row
in, `Problem` out. docs/datasets.md has their columns and traps.

Prompts are the problem's text, the starter code where there is one, and one sentence that asks for
one Python block and says whether it reads stdin or is called; KlearReasoner-CodeSub's and Skywork's
rows hold whole prompts, which are taken as they are. Time limits of a data set are not carried
over: they are settings of a run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from klearlib.data.code_tests import (
    assert_tests,
    function_in,
    listed_tests,
    paired_tests,
    pytest_tests,
)
from klearlib.data.declaration import data_set
from klearlib.data.rows import Row, UnusableRow, is_null, json_or_none, unpacked
from klearlib.data.windows import in_window
from klearlib.errors import KlearError
from klearlib.records import Problem, SourceRow, TestCase

STDIN_REQUEST = (
    "Write a Python program that reads the input from stdin and prints the answer to stdout."
)
BLOCK_REQUEST = "Put the whole program, with its imports, into one ```python block."
# The row's own words stand before or behind a request and never within, so it can be cut out whole.
_FENCE = "\n\n```python"
_READ_STDIN = f"{STDIN_REQUEST} {BLOCK_REQUEST}"
_READ_STDIN_FROM = f"{_READ_STDIN}{_FENCE}"
_COMPLETE_STARTER = f"Complete the starter code. {BLOCK_REQUEST}{_FENCE}"
_COMPLETE_STUB = f"Complete this function. {BLOCK_REQUEST}{_FENCE}"
_PASS_TESTS = f"Write a function that passes these tests. {BLOCK_REQUEST}{_FENCE}"
_WRITE_FUNCTION = f"Write a Python function. {BLOCK_REQUEST} Name the function"
REQUESTS = (
    _READ_STDIN,
    _READ_STDIN_FROM,
    _COMPLETE_STARTER,
    _COMPLETE_STUB,
    _PASS_TESTS,
    _WRITE_FUNCTION,
)
"""All that is written into prompts besides a row's own words: no problem is recognised by it."""

CUT_OFF = "..."  # how Codeforces ends an input or output that it shows only in part


@data_set(
    "BAAI/TACO",
    "code",
    "apache-2.0",
    "question input_output starter_code",
    config="ALL",
)
def taco(row: Row) -> SourceRow:
    """As APPS."""
    question, starter = row.asked("question"), row.text("starter_code")
    cases = row.cases(question, row.value("input_output"), "input_output", starter)
    return SourceRow(_paired(row, cases))


@data_set(
    "codeparrot/apps",
    "code",
    "mit",
    "problem_id question input_output starter_code",
    hub_file="{split}.jsonl",
    has_ids=True,
)
def apps(row: Row) -> SourceRow:
    """``input_output``: see `paired_tests` for lists of lines, wrapped outputs and integer keys."""
    row.own_id("problem_id")
    cases = json_or_none(row.value("input_output"), "input_output")
    return SourceRow(_paired(row, cases))


def _paired(row: Row, cases: object) -> Problem:
    if not cases:
        raise UnusableRow("no_tests", "input_output is empty")
    tests, entry_point = paired_tests(cases, "input_output")
    question, starter = row.question("question"), row.text("starter_code")
    return Problem(
        id=row.id,
        prompt=prompt_of(question, starter=starter, function=entry_point),
        tests=tests,
        entry_point=entry_point,
    )


@data_set(
    "open-r1/codeforces",
    "code",
    "cc-by-4.0",
    "id description input_format output_format interaction_format note examples "
    "official_tests official_tests_complete input_mode generated_checker executable",
    config="default",
    has_ids=True,
)
def codeforces(row: Row) -> SourceRow:
    """The statement in its parts, ``official_tests`` and ``examples``, of problems that a
    comparison of outputs can judge.

    The tests that the authors generated are in files of their own (``generated_tests`` counts them)
    and are not read.
    """
    row.own_id("id")
    parts = [row.question("description")]
    if row.text("interaction_format").strip():
        raise UnusableRow("needs_interaction", "the problem is interactive")
    if row.text("generated_checker").strip():
        raise UnusableRow("needs_checker", "more than one output can be right")
    mode = row.text("input_mode").strip()
    if mode not in ("", "stdio"):
        raise UnusableRow("needs_files", f"input_mode is {mode!r}")
    executable = row.value("executable")
    if executable is not True:
        raise UnusableRow("not_executable", f"executable is {executable!r}")
    for title, column in (("Input", "input_format"), ("Output", "output_format")):
        if text := row.text(column).strip():
            parts.append(f"{title}\n\n{text}")
    for example in row.items("examples", Mapping):
        shown = f"{example['input'].rstrip()}\n\nOutput\n\n{example['output'].rstrip()}"
        parts.append(f"Example\n\nInput\n\n{shown}")
    if note := row.text("note").strip():
        parts.append(f"Note\n\n{note}")
    cases = row.items("official_tests", Mapping)
    if row.value("official_tests_complete") is not True:
        texts = ("input", "output")
        cases = [c for c in cases if not any(c[k].rstrip().endswith(CUT_OFF) for k in texts)]
    if not cases:
        raise UnusableRow("no_tests", "official_tests has no complete test")
    tests, _ = listed_tests(cases, "official_tests")
    return SourceRow(Problem(row.id, "\n\n".join([*parts, _READ_STDIN]), tests=tests))


@data_set("Skywork/Skywork-OR1-RL-Data", "code", "unknown", "prompt reward_model", split="code")
def skywork_or1_code(row: Row) -> SourceRow:
    """A whole prompt, and ``reward_model.ground_truth``, JSON of ``{"inputs", "outputs",
    "fn_name"?}``, of ``{"assert_case": [...]}``, or of LeetCode's ``{"import_prefix", "test_code",
    "entry_point"}``, whose ``test_code`` is a function ``check``: one test here, and the released
    grader's many."""
    prompt = row.user_prompt("prompt")
    cases = row.cases(prompt, row.truth(), "reward_model.ground_truth")
    if not cases:
        raise UnusableRow("no_tests", "reward_model.ground_truth is empty")
    tests, entry_point = _skywork_tests(cases)
    return SourceRow(Problem(row.id, prompt, tests=tests, entry_point=entry_point))


def _skywork_tests(cases: object) -> tuple[tuple[TestCase, ...], str | None]:
    if isinstance(cases, Mapping) and cases.get("test_code"):
        parts = [cases.get(key) or "" for key in ("test_code", "import_prefix", "entry_point")]
        test, setup, caller = parts
        name = re.fullmatch(r"(?:Solution\(\)\.)?(\w+)", caller)
        if name is None:
            raise UnusableRow("no_entry_point", f"{caller!r} is not a function name")
        statements = [f"{test.strip()}\n\n\ncheck(candidate)"]
        return assert_tests(statements, "test_code", setup=setup, entry_point=name[1])
    if isinstance(cases, Mapping) and cases.get("assert_case"):
        return assert_tests(cases["assert_case"], "assert_case")
    if isinstance(cases, list):
        return listed_tests(cases, "ground_truth")
    return paired_tests(cases, "ground_truth")


@data_set(
    "agentica-org/DeepCoder-Preview-Dataset",
    "code",
    "mit",
    "problem tests",
    optional="starter_code metadata",
)
def deepcoder(row: Row) -> SourceRow:
    """``tests`` is JSON of a mapping (taco) or a list of tests (codeforces, lcbv5,
    primeintellect)."""
    question, starter = row.asked("problem"), row.text("starter_code", optional=True)
    name = function_in(row.columns.get("metadata"))
    cases = row.cases(question, row.value("tests"), "tests", starter, name or "")
    if cases is None:
        raise UnusableRow("no_tests", "tests is empty")
    if isinstance(cases, Mapping):
        tests, entry_point = paired_tests(cases, "tests")
    else:
        tests, entry_point = listed_tests(cases, "tests", func_name=name)
    prompt = prompt_of(question, starter=starter, function=entry_point)
    return SourceRow(Problem(row.id, prompt, tests=tests, entry_point=entry_point))


@data_set(
    "Kwai-Klear/KlearReasoner-CodeSub-15K",
    "code",
    "unknown",
    "hash prompt reward_model",
    hub_file="train_code_rllm_clean.json",
    has_ids=True,
)
def klear_code(row: Row) -> SourceRow:
    """A whole prompt, and ``reward_model.ground_truth``, JSON text with one of

    - ``functional``: assert statements, one text or a list of texts (one test each);
    - ``pytest``: a test file that imports from ``solution`` (`code_tests.pytest_tests`);
    - ``inputs`` and ``outputs``: as in APPS, but that the grader joins lists of lines by ``", "``;
    - ``inputs_file`` and ``outputs_file``: files that are not part of the data (``needs_files``).

    The order is the released grader's. All tests are kept, whatever its ``max_test_cases``.
    """
    row.name = row.id = "klear-code"  # what its ids begin with
    prompt, truth, column = row.user_prompt("prompt"), row.truth(), "reward_model.ground_truth"
    if is_null(row.columns.get("hash")) or row.columns["hash"] == "":
        cases = row.cases(prompt, truth, column)
    else:
        row.own_id("hash")
        cases = json_or_none(truth, column)
    if cases is None:
        raise UnusableRow("no_tests", "reward_model.ground_truth must be a JSON object")
    if cases.get("functional"):
        tests, entry_point = assert_tests(cases["functional"], "functional")
    elif isinstance(cases.get("pytest"), str) and cases["pytest"]:
        tests, entry_point = pytest_tests(cases["pytest"], "pytest")
    elif {"inputs_file", "outputs_file"} & set(cases) and "inputs" not in cases:
        raise UnusableRow("needs_files", f"the tests are in files: {cases.get('inputs_file')}")
    else:
        tests, entry_point = paired_tests(cases, "ground_truth")
    return SourceRow(Problem(row.id, prompt, tests=tests, entry_point=entry_point))


@data_set(
    "openai/openai_humaneval",
    "code",
    "mit",
    "task_id prompt entry_point test",
    split="test",
    has_ids=True,
)
def humaneval(row: Row) -> SourceRow:
    """The one test is the prompt, the test and a call of ``check``. The prompt comes along because
    some tests use the functions that it defines before the one to write (``poly`` of HumanEval/32):
    so they are the test's own and not what the program made of them. HumanEval's own harness runs
    the completion behind the prompt; here a program must be whole."""
    row.id = row.own_id("task_id")
    stub, test, name = row.question("prompt"), row.text("test"), row.text("entry_point")
    # The prompt defines the entry point as a stub, and the tests may call it by name.
    setup = f"{stub}\n\n\n{name} = candidate\n"
    statements = [f"{test.strip()}\n\n\ncheck(candidate)"]
    tests, entry_point = assert_tests(statements, "test", setup=setup, entry_point=name)
    prompt = f"{_COMPLETE_STUB}\n{stub}\n```"
    return SourceRow(Problem(row.id, prompt, tests=tests, entry_point=entry_point))


@data_set(
    "google-research-datasets/mbpp",
    "code",
    "cc-by-4.0",
    "task_id text|prompt code test_list",
    config="full",
    optional="test_setup_code test_imports challenge_test_list",
    has_ids=True,
)
def mbpp(row: Row) -> SourceRow:
    """``text`` (full) or ``prompt`` (sanitized), and each assert statement of ``test_list`` and
    ``challenge_test_list`` a test.

    The format does not name the function: it is the one that the tests use and `code` defines. As
    the task's authors do, the prompt shows the tests of test_list, without which neither the name
    nor the arguments could be known; those of challenge_test_list stay hidden.
    """
    row.id = row.own_id("task_id")
    question = row.question("text" if "text" in row.columns else "prompt")
    shown = row.items("test_list", str)
    hidden = row.items("challenge_test_list", str, optional=True)
    imports = row.items("test_imports", str, optional=True)
    setup = "\n".join([*imports, row.text("test_setup_code", optional=True)])
    reference = row.text("code")
    tests, entry_point = assert_tests(shown + hidden, "test_list", setup=setup, reference=reference)
    examples = "\n".join(shown)
    prompt = f"{question}\n\n{_PASS_TESTS}\n{examples}\n```"
    return SourceRow(Problem(row.id, prompt, tests=tests, entry_point=entry_point))


@data_set(
    "lighteval/code_generation_lite",
    "code",
    "cc",
    "question_id question_content starter_code contest_date public_test_cases "
    "private_test_cases metadata",
    config="release_v6",
    split="test",
    has_ids=True,
)
def livecodebench(row: Row, window: tuple[str, str] | None = None) -> SourceRow:
    """The public tests, then the private ones: JSON text of a list of ``{"input", "output",
    "testtype"}``, or base64(zlib(pickle(text))) of it (`rows.unpacked`).

    Rows outside of `window`, by LiveCodeBench's own comparison (`windows.in_window`), are rejected
    before their tests, which may have hundreds of megabytes, are unpacked. `Problem.date` keeps the
    time of ``contest_date``: the bounds are inclusive, so a contest at midnight of one and one
    later that day differ.
    """
    row.own_id("question_id")
    day = row.value("contest_date")
    day = day.isoformat() if hasattr(day, "isoformat") else day
    try:
        is_inside = in_window(day, *(window or (day, day)))
    except KlearError as error:
        raise UnusableRow("bad_date", str(error)) from error
    if not is_inside:
        raise UnusableRow("outside_window", f"contest_date is {day}")
    items: list = []
    for column in ("public_test_cases", "private_test_cases"):
        cases = row.value(column)
        if isinstance(cases, str):
            if cases.strip() and cases.lstrip()[0] not in "[{":
                cases = unpacked(cases, column)
            cases = json_or_none(cases, column)
        items += cases or []
    name = function_in(row.value("metadata"))
    tests, entry_point = listed_tests(items, "test cases", func_name=name)
    starter, question = row.text("starter_code"), row.question("question_content")
    problem = Problem(
        id=row.id,
        prompt=prompt_of(question, starter=starter, function=entry_point),
        tests=tests,
        entry_point=entry_point,
        date=day,
        preset="lcb",
    )
    return SourceRow(problem)


def prompt_of(question: str, *, starter: str, function: str | None) -> str:
    if starter.strip():
        request = _READ_STDIN_FROM if function is None else _COMPLETE_STARTER
        request = f"{request}\n{starter.strip()}\n```"
    else:
        request = _READ_STDIN if function is None else f"{_WRITE_FUNCTION} {function}."
    return f"{question}\n\n{request}"
