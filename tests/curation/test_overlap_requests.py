"""What the readers of code problems write around them is nobody's contamination."""

import json

import pytest
from raw_rows import ROWS, livecodebench_row

from klearlib.curation.overlap import OverlapIndex, contaminated
from klearlib.data.sources import read_source


def programs(question: str, starter: str, name: str | None) -> list:
    """A problem of each data set that has this question, starter code and function."""
    case = {"input": f'"{name}"', "output": f'"{name}"', "testtype": "functional"}
    case |= {} if name else {"testtype": "stdin"}
    paired = {"inputs": [[name or "1"]], "outputs": [name or "2"]}
    paired |= {"fn_name": name} if name else {}
    fields = {"starter_code": starter, "input_output": json.dumps(paired)}
    metadata = json.dumps({"func_name": name} if name else {})
    rows = {
        "taco": {**ROWS["taco"], "question": question, **fields},
        "apps": {**ROWS["apps"], "question": question, **fields},
        "deepcoder": {
            "problem": question,
            "tests": json.dumps([case]),
            "starter_code": starter,
            "metadata": metadata,
        },
    }
    if not name:
        unused = dict.fromkeys(["input_format", "output_format", "note"])
        rows["codeforces"] = {**ROWS["codeforces"], "description": question, "examples": []}
        rows["codeforces"] |= unused
    contest = {
        **livecodebench_row(7, "2024-11-09T04:00:00"),
        "question_content": question,
        "starter_code": starter,
        "metadata": metadata,
        "public_test_cases": json.dumps([case]),
        "private_test_cases": "[]",
    }
    return problems_of(rows | {"livecodebench": contest})


def problems_of(rows: dict) -> list:
    problems = [row.problem for source in rows for row in read_source(source, [rows[source]])]
    assert len(problems) == len(rows)
    return problems


def written_by_hand(question: str, name: str, number: int) -> list:
    """A problem of HumanEval and of MBPP."""
    stub = f"def {name}({name}_x):\n    '''{question}'''\n"
    test = f"def check(candidate):\n    assert candidate({number}) == {number}\n"
    human = {"task_id": name, "prompt": stub, "entry_point": name, "test": test}
    basic = {
        "task_id": number,
        "text": question,
        "code": f"def {name}(x):\n    return x",
        "test_list": [f"assert {name}({number}) == {number}"],
        "test_setup_code": "",
        "challenge_test_list": [],
    }
    return problems_of({"humaneval": human, "mbpp": basic})


def all_forms(words: list[str], name: str, number: int) -> list[str]:
    question = " ".join(words)
    starter = f"def {name}({name}_a, {name}_b): {name}_c"
    forms = [
        *programs(question, "", None),
        *programs(question, starter, None),
        *programs(question, starter, name),
        *programs(question, "", name),
        *written_by_hand(question, name, number),
    ]
    assert len(forms) == 5 + 5 + 4 + 4 + 2
    return [problem.prompt for problem in forms]


ONE = all_forms([f"alpha{i}" for i in range(12)], "aleph", 3)
TWO = all_forms([f"beta{i}" for i in range(12)], "bet", 4)


@pytest.mark.parametrize("mode", ["words", "whitespace"])
def test_different_problems_share_no_two_words_in_a_row(mode):
    index = OverlapIndex({"b": [(str(i), p) for i, p in enumerate(ONE)]}, n=2, mode=mode)
    assert index.removals(TWO) == [None] * len(TWO)
    assert index.removals(ONE).count(None) == 0
    told = OverlapIndex({"b": [("1", ONE[0])]}, n=2, mode=mode, templates=())
    assert told.removals(TWO[:1])[0].ngram, "without the templates the request is shared"


def test_the_same_problem_is_found_in_all_forms():
    for item in ONE:
        assert contaminated(ONE, [item]).all()
    assert not contaminated(TWO, ONE).any()


def test_text_that_only_begins_like_a_request_is_not_cut():
    item = "Put the whole program on a tape of nine cells, and with its head on the first"
    assert contaminated([f"So: {item}."], [item]).all()
