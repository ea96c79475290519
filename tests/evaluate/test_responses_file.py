"""Responses of a file find their problems in every format, and nothing is lost or counted twice."""

import json

import pytest

from klearlib.errors import KlearError, MissingAsset
from klearlib.evaluate.judging import FileResponse, read_responses
from klearlib.records import Problem

PROBLEMS = [
    Problem("aime_2024-I-1", "How many pens are there?", "73"),
    Problem("aime_2024-I-2", "How many pens are there? And inks?", "\\frac{1}{2}"),
    Problem("aime_2024-I-3", "Find $x$ such\nthat x = 4.", "4"),
]


def file_of(tmp_path, rows, name="r.jsonl"):
    path = tmp_path / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def turns(prompt, response):
    return [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]


def released(number, problem, response):
    """A row as the released evaluation writes it."""
    item = {
        "messages": [{"role": "user", "content": problem.prompt}],
        "meta": {"unique_id": "?", "problem": problem.prompt, "solution": problem.answer},
    }
    return {"id": number, "meta": item, "messages": turns(problem.prompt, response)}


# Every format gives responses "0-a", "0-b" to the first problem, and so on; n is 2.
def each(make):
    return [make(i, p, f"{i}-{word}") for word in "ab" for i, p in enumerate(PROBLEMS)]


FORMATS = {
    "ours": each(lambda i, p, text: {"problem_id": p.id, "response": text}),
    "ours without the name": each(lambda i, p,
     text: {"problem_id": p.id.removeprefix("aime_2024-"), "response": text}),
    "published": each(released),
    "turns": each(lambda i, p, text: {"problem_id": p.id, "messages": turns(p.prompt, text)}),
    "beside turns of ShareGPT": each(lambda i, p, text: {"problem_id": p.id, "response": text,
     "messages": [{"from": "human", "value": p.prompt}]}),
    "lists of one": each(lambda i, p, text: {"problem_id": p.id, "outputs": [text]}),
    "a list for each problem": [{"problem_id": p.id, "responses": [f"{i}-a", f"{i}-b"]}
     for i, p in reversed(list(enumerate(PROBLEMS)))],
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_groups(tmp_path, name):
    found = read_responses(file_of(tmp_path, FORMATS[name]), PROBLEMS, num_responses=2)
    assert [[r.text for r in group] for group in found] == [
        [f"{i}-a", f"{i}-b"] for i in range(len(PROBLEMS))
    ]
    assert {r.truncated for group in found for r in group} == {None}


def test_the_row_number_of_the_released_format_is_no_id(tmp_path):
    problems = [Problem("1", "First?", "1"), Problem("0", "Second?", "2")]
    rows = [released(i, problem, problem.prompt) for i, problem in enumerate(problems)]
    found = read_responses(file_of(tmp_path, rows), problems)
    assert [group[0].text for group in found] == ["First?", "Second?"]


def test_a_text_of_two_problems_names_none(tmp_path):
    twins = [Problem(name, "How many?", "1") for name in "ab"]
    with pytest.raises(KlearError, match="has 0 responses to 'a' and must have 1"):
        read_responses(file_of(tmp_path, [released(0, twins[0], "x")]), twins)


def test_what_ours_says_of_each_response(tmp_path):
    row = {"problem_id": "a", "response": "x", "truncated": True, "num_tokens": 7, "prompt": "?"}
    many = {"problem_id": "b", "response": ["y"], "truncated": [False], "num_tokens": [0]}
    problems = [Problem("a", "?", "1"), Problem("b", "!", "1")]
    found = read_responses(file_of(tmp_path, [row, many]), problems)
    assert found == [[FileResponse("x", True, 7, "?")], [FileResponse("y", False, 0, "")]]


def test_lines_end_at_line_feeds_alone(tmp_path):
    text = "a\u2028b\u0085c\r"
    rows = [{"problem_id": p.id, "response": text} for p in PROBLEMS]
    content = "".join(json.dumps(row, ensure_ascii=False) + "\r\n\n" for row in rows)
    (tmp_path / "r.jsonl").write_bytes(b"\xef\xbb\xbf" + content.encode())
    found = read_responses(tmp_path / "r.jsonl", PROBLEMS)
    assert [[r.text for r in group] for group in found] == [[text]] * 3


OURS = FORMATS["ours"]
A_LIST = FORMATS["a list for each problem"]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "has 0 responses to 'aime_2024-I-1' and must have 1"),
        (OURS[:2] + OURS[3:5], r"has 0 responses to 'aime_2024-I-3' and must have 2: a score"),
        (OURS[:-1], r"has 1 responses to 'aime_2024-I-3' and must have 2"),
        (OURS + OURS[:1], r"has 3 responses to 'aime_2024-I-1' and must have 2"),
        ([*OURS, {"problem_id": "aime_2024-I-4", "response": "x"}], "line 7: the benchmark has no"),
        ([{"response": "x"}], "line 1 has no problem_id"),
        ([{"problem_id": "I-9", "response": "x"}], "has no problem 'I-9': correct its problem_id"),
        ([*A_LIST, A_LIST[0]], "has 4 responses to 'aime_2024-I-3' and must have 2"),
        ([{"problem_id": "I-9", "response": None, "error": "out of memory"}],
         "line 1 has no response"),
        ([["x"]], r"line 1 is not JSON \(a list\)"),
        ([OURS[0], {"problem_id": "aime_2024-I-2"}], "line 2 has no response"),
        ([{"problem_id": "aime_2024-I-1", "response": None}], "has no response: sample"),
        ([{"problem_id": "aime_2024-I-1", "response": ["x", {}]}], "must be a text, got dict"),
        ([released(0, PROBLEMS[0], "x") | {"messages": turns("Why?", "x")}],
         "line 1: the benchmark has no problem 'Why"),
        ([OURS[0] | {"truncated": 1}], "truncated must be true or false for each"),
        ([released(0, PROBLEMS[0], "x") | {"messages": [], "error": "out of memory"}],
         "line 1 has no response"),
    ],
)  # fmt: skip
def test_what_would_change_the_denominator_is_refused(tmp_path, rows, words):
    with pytest.raises(KlearError, match=words):
        read_responses(file_of(tmp_path, rows), PROBLEMS)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\n\n", "has 0 responses to"),
        (json.dumps(OURS[0]).encode() + b"\n{", "line 2 is not JSON"),
        (b'{"problem_id": "\xff"}', "line 1 is not JSON"),
    ],
)
def test_bad_bytes_are_named_by_their_line(tmp_path, content, words):
    (tmp_path / "r.jsonl").write_bytes(content)
    with pytest.raises(KlearError, match=words):
        read_responses(tmp_path / "r.jsonl", PROBLEMS)


def test_files_that_are_not_there_or_not_whole_or_not_of_n_responses(tmp_path):
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(MissingAsset, match="no file of responses"):
            read_responses(path, PROBLEMS)
    path = file_of(tmp_path, OURS)
    with pytest.raises(KlearError, match=r"has 2 responses to .* must have 4"):
        read_responses(path, PROBLEMS, num_responses=4)
