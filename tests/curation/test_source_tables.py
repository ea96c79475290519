"""Files of rows: which ones of a folder, whole or broken, and how much of them is in memory."""

import gzip
import json
import tracemalloc

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from klearlib.curation.source_tables import open_location
from klearlib.errors import KlearError, MissingAsset
from klearlib.verify.loader_columns import UnusableProblem

AWKWARD = [
    {"a": "x"},
    {"a": '\u2028 \u0085 ] , [ } { \\" \n', "b": [1, {"c": None}]},
    {"a": "é" * 1_500_000},
    {"a": ""},
]


def rows_of(location, *, split=None, config=None, wanted=("a", "b")):
    tables = open_location(location, wanted=wanted, split=split, config=config)
    return [row for table in tables for row in table.rows()]


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


def test_an_array_is_not_held_in_memory(tmp_path):
    path = tmp_path / "x.json"
    with path.open("w") as file:
        file.write("[")
        for number in range(300):
            file.write(("," if number else "") + json.dumps({"a": str(number) + "x" * 100_000}))
        file.write("]")
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


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("x.json", b'[{"a": 1}, {"a"', "no whole JSON array"),
        ("x.json", b'[{"a": 1}', "no whole JSON array"),
        ("x.json", b'{"a": {\n"b": 1}}', "neither JSON lines nor an array"),
        ("x.json", b'[{"a": "\xff"}]', "is not UTF-8"),
        ("x.json.gz", gzip.compress(b'[{"a": 1}]' * 99, mtime=0)[:-9], "no whole gzip file"),
        ("x.jsonl.gz", b'{"a": 1}', "no whole gzip file"),
        ("x.parquet", b"PAR1", "no parquet file"),
        ("x.csv", b"a\n1\n", "convert it"),
    ],
)
def test_broken_files_are_told_in_one_line(tmp_path, name, content, match):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(KlearError, match=match) as error:
        rows_of(tmp_path / name)
    assert "\n" not in str(error.value) and name in str(error.value)


def test_rows_that_are_none_keep_their_place(tmp_path):
    (tmp_path / "x.json").write_text('[{"a": 1}, 3, {"a": 2}]')
    first, none, last = rows_of(tmp_path / "x.json")
    assert (first, last) == ({"a": 1}, {"a": 2})
    assert isinstance(none, UnusableProblem) and none.reason == "unknown_format"


def put(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"a": name}) + "\n")


@pytest.mark.parametrize(
    ("names", "choice", "chosen"),
    [
        (["b.jsonl", "a.jsonl"], {}, ["a.jsonl", "b.jsonl"]),
        (["train.jsonl", "test.jsonl"], {"split": "train"}, ["train.jsonl"]),
        (
            ["test.jsonl", "test2.jsonl", "train.jsonl"],
            {"split": "test"},
            ["test.jsonl", "test2.jsonl"],
        ),
        (
            ["data/train-00000-of-00001.jsonl", "data/test-00000.jsonl"],
            {"split": "test"},
            ["data/test-00000.jsonl"],
        ),
        (
            ["ALL/train-0.jsonl", "EASY/train-0.jsonl"],
            {"split": "train", "config": "ALL"},
            ["ALL/train-0.jsonl"],
        ),
        (
            ["split_0/train-0.jsonl", "split_1/train-0.jsonl"],
            {"split": "split_1"},
            ["split_1/train-0.jsonl"],
        ),
        (["math.jsonl"], {"split": "train", "config": "main"}, ["math.jsonl"]),
        (["training.jsonl", "train_math.jsonl"], {"split": "train"}, ["train_math.jsonl"]),
        ([".cache/x.jsonl", ".x.jsonl", "x.jsonl"], {}, ["x.jsonl"]),
    ],
)
def test_a_folder_gives_the_files_of_the_split(tmp_path, names, choice, chosen):
    put(tmp_path, *names)
    assert [row["a"] for row in rows_of(tmp_path, **choice)] == chosen


def test_a_folder_of_nothing_or_of_several_kinds_is_refused(tmp_path):
    with pytest.raises(MissingAsset, match="holds none of"):
        rows_of(tmp_path)
    put(tmp_path, "a.jsonl")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(KlearError, match="several kinds"):
        rows_of(tmp_path)


def test_a_split_that_was_asked_for_must_be_there(tmp_path):
    put(tmp_path, "test.jsonl")
    options = {"wanted": ("a",), "split": "train", "config": None}
    assert len(open_location(tmp_path, **options)) == 1
    with pytest.raises(KlearError, match="named after 'train'"):
        open_location(tmp_path, **options, must_match=("train", None))


def test_files_of_several_folders_are_not_mixed(tmp_path):
    put(tmp_path, "data/train-0.jsonl", "extended/train-0.jsonl", "README/x.txt")
    with pytest.raises(KlearError, match=r"several folders \(data, extended\)"):
        rows_of(tmp_path, split="train", config="default")
    assert len(rows_of(tmp_path, split="train", config="extended")) == 1


def test_a_saved_folder_of_splits_needs_one_of_them(tmp_path):
    splits = {name: datasets.Dataset.from_list([{"a": name}]) for name in ("train", "test")}
    datasets.DatasetDict(splits).save_to_disk(str(tmp_path / "saved"))
    assert rows_of(tmp_path / "saved", split="test") == [{"a": "test"}]
    with pytest.raises(KlearError, match="the splits test, train, not 'default'"):
        rows_of(tmp_path / "saved", split="default")
