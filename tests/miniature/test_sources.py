"""The raw files: every adapter reads them, and what is planted is what the truth says."""

import json
from collections import Counter
from dataclasses import replace

import pytest
from made_worlds import build, rows
from prompt_reader import answer_of

from klearlib.curation.overlap import OverlapIndex, deduplicate
from klearlib.data.problems import read_problems, write_problems
from klearlib.data.sources import read_source
from klearlib.errors import KlearError
from klearlib.miniature.problems import held_out
from klearlib.miniature.source_plan import SOURCES
from klearlib.miniature.sources import BENCHMARKS, TEMPLATES, add_true_answers
from klearlib.records import Problem
from klearlib.run.folder import RunFolder
from klearlib.verify.extract import last_boxed


@pytest.fixture(scope="module")
def inputs(worlds):
    return worlds.inputs_of("sources")


@pytest.fixture(scope="module")
def raw(worlds):
    return worlds("sources")


@pytest.fixture(scope="module")
def read(raw):
    """By source, (row, SourceRow) of all that its adapter keeps, and the reader."""
    found = {}
    for plan in SOURCES:
        reader = read_source(plan.dataset, raw / plan.file, alias=plan.name)
        found[plan.name] = [(reader.num_read - 1, row) for row in reader], reader
    return found


def truth_of(raw) -> dict[tuple[str, int], dict]:
    return {(row["source"], row["row"]): row for row in rows(raw / "truth.jsonl")}


def of_kind(raw, kind: str) -> set[tuple[str, int]]:
    return {place for place, row in truth_of(raw).items() if row["kind"] == kind}


def test_the_pools_hold_nothing_that_a_world_teaches(raw, inputs):
    for domain, files in (("math", ["sft"]), ("code", ["sft", "teacher"])):
        asked = {row["prompt"][0]["content"] for row in rows(raw / f"{domain}_pool.jsonl")}
        for file in files:
            taught = {row["prompt"] for row in rows(inputs[domain] / f"{file}.jsonl")}
            assert taught and not asked & taught


def test_adapters_reject_exactly_the_broken_rows(raw, read):
    rejected = {
        (name, reject.row) for name, (_, reader) in read.items() for reject in reader.rejects
    }
    assert rejected == of_kind(raw, "broken")
    assert len(rejected) == 16 * 3 + 2 * 2
    reasons = sum((reader.num_rejected for _, reader in read.values()), Counter())
    assert {"no_answer", "unclosed_think", "no_response", "no_tests"} <= set(reasons)


def test_problems_are_in_training_s_part_unless_planted(raw, read):
    planted = of_kind(raw, "contamination") | of_kind(raw, "duplicate")
    for name, (found, _) in read.items():
        for number, row in found:
            if (name, number) not in planted:
                assert not held_out(row.problem.prompt)


def test_answers_labels_and_tests_are_right(raw, read):
    skipped = of_kind(raw, "contamination") | of_kind(raw, "duplicate")
    num_labels = Counter()
    for name in ("math_1", "math_4", "math_5", "math_7", "math_pool"):
        for number, row in read[name][0]:
            if (name, number) in skipped:
                continue
            answer = str(answer_of(row.problem.prompt))
            assert row.problem.answer == answer
            if name in ("math_1", "math_4"):
                assert 2 <= len(row.responses) <= 4
                labels = [r.is_correct for r in row.responses]
                assert labels == [last_boxed(r.text) == answer for r in row.responses]
                assert any(labels)
                num_labels.update({(name, label): labels.count(label) for label in (True, False)})
    assert num_labels["math_4", False] > num_labels["math_1", False] > 0
    written = [json.loads(line) for line in (raw / "answers.jsonl").read_text().splitlines()]
    assert all(row["answer"] == str(answer_of(row["prompt"])) for row in written)
    planted = skipped | of_kind(raw, "broken")
    sound = {row.problem.prompt for n, row in read["math_2"][0] if ("math_2", n) not in planted}
    assert sound and sound <= {row["prompt"] for row in written}
    few = of_kind(raw, "few_tests")
    assert len(few) == 4
    for number, row in read["code_pool"][0]:
        assert (len(row.problem.tests) < 16) is (("code_pool", number) in few)
        assert not row.responses
    assert not any(row.problem.tests for _, row in read["code_1"][0])


def test_deduplication_drops_exactly_the_planted_duplicates(raw, read):
    prompts = {
        (name, number): row.problem.prompt
        for name, (found, _) in read.items()
        for number, row in found
    }
    places, kept = list(prompts), set(deduplicate(list(prompts.values())))
    dropped = {place for index, place in enumerate(places) if index not in kept}
    assert dropped == of_kind(raw, "duplicate")
    truth = truth_of(raw)
    assert {truth[place]["how"] for place in dropped} == {"same", "case", "blanks"}
    origins = Counter(truth[place]["of"]["source"] == place[0] for place in dropped)
    assert origins[True] > 20 and origins[False] > 20
    for place in dropped:  # the row that is repeated is the one that is named
        of = truth[place]["of"]
        first = prompts[of["source"], of["row"]]
        assert " ".join(prompts[place].lower().split()) == " ".join(first.lower().split())


@pytest.mark.parametrize("domain", ["math", "code"])
@pytest.mark.parametrize("templates", [None, TEMPLATES])
def test_planted_contamination_is_found_and_without_phrases_little_else(
    raw, read, inputs, domain, templates
):
    items = {
        name: [(p.id, p.prompt) for p in read_problems(inputs[domain] / f"{name}.jsonl")]
        for name in BENCHMARKS[domain]
    }
    index = OverlapIndex(items, templates=templates)
    places, prompts = [], []
    for name, (found, _) in read.items():
        if name.startswith(domain):
            places += [(name, number) for number, _ in found]
            prompts += [row.problem.prompt for _, row in found]
    removed = {
        place
        for place, removal in zip(places, index.removals(prompts), strict=True)
        if removal is not None
    }
    planted = of_kind(raw, "contamination") & set(places)
    assert len(planted) == 6 * (11 if domain == "math" else 7)
    assert planted <= removed
    share = len(removed - planted) / (len(places) - len(planted))
    if templates is None:
        assert share > 0.2  # every recurrence, every word of commands
    else:
        assert share < 0.15


def test_contamination_is_planted_in_all_ways_and_never_twice(raw):
    truth = truth_of(raw)
    planted = [truth[place] for place in of_kind(raw, "contamination")]
    assert {row["how"] for row in planted} == {"exact", "wrapped", "shared"}
    ways = [(row["of"]["benchmark"], row["of"]["id"], row["how"]) for row in planted]
    assert len(set(ways)) == len(ways)
    assert {way[0] for way in ways} == {"math_a", "math_b", "code_a", "code_b"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_contaminated": 60}, "num_contaminated 60 exceeds"),
        ({"modulus": 3, "max_difficulty": 2}, "different problems exist"),
    ],
)
def test_what_cannot_be_made_is_refused(inputs, tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        build("sources", tmp_path, inputs, **change)


def test_every_problem_gets_the_answer_of_its_prompt(tmp_path):
    known = [Problem("a", "1+1?", "3"), Problem("b", "2+2?"), Problem("c", "3+3?", "6")]
    for name in ("curated", "sources"):
        (tmp_path / name).mkdir()
    write_problems(known, tmp_path / "curated" / "problems.jsonl")
    given = [{"prompt": f"{n}+{n}?", "answer": str(2 * n)} for n in (3, 2, 1, 9)]
    text = "".join(json.dumps(row) + "\n" for row in given)
    (tmp_path / "sources" / "answers.jsonl").write_text(text)
    inputs = {name: tmp_path / name for name in ("curated", "sources")}
    add_true_answers(RunFolder(tmp_path / "out"), inputs)
    found = read_problems(tmp_path / "out" / "problems.jsonl")
    assert found == [replace(p, answer=a) for p, a in zip(known, "246", strict=True)]
    write_problems([*known, Problem("d", "a benchmark's")], tmp_path / "curated" / "problems.jsonl")
    with pytest.raises(KlearError, match="1 benchmark problems passed"):
        add_true_answers(RunFolder(tmp_path / "again"), inputs)
