"""Files of rows: which ones of a folder, whole or broken, and how much of them is in memory."""

import contextlib
import gzip
import io
import json
import sys
import tracemalloc

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from klearlib.data import files, lines
from klearlib.data.files import open_location
from klearlib.data.rows import UnusableRow
from klearlib.errors import KlearError, MissingAsset

AWKWARD = [
    {"a": "x"},
    {"a": '\u2028 \u0085 ] , [ } { \\" \n', "b": [1, {"c": None}]},
    {"a": "é" * 1_500_000},
    {"a": ""},
]


def rows_of(location, *, split=None, config=None, must_match=(), wanted=("a", "b")):
    options = {"wanted": wanted, "split": split, "config": config, "must_match": must_match}
    return [row for table in open_location(location, **options) for row in table.rows()]


@pytest.mark.parametrize("form", ["indented", "dense", "lines", "bom"])
@pytest.mark.parametrize("is_packed", [False, True])
def test_json_in_all_its_forms(tmp_path, form, is_packed):
    text = {
        "indented": json.dumps(AWKWARD, indent=2),
        "dense": json.dumps(AWKWARD, ensure_ascii=False, separators=(",", ":")),
        "lines": "\n".join(json.dumps(row, ensure_ascii=False) for row in AWKWARD),
        "bom": "\ufeff " + json.dumps(AWKWARD),
    }[form]
    path = tmp_path / ("x.json.gz" if is_packed else "x.json")
    path.write_bytes(gzip.compress(text.encode(), 1) if is_packed else text.encode())
    assert rows_of(path) == AWKWARD
    if not is_packed:
        path.write_text("[ ]\n")
        assert rows_of(path) == []


def test_an_array_is_not_held_in_memory(tmp_path):
    path = tmp_path / "x.json"
    rows = (json.dumps({"a": str(number) + "x" * 100_000}) for number in range(300))
    path.write_text(f"[{','.join(rows)}]")
    (table,) = open_location(path, wanted=("a",), split=None, config=None)
    tracemalloc.start()
    count = sum(len(row["a"]) > 100_000 for row in table.rows())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 300 and path.stat().st_size > 30e6
    assert peak < 8e6


def test_a_parquet_file_is_read_in_parts_and_only_the_columns_wanted(tmp_path):
    path = tmp_path / "x.parquet"
    table = pa.table({"a": [str(n) for n in range(1000)], "z": ["y" * 50_000] * 1000})
    pq.write_table(table, path, row_group_size=100)
    (found,) = open_location(path, wanted=("a",), split=None, config=None)
    assert found.columns == ("a", "z")
    before = pa.total_allocated_bytes()
    for number, row in enumerate(found.rows()):
        assert row == {"a": str(number)}
        assert pa.total_allocated_bytes() - before < 2e6
    assert number == 999


def a_broken_page() -> bytes:
    file = io.BytesIO()
    table = pa.table({"a": [f"{n} {n * 7919 % 1009}" for n in range(5000)]})
    pq.write_table(table, file, compression="gzip", use_dictionary=False)
    content = bytearray(file.getvalue())
    content[len(content) // 3 : len(content) // 3 + 200] = b"\xff" * 200
    return bytes(content)


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("x.json", b'[{"a": 1}, {"a"', "not a whole JSON array"),
        ("x.json", b'[{"a": 1}', "not a whole JSON array"),
        ("x.json", b'{"a": {\n"b": 1}}', "neither JSON lines nor an array"),
        ("x.json", b'[{"a": "\xff"}]', "not a whole JSON array"),
        ("x.json.gz", gzip.compress(b'[{"a": 1}]' * 99, mtime=0)[:-9], "not a whole gzip file"),
        ("x.jsonl.gz", b'{"a": 1}', "not a whole gzip file"),
        ("x.parquet", b"PAR1", "cannot be read as parquet"),
        ("x.parquet", a_broken_page(), "is broken after row 0"),
        ("x.csv", b"a\n1\n", "convert it"),
    ],
)
def test_broken_files_are_told_in_one_line(tmp_path, name, content, match):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(KlearError, match=match) as error:
        rows_of(tmp_path / name)
    assert "\n" not in str(error.value) and name in str(error.value)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ('[{"a": 1}]\n[{"a": 2}]', "item 1 .*goes on behind"),
        ('[{"a": 1}] x', "item 1 .*goes on behind"),
        ("[]]", "item 0 .*goes on behind"), ('[{"a": 1} {"a": 2}]', "item 0 .*follows"),
        ('[{"a": 1},, {"a": 2}]', "item 1 .*Expecting"), ('[{"a": 1},]', "item 1 .*Expecting"),
        ("[,]", "item 0 .*Expecting"), ('[{"a": 1}}]', "item 0 .*follows"),
        ('[{"a": "1}]', "item 0 .*Unterminated"), ('[{"a": [1}', "item 0 .*delimiter"),
        ('[{"a": "x\\', "item 0"), ('[{"a": 1}, 12', "item 1 .*too early"),
        ('[{"a": 1}, {"a": nope}]', "item 1 .*Expecting value"),
        ('[{"a": 1}, {"a": 1, "a": 2}]', "item 1 .*'a' is written twice"),
        ('[{"a": 1}, ' + "[" * 20_000, "item 1 .*recursion"),
    ],
)  # fmt: skip
def test_an_array_that_is_broken_names_its_item(tmp_path, monkeypatch, content, match):
    for chunk in (2**20, 3):
        monkeypatch.setattr(files, "_CHUNK_CHARS", chunk)
        (tmp_path / "x.json").write_text(content)
        with pytest.raises(KlearError, match=match) as error:
            rows_of(tmp_path / "x.json")
        assert "\n" not in str(error.value) and "x.json" in str(error.value)


@pytest.mark.parametrize("chunk", [2, 7, 2**20])
def test_an_array_is_read_whatever_is_read_at_once(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(files, "_CHUNK_CHARS", chunk)
    rows = [{"a": "]},{\\", "b": [1, {"c": -1.5e3}]}, {}, {"a": 10**5000}]
    with lifted_limit():
        (tmp_path / "x.json").write_text(" " + json.dumps(rows, indent=chunk % 3) + " \n")
    assert rows_of(tmp_path / "x.json") == rows
    # An item that is no row costs itself only.
    (tmp_path / "x.json").write_text('[{"a": 1}, 125 , [1, {}], "],[{",null, {"a": 2}]')
    found = rows_of(tmp_path / "x.json")
    assert [getattr(row, "reason", row) for row in found] == [
        {"a": 1}, *["unknown_format"] * 4, {"a": 2},
    ]  # fmt: skip
    assert found[1].row_id == "x.json item 1"


@contextlib.contextmanager
def lifted_limit():
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(10**5)
    yield
    sys.set_int_max_str_digits(before)


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz", "x.json", "x.json.gz"])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[{"a": 1}, {"a": "' + "b" * 3000, "(999 bytes in line 1|see item 1)"),
        ('{"a": 1}\n' * 2000, "more than 5,000 bytes in all, unpacked, the limit"),
        ("\n" * 4000 + '{"a": 1}', "more than 99 blank lines before line 100, the limit"),
    ],
    ids=["row", "rows", "lines"],
)
def test_a_file_is_read_within_limits(tmp_path, monkeypatch, name, text, words):
    for module, limit, value in (
        (files, "MAX_ROW", 999),
        (files, "MAX_FILE", 5000),
        (files, "_CHUNK_CHARS", 100),
        (lines, "MAX_BLANK_LINES", 99),
    ):
        monkeypatch.setattr(module, limit, value)
    packed = gzip.compress(text.encode()) if name.endswith(".gz") else text.encode()
    (tmp_path / name).write_bytes(packed)
    with pytest.raises(KlearError, match=words):
        rows_of(tmp_path / name)


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ('{"a": ' + "[" * 20_000 + "]" * 20_000 + "}", "bad_json"),
        ('{"a": ' + "7" * 100_001 + "}", "too_large"),
        ('{"a": nope, "b": "]},{\\""}', "bad_json"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "bad_json"),
        ("[1, {}]", "unknown_format"),
        ("null", "unknown_format"),
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_line_that_is_no_row_costs_itself_only(tmp_path, item, reason, place):
    rows = ['{"a": 1}', '{"a": 2}']
    rows.insert(place, item)
    (tmp_path / "x.jsonl").write_text("\n".join(rows))
    found = rows_of(tmp_path / "x.jsonl")
    fault = found.pop(place)
    assert isinstance(fault, UnusableRow) and fault.reason == reason
    assert fault.row_id == f"x.jsonl line {place + 1}"
    assert found == [{"a": 1}, {"a": 2}]


def put(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"a": name}) + "\n")


@pytest.mark.parametrize(
    ("names", "choice", "chosen"),
    [
        ("b a", {}, "a b"),
        ("train test", {"split": "train"}, "train"),
        ("train train_old", {"split": "train"}, "train"),
        ("train-00000-of-00001-ab12 train-old", {"split": "train"}, "train-00000-of-00001-ab12"),
        ("training train_math", {"split": "train"}, "train_math"),
        ("test test2 test_old train", {"split": "test"}, "test test2"),
        ("data/train-00000-of-00001 data/test-00000", {"split": "test"}, "data/test-00000"),
        ("ALL/train-0 EASY/train-0", {"split": "train", "config": "ALL"}, "ALL/train-0"),
        ("split_0/train-0 split_1/train-0", {"split": "split_1"}, "split_1/train-0"),
        ("v1/x v10/x v1_v2/x", {"config": "v1"}, "v1/x"),
        ("v1 v10 v1_v2", {"config": "v1"}, "v1"),
        ("math", {"split": "train", "config": "main"}, "math"),
        (".cache/x .x x", {}, "x"),
        ("data/train-0 all/default-0", {"split": "train", "config": "default"}, "data/train-0"),
    ],
)
def test_a_folder_gives_the_files_of_the_split(tmp_path, names, choice, chosen):
    put(tmp_path, *(f"{name}.jsonl" for name in names.split()))
    wanted = [f"{name}.jsonl" for name in chosen.split()]
    assert [row["a"] for row in rows_of(tmp_path, **choice)] == wanted
    if "math" not in chosen:  # whose name only starts alike, or not even that
        must_match = tuple(choice.values())
        found = rows_of(tmp_path, **choice, must_match=must_match)
        assert [row["a"] for row in found] == wanted


def test_a_folder_in_a_hidden_one_is_read(tmp_path):
    put(tmp_path / ".cache" / "hub", "train.jsonl")
    assert len(rows_of(tmp_path / ".cache" / "hub")) == 1


@pytest.mark.parametrize("name", ["v10", "v1_v2", "v10/x"])
def test_a_config_that_was_asked_for_is_not_widened(tmp_path, name):
    put(tmp_path, f"{name}.jsonl")
    assert len(rows_of(tmp_path, config="v1")) == 1
    with pytest.raises(KlearError, match="named after 'v1'"):
        rows_of(tmp_path, config="v1", must_match=("v1",))


def test_a_folder_of_nothing_of_several_kinds_or_of_several_folders_is_refused(tmp_path):
    with pytest.raises(MissingAsset, match="holds none of"):
        rows_of(tmp_path)
    put(tmp_path, "data/train-0.jsonl", "extended/train-0.jsonl", "README/x.txt")
    with pytest.raises(KlearError, match=r"several folders \(data, extended\)"):
        rows_of(tmp_path, split="train", config="default")
    assert len(rows_of(tmp_path, split="train", config="extended")) == 1
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(KlearError, match="several kinds"):
        rows_of(tmp_path)


def test_a_saved_folder_of_splits_needs_one_of_them(tmp_path):
    splits = {name: datasets.Dataset.from_list([{"a": name}]) for name in ("train", "test")}
    datasets.DatasetDict(splits).save_to_disk(str(tmp_path / "saved"))
    assert rows_of(tmp_path / "saved", split="test") == [{"a": "test"}]
    with pytest.raises(KlearError, match="the splits test, train, not 'default'"):
        rows_of(tmp_path / "saved", split="default")
