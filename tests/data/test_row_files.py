"""Files of rows: which ones of a folder, whole or broken."""

import gzip
import json

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("x.json", b'[{"a": 1}, {"a"', "is not valid JSON"),
        ("x.json", b'[{"a": 1}', "is not valid JSON"),
        ("x.json", b'[{"a": "\xff"}]', "is not valid JSON"),
        ("x.json.gz", gzip.compress(b'[{"a": 1}]' * 99, mtime=0)[:-9], "not a whole gzip file"),
        ("x.jsonl.gz", b'{"a": 1}', "not a whole gzip file"),
        ("x.parquet", b"PAR1", "cannot be read as parquet"),
        ("x.csv", b"a\n1\n", "convert it"),
    ],
)
def test_broken_files_are_told_in_one_line(tmp_path, name, content, match):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(KlearError, match=match) as error:
        rows_of(tmp_path / name)
    assert "\n" not in str(error.value) and name in str(error.value)


def test_an_item_of_an_array_that_is_no_row_costs_itself_only(tmp_path):
    (tmp_path / "x.json").write_text('[{"a": 1}, 125 , [1, {}], "],[{",null, {"a": 2}]')
    found = rows_of(tmp_path / "x.json")
    assert [getattr(row, "reason", row) for row in found] == [
        {"a": 1}, *["unknown_format"] * 2, "bad_json", "unknown_format", {"a": 2},
    ]  # fmt: skip
    assert found[1].row_id == "x.json item 1"


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ('{"a": ' + "[" * 20_000 + "]" * 20_000 + "}", "bad_json"),
        ('{"a": ' + "7" * 5000 + "}", "bad_json"),
        ('{"a": nope, "b": "]},{\\""}', "bad_json"),
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
        ("math", {"split": "train", "config": "main"}, "math"),
        (".cache/x .x x", {}, "x"),
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


@pytest.mark.parametrize("name", ["v10", "v1_v2", "v10/x"])
def test_a_config_that_was_asked_for_is_not_widened(tmp_path, name):
    put(tmp_path, f"{name}.jsonl")
    assert len(rows_of(tmp_path, config="v1")) == 1
    with pytest.raises(KlearError, match="named after 'v1'"):
        rows_of(tmp_path, config="v1", must_match=("v1",))


def test_a_folder_of_nothing_of_several_kinds_or_of_several_folders_is_refused(tmp_path):
    with pytest.raises(MissingAsset, match="name the folder of files"):
        rows_of(tmp_path)
    put(tmp_path, "data/train-0.jsonl", "extended/train-0.jsonl", "README/x.txt")
    with pytest.raises(KlearError, match=r"mixes kinds of files or folders \(data/\*.jsonl, ext"):
        rows_of(tmp_path, split="train", config="default")
    assert len(rows_of(tmp_path, split="train", config="extended")) == 1
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(KlearError, match=r"mixes kinds of files or folders \(\*.parquet, data"):
        rows_of(tmp_path)


def test_a_folder_that_datasets_saved_is_not_read_as_its_descriptions(tmp_path):
    datasets.Dataset.from_list([{"a": "x"}]).save_to_disk(str(tmp_path / "saved"))
    with pytest.raises(KlearError, match="was written by save_to_disk: export it"):
        rows_of(tmp_path / "saved")
