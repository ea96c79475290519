"""Data sets of code problems that are benchmarks: HumanEval, MBPP, LiveCodeBench; see `code`."""

from __future__ import annotations

from klearlib.data import rows
from klearlib.data.code import COMPLETE_STUB, PASS_TESTS, level_of, prompt_of
from klearlib.data.code_tests import assert_tests, function_in, listed_tests
from klearlib.data.declaration import Found, data_set
from klearlib.data.rows import Row, UnusableRow, json_or_none, unpacked
from klearlib.data.windows import in_window
from klearlib.errors import KlearError
from klearlib.records import Problem


@data_set(
    "openai/openai_humaneval",
    "code",
    "mit",
    "task_id prompt entry_point test",
    split="test",
    has_ids=True,
)
def humaneval(row: Row) -> Found:
    """The one test is the prompt, the test and a call of ``check``. The prompt comes along because
    some tests use the functions that it defines before the one to write (``poly`` of HumanEval/32):
    so they are the test's own and not what the program made of them. HumanEval's own harness runs
    the completion behind the prompt; here a program must be whole."""
    row.id = row.own_id("task_id")
    stub, test, name = row.question("prompt"), row.text("test"), row.text("entry_point")
    _check_size([stub, test], "test")
    # The prompt defines the entry point as a stub, and the tests may call it by name.
    setup = f"{stub}\n\n\n{name} = candidate\n"
    statements = [f"{test.strip()}\n\n\ncheck(candidate)"]
    tests, entry_point = assert_tests(statements, "test", setup=setup, entry_point=name)
    prompt = f"{COMPLETE_STUB}\n{stub}\n```"
    return Found(Problem(row.id, prompt, tests=tests, entry_point=entry_point))


@data_set(
    "google-research-datasets/mbpp",
    "code",
    "cc-by-4.0",
    "task_id text|prompt code test_list",
    config="full",
    optional="test_setup_code test_imports challenge_test_list",
    has_ids=True,
)
def mbpp(row: Row) -> Found:
    """``text`` (full) or ``prompt`` (sanitized), and each assert statement of ``test_list`` and
    ``challenge_test_list`` a test.

    The format does not name the function: it is the one that the tests use and `code` defines. As
    the task's authors do, the prompt shows the tests of test_list, without which neither the name
    nor the arguments could be known; those of challenge_test_list stay hidden.
    """
    row.own_id("task_id")
    question = row.question("text" if "text" in row.columns else "prompt")
    shown = row.items("test_list", str)
    hidden = row.items("challenge_test_list", str, optional=True)
    imports = row.items("test_imports", str, optional=True)
    setup = "\n".join([*imports, row.text("test_setup_code", optional=True)])
    _check_size(shown + hidden, "test_list")
    reference = row.text("code")
    tests, entry_point = assert_tests(shown + hidden, "test_list", setup=setup, reference=reference)
    examples = "\n".join(shown)
    prompt = f"{question}\n\n{PASS_TESTS}\n{examples}\n```"
    return Found(Problem(row.id, prompt, tests=tests, entry_point=entry_point))


@data_set(
    "lighteval/code_generation_lite",
    "code",
    "cc",
    "question_id question_content starter_code contest_date public_test_cases "
    "private_test_cases metadata",
    config="release_v6",
    split="test",
    optional="difficulty",
    has_ids=True,
)
def livecodebench(row: Row, window: tuple[str, str] | None = None) -> Found:
    """The public tests, then the private ones: JSON text of a list of ``{"input", "output",
    "testtype"}``, or base64(zlib(pickle(text))) of it, which is read without unpickling
    (`rows.unpacked`).

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
        if not isinstance(cases, list | None):
            kind = type(cases).__name__
            raise UnusableRow("unknown_format", f"{column} must be a list, got {kind}")
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
        difficulty=level_of(row, ("easy", "medium", "hard")),
        preset="lcb",
    )
    return Found(problem)


def _check_size(texts: list[str], column: str) -> None:
    if sum(map(len, texts)) > rows.MAX_TESTS_BYTES:
        message = f"{column} is larger than {rows.MAX_TESTS_BYTES} bytes"
        raise UnusableRow("too_large", message)
