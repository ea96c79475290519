"""Benchmarks by their names and from any file; what is collected is what a stage evaluates."""

import json
from dataclasses import replace

import pytest

from klearlib.data.benchmarks import SIZES
from klearlib.data.problems import read_problems, write_problems
from klearlib.errors import KlearError, MissingAsset, ParameterError
from klearlib.evaluate.benchmark_files import ALIASES, open_benchmark
from klearlib.real.data import collect_benchmarks
from klearlib.records import Problem, TestCase
from klearlib.run.folder import RunFolder

OWN = [Problem(f"own-{i}", f"What is {i} + 1?", str(i + 1)) for i in range(30)]


@pytest.fixture
def released(tmp_path):
    """A benchmark of 30 problems in the released format."""
    path = tmp_path / "aime.jsonl"
    rows = [
        {
            "messages": [{"role": "user", "content": f"What is {i}?"}],
            "meta": {"unique_id": f"I-{i}", "problem": f"What is {i}?", "solution": f"0{i}"},
        }
        for i in range(30)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def own(tmp_path):
    write_problems(OWN, tmp_path / "own.jsonl")
    return tmp_path / "own.jsonl"


@pytest.mark.parametrize("alias", ["aime24", "aime25", "hmmt25", "aime_2024"])
def test_an_alias_reads_the_released_file(released, alias):
    found = open_benchmark(alias, released)
    assert found.name == ALIASES.get(alias, alias) and sorted(ALIASES.values()) == sorted(SIZES)
    assert [problem.id for problem in found.problems][:2] == [f"{found.name}-I-{i}" for i in (0, 1)]
    assert found.problems[7].answer == "7"
    lines = released.read_text().splitlines(keepends=True)
    released.write_text("".join(lines[:-1]))
    with pytest.raises(KlearError, match="must have 30 problems, got 29"):
        open_benchmark(alias, released)


def test_files_in_our_own_format(own, tmp_path):
    for name, location in (("mine", own), (str(own), None), ("aime24", own)):
        assert list(open_benchmark(name, location).problems) == OWN
    assert open_benchmark(str(own)).name == "own"
    named = tmp_path / "aime24.jsonl"
    write_problems(OWN, named)
    assert open_benchmark(str(named)).name == "aime_2024"
    for path in (own, named):
        write_problems(OWN[:29], path)
    assert len(open_benchmark("mine", own).problems) == 29
    # The name of a benchmark, of the call or of the file, is its size.
    for name, location, size in (
        ("aime24", own, None),
        (str(named), None, None),
        ("mine", own, 28),
    ):
        with pytest.raises(KlearError, match=f"must hold {size or 30} problems, got 29"):
            open_benchmark(name, location, expected_size=size)


def test_a_schema_that_is_named_reads_what_looks_like_our_own_format(tmp_path):
    problem = {"id": "a", "prompt": "?", "answer": "600 + 400 = 1,000\n#### 1,000"}
    (tmp_path / "own.jsonl").write_text(json.dumps(problem) + "\n")
    (found,) = open_benchmark("mine", tmp_path / "own.jsonl", source="rows").problems
    assert found.answer == "1000"


BY_CALL = TestCase("9", call="[3]")


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (Problem("x", "?"), "neither an answer nor tests"),
        (Problem("x", "?", "1", tests=(TestCase("1", stdin=""),)), "both an answer and"),
        (Problem("x", "?", " "), "'x' has an empty answer"),
        (Problem("x", "?", ()), "'x' has an empty answer"),
        (Problem("x", "?", ("7", " ")), "'x' has an empty answer: correct it"),
        (Problem("x", " \n", "1"), "'x' has an empty prompt"),
        (Problem("x", "?", "1" * 2001), f"'x' has the answer '{'1' * 60}"),
        (Problem("own-0", "?", "1"), "1 duplicate problem ids"),
        (Problem("x", "?", tests=(BY_CALL,)), "'x' cannot be judged: tests[0] calls a function: "),
        (Problem("x", "?", tests=(replace(BY_CALL, call="3"),), entry_point="f"),
         "tests[0].call must be a JSON arr"),
        (Problem("x", "?", tests=(replace(BY_CALL, expected="x"),), entry_point="f"),
         "tests[0].expected must be"),
        (Problem("x", "?", tests=(TestCase("1", stdin=""),), preset="lbc"),
         "'x' cannot be judged: preset must be one of python, lcb, got 'lbc'"),
    ],
)  # fmt: skip
def test_a_problem_that_cannot_be_judged_is_refused(own, problem, words):
    write_problems([*OWN, problem], own)
    with pytest.raises(KlearError) as error:
        open_benchmark("mine", own)
    assert words in str(error.value)


def test_unknown_names_and_places(tmp_path):
    with pytest.raises(ParameterError, match="no benchmark 'aime23'; did you mean 'aime2"):
        open_benchmark("aime23")
    with pytest.raises(MissingAsset, match="no problem file at"):
        open_benchmark("mine", tmp_path / "none.jsonl")
    with pytest.raises(MissingAsset, match="no problem file at"):
        open_benchmark("mine", tmp_path)
    with pytest.raises(MissingAsset, match="no file or folder"):
        open_benchmark("aime24", tmp_path / "none.jsonl")


def test_collected_benchmarks_are_those_that_the_stage_evaluates(released, own, tmp_path):
    folder = RunFolder(tmp_path / "stage")
    files = {"aime24": released, "mine": own}
    how = {"places": {name: file.name for name, file in files.items()}}
    inputs = dict.fromkeys(files, tmp_path)
    with pytest.raises(KlearError, match="must have 29 problems, got 30"):
        collect_benchmarks(folder, inputs, benchmarks={"aime24": 29}, **how)
    assert not list(folder.path.glob("*.jsonl"))
    sizes = {"aime24": 30, "mine": 30}
    collect_benchmarks(folder, inputs, benchmarks=sizes, **how)
    for name, size in sizes.items():
        found = read_problems(folder.path / f"{name}.jsonl", expected_size=size)
        assert found == list(open_benchmark(name, files[name]).problems)
    card = json.loads((folder.path / "card.json").read_text())
    assert card["aime24"] == {"num_problems": 30, "summary": "aime_2024: 30 problems"}
