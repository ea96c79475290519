"""Rows, files and calls that are at fault: each costs itself, and no other row."""

import json

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from raw_rows import ROWS, livecodebench_row, messages
from test_source_adapters import only, reject_of, write

from klearlib.curation.source_reader import Reject
from klearlib.curation.source_rows import UnusableRow, gold_text, whole_number
from klearlib.curation.source_tables import open_location
from klearlib.curation.sources import SOURCES, read_source
from klearlib.errors import KlearError
from klearlib.verify.loader_columns import UnusableProblem

DIGITS = "7" * 5000
HUGE = 10**5000
NAN = float("nan")
QUESTIONS = {
    "taco": "question",
    "apps": "question",
    "deepcoder": "problem",
    "livecodebench": "question_content",
    "humaneval": "prompt",
    "mbpp": "text",
}


@pytest.mark.parametrize("name", [*QUESTIONS, "klear_code", "skywork_or1_code"])
@pytest.mark.parametrize("text", ["", " \n"])
def test_a_code_problem_that_asks_nothing_is_none(name, text):
    change = {QUESTIONS[name]: text} if name in QUESTIONS else {"prompt": messages(text)}
    assert reject_of(name, ROWS[name] | change) == "no_problem"
    if name in QUESTIONS:
        assert reject_of(name, ROWS[name] | {QUESTIONS[name]: None}) == "no_problem"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"answer": None, "solution": "4"}, "no_answer"),
        ({"answer": NAN, "solution": "\\boxed{4}"}, "no_answer"),
        ({"answer": "\\boxed{}", "solution": "4"}, "no_answer"),
        ({"solution": "\\boxed{ }"}, "no_answer"),
        ({"solution": "Add them."}, "no_answer"),
        ({"solution": None}, "no_answer"),
        ({"meta": {"problem": "?", "solution": "It is 4."}}, "no_answer"),
    ],
)
def test_a_written_solution_never_becomes_the_gold(row, reason):
    assert reject_of("aime_2024", {"problem": "?"} | row) == reason
    assert reject_of("numinamath_cot", ROWS["numinamath_cot"] | {"solution": "\\boxed{}"})


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("openr1_math", {"answer": HUGE}),
        ("openr1_math", {"uuid": HUGE}),
        ("openthoughts3", {"difficulty": 10**400}),
        ("openthoughts3", {"difficulty": 2**63}),
        ("skywork_or1_math", {"reward_model": {"ground_truth": f"[{DIGITS}]"}}),
        ("aime_2024", {"answer": DIGITS}),
        ("aime_2024", {"id": HUGE}),
        ("livecodebench", {"contest_date": HUGE}),
        ("livecodebench", {"question_id": HUGE}),
        ("codeforces", {"contest_start": 1504535700000}),
        ("codeforces", {"contest_start": 10**300}),
        ("codeforces", {"id": [1]}),
        ("apps", {"problem_id": HUGE}),
        ("taco", {"input_output": {"inputs": [{1, 2}], "outputs": ["1"]}}),
        ("deepcoder", {"tests": [{"input": "1", "output": "1", "testtype": ["x"]}]}),
        ("deepcoder", {"tests": [{"input": [1], "output": 1, "fn_name": ["f"]}]}),
        ("mbpp", {"task_id": HUGE}),
        ("klear_code", {"prompt": [{"role": ["user"], "content": "x"}]}),
    ],
)
def test_values_that_no_column_holds_cost_their_row_only(name, change):
    reader = read_source(name, [ROWS[name] | change, ROWS[name]])
    assert len(list(reader)) == 1
    (reject,) = reader.rejects
    assert (reject.row, reject.reason in ("unknown_format", "bad_date")) == (0, True)
    assert len(reject.detail) <= 300 and "\n" not in reject.detail


def test_a_test_of_five_hundred_terms_costs_its_row_only():
    source = f"from solution import f\ndef test_a():\n    assert f({'+'.join('1' * 700)})\n"
    row = ROWS["klear_code"] | {"reward_model": {"ground_truth": json.dumps({"pytest": source})}}
    assert reject_of("klear_code", row) in ("unknown_format", "bad_python")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("skywork_or1_math", {"reward_model": {"ground_truth": '["\\ud800"]'}}),
        ("codeforces", {"examples": [{"input": "\ud800", "output": "1"}]}),
        ("openr1_math", {"uuid": "\ud800"}),
        ("apps", {"problem_id": "\ud800"}),
        ("numinamath_cot", {"solution": "\ud800 \\boxed{4}"}),
    ],
)
def test_halves_of_surrogate_pairs_never_reach_a_table(name, change):
    assert reject_of(name, ROWS[name] | change) == "bad_json"


def test_the_joined_question_is_checked_and_has_plain_line_ends(tmp_path):
    taco = [ROWS["taco"] | {"question": text} for text in ("a\r\nb", "\ud800", 7)]
    at = {"taco/train": write(taco, tmp_path / "train.jsonl")}
    row = ROWS["opencodereasoning"] | {"input": "-", "dataset": "taco", "split": "train"}
    row |= {"difficulty": "-", "source": "-"}
    _, given = only("opencodereasoning", row | {"index": "0"}, questions=at)
    assert given.problem.prompt == "a\nb"
    assert reject_of("opencodereasoning", row | {"index": "1"}, questions=at) == "bad_json"
    assert reject_of("opencodereasoning", row | {"index": "2"}, questions=at) == "no_problem"


def test_rejects_are_short_lines_that_a_table_can_hold():
    rows = [ROWS["acereason_math"] | {"answer": [DIGITS]}]
    reader = read_source("acereason_math", rows)
    assert list(reader) == [] and len(reader.rejects[0].detail) == 300
    row = ROWS["livecodebench"] | {"question_id": "x" * 10**6, "metadata": "["}
    (reject,) = rejects_of("livecodebench", row)
    assert len(reject.id) == len(reject.detail) == 300
    row = ROWS["livecodebench"] | {"contest_date": "2020-01-01T\ud800"}
    (reject,) = rejects_of("livecodebench", row, window=("2024-08-01", "2025-02-01"))
    assert reject.detail.encode()


def rejects_of(name, row, **options) -> list[Reject]:
    reader = read_source(name, [row], **options)
    assert list(reader) == []
    return reader.rejects


# ids and numbers


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("openr1_math", "uuid"),
        ("apps", "problem_id"),
        ("codeforces", "id"),
        ("livecodebench", "question_id"),
        ("humaneval", "task_id"),
        ("mbpp", "task_id"),
    ],
)
def test_null_is_no_id_and_a_float_is_the_number_that_it_is(name, column):
    for value in (None, NAN, "", " ", [], ["x"], True, 1.5):
        assert reject_of(name, ROWS[name] | {column: value}) == "unknown_format", value
    ids = {only(name, ROWS[name] | {column: v})[1].problem.id for v in (11, 11.0, "11", " 11")}
    assert len(ids) == 1 and ids.pop().endswith("11")
    assert only(name, ROWS[name] | {column: np.int64(11)})[1].problem.id.endswith("11")


@pytest.mark.parametrize("name", ["aime_2024", "aime_2025", "hmmt_feb_2025", "klear_code"])
def test_an_id_that_is_null_gives_way_to_a_hash(name):
    column = {"aime_2024": "id", "klear_code": "hash"}.get(name, "problem_idx")
    row = {k: v for k, v in ROWS[name].items() if k != "meta"} | {"answer": "4"}
    ids = {only(name, row | {column: value})[1].problem.id for value in (None, NAN)}
    assert len(ids) == 1 and len(ids.pop().rpartition("-")[2]) == 16


@pytest.mark.parametrize("name", [name for name, source in SOURCES.items() if not source.has_ids])
def test_hashed_ids_have_64_bits(name):
    assert len(only(name, ROWS[name])[1].problem.id.rpartition("-")[2]) == 16


@pytest.mark.parametrize(
    ("name", "column"),
    [("taco", "input_output"), ("deepcoder", "tests"), ("skywork_or1_code", "reward_model")],
)
def test_tests_as_text_or_as_values_give_one_id(name, column):
    if column == "reward_model":
        value = {"ground_truth": json.loads(ROWS[name][column]["ground_truth"])}
        other = {"ground_truth": {"inputs": ["1"], "outputs": ["2"]}}
    else:
        value, other = json.loads(ROWS[name][column]), {"inputs": ["1"], "outputs": ["2"]}
    ids = [only(name, ROWS[name] | {column: v})[1].problem.id for v in (value, other)]
    assert ids[0] == only(name, ROWS[name])[1].problem.id != ids[1]


def test_whole_numbers_of_any_kind():
    assert whole_number(np.int64(7)) == 7 and whole_number(10**400) == 10**400
    assert [whole_number(v) for v in (True, float("inf"), "7", None)] == [0] * 4


def test_golds_are_texts_or_finite_numbers():
    given = (
        ("4 ", "4"),
        (4, "4"),
        (4.0, "4"),
        (0.5, "0.5"),
        (np.int64(4), "4"),
        ("a\r\nb", "a\nb"),
    )
    for value, text in given:
        assert gold_text(value, "answer", row_id="x") == text
    for value in (True, float("inf"), -float("inf"), [4], {}, b"4"):
        with pytest.raises(UnusableRow) as error:
            gold_text(value, "answer", row_id="x")
        assert error.value.reason == "unknown_format"


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("codeforces", {"executable": None}, "not_executable"),
        ("openr1_math", {"answer": float("inf")}, "unknown_format"),
        ("skywork_or1_math", {"reward_model": {"ground_truth": "[true]"}}, "unknown_format"),
        ("skywork_or1_math", {"reward_model": {"ground_truth": '["4", NaN]'}}, "no_answer"),
        ("gsm8k", {"answer": "#### $1,500 dollars\nextra"}, "unknown_format"),
        *(
            (
                name,
                {"extra_info": {"model_difficulty": {"DeepSeek-R1-Distill-Qwen-7B": count}}},
                "unknown_format",
            )
            for name in ("skywork_or1_math", "skywork_or1_code")
            for count in (True, -1, 17, 10**18, 0.5, "3", None)
        ),
    ],
)
def test_numbers_that_cannot_be_are_rejects(name, change, reason):
    assert reject_of(name, ROWS[name] | change) == reason


def test_gsm8k_in_dollars():
    row = {"question": "?", "answer": "#### $1,500"}
    assert only("gsm8k", row)[1].problem.answer == "1500"


# what comes along with a problem


@pytest.mark.parametrize("name", ["taco", "apps", "deepcoder"])
@pytest.mark.parametrize(
    ("programs", "kept", "dropped"),
    [
        (["print(4)", "", None, "  "], 1, {"no_response": 2, "unknown_format": 1}),
        (["\ud800", "print(4)"], 1, {"bad_json": 1}),
        ('["print(4)", ', 0, {"bad_json": 1}),
        ("{}", 0, {"unknown_format": 1}),
        ('"print(4)"', 1, {}),
        (7, 0, {"unknown_format": 1}),
    ],
)
def test_a_bad_program_is_dropped_and_counted_and_its_problem_kept(name, programs, kept, dropped):
    reader, given = only(name, ROWS[name] | {"solutions": programs})
    assert len(given.responses) == kept and reader.num_dropped == dropped


def test_the_optional_solution_of_deepscaler_spoils_no_gold():
    for solution, reason in (("<think>2 + 2", "unclosed_think"), (3, "unknown_format")):
        reader, given = only("deepscaler", ROWS["deepscaler"] | {"solution": solution})
        assert (given.problem.answer, given.responses) == ("4", ())
        assert reader.num_dropped == {reason: 1}
    for solution in (None, "", NAN):
        reader, given = only("deepscaler", ROWS["deepscaler"] | {"solution": solution})
        assert (given.responses, reader.num_dropped) == ((), {})


# calls


@pytest.mark.parametrize("window", [("soon", "2025-02-01"), ("2025-02-01", "2024-08-01")])
def test_a_bad_window_is_an_error_of_the_call(window):
    with pytest.raises(KlearError, match=r"no date|must not end before"):
        read_source("livecodebench", [livecodebench_row(1, "2024-09-01")], window=window)


@pytest.mark.parametrize(
    "location",
    [
        ROWS["taco"],
        pd.DataFrame([ROWS["taco"]]),
        (row for row in [ROWS["taco"]]),
        datasets.Dataset.from_list([ROWS["taco"]]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_location_is_a_path_or_a_list_of_rows(location):
    with pytest.raises(KlearError, match=f"got {type(location).__name__}: make it a list"):
        read_source("taco", location)


@pytest.mark.parametrize("row", [None, [], "x", 3])
def test_a_row_that_is_no_mapping_is_a_reject(row):
    reader = read_source("taco", [row, ROWS["taco"]])
    assert len(list(reader)) == 1
    assert [(r.row, r.reason) for r in reader.rejects] == [(0, "unknown_format")]


def test_unusable_rows_are_one_kind_of_error():
    assert issubclass(UnusableRow, UnusableProblem)
    with pytest.raises(AssertionError):
        UnusableRow("no_such_reason", "x", "")
    with pytest.raises(AssertionError):  # only the adapters know this reason
        UnusableProblem("no_think", "x", "")


@pytest.mark.parametrize("choice", [{"split": "test"}, {"config": "EASY"}])
def test_a_choice_that_cannot_be_made_is_refused(tmp_path, choice):
    path = write([ROWS["taco"]], tmp_path / "x.jsonl")
    with pytest.raises(KlearError, match="is one file"):
        read_source("taco", path, **choice)
    with pytest.raises(KlearError, match="leave them out where rows are given"):
        read_source("taco", [ROWS["taco"]], **choice)
    saved = datasets.Dataset.from_list([ROWS["taco"]], split="train")
    saved.save_to_disk(str(tmp_path / "saved"))
    with pytest.raises(KlearError, match=r"not '(test|EASY)': leave it out"):
        read_source("taco", tmp_path / "saved", **choice)
    assert len(list(read_source("taco", tmp_path / "saved", split="train"))) == 1
    assert len(list(read_source("taco", tmp_path / "saved"))) == 1


# files


def rows_of(location, *, split=None, config=None, must_match=()):
    options = {"wanted": ("a",), "split": split, "config": config, "must_match": must_match}
    return [row for table in open_location(location, **options) for row in table.rows()]


@pytest.mark.parametrize(
    ("names", "choice", "chosen"),
    [
        (["train.jsonl", "train_old.jsonl"], {"split": "train"}, ["train.jsonl"]),
        (["train-00000-of-00001-ab12.jsonl", "train-old.jsonl"], {"split": "train"}, [0]),
        (["v1/x.jsonl", "v10/x.jsonl", "v1_v2/x.jsonl"], {"config": "v1"}, [0]),
        (["v1.jsonl", "v10.jsonl", "v1_v2.jsonl"], {"config": "v1"}, [0]),
        (["test.jsonl", "test2.jsonl", "test_old.jsonl"], {"split": "test"}, [0, 1]),
    ],
)
def test_exact_names_come_before_those_that_start_alike(tmp_path, names, choice, chosen):
    for name in names:
        write([{"a": name}], tmp_path / name)
    chosen = [names[c] if isinstance(c, int) else c for c in chosen]
    assert [row["a"] for row in rows_of(tmp_path, **choice)] == chosen
    must_match = tuple(choice.values())
    assert [row["a"] for row in rows_of(tmp_path, **choice, must_match=must_match)] == chosen


@pytest.mark.parametrize("name", ["v10.jsonl", "v1_v2.jsonl", "v10/x.jsonl"])
def test_a_config_that_was_asked_for_is_not_widened(tmp_path, name):
    write([{"a": 1}], tmp_path / name)
    with pytest.raises(KlearError, match="named after 'v1'"):
        rows_of(tmp_path, config="v1", must_match=("v1",))


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ('[{"a": 1}]\n[{"a": 2}]', "goes on behind its array"),
        ('[{"a": 1}] x', "goes on behind its array"),
        ("[]]", "goes on behind its array"),
        ('[{"a": 1} {"a": 2}]', "comma"),
        ('[{"a": 1},, {"a": 2}]', "comma"),
        ('[{"a": 1},]', "comma"),
        ("[,]", "comma"),
        ('[{"a": 1}}]', "comma"),
        ('[{"a": "1}]', "no whole JSON array"),
        ('[{"a": [1}', "no whole JSON array"),
        ('[{"a": "x\\', "no whole JSON array"),
    ],
)
def test_an_array_ends_where_its_file_ends_and_has_its_commas(tmp_path, content, match):
    for text in (content, content.replace("1", "1" + " " * 2**20, 1)):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(KlearError, match=match) as error:
            rows_of(tmp_path / "x.json")
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ('{"a": ' + "[" * 20_000 + "]" * 20_000 + "}", "bad_json"),
        ('{"a": ' + "7" * 100_001 + "}", "too_large"),
        ('{"a": nope, "b": "]},{\\""}', "bad_json"),
        ('{"a": 1, "b"}', "bad_json"),
        ('"],[{"', "unknown_format"),
        ("12.5e3", "unknown_format"),
        ("[1, {}]", "unknown_format"),
        ("null", "unknown_format"),
    ],
)
@pytest.mark.parametrize(
    ("place", "blanks"),
    [
        (0, 1),
        (2, 1),
        (1, 2**20),
        *(pytest.param(*where, marks=pytest.mark.slow) for where in ((0, 2**20), (2, 2**20))),
    ],
)
def test_an_item_that_is_no_row_costs_itself_only(tmp_path, item, reason, place, blanks):
    items = ['{"a": 1}', '{"a": 2}']
    items.insert(place, item)
    # What is read at once, 2**20 characters, ends in the blanks or where the next item begins.
    for gap in (" \n," + " " * blanks, "," + " " * max(1, blanks - len(items[0]) - 3)):
        (tmp_path / "x.json").write_text(f" [{gap.join(items)} ] \n")
        found = rows_of(tmp_path / "x.json")
        fault = found.pop(place)
        assert isinstance(fault, UnusableProblem) and fault.reason == reason
        assert found == [{"a": 1}, {"a": 2}]


def test_an_array_of_nothing_has_no_rows(tmp_path):
    (tmp_path / "x.json").write_text("[ ]\n")
    assert rows_of(tmp_path / "x.json") == []


def test_a_broken_page_of_parquet_is_told_in_one_line(tmp_path):
    path = tmp_path / "x.parquet"
    table = pa.table({"a": [f"{n} {n * 7919 % 1009}" for n in range(5000)]})
    pq.write_table(table, path, compression="gzip", use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[len(content) // 3 : len(content) // 3 + 200] = b"\xff" * 200
    path.write_bytes(content)
    with pytest.raises(KlearError, match=r"x\.parquet is broken behind row 0") as error:
        rows_of(path)
    assert "\n" not in str(error.value)
