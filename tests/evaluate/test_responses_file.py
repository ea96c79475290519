"""Responses of a file find their problems in every format, and nothing is lost or counted twice."""

import gzip
import json

import pytest

from klearlib.data import lines
from klearlib.errors import KlearError, MissingAsset
from klearlib.evaluate import responses_file
from klearlib.evaluate.responses_file import FileResponse, read_responses
from klearlib.records import Problem, TestCase

PROBLEMS = [
    Problem("aime_2024-I-1", "How many pens are there?", "73"),
    Problem("aime_2024-I-2", "How many pens are there? And inks?", "\\frac{1}{2}"),
    Problem("aime_2024-I-3", "Find $x$ such\nthat x = 4.", "4"),
]
TASK = "Solve it.\n\n{}\nBox the answer."


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
    "released": each(released),
    "text": each(lambda i, p, text: {"problem": p.prompt, "output": text, "gold": p.answer}),
    "an id and an instruction": each(lambda i, p, text: {"problem_id": p.id,
     "prompt": TASK.format(p.prompt), "completion": text}),
    "turns as a prompt": each(lambda i, p, text: {"prompt": turns(p.prompt, "")[:1],
     "generation": text}),
    "another id": each(lambda i, p, text: {"unique_id": f"I-{i + 1}", "response": text}),
    "lists of one": each(lambda i, p, text: {"problem": p.prompt, "outputs": [text]}),
    "a list for each problem": [{"problem": p.prompt, "responses": [f"{i}-a", f"{i}-b"],
     "answer": p.answer} for i, p in reversed(list(enumerate(PROBLEMS)))],
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


def test_what_ours_says_of_each_response(tmp_path):
    row = {"problem_id": "a", "response": "x", "truncated": True, "num_tokens": 7, "prompt": "?"}
    many = {"problem_id": "b", "response": ["y"], "truncated": [False], "num_tokens": [0]}
    problems = [Problem("a", "?", "1"), Problem("b", "!", "1")]
    found = read_responses(file_of(tmp_path, [row, many]), problems)
    assert found == [[FileResponse("x", True, 7, "?")], [FileResponse("y", False, 0, "")]]


def test_lines_end_at_line_feeds_alone_and_may_be_packed(tmp_path):
    text = "a\u2028b\u0085c\r"
    rows = [{"problem_id": p.id, "response": text} for p in PROBLEMS]
    content = "".join(json.dumps(row, ensure_ascii=False) + "\r\n\n" for row in rows)
    (tmp_path / "r.jsonl").write_bytes(b"\xef\xbb\xbf" + content.encode())
    (tmp_path / "r.jsonl.gz").write_bytes(gzip.compress(content.encode()))
    for name in ("r.jsonl", "r.jsonl.gz"):
        found = read_responses(tmp_path / name, PROBLEMS)
        assert [[r.text for r in group] for group in found] == [[text]] * 3


def test_gold_answers_are_compared_as_answers(tmp_path):
    spelled = ["073", "0.5", "$4$"]
    rows = [
        {"problem": p.prompt, "response": "x", "answer": gold}
        for p, gold in zip(PROBLEMS, spelled, strict=True)
    ]
    assert len(read_responses(file_of(tmp_path, rows), PROBLEMS)) == 3
    rows[1]["answer"] = "1/3"
    with pytest.raises(KlearError, match=r"line 2 has the gold answer '1/3' in answer"):
        read_responses(file_of(tmp_path, rows), PROBLEMS)
    # A written solution is no gold answer, and programs have none.
    solved = [{"problem": p.prompt, "response": "x", "solution": "Add 3 to 5."} for p in PROBLEMS]
    assert len(read_responses(file_of(tmp_path, solved), PROBLEMS)) == 3
    code = [Problem("c", "?", tests=(TestCase("1", stdin=""),))]
    row = {"problem": "?", "response": "x", "answer": "nothing"}
    assert len(read_responses(file_of(tmp_path, [row]), code)) == 1


OURS = FORMATS["ours"]
A_LIST = FORMATS["a list for each problem"]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "holds no responses"),
        (OURS[:2] + OURS[3:5], r"no response to 1 of 3 problems, the first is 'aime_2024-I-3'"),
        (OURS[:-1], r"has 1 responses to 'aime_2024-I-3' and must have 2, as for most"),
        (OURS + OURS[:1], r"has 3 responses to 'aime_2024-I-1' and must have 2"),
        ([*OURS, {"problem_id": "aime_2024-I-4", "response": "x"}], "line 7: the benchmark has no"),
        ([{"problem": "How many pens?", "response": "x"}], "line 1 is of a problem that the"),
        # Words around the text of a problem may make another of it.
        ([*OURS, {"prompt": "How many pens are there? In all?", "completion": "x"}],
         "line 7 is of a problem that the benchmark does not have.*give each row its problem_id"),
        ([{"response": "x"}], "line 1 names no problem"),
        ([{"unique_id": "I-9", "response": "x"}], "has no problem 'I-9'"),
        ([*A_LIST, A_LIST[0]], "line 4: the responses to 'aime_2024-I-3' are in an earlier line"),
        ([OURS[0] | {"problem": PROBLEMS[1].prompt}],
         "line 1 has problem_id 'aime_2024-I-1' and the text of another problem.*mend"),
        ([OURS[1] | {"question": PROBLEMS[0].prompt}],
         "line 1 has problem_id 'aime_2024-I-2' and the text of another problem"),
        ([OURS[0] | {"problem": "How many ships are there?"}],
         "line 1 has problem_id 'aime_2024-I-1' and the text of another problem"),
        ([OURS[0] | {"messages": turns(PROBLEMS[2].prompt, "x")}],
         "line 1 has problem_id 'aime_2024-I-1' and a prompt that asks another problem"),
        ([OURS[0] | {"prompt": f"<user>{PROBLEMS[2].prompt}</user>"}],
         "line 1 has problem_id 'aime_2024-I-1' and a prompt that asks another problem"),
        ([OURS[0] | {"problem_id": "I-9", "problem": PROBLEMS[0].prompt}],
         "has no problem 'I-9': mend problem_id, or leave it out"),
        ([{"problem_id": "I-9", "response": None, "error": "out of memory"}],
         r"line 1 holds no response \(error: out of memory\)"),
        ([*OURS, A_LIST[0]], "line 7: the responses to 'aime_2024-I-3' are in an earlier line"),
        ([["x"]], "line 1 is no row but a list"),
        (["x"], "line 1 is no row but a str"),
        ([OURS[0], {"problem_id": "aime_2024-I-2"}], "line 2 holds no response"),
        ([{"problem_id": "aime_2024-I-1", "response": None}], "must be a text, got NoneType"),
        ([{"problem_id": "aime_2024-I-1", "response": 7}], "must be a text, got int"),
        ([{"problem_id": "aime_2024-I-1", "response": ["x", {}]}], "must be a text, got dict"),
        ([{"problem_id": "aime_2024-I-1", "response": []}], "an empty list of responses"),
        ([{"problem_id": "aime_2024-I-1", "response": "\ud800"}], "no text .surrogates"),
        ([OURS[0] | {"output": "y"}], "holds both response and output"),
        ([OURS[0] | {"truncated": 1}], "truncated must be true or false, got 1"),
        ([OURS[0] | {"num_tokens": -1}], "num_tokens must be a whole number below 2"),
        ([A_LIST[0] | {"truncated": [True]}], "truncated must be a list of 2, each true or false"),
        ([OURS[0] | {"truncated": True}, *OURS[1:]], "gives truncated for 1 of 6 responses"),
        ([released(0, PROBLEMS[0], "x") | {"messages": [], "error": "out of memory"}],
         r"line 1 holds no response \(error: out of memory\)"),
    ],
)  # fmt: skip
def test_what_would_change_the_denominator_is_refused(tmp_path, rows, words):
    with pytest.raises(KlearError, match=words):
        read_responses(file_of(tmp_path, rows), PROBLEMS)


def test_a_text_of_two_problems_names_none(tmp_path):
    twins = [Problem(name, "How many?", "1") for name in "ab"]
    rows = file_of(tmp_path, [{"problem": "How many?", "response": "x"}])
    with pytest.raises(KlearError, match="several problems have the text"):
        read_responses(rows, twins)


def test_an_id_and_a_text_that_agree(tmp_path):
    """A template may rewrite the text in a rendered prompt, and words may stand around it."""
    texts = [
        {"problem": PROBLEMS[0].prompt, "prompt": "rewritten"},
        {"question": f"{PROBLEMS[1].prompt} Explain.", "prompt": f"<u>{PROBLEMS[1].prompt}</u>"},
        {"messages": turns(TASK.format(PROBLEMS[2].prompt), "x")},
    ]
    rows = [OURS[i] | text for i, text in enumerate(texts)]
    assert len(read_responses(file_of(tmp_path, rows), PROBLEMS)) == 3


def test_parts_of_a_turn_are_one_text(tmp_path):
    rows = [
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": p.prompt}]},
                {"role": "assistant", "content": [{"type": "text", "text": t} for t in "xy"]},
            ],
            "answer": [p.answer],
        }
        for p in PROBLEMS
    ]
    found = read_responses(file_of(tmp_path, rows), PROBLEMS)
    assert [[r.text for r in group] for group in found] == [["xy"]] * 3
    rows[2]["answer"] = ["5"]
    with pytest.raises(KlearError, match="line 3 has the gold answer '5'"):
        read_responses(file_of(tmp_path, rows), PROBLEMS)


def numbered(**numbers):
    """A whole file of responses, with other numbers in its first row."""
    return b"".join(
        json.dumps(row | (numbers if row is OURS[0] else {})).encode() + b"\n" for row in OURS
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "holds no responses"),
        (b"\n\n", "holds no responses"),
        (json.dumps(OURS[0]).encode() + b"\n{", "line 2 is no JSON"),
        (b'{"problem_id": "\xff"}', "line 1 is no JSON"),
        (b"[" * 100_000, "line 1 is no JSON"),
        (b"[" * 3000 + b"]" * 3000, "line 1 is no JSON .lists and objects within each other"),
        (b'{"response": "a", "response": "b"}', "line 1 is no JSON .'response' is written twice"),
        (numbered(num_tokens=10**400), "line 1: num_tokens must be a whole number below"),
        (numbered(problem_id=10**400), "line 1: the benchmark has no problem '1000"),
        (numbered(answer=10**400), "line 1 has the gold answer '1000"),
        (numbered(truncated=10**400), "line 1: truncated must be true or false, got 1000"),
        (numbered(problem_id=10).replace(b"10", b"9" * 5000), "line 1 is no JSON"),
    ],
)
def test_bad_bytes_are_named_by_their_line(tmp_path, content, words):
    (tmp_path / "r.jsonl").write_bytes(content)
    with pytest.raises(KlearError, match=words):
        read_responses(tmp_path / "r.jsonl", PROBLEMS)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"problem_id": "' + b"x" * 2000, "r.jsonl.gz has more than 999 bytes in line 1"),
        ((b" " * 900 + b"\n") * 2, "r.jsonl.gz has more than 1,500 bytes in all"),
        (b"\n" * 200, "r.jsonl.gz has more than 99 blank lines"),
        (
            b'{"response": "' + b"x" * 101 + b'"}',
            "line 1: a response has 101 characters",
        ),
        (b'{"responses": ' + b'["", "", ""]}', "line 1: a problem has more than 2 responses"),
        (
            b'{"problem_id": "aime_2024-I-1", "response": ""}\n' * 3,
            "line 3: a problem has more",
        ),
    ],
)
def test_a_packed_file_is_read_within_limits(tmp_path, monkeypatch, content, words):
    monkeypatch.setattr(responses_file, "MAX_LINE_BYTES", 999)
    monkeypatch.setattr(responses_file, "MAX_BYTES", 1500)
    monkeypatch.setattr(responses_file, "MAX_RESPONSE_CHARS", 100)
    monkeypatch.setattr(responses_file, "MAX_RESPONSES", 2)
    monkeypatch.setattr(lines, "MAX_BLANK_LINES", 99)
    (tmp_path / "r.jsonl.gz").write_bytes(gzip.compress(content))
    with pytest.raises(KlearError, match=words):
        read_responses(tmp_path / "r.jsonl.gz", PROBLEMS)


def test_files_that_are_not_there_or_not_whole_or_not_of_n_responses(tmp_path):
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(MissingAsset, match="no file of responses"):
            read_responses(path, PROBLEMS)
    path = file_of(tmp_path, OURS)
    with pytest.raises(KlearError, match=r"has 2 responses to .* must have 4, .*: give --n 2"):
        read_responses(path, PROBLEMS, num_responses=4)
    (tmp_path / "r.jsonl.gz").write_bytes(gzip.compress(path.read_bytes())[:-12])
    with pytest.raises(KlearError, match="cannot be unpacked"):
        read_responses(tmp_path / "r.jsonl.gz", PROBLEMS)
