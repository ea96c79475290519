"""The tests of code problems in every form in which a data set writes them, and what packs them."""

import base64
import json
import os
import pickle
import zlib
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from raw_rows import ROWS, messages, packed
from test_data_sets import given_by, reject_of, truth

from klearlib.data.sources import read_source
from klearlib.records import Problem


def problem_of(name, **change) -> Problem:
    return given_by(name, change).problem


def apps(cases, **change) -> dict:
    return {"input_output": cases if isinstance(cases, str) else json.dumps(cases), **change}


def cases_in(cases, **change) -> dict:
    return {"tests": cases if isinstance(cases, str) else json.dumps(cases), **change}


def lcb(public, private="[]", **change) -> dict:
    return {"public_test_cases": json.dumps(public), "private_test_cases": private, **change}


def packed_bytes(pickled: bytes) -> str:
    return base64.b64encode(zlib.compress(pickled)).decode()


def shown(problem: Problem) -> list[tuple]:
    """Each test as (what goes in, what must come out)."""
    return [
        (t.stdin, t.expected) if t.kind == "stdin" else (json.loads(t.call), json.loads(t.expected))
        for t in problem.tests
    ]


STDIN = {"input": "2\n", "output": "4\n", "testtype": "stdin"}
MORE = {"input": "3\n", "output": "6\n", "testtype": "stdin"}
CALL = {"input": [2], "output": [4], "type": "function_call", "fn_name": "f"}
LINES = {"input": "2", "output": "4", "testtype": "functional"}
TWO_SUM = [
    {"input": '[3, 3]\n6\n"a b"', "output": "[0, 1]", "testtype": "functional"},
    {"input": "[]\n0\nnull\n", "output": "[0]", "testtype": "functional"},
]
F = {"fn_name": "f"}
NAMED = '{"func_name": "f"}'


@pytest.mark.parametrize(
    ("name", "change", "tests", "entry_point"),
    [
        ("apps", apps({"inputs": ["1 2\n", "3"], "outputs": ["3\n", "7"]}),
         [("1 2\n", "3\n"), ("3", "7")], None),
        # Lists are lines, and a bare text is one test.
        ("apps", apps({"inputs": [["2", "1 2"], [3, 4.5, True], 7], "outputs": [["a"], [1], 2]}),
         [("2\n1 2", "a"), ("3\n4.5\nTrue", "1"), ("7", "2")], None),
        ("apps", apps({"inputs": "1 2", "outputs": "3"}), [("1 2", "3")], None),
        # Outputs are unwrapped for all tests or for none.
        ("apps", apps(F | {"inputs": [["a"], ["x"]], "outputs": ["c", "x"]}),
         [(["a"], "c"), (["x"], "x")], "f"),
        ("apps", apps(F | {"inputs": [["a"], ["x"]], "outputs": [["c"], ["x"]]}),
         [(["a"], "c"), (["x"], "x")], "f"),
        ("apps", apps(F | {"inputs": [[1], [2]], "outputs": [[1], [1, 2]]}),
         [([1], [1]), ([2], [1, 2])], "f"),
        ("apps", apps(F | {"inputs": [[{"a": 1}], [{}]], "outputs": [{"1": 2}, {}]}),
         [([{"a": 1}], {"1": 2}), ([{}], {})], "f"),
        ("apps", apps({"fn_name": "Solution.f", "inputs": [[1]], "outputs": [1]}), [([1], 1)], "f"),
        ("deepcoder", cases_in({"inputs": ["2\n"], "outputs": ["4\n"]}), [("2\n", "4\n")], None),
        ("deepcoder", cases_in([STDIN]), [("2\n", "4\n")], None),
        ("deepcoder", cases_in([{"input": "2", "output": "4"}]), [("2", "4")], None),
        ("deepcoder", cases_in(F | {"inputs": [[2]], "outputs": [[4]]}), [([2], 4)], "f"),
        ("deepcoder", cases_in([CALL]), [([2], 4)], "f"),
        ("deepcoder", cases_in([{"input": [2], "output": [4], **F}]), [([2], 4)], "f"),
        ("deepcoder", cases_in([LINES | {"metadata": {"func_name": "f"}}]), [([2], 4)], "f"),
        ("deepcoder", cases_in([LINES], metadata=NAMED, starter_code="def f(x):"), [([2], 4)], "f"),
        ("livecodebench", lcb([STDIN], json.dumps([MORE])), [("2\n", "4\n"), ("3\n", "6\n")], None),
        ("livecodebench", lcb([STDIN], packed([MORE])), [("2\n", "4\n"), ("3\n", "6\n")], None),
        ("livecodebench", lcb([STDIN], ""), [("2\n", "4\n")], None),
        ("livecodebench", lcb(TWO_SUM, metadata=NAMED),
         [([[3, 3], 6, "a b"], [0, 1]), ([[], 0, None], [0])], "f"),
        ("livecodebench", lcb([LINES | {"input": ""}], metadata={"func_name": "f"}),
         [([], 4)], "f"),
        ("klear_code", truth({"inputs": ["2", ["3", "4"]], "outputs": ["4", "6"], "timeout": 9,
                              "max_test_cases": 1}), [("2", "4"), ("3\n4", "6")], None),
        ("klear_code", truth(F | {"inputs": [[2]], "outputs": [[4]]}), [([2], 4)], "f"),
        ("skywork_or1_code", truth({"inputs": ["3"], "outputs": ["9"]}), [("3", "9")], None),
        ("skywork_or1_code", truth([STDIN]), [("2\n", "4\n")], None),
    ],
)  # fmt: skip
def test_tests_by_input_and_output(name, change, tests, entry_point):
    problem = problem_of(name, **change)
    assert (shown(problem), problem.entry_point) == (tests, entry_point)
    assert problem.preset == ("lcb" if name == "livecodebench" else "python")
    if starter := change.get("starter_code"):
        assert f"```python\n{starter}\n```" in problem.prompt and "stdin" not in problem.prompt
    elif entry_point and name not in ("klear_code", "skywork_or1_code"):
        assert f"function {entry_point}." in problem.prompt


def run_asserts(problem: Problem, program: str) -> None:
    """Run the asserts as the contract of `TestCase` says, without a sandbox."""
    for test in problem.tests:
        names: dict = {}
        exec(program, names)
        names["candidate"] = names[problem.entry_point]
        exec(test.asserts, names)


PYTEST = """from solution import f as g
import math
def twice(x):
    return x + x
def test_a():
    assert g(1) == twice(1)
def test_b():
    assert math.isclose(g(2), 4)
"""
TWICE = "def f(x):\n    return 2 * x"
HUMANEVAL = {
    "prompt": "def poly(x):\n    return x * x\n\n\ndef f(x):\n    '''Find poly(x).'''\n",
    "entry_point": "f",
    "test": "\n\ndef check(candidate):\n    assert candidate(3) == poly(3) == f(3)\n",
}
LEETCODE = {
    "import_prefix": "from math import *\n",
    "test_code": "def check(candidate):\n    assert candidate(x=3) == 6",
    "entry_point": "Solution().f",
}
WITH_NODES = LEETCODE | {
    "import_prefix": "from math import *\n\nclass Node:\n    def __init__(self, x): self.x = x\n\n"
    "def node(x): return Node(x)\n",
}


def mbpp(*tests, code=TWICE, **change) -> dict:
    return {"test_list": list(tests), "code": code, **change}


@pytest.mark.parametrize(
    ("name", "change", "num_tests", "right", "wrong"),
    [
        ("klear_code", truth({"functional": ["assert f(1) == 2", "assert math.isclose(f(2), 4)"]}),
         2, TWICE, "def f(x):\n    return 2"),
        ("klear_code", truth({"functional": "assert f(1) == 2\nassert f(2) == 4"}),
         1, TWICE, "def f(x):\n    return 2"),
        ("klear_code", truth({"pytest": PYTEST}), 2, TWICE, "def f(x):\n    return x"),
        ("skywork_or1_code", truth({"assert_case": ["assert f(3) == 6", "assert f(4) == 8"]}),
         2, TWICE, "def f(x):\n    return 6"),
        ("skywork_or1_code", truth(LEETCODE), 1, TWICE, "def f(x):\n    return 7"),
        ("skywork_or1_code", truth(WITH_NODES), 1, TWICE, "def f(x):\n    return 7"),
        # HumanEval's tests use their own functions, and not what a program calls by their names.
        ("humaneval", HUMANEVAL, 1, "def f(x):\n    return x * x",
         "def poly(x):\n    return 7\ndef f(x):\n    return 7"),
        ("humaneval", HUMANEVAL, 1, "def f(x):\n    return x * x",
         "def check(f):\n    pass\ndef f(x):\n    return 7"),
        ("mbpp", mbpp("assert f(1) == 2", "assert set([f(2)]) == {4}",
                      challenge_test_list=["assert f(-1) == -2"]), 3, TWICE, "def f(x): return x"),
        ("mbpp", mbpp("assert math.isclose(f(1), 2)", test_imports=["import math"]),
         1, TWICE, "def f(x): return x"),
        ("mbpp", mbpp("assert f([Pair(), root]) == 2", test_setup_code="root = Pair()",
                      code="class Pair:\n    pass\ndef f(pairs):\n    return len(pairs)"),
         1, "class Pair:\n    pass\ndef f(pairs):\n    return len(pairs)",
         "class Pair:\n    pass\ndef f(pairs):\n    return 0"),
        ("mbpp", mbpp("assert f(1) == 2", code="def f(x): return 2x"), 1, TWICE, "def f(x): 0"),
    ],
)  # fmt: skip
def test_tests_by_statements(name, change, num_tests, right, wrong):
    problem = problem_of(name, **change)
    assert {test.kind for test in problem.tests} == {"asserts"}
    assert (len(problem.tests), problem.entry_point) == (num_tests, "f")
    run_asserts(problem, right)
    with pytest.raises(AssertionError):
        run_asserts(problem, wrong)


def test_what_prompts_show_and_how_functions_are_named():
    problem = problem_of("mbpp", **mbpp("assert f(1) == 2", challenge_test_list=["assert f(2)"]))
    assert "assert f(1) == 2" in problem.prompt and "assert f(2)" not in problem.prompt
    assert HUMANEVAL["prompt"].strip() in problem_of("humaneval", **HUMANEVAL).prompt
    problem = problem_of("taco")
    assert problem.prompt.startswith("Print the square of n.\n\n")
    assert "stdin" in problem.prompt and "```python" in problem.prompt
    row = {k: v for k, v in ROWS["mbpp"].items() if k not in ("text", "test_setup_code")}
    (given,) = read_source("mbpp", [row | {"prompt": "Write it."}])  # the sanitized config
    assert given.problem.prompt.startswith("Write it.")
    code = "def sum(a, b):\n    return a + b"  # the name of a builtin
    assert problem_of("mbpp", **mbpp("assert sum(1, 2) == 3", code=code)).entry_point == "sum"
    check = "def check(candidate):\n    assert candidate(x=1) == 2\n\n\ncheck(Solution().twice)"
    assert problem_of("klear_code", **truth({"functional": check})).entry_point == "twice"
    for date in ("2024-08-03", datetime(2024, 8, 3, 2, 30)):
        given = problem_of("livecodebench", contest_date=date)
        assert datetime.fromisoformat(given.date).day == 3
    both = [*messages("Be brief.", "system"), *messages("Solve.")]
    assert problem_of("klear_code", prompt=both).prompt == "Be brief.\n\nSolve."


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        *(("apps", apps(cases), reason) for cases, reason in [
            ("", "no_tests"),
            ({}, "no_tests"),
            ({"inputs": [], "outputs": []}, "no_tests"),
            (F | {"inputs": [[1]], "outputs": []}, "uneven_tests"),
            ('{"inputs": [', "bad_json"),
            ("[" * 200_000, "bad_json"),
            ({"inputs": ["\ud800"], "outputs": [""]}, "unknown_format"),
            ({"inputs": ["1"]}, "unknown_format"),
            ([1], "unknown_format"),
            ({"inputs": [None], "outputs": ["1"]}, "unknown_format"),
            (F | {"inputs": [[1], "2"], "outputs": [1, 2]}, "unknown_format"),
            ({"fn_name": "f(", "inputs": [[1]], "outputs": [1]}, "no_entry_point"),
            (F | {"inputs": [[{"1": 2}]], "outputs": [1]}, "integer_keys"),
        ]),
        ("taco", {"input_output": {"inputs": ["1"], "outputs": [{"1"}]}}, "unknown_format"),
        *(("deepcoder", cases_in(cases), reason) for cases, reason in [
            ("", "no_tests"),
            ([], "no_tests"),
            ([CALL, STDIN], "mixed_kinds"),
            ([CALL, CALL | {"fn_name": "g"}], "no_entry_point"),
            ([CALL | {"fn_name": None}], "no_entry_point"),
            ([1], "unknown_format"),
        ]),
        *(("livecodebench", lcb([STDIN], private), reason) for private, reason in [
            ("not base64!", "bad_packing"),
            (base64.b64encode(b"no zlib stream").decode(), "bad_packing"),
            (packed([])[:-8], "bad_packing"),
            (packed_bytes(b"\x80\x04\x8c\xffshort"), "bad_packing"),
            (packed_bytes(pickle.dumps("[{]")), "bad_json"),
            (packed(7), "unknown_format"),
            (json.dumps([STDIN | {"testtype": "files"}]), "unknown_format"),
            (json.dumps([LINES]), "mixed_kinds"),
        ]),
        ("livecodebench", lcb([]), "no_tests"),
        ("livecodebench", lcb([LINES]), "no_entry_point"),
        ("livecodebench", lcb([LINES | {"input": "[1,"}], metadata=NAMED), "bad_json"),
        ("livecodebench", lcb([STDIN], metadata='{"func_name":'), "bad_json"),
        ("livecodebench", lcb([STDIN], contest_date="soon"), "bad_date"),
        *(("klear_code", truth(cases), reason) for cases, reason in [
            ({"inputs_file": "a.txt", "outputs_file": "b.txt"}, "needs_files"),
            ({"functional": []}, "unknown_format"),
            ({"functional": "assert f(1 == 2"}, "bad_python"),
            ({"functional": "assert 1 == 1"}, "no_entry_point"),
            ({"functional": "assert f(g(1))"}, "no_entry_point"),
            ({"functional": "Solution().a()\nSolution().b()"}, "no_entry_point"),
            ({"functional": "assert Solution().f(list_node([1]))"}, "undefined_names"),
            ({"pytest": f"import pytest\n{PYTEST}"}, "needs_pytest"),
            ({"pytest": "from solution import f\ndef test_a(tmp_path): f()"}, "needs_pytest"),
            ({"pytest": "import solution\ndef test_a(): solution.f()"}, "needs_pytest"),
            ({"pytest": "from solution import f\n"}, "no_tests"),
            ({"inputs": [], "outputs": []}, "no_tests"),
        ]),
        *(("klear_code", {"prompt": prompt}, "unknown_format") for prompt in (
            "Solve.",
            [*messages("x"), *messages("", "assistant")])),
        ("klear_code", truth({"functional": ["assert f(1)", "f(Node(1))"]}), "undefined_names"),
        ("humaneval", {"test": "def check("}, "bad_python"),
        ("humaneval", {"test": "x = 1"}, "undefined_names"),
        ("mbpp", {"test_list": []}, "no_tests"),
        ("mbpp", {"test_list": "assert square(1)"}, "unknown_format"),
        ("mbpp", mbpp("assert f(1"), "bad_python"),
        ("mbpp", mbpp("assert f(1)", "assert g(1)"), "no_entry_point"),
        ("mbpp", mbpp("assert f(Node(1))"), "undefined_names"),
        ("skywork_or1_code", truth(LEETCODE | {"entry_point": "a b"}), "no_entry_point"),
        ("skywork_or1_code", truth({}), "no_tests"),
        *(("skywork_or1_code", truth(WITH_NODES | {"test_code": f"def check(c):\n    {text}"}),
           "needs_classes") for text in ("assert c(node(3))", "assert c(Node(3))")),
    ],
)  # fmt: skip
def test_rows_without_tests_that_can_be_run(name, change, reason):
    assert reject_of(name, change) == reason


# ids


@pytest.mark.parametrize(
    ("name", "column"),
    [("taco", "input_output"), ("deepcoder", "tests"), ("skywork_or1_code", "reward_model")],
)
def test_ids_are_hashes_of_what_the_tests_are_and_not_of_how_they_are_written(name, column):
    written = ROWS[name][column]
    text = written["ground_truth"] if column == "reward_model" else written
    other = {"inputs": ["1"], "outputs": ["2"]}
    values = [text, json.loads(text), json.dumps(json.loads(text), indent=1), other]
    if column == "reward_model":
        values = [{"ground_truth": value} for value in values]
    ids = [problem_of(name, **{column: value}).id for value in values]
    assert len(set(ids[:3])) == 1 and ids[3] != ids[0]


@pytest.mark.parametrize("name", ["taco", "deepcoder"])
def test_problems_that_show_another_starter_have_another_id(name):
    shown = [problem_of(name, starter_code=code) for code in ("", "def solve():\n    pass")]
    assert len({problem.prompt for problem in shown}) == len({each.id for each in shown}) == 2


# packed tests


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("text", ["3\n", "é\u2028\U0001f600", "x" * 70_000, "0" * 300])
def test_private_tests_packed(protocol, text):
    cases = json.dumps([MORE | {"input": text}], ensure_ascii=False)
    private = packed_bytes(pickle.dumps(cases, protocol))
    problem = problem_of("livecodebench", **lcb([STDIN], private))
    assert shown(problem) == [("2\n", "4\n"), (text, "6\n")]


class Ran:
    def __reduce__(self):
        return os.system, ("touch escaped",)


RUNNING_PICKLES = {
    "os.system by reduce": pickle.dumps(Ran()),
    "os.system by GLOBAL": b"cos\nsystem\n(S'touch escaped'\ntR.",
    "os.system by INST": b"(S'touch escaped'\nios\nsystem\n.",
    "os.system by OBJ": b"(cos\nsystem\nS'touch escaped'\no.",
    "os.system by STACK_GLOBAL": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x0dtouch escaped\x85R.",
    "behind the text": b"\x80\x04\x8c\x02[]cos\nsystem\n\x8c\x0dtouch escaped\x85R0.",
}
OTHER_PICKLES = {
    "a class": pickle.dumps(Path),
    "a str subclass": pickle.dumps(np.str_("[]")),
    "a list": pickle.dumps(["[]"]),
    "bytes": pickle.dumps(b"[]"),
}


@pytest.mark.parametrize("theme", [*RUNNING_PICKLES, *OTHER_PICKLES])
def test_hostile_pickles_are_refused_and_run_nothing(theme, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pickled = (RUNNING_PICKLES | OTHER_PICKLES)[theme]
    assert reject_of("livecodebench", lcb([STDIN], packed_bytes(pickled))) == "bad_packing"
    assert list(tmp_path.iterdir()) == []
    if theme in RUNNING_PICKLES:  # which they would, if they were loaded
        pickle.loads(pickled)
        assert (tmp_path / "escaped").exists()
