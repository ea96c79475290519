"""What the readers of code problems write around them is nobody's contamination."""

import pytest
from raw_rows import ROWS

from klearlib.curation.overlap import OverlapIndex, contaminated
from klearlib.data.code import prompt_of
from klearlib.data.sources import read_source


def all_forms(words: list[str], name: str, number: int) -> list[str]:
    """The prompt of a problem that asks this, of every data set that adds words of its own."""
    question = " ".join(words)
    starter = f"def {name}({name}_a, {name}_b): {name}_c"
    prompts = [
        prompt_of(question, starter=s, function=f) for s in ("", starter) for f in (None, name)
    ]
    stub = f"def {name}({name}_x):\n    '''{question}'''\n"
    test = f"def check(candidate):\n    assert candidate({number}) == {number}\n"
    rows = {
        "codeforces": {"description": question, "examples": [], **NO_PARTS},
        "humaneval": {"task_id": name, "prompt": stub, "entry_point": name, "test": test},
        "mbpp": {
            "text": question,
            "code": f"def {name}(x):\n    return x",
            "test_list": [f"assert {name}({number}) == {number}"],
        },
    }
    for source, row in rows.items():
        (given,) = read_source(source, [ROWS[source] | row])
        prompts.append(given.problem.prompt)
    return prompts


NO_PARTS = dict.fromkeys(["input_format", "output_format", "note"])
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
