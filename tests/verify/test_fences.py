"""Which block of a response is its program: `last_code_block`."""

import sys

import pytest

from klearlib.verify.extract import read_response
from klearlib.verify.fences import last_code_block

F = "```"


def fenced(code: str, label: str = "python", fence: str = F) -> str:
    return f"{fence}{label}\n{code}\n{fence}\n"


PYTHON = (
    "python", "py", "python3", "Python", "PY", "python3.11", "", " python ", "python title=a.py",
    "{python}", "{.python}", "ipython3", "pypy3", "python-3", "python_3", "main.py",
)  # fmt: skip
OTHER = (
    "cpp", "java", "bash", "text", "pycon", "python-repl", "pypy", "pyx", "c++", "pytb", "a.pyx",
)  # fmt: skip


@pytest.mark.parametrize("label", [*PYTHON, *OTHER])
def test_a_block_of_another_language_is_never_a_program(label):
    expected = "x = 1" if label in PYTHON else None
    assert last_code_block("So:\n" + fenced("x = 1", label) + "Done.") == expected
    thought = f"<think>{fenced('wrong', label)}</think>\nNone."
    assert last_code_block(read_response(thought).text) is None


@pytest.mark.parametrize(
    ("blocks", "program"),
    [
        ([("1", "python"), ("2", "python")], "2"),
        ([("1", "python"), ("2", "cpp")], "1"),
        ([("1", "python"), ("2", "")], "1"),
        ([("1", ""), ("2", "python"), ("3", "")], "2"),
        ([("print(input())", ""), ("YES", "")], "print(input())"),
        ([("import sys", ""), ("Input: 3\nOutput: 3", "")], "import sys"),
        ([("print(1)", ""), ("print(2)", ""), ("O(n log n)", "")], "print(2)"),
        ([("1", ""), ("2", "")], "2"),
        ([("1", ""), ("2", "cpp")], "1"),
        ([("5", ""), ("print(6)", ""), ("6 7\n[8, '9']", "")], "print(6)"),
        ([("1", "cpp"), ("2", "java")], None),
        ([("1", "python"), ("", "python")], "1"),
        ([("1", "python"), (" \n\t", "python")], "1"),
        ([("", "python")], None),
        ([], None),
    ],
)
def test_which_of_several_blocks(blocks, program):
    assert last_code_block("\n".join(fenced(code, label) for code, label in blocks)) == program


ODD = "s = 'a\u2028b\x0cc\x85'  # \x1c"


@pytest.mark.parametrize(
    ("text", "program"),
    [
        (f"{F}python\nx = 1\n{F}", "x = 1"),
        (f"{F}python\nx = 1{F}", "x = 1"),
        (f"{F}python\nx = 1{F}\n\nIt is right.", "x = 1"),
        (f"{F}python\nx = 1{F}\nBetter:\n{F}python\ny = 2{F}", "y = 2"),
        (f"{F}python\nx = 1{F}\nBetter:\n{F}python\ny = 2", "x = 1"),
        (f"{F}python\ns = 'a{F}'\nt = '{F}\n'\n{F}\n", f"s = 'a{F}'\nt = '{F}\n'"),
        (f"{F}python\nx = 1\n{F}{F}\n", "x = 1"),
        # Blocks that are not closed do not count.
        (f"{F}python\nx = 1\n", None),
        (f"{fenced('x = 1')}Or:\n{F}python\ny = ", "x = 1"),
        (f"{F}python\nx = \n\nAgain:\n{fenced('y = 2')}", "y = 2"),
        (f"{F}\nstray\n{fenced('y = 2')}", "y = 2"),
        (f"{F}python\nx = 1\n~~~\n", None),
        (f"{F}{F}python\nx = 1\n{F}\n", None),
        # Indented blocks are dedented.
        (f"1. So:\n\n   {F}python\n   if x:\n       y\n   {F}", "if x:\n    y"),
        (f"- {F}python\n  if x:\n      y\n  {F}", "if x:\n    y"),
        (f"\t{F}python\n\tif x:\n\t\ty\n\t{F}", "if x:\n\ty"),
        (f"{F}python\n    if x:\n        y\n{F}", "if x:\n    y"),
        (f"   {F}python\n   s = '''\n a\n   '''\n   {F}", "s = '''\na\n'''"),
        (f"{F}python\n\n  x\n{F}", "\nx"),
        # Line ends, and code within a line.
        (f"{F}python\r\nif x:\r\n    y\r\n{F}\r\n", "if x:\n    y"),
        (fenced(ODD), ODD),
        (f"Use {F}x = 1{F} here.", None),
        (f"{F}python\nx = '''\n{F}y{F} is code\n'''\n{F}\n", f"x = '''\n{F}y{F} is code\n'''"),
        # Text before an opening fence, and behind a closing one.
        (f"Here: {F}python\nx = 1\n{F}", "x = 1"),
        (f"Here it is {F}python3\nif x:\n    y\n{F}\nDone.", "if x:\n    y"),
        (f"**Code:** {F}\nx = 1\n{F}", "x = 1"),
        (f"Here: {F}cpp\nint x;\n{F}", None),
        (f"Here: {F}cpp\nint x;\n{F}\nBut: {F}py\nx = 1\n{F}", "x = 1"),
        (f"<answer>{F}python\nx = 1\n{F}</answer>", "x = 1"),
        (f"{fenced('draft')}<answer>{F}python\nx = 1\n{F}</answer>", "x = 1"),
        (f"{fenced('draft', '')}So: {F}\nx = 1\n{F}", "x = 1"),
        (f"{fenced('draft')}So: {F}python\nx = 1{F}</answer>", "x = 1"),
        (f"{F}python\nx = 1\n{F} Done.", "x = 1"),
        (f"{F}python\nx = 1\n{F}Done.", "x = 1"),
        (f"{F}python\nx = 1\n{F} Done.\nIt prints:\n{F}\n1\n{F}", "x = 1"),
        (f"{F}python\nx = 1{F} Done.\nBetter: {F}python\ny = 2\n{F}", "y = 2"),
        (f"{F}python\nx = 1\nBetter: {F}python\ny = 2\n{F}", "y = 2"),
        (f"Wrap it in {F}\n{F}\nx = 1\n{F}", "x = 1"),
        (f"Wrap it in {F}python\n\n{F}python\nx = 1\n{F}", "x = 1"),
        (f"{F}cpp\nint x;\n{F}\nNow:\n{F}python\ny = ", None),
        (f"{F}python\ns = '{F}python'\nt = 'a{F}b'\n{F}", f"s = '{F}python'\nt = 'a{F}b'"),
        (f"{F}python\n# See: {F}python\nx = 1\n{F}", f"# See: {F}python\nx = 1"),
        (f"{F}x = 1{F}\nprint(x)\n{fenced('y')}", "y"),
        ("", None),
    ],
)
def test_where_a_block_ends_and_what_is_in_it(text, program):
    assert last_code_block(text) == program


def test_tildes_and_longer_fences():
    inner = f"doc = '''\n{F}python\nx\n{F}\n'''"
    assert last_code_block(fenced(inner, fence="````")) == inner
    assert last_code_block(fenced(inner, fence="~~~")) == inner
    assert last_code_block(fenced(f"{F}python\nx\n{F}", "markdown", fence="`````")) is None
    assert last_code_block(fenced("~~~", fence=F)) == "~~~"
    docstring = f'def f():\n    """Use\n\n    {F}python\n    f()\n    {F}\n    """\n    return 1'
    assert last_code_block(fenced(docstring)) == docstring


def lines_executed(function, *arguments) -> int:
    """How many lines of Python the call runs: its cost, without a clock."""
    count = 0

    def tracer(frame, event, _):
        nonlocal count
        count += event == "line"
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        function(*arguments)
    finally:
        sys.settrace(before)
    return count


HOSTILE = {
    "one line of backticks": lambda n: "`" * n,
    "openings never closed": lambda n: f"{F}python\n" * n,
    "openings with a glued close": lambda n: f"{F}python\nx{F}\n" * n,
    "longer and longer fences": lambda n: "".join("`" * (3 + i % 50) + "a\n" for i in range(n)),
    "tildes and backticks": lambda n: f"~~~\n{F}\n" * n,
    "blanks before a letter": lambda n: (" " * n + "x\n") * 3,
    "backticks broken by a letter": lambda n: ("`" * n + "a`\n") * 3,
    "list markers": lambda n: "- " * n,
    "digits": lambda n: "1" * n + ". ```",
    "text before each fence": lambda n: f"So: {F}python\nx{F} Done.\n" * n,
    "text and backticks": lambda n: ("So: " + "`" * n + "a`\n") * 3,
    "fences in code": lambda n: f"{F}python\n" + f"s = '{F}'\n" * n,
}


@pytest.mark.parametrize("theme", HOSTILE)
def test_hostile_texts_cost_no_more_than_their_length(theme):
    make = HOSTILE[theme]
    small, large = (lines_executed(last_code_block, make(n)) for n in (500, 2000))
    assert large < 6 * small + 200
    assert last_code_block(make(100_000)) in (None, "x", "~~~", F)
