"""Several selections as one training set: order, counts, refusals."""

import json

import pytest

from klearlib.curation.combine import combine
from klearlib.data.tables import Sample, read_samples, write_samples
from klearlib.run.folder import RunFolder
from klearlib.sft.train import read_turns

MATHS = [
    Sample("m2", "2+3?", "5", "math_2", "t", True),
    Sample("m1", "1+1?", "2", "math_1"),
    Sample("m1", "1+1?", "3", "math_1", "t", False, "wrong_answer"),
]
CODE = [Sample("c1", "Print n.", "print(input())", "code_1"), Sample("c0", "é\n", "", "code_1")]


def selection(path, samples, licences=None):
    path.mkdir()
    write_samples(samples, path / "examples.parquet")
    if licences is not None:
        (path / "card.json").write_text(json.dumps({"licences": licences}))
    return path


@pytest.fixture
def inputs(tmp_path):
    return {
        "selection_1": selection(tmp_path / "maths", MATHS, {"math_1": "MIT", "math_2": "Apache"}),
        "selection_2": selection(tmp_path / "code", CODE, {"code_1": "CC BY 4.0"}),
    }


def test_all_samples_in_the_order_of_the_names_and_sft_reads_them(inputs, tmp_path):
    combine(RunFolder(tmp_path / "out"), inputs)
    assert list(read_samples(tmp_path / "out" / "examples.parquet")) == MATHS + CODE
    turns = list(read_turns(tmp_path / "out" / "examples.parquet"))
    assert turns == [(sample.prompt, sample.response) for sample in MATHS + CODE]
    combine(RunFolder(tmp_path / "b"), dict(reversed(inputs.items())))
    for name in ("examples.parquet", "card.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_counts_add_up_and_licences_are_kept(inputs, tmp_path):
    combine(RunFolder(tmp_path / "out"), inputs)
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    assert card["num_kept"] == 5 and card["num_problems"] == 4
    assert card["selections"] == {"selection_1": 3, "selection_2": 2}
    assert card["sources"] == {"math_2": 1, "math_1": 2, "code_1": 2}
    assert card["licences"] == {"math_1": "MIT", "math_2": "Apache", "code_1": "CC BY 4.0"}
