"""Every data set: rows of its schema from every kind of file, what they give, and every reject."""

import gzip
import json
from dataclasses import replace

import datasets
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from raw_rows import CODE_THOUGHT, OPENR1, ROWS, THOUGHT, livecodebench_row, messages

from klearlib.data.rows import REASONS, UnusableRow, gold_text
from klearlib.data.sources import SOURCES, read_source, source_named
from klearlib.errors import KlearError, MissingAsset
from klearlib.records import LabelledResponse, TestCase

SQUARES = (TestCase(stdin="3\n", expected="9\n"), TestCase(stdin="4\n", expected="16\n"))
R1, NAN, HUGE = "DeepSeek-R1", float("nan"), 10**5000
# What each data set asks in; the others have messages in the column `prompt`.
QUESTIONS = {
    "taco": "question", "apps": "question", "deepcoder": "problem",
    "livecodebench": "question_content", "humaneval": "prompt", "mbpp": "text",
    "openr1_math": "problem", "acereason_sft": "input", "gsm8k": "question",
}  # fmt: skip
IDS = {
    "openr1_math": "uuid",
    "apps": "problem_id",
    "codeforces": "id",
    "livecodebench": "question_id",
    "humaneval": "task_id",
    "mbpp": "task_id",
}
TURNS = ROWS["openthoughts3"]["conversations"]


# Columns that tables have and that single rows may lack.
LENIENT = {("aime_2025", "problem|question|messages"), ("klear_code", "hash")}


def truth(value) -> dict:
    """The column of a released RL data set that holds the answer or, as JSON, the tests."""
    text = value if isinstance(value, str) else json.dumps(value)
    return {"reward_model": {"ground_truth": text, "style": "rule"}}


def write(rows, path):
    """The rows in the format that the path's suffix says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    if path.name.endswith(".jsonl.gz"):
        path.write_bytes(gzip.compress(lines.encode()))
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows, indent=1))
    else:
        path.write_text(lines)
    return path


def only(name, change, **options):
    """The reader of one row, after a pass, and what it gave."""
    reader = read_source(name, [ROWS[name] | change], **options)
    given = list(reader)
    assert reader.num_kept + reader.num_rejected.total() == reader.num_read == 1
    assert len(given) == reader.num_kept
    return reader, (given[0] if given else None)


def given_by(name, change, **options):
    reader, given = only(name, change, **options)
    assert given is not None, reader.rejects
    return given


def reject_of(name, change, **options):
    reader, given = only(name, change, **options)
    assert given is None
    (reject,) = reader.rejects
    assert reject.row == 0 and reject.source == name
    assert "\n" not in reject.detail and len(reject.detail) <= 300 and reject.detail.encode()
    return reject.reason


@pytest.mark.parametrize("name", SOURCES)
def test_every_data_set_from_every_kind_of_file_and_without_a_column(name, tmp_path):
    source, rows = SOURCES[name], [ROWS[name]]
    (given,) = read_source(name, rows)
    problem = given.problem
    assert problem.source == name and problem.prompt and given.licence
    assert (problem.answer == "4") == (source.domain == "math")
    assert source.has_ids or len(problem.id.rpartition("-")[2]) == 16  # 64 bits of a hash
    for file in ("a.jsonl", "b.jsonl.gz", "c.parquet", "d.json"):
        assert list(read_source(name, write(rows, tmp_path / file))) == [given], file
    for column in source.columns:
        row = {k: v for k, v in ROWS[name].items() if k not in column.split("|")}
        for path in (tmp_path / "x.jsonl", tmp_path / "x.parquet"):
            with pytest.raises(KlearError) as error:
                read_source(name, write([{**row, "renamed": "x"}], path))
            wanted, _, found = str(error.value).partition("found:")
            assert column.replace("|", " or ") in wanted and source.hub_id in wanted
            assert "renamed" in found and "\n" not in found
        late = read_source(name, [ROWS[name], row])
        list(late)
        assert (name, column) in LENIENT or late.num_rejected == {"missing_column": 1}


REJECTS = [
    ("openr1_math", {"answer": ""}, "no_answer"),
    ("openr1_math", {"answer": None}, "no_answer"),
    ("openr1_math", {"generations": "text"}, "unknown_format"),
    ("openr1_math", {"generations": []}, "no_response"),
    ("openr1_math", {"generations": ["<think>a", "<think>b", "", "x"]}, "unclosed_think"),
    ("openr1_math", {"correctness_math_verify": [True]}, "uneven_labels"),
    ("openthoughts3", {"conversations": TURNS[:1]}, "no_response"),
    ("openthoughts3", {"conversations": TURNS * 2}, "unknown_format"),
    ("openthoughts3", {"conversations": [{"from": "user", "value": "x"}]}, "unknown_format"),
    ("acereason_sft", {"output": "<think>2 + 2"}, "unclosed_think"),
    ("acereason_sft", {"output": "<think>a</think>b<think>c"}, "unclosed_think"),
    ("acereason_sft", {"output": "4"}, "no_think"),
    ("acereason_sft", {"output": ""}, "no_response"),
    ("acereason_sft", {"input": 3}, "unknown_format"),
    ("numinamath_cot", {"solution": "It is 4."}, "no_answer"),
    ("numinamath_cot", {"solution": "<think>It is \\boxed{4}"}, "unclosed_think"),
    ("numinamath_1_5", {"problem_is_valid": "Incomplete"}, "invalid_problem"),
    ("numinamath_1_5", {"solution_is_valid": "Problem not solved"}, "invalid_solution"),
    ("numinamath_1_5", {"question_type": "proof"}, "proof"),
    ("numinamath_1_5", {"answer": "proof"}, "proof"),
    ("numinamath_1_5", {"answer": "notfound"}, "no_answer"),
    ("opencodereasoning", {"output": "<think>Square"}, "unclosed_think"),
    ("opencodereasoning", {"input": "-"}, "no_problem"),
    ("acereason_math", {"answer": NAN}, "no_answer"),
    ("deepscaler", {"answer": None}, "no_answer"),
    ("skywork_or1_math", truth("[]"), "no_answer"),
    ("skywork_or1_math", truth("[4"), "bad_json"),
    ("skywork_or1_math", truth('["4", NaN]'), "no_answer"),
    ("skywork_or1_math", {"reward_model": {}}, "no_answer"),
    ("klear_math", {"prompt": messages("x", "assistant")}, "unknown_format"),
    ("gsm8k", {"answer": "4"}, "no_answer"),
    ("gsm8k", {"answer": "#### $1,500 dollars\nextra"}, "unknown_format"),
    ("aime_2024", {"answer": None, "solution": "4"}, "no_answer"),
    ("aime_2024", {"answer": "\\boxed{}", "solution": "4"}, "no_answer"),
    ("aime_2025", {"meta": {"problem": "?", "solution": "It is 4."}}, "no_answer"),
    ("aime_2025", {"meta": {"problem": "?", "solution": "\\boxed{ }"}}, "no_answer"),
    ("hmmt_feb_2025", {"answer": ""}, "no_answer"),
    ("codeforces", {"generated_checker": "import sys"}, "needs_checker"),
    ("codeforces", {"interaction_format": "Ask."}, "needs_interaction"),
    ("codeforces", {"input_mode": "file"}, "needs_files"),
    ("codeforces", {"executable": False}, "not_executable"),
    ("codeforces", {"official_tests": None}, "no_tests"),
    ("codeforces", {"official_tests": [{"input": "1...", "output": "1"}]}, "no_tests"),
    ("codeforces", {"examples": [{"input": "\ud800", "output": "1"}]}, "unknown_format"),
    *(
        (name, {column: value}, "unknown_format")
        for name, column in IDS.items()
        for value in (None, NAN, "", " ", [], ["x"], {"a": 1}, True, 1.5, HUGE)
    ),
    *((name, {column: "\ud800"}, "unknown_format") for name, column in IDS.items()),
    *((n, {c: text}, "no_problem") for n, c in QUESTIONS.items() for text in ("", " \n", None)),
    *(
        (name, {"prompt": messages(" \n")}, "no_problem")
        for name in ("klear_code", "klear_math", "skywork_or1_code", "skywork_or1_math")
    ),
]


@pytest.mark.parametrize(("name", "change", "reason"), REJECTS)
def test_what_cannot_be_used_is_a_reject_with_its_reason_and_costs_its_row_only(
    name, change, reason
):
    assert reason in REASONS
    assert reject_of(name, change) == reason


@pytest.mark.parametrize(
    ("name", "change", "answer", "family", "responses"),
    [
        ("openthoughts3", {}, None, "math", [(THOUGHT, None, "QwQ-32B")]),
        ("acereason_sft", {}, None, "math", [(THOUGHT, None, R1)]),
        ("numinamath_cot", {}, "4", "cn_k12", [(ROWS["numinamath_cot"]["solution"],)]),
        ("numinamath_1_5", {}, "4", "Algebra", [("It is 4.", True)]),
        ("opencodereasoning", {}, None, "codeforces", [(CODE_THOUGHT, None, R1)]),
        ("deepscaler", {}, "4", "", [("Add them.",)]),
        ("gsm8k", {"answer": "#### $1,500"}, "1500", "", [("#### $1,500", True)]),
        ("skywork_or1_math", truth('["1/2", "0.5"]'), ("1/2", "0.5"), "", []),
        ("aime_2024", {"answer": " 073"}, "73", "", []),
        ("openr1_math", {"generations": [THOUGHT] * 4, "is_reasoning_complete": None}, "4",
         "Algebra", [(THOUGHT, label, R1) for label in (True, False, True, False)]),
        ("openr1_math", {"generations": [THOUGHT] * 4, "correctness_llama": None,
         "correctness_math_verify": None}, "4", "Algebra", [(THOUGHT, None, R1)] * 3),
    ],
)  # fmt: skip
def test_answers_families_and_responses(name, change, answer, family, responses):
    given = given_by(name, change)
    assert (given.problem.answer, given.problem.family) == (answer, family)
    assert given.responses == tuple(LabelledResponse(*response) for response in responses)


def test_responses_of_openr1_keep_the_label_of_each():
    reader, given = only("openr1_math", {})
    texts = OPENR1["generations"]
    assert given.problem.id == f"openr1_math-{OPENR1['uuid']}"
    assert given.responses == (
        LabelledResponse(texts[0], True, R1),
        LabelledResponse(texts[1], False, R1),
        LabelledResponse(texts[2], True, R1),
    )
    assert reader.num_dropped == {"unclosed_think": 1}
    # Dropped though its tags close.
    reader, given = only("openr1_math", {"is_reasoning_complete": [False, True, True, True]})
    assert [r.text for r in given.responses] == texts[1:3]
    assert reader.num_dropped == {"unclosed_think": 2}


def test_codeforces_leaves_out_the_tests_that_were_cut_off():
    problem = given_by("codeforces", {}).problem
    assert problem.tests == SQUARES
    for part in ("Print the square", "One line with n.", "Its square.", "Mind zero.", "9"):
        assert part in problem.prompt
    assert len(given_by("codeforces", {"official_tests_complete": True}).problem.tests) == 3


def test_the_optional_solution_of_deepscaler_spoils_no_gold():
    for solution, dropped in (
        ("<think>2 + 2", {"unclosed_think": 1}),
        *((nothing, {}) for nothing in (None, "", NAN)),
    ):
        reader, given = only("deepscaler", {"solution": solution})
        assert (given.problem.answer, given.responses) == ("4", ())
        assert reader.num_dropped == dropped


# ids and numbers


@pytest.mark.parametrize(("name", "column"), IDS.items())
def test_an_id_is_the_number_that_it_is_and_comes_once(name, column):
    values = (11, 11.0, "11", " 11")
    ids = {given_by(name, {column: value}).problem.id for value in values}
    assert len(ids) == 1 and ids.pop().endswith("11")
    reader = read_source(name, [ROWS[name], None, ROWS[name]])
    assert len(list(reader)) == 1
    found = [(r.row, r.reason) for r in reader.rejects]
    assert found == [(1, "unknown_format"), (2, "duplicate_id")]


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        *(("so\n#### 1,234,567", "1234567"), ("#### -$1,000.5", "-$1000.5")),
        *(("#### (1, 2)", "(1, 2)"), ("#### 3,4", "3,4")),
        *(("42", "42"), (r"so \boxed{\frac12}", r"\frac12")),
    ],
)
def test_an_answer_is_plain_or_in_a_box_or_behind_hashes_and_only_thousands_lose_commas(
    answer, gold
):
    (found,) = read_source("rows", [{"problem": "?", "answer": answer}])
    assert found.problem.answer == gold


def test_rows_that_ask_the_same_share_an_id_and_an_alias_keeps_ids_apart():
    outputs = ["<think>", *(f"<think>x</think>{n}" for n in range(9))]
    rows = [ROWS["acereason_sft"] | {"output": output} for output in outputs]
    first, second = read_source("acereason_sft", rows, limit=3)  # of rows, usable or not
    assert first.problem == second.problem and first.responses != second.responses
    one, two = given_by("openr1_math", {}), given_by("openr1_math", {}, alias="math_4")
    assert two.problem.source == "math_4" and two.problem.id == f"math_4-{one.problem.id}"
    assert replace(two.problem, source="openr1_math", id=one.problem.id) == one.problem


@pytest.mark.parametrize("name", ["aime_2024", "aime_2025", "hmmt_feb_2025", "klear_code"])
def test_an_id_that_is_null_gives_way_to_a_hash(name):
    column = {"aime_2024": "id", "klear_code": "hash"}.get(name, "problem_idx")
    change = {"answer": "4", "meta": None}
    ids = {given_by(name, {"problem": "?"} | change | {column: v}).problem.id for v in (None, NAN)}
    assert len(ids) == 1 and len(ids.pop().rpartition("-")[2]) == 16


def test_golds_of_any_kind():
    given = {"4 ": "4", 4: "4", 73.0: "73", 0.5: "0.5", 10**6: "1000000", "a\r\nb": "a\nb"}
    for value, text in given.items():
        assert gold_text(value, "answer") == text
    for value in (True, float("inf"), -float("inf"), [4], {}, b"4"):
        with pytest.raises(UnusableRow) as error:
            gold_text(value, "answer")
        assert error.value.reason == "unknown_format"
    with pytest.raises(AssertionError):
        UnusableRow("no_such_reason", "")


# licences, windows


def test_a_row_has_its_own_licence_or_that_of_its_data_set():
    for licence, its in (("mit", "mit"), ("", "cc-by-4.0")):
        assert given_by("opencodereasoning", {"license": licence}).licence == its


def test_windows_reject_before_tests_are_unpacked():
    rows = [livecodebench_row(n, day) for n, day in enumerate(("2024-07-31", "2024-08-01T00:00"))]
    rows[0]["private_test_cases"] = "no packing"
    reader = read_source("livecodebench", rows, window=("2024-08-01", "2025-02-01"))
    (given,) = reader
    assert given.problem.tests == SQUARES and given.problem.date == "2024-08-01T00:00"
    assert reader.num_rejected == {"outside_window": 1}


# the account


def test_the_account_adds_up_at_every_moment_and_begins_anew(tmp_path):
    good, bad = ROWS["acereason_sft"], ROWS["acereason_sft"] | {"output": "<think>"}
    lines = [json.dumps(good), "{", json.dumps(bad), "", "[1]", json.dumps(good), "\xff"]
    path = tmp_path / "x.jsonl"
    path.write_bytes("\n".join(lines).encode("latin1") + b"\n")
    reader = read_source("acereason_sft", path)
    expected = ["bad_json", "unclosed_think", "unknown_format", "bad_json"]
    for _ in range(2):
        rows = []
        for _ in reader:
            assert reader.num_kept + reader.num_rejected.total() == reader.num_read
            rows.append(reader.num_read - 1)
        assert rows == [0, 4]
        assert [(r.row, r.reason) for r in reader.rejects] == list(
            zip((1, 2, 3, 5), expected, strict=True)
        )
        assert (reader.num_read, reader.num_kept) == (6, 2)
    assert reader.num_rejected == {"bad_json": 2, "unclosed_think": 1, "unknown_format": 1}
    fates = [getattr(row, "reason", "kept") for row in reader.account()]
    assert fates == ["kept", *expected[:3], "kept", expected[3]] and reader.rejects == []


def test_rejects_are_short_lines_that_a_table_can_hold():
    reader, _ = only("livecodebench", {"question_id": "x" * 10**6, "metadata": "["})
    assert len(reader.rejects[0].id) == len(reader.rejects[0].detail) == 300
    change = {"contest_date": "2020-01-01T\ud800"}
    assert reject_of("livecodebench", change, window=("2024-08-01", "2025-02-01")) == "bad_date"


# calls


def test_the_names_of_the_hub_are_known_and_every_data_set_has_a_row_here():
    found = {
        "OpenR1-Math-220k": "openr1_math",
        "nvidia/AceReason-1.1-SFT": "acereason_sft",
        "NuminaMath-1.5": "numinamath_1_5",
        "TACO": "taco",
    }
    assert {name: source_named(name).name for name in found} == found
    assert set(ROWS) == set(SOURCES)


@pytest.mark.parametrize(
    ("name", "location", "options", "match"),
    [
        ("openr1_mat", [], {}, "did you mean 'openr1_math'"),
        ("Skywork-OR1-RL-Data", [], {}, "skywork_or1_math or skywork_or1_code"),
        ("taco", [], {}, "has no rows"),
        ("taco", [ROWS["taco"]], {"split": "test"}, "leave them out when you give rows"),
        ("taco", [ROWS["taco"]], {"config": "EASY"}, "leave them out when you give rows"),
        ("taco", pd.DataFrame([ROWS["taco"]]), {}, "got DataFrame: make it a list"),
        ("taco", "none", {}, "no file or folder"),
    ],
)
def test_wrong_calls_are_told_in_one_line(name, location, options, match):
    with pytest.raises(KlearError, match=match) as error:
        list(read_source(name, location, **options))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("choice", [{"split": "test"}, {"config": "EASY"}])
def test_a_choice_that_cannot_be_made_is_refused(tmp_path, choice):
    with pytest.raises(KlearError, match="is one file"):
        read_source("taco", write([ROWS["taco"]], tmp_path / "x.jsonl"), **choice)
    write([ROWS["taco"]], tmp_path / "folder" / "ALL" / "train-0.jsonl")
    assert len(list(read_source("taco", tmp_path / "folder"))) == 1
    with pytest.raises(KlearError, match="named after"):
        read_source("taco", tmp_path / "folder", **choice)


# the hub


def fake_hub(monkeypatch, rows, *, knows_columns=True):
    calls = []

    def load_dataset(*args, **options):
        calls.append((args, options))
        found = datasets.Dataset.from_list(rows)
        found = found.to_iterable_dataset()
        return found if knows_columns else found.map(lambda row: row)

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    return calls


def test_a_hub_out_of_reach_or_without_the_config_is_told_in_one_line(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        patch.setattr("datasets.config.HF_HUB_OFFLINE", True)
        for name in ("numinamath_cot", "klear_code", "apps"):
            with pytest.raises(MissingAsset, match="name its file or folder") as error:
                list(read_source(name))
            assert "\n" not in str(error.value)

    def load_dataset(*args, **options):
        raise ValueError("BuilderConfig 'x' not found.\nAvailable: ['ALL']")

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    with pytest.raises(KlearError, match=r"no config 'x' .* Available: \['ALL'\]") as error:
        read_source("taco", config="x")
    assert "\n" not in str(error.value)


def test_the_hub_is_asked_for_config_and_split(monkeypatch):
    asked = {"split": "test"}
    calls = fake_hub(monkeypatch, [ROWS["taco"]])
    (given,) = read_source("taco", **asked)
    assert given.problem.tests == SQUARES
    assert calls == [(("BAAI/TACO", "ALL"), asked | {"streaming": True})]
    # A repository with a script is read by its files.
    calls = fake_hub(monkeypatch, [ROWS["apps"]])
    assert len(list(read_source("apps", **asked))) == 1
    file = {"test": "hf://datasets/codeparrot/apps/test.jsonl"}
    how = {"data_files": file, "split": "test", "streaming": True}
    assert calls == [(("json",), how)]
    calls = fake_hub(monkeypatch, [ROWS["opencodereasoning"]])
    for choice in ({"config": "split_1"}, {"split": "split_1"}):
        assert len(list(read_source("opencodereasoning", **choice))) == 1
        args, options = calls.pop()
        assert args == ("nvidia/OpenCodeReasoning", "split_1") and options["split"] == "split_1"


@pytest.mark.parametrize("knows_columns", [True, False])
def test_the_schema_of_the_hub_is_checked(monkeypatch, knows_columns):
    fake_hub(monkeypatch, [{"problem": "?", "solution": "4"}], knows_columns=knows_columns)
    with pytest.raises(KlearError, match="needs the column answer; found: problem, solution"):
        list(read_source("acereason_math"))
