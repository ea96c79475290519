"""Curation against planted rows whose fate is known by hand, and what must not depend on order."""

import json
import random
from pathlib import Path

import pytest

from klearlib.curation import curate as module
from klearlib.curation.curate import FILES, curate
from klearlib.curation.normalise import duplicate_key
from klearlib.data.lines import read_lines
from klearlib.data.problems import iter_problems, write_problems
from klearlib.data.tables import read_samples
from klearlib.records import Problem
from klearlib.run.folder import RunFolder

ITEM = "How many ways are there to seat ten guests around one round table?"
HOW = {
    "ngram_words": 9,
    "templates": [],
    "stop_more_than": None,
    "need_gold": True,
    "min_tests": 16,
}
OUTPUTS = [*FILES, "card.json"]


def write_lines(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def thought(question: str, answer: str) -> dict:
    """A row of OpenThoughts3."""
    turns = [{"from": "human", "value": question}, {"from": "gpt", "value": answer}]
    return {"source": "x", "domain": "math", "conversations": turns}


def program(question: str, num_tests: int) -> dict:
    """A row of DeepCoder."""
    tests = [{"input": str(n), "output": str(n), "testtype": "stdin"} for n in range(num_tests)]
    return {"problem": question, "tests": json.dumps(tests)}


@pytest.fixture
def place(tmp_path):
    raw = tmp_path / "raw"
    raw.mkdir()
    write_problems(
        [Problem("g-1", ITEM, "9!"), Problem("g-2", "Find 7.", "7")], raw / "bench.jsonl"
    )
    return raw


def run(place: Path, name: str, sources: list[dict], *, finishes=False, **changes) -> Path:
    out = place.parent / name
    folder = RunFolder(out)
    curate(
        folder,
        {"raw": place},
        sources=[{"input": "raw", **source} for source in sources],
        benchmarks=[{"name": "bench", "input": "raw", "location": "bench.jsonl"}],
        **HOW | changes,
    )
    if finishes:
        folder.finish()
    return out


def card_of(out: Path) -> dict:
    return json.loads((out / "card.json").read_text())


MATHS = [
    {"problem": "What is 2 + 2?", "answer": "4"},  # kept
    {"problem": "what  is 2+2", "answer": "4"},  # duplicate
    {"problem": "What is 2 - 2?", "answer": "0"},  # kept: another sign
    {"problem": f"Think hard. {ITEM} Explain.", "answer": "9!"},  # shares a 9-gram
    {"problem": "FIND 7", "answer": "7"},  # equal to a short item
    {"problem": "No answer here?", "answer": ""},  # adapter
    {"problem": "What is 2 + 2?", "answer": "5"},  # duplicate of the first
]
MATHS_SOURCE = {"name": "AceReason-Math", "location": "maths.jsonl"}
CODE_SOURCE = {"name": "deepcoder", "location": "code.jsonl"}


@pytest.fixture
def mixed(place):
    write_lines(place / "maths.jsonl", MATHS)
    code = [
        program("Echo the number.", 3),  # too few, and the next one is not its duplicate
        program("Echo the number.", 16),
        program("Print what is read, twice.", 15),
        program("Print what is read.", 20),
        {"problem": "No tests.", "tests": ""},
    ]
    write_lines(place / "code.jsonl", code)
    return place


def test_every_row_meets_the_fate_that_was_planted_and_the_counts_of_the_card_add_up(mixed):
    out = run(mixed, "out", [MATHS_SOURCE, CODE_SOURCE])
    kept = list(iter_problems(out / "problems.jsonl"))
    assert [p.prompt.partition("\n")[0] for p in kept] == [
        "What is 2 + 2?",
        "What is 2 - 2?",
        "Echo the number.",
        "Print what is read.",
    ]
    assert [p.answer for p in kept] == ["4", "0", None, None]
    assert [len(p.tests) for p in kept] == [0, 0, 16, 20]
    assert kept[2].tests[7].stdin == "7" and kept[2].tests[7].expected == "7"
    rejects = list(read_lines(out / "rejects.jsonl"))
    assert [(r["source"], r["row"], r["reason"]) for r in rejects] == [
        ("acereason_math", 1, "duplicate"),
        ("acereason_math", 3, "overlap"),
        ("acereason_math", 4, "overlap"),
        ("acereason_math", 5, "no_answer"),
        ("acereason_math", 6, "duplicate"),
        ("deepcoder", 0, "few_tests"),
        ("deepcoder", 2, "few_tests"),
        ("deepcoder", 4, "no_tests"),
    ]
    removals = list(read_lines(out / "removals.jsonl"))
    assert [(r["row"], r["item"], r["num_items"]) for r in removals] == [
        (3, "g-1", 1),
        (4, "g-2", 1),
    ]
    assert removals[0]["ngram"] == "how many ways are there to seat ten guests"
    card = card_of(out)
    assert (card["num_read"], card["num_kept"], card["num_rejected"]) == (12, 4, 8)
    assert card["sources"]["acereason_math"] == {
        "num_read": 7,
        "num_kept": 2,
        "rejected": {"duplicate": 2, "no_answer": 1, "overlap": 2},
    }
    rows = [r for r in card["funnel"] if r["source"] == "acereason_math"]
    assert [(r["stage"], r["num_in"], r["num_removed"], r["num_out"]) for r in rows] == [
        ("adapter", 7, 1, 6),
        ("duplicates", 6, 2, 4),
        ("overlap", 4, 2, 2),
        ("gold", 2, 0, 2),
        ("tests", 2, 0, 2),
    ]
    assert card["overlap"]["num_removed"] == 2 and card["overlap"]["num_boilerplate"] == 0
    assert card["overlap"]["benchmarks"]["bench"] == {"num_removed": 2, "num_boilerplate": 0}
    assert sum(card["licences"]["acereason_math"].values()) == 2


def test_boilerplate_removals_are_counted_and_a_stop_list_spares_them(place):
    phrase = "where m and n are relatively prime positive integers find the sum"
    items = [Problem(f"g-{i}", f"Item {i} is a fraction {phrase} {i}.", "1") for i in range(3)]
    write_problems(items, place / "bench.jsonl")
    write_lines(
        place / "maths.jsonl",
        [
            {"problem": f"The ratio of areas is m/n {phrase} of m and n.", "answer": "5"},
            {"problem": "What is 1 + 1?", "answer": "2"},
        ],
    )
    card = card_of(run(place, "out", [MATHS_SOURCE]))
    assert (card["overlap"]["num_removed"], card["overlap"]["num_boilerplate"]) == (1, 1)
    card = card_of(run(place, "stopped", [MATHS_SOURCE], stop_more_than=2))
    assert card["overlap"]["num_removed"] == 0 and card["overlap"]["num_stopped"] > 0
    assert card["num_kept"] == 2


@pytest.fixture
def thoughts(place):
    rows = [
        thought("What is 2 + 2?", "<think>a</think>4"),
        thought("What is 3 + 3?", "<think>a</think>6"),
        thought("What is 2 + 2?", "<think>b</think>4"),
        thought("what is 2+2?", "<think>b</think>4"),  # the same response again
        thought(ITEM, "<think>c</think>9!"),
    ]
    write_lines(place / "first.jsonl", rows)
    write_lines(place / "second.jsonl", [thought("What is 2 + 2 ?", "<think>z</think>4")])
    return place


THOUGHTS = [
    {"name": "openthoughts3", "location": f"{name}.jsonl", "alias": name}
    for name in ("first", "second")
]


def test_rows_of_one_problem_and_source_give_it_their_responses(thoughts):
    write_lines(thoughts / "third.jsonl", [thought("What is 5?", "<think></think>5")])
    out = run(thoughts, "out", THOUGHTS, need_gold=False)
    problems = {p.id: p.prompt for p in iter_problems(out / "problems.jsonl")}
    samples = list(read_samples(out / "responses.parquet"))
    assert [int(s.response[-1]) for s in samples] == [4, 6, 4]
    assert all(s.problem_id in problems and s.is_correct is None for s in samples)
    assert {s.teacher for s in samples} == {"QwQ-32B"}
    first, second = (card_of(out)["responses"][name] for name in ("first", "second"))
    assert (second["num_kept"], second["num_merged"], second["num_rejected"]) == (0, 0, 1)
    assert first["num_given"] == 5 and first["num_kept"] == 2
    assert (first["num_merged"], first["num_repeated"], first["num_rejected"]) == (1, 1, 1)


def test_problems_without_gold_are_kept_for_sft_and_rejected_for_rl(thoughts):
    with pytest.raises(ValueError, match="no problem is left"):
        run(thoughts, "out", THOUGHTS)
    write_lines(thoughts / "maths.jsonl", MATHS)
    out = run(thoughts, "both", [*THOUGHTS, MATHS_SOURCE])
    reasons = [r["reason"] for r in read_lines(out / "rejects.jsonl") if r["source"] == "first"]
    assert reasons == ["no_gold"] * 4 + ["overlap"]
    # A row that is rejected leaves its place to a usable one with the same question.
    kept = [p.prompt for p in iter_problems(out / "problems.jsonl")]
    assert kept[0] == "What is 2 + 2?"


def kinds(out: Path) -> set[str]:
    return {duplicate_key(p.prompt).decode() for p in iter_problems(out / "problems.jsonl")}


def test_order_changes_nothing_but_which_copy_is_first(place):
    """Copies in which only one has the overlap, the tests or the gold come in every order."""
    marked = ITEM.replace(" ten ", " $ten$ ")  # the same prompt in other characters
    code = [program("Echo.", n) for n in (2, 16, 30)] + [program(ITEM, 16), program("Twice.", 4)]
    maths = [*MATHS, {"problem": marked, "answer": "1"}, {"problem": ITEM, "answer": "1"}]
    found, fates = [], []
    for seed in range(4):
        shuffle = random.Random(seed)
        shuffle.shuffle(maths)
        shuffle.shuffle(code)
        write_lines(place / "maths.jsonl", maths)
        write_lines(place / "code.jsonl", code)
        sources = [MATHS_SOURCE, CODE_SOURCE]
        shuffle.shuffle(sources)
        out = run(place, f"out{seed}", sources)
        found.append(kinds(out))
        rejects = [r for r in read_lines(out / "rejects.jsonl") if r["reason"] == "overlap"]
        fates.append(sorted((r["source"], r["detail"]) for r in rejects))
    assert found[0] and all(kind == found[0] for kind in found)
    assert duplicate_key(ITEM).decode() not in found[0]
    assert fates[0] and all(fate == fates[0] for fate in fates)


def test_equal_inputs_give_equal_bytes(mixed):
    first, other = (run(mixed, f"by{n}", [MATHS_SOURCE, CODE_SOURCE]) for n in (1, 2))
    for file in OUTPUTS:
        assert (other / file).read_bytes() == (first / file).read_bytes()


@pytest.mark.parametrize("last", [0, 6, 11])
def test_a_run_that_was_killed_starts_anew_and_ends_as_the_whole_one(mixed, monkeypatch, last):
    sources = [MATHS_SOURCE, CODE_SOURCE]
    whole = run(mixed, "whole", sources)
    real, taken = module._Pass.take, []

    def dies(self, *row):
        taken.append(row)
        if len(taken) > last:
            raise KeyboardInterrupt
        real(self, *row)

    with monkeypatch.context() as patch:
        patch.setattr(module._Pass, "take", dies)
        with pytest.raises(KeyboardInterrupt):
            run(mixed, "killed", sources)
    assert not (mixed.parent / "killed" / "card.json").exists()
    out = run(mixed, "killed", sources, finishes=True)
    assert {path.name for path in out.iterdir()} == {*OUTPUTS, "done.json", "progress.json"}
    for file in OUTPUTS:
        assert (out / file).read_bytes() == (whole / file).read_bytes()
