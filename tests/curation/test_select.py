"""Each filter of the selection against samples by hand; counts, judging, coverage."""

import json
from dataclasses import asdict

import numpy as np
import pytest

from klearlib.curation import select as module
from klearlib.curation.labels import judge_samples
from klearlib.curation.pass_rates import RATES, PassRate
from klearlib.curation.select import select
from klearlib.data.lines import read_lines, write_lines
from klearlib.data.problems import write_problems
from klearlib.data.tables import Sample, read_samples, write_samples
from klearlib.errors import Stopped
from klearlib.records import NOT_JUDGED, Problem, TestCase, Verdict
from klearlib.run.folder import RunFolder

HOW = {
    "sources": None,
    "difficulty": "overall",
    "easy_from": None,
    "wrong_share": None,
    "size": None,
    "embedding": None,
    "test_timeout_s": 2.0,
    "test_memory_mb": 256,
}
TFIDF = {"text": "prompt", "dim": 64, "seed": 0}
SQUARE = Problem(
    "c", "Print the square.", tests=tuple(TestCase(str(n * n), stdin=str(n)) for n in range(3))
)
PROBLEMS = [
    Problem("a", "Two and two?", "4", source="x"),
    Problem("b", "Three and three?", "6", source="y"),
    SQUARE,
    Problem("d", "Why?", source="z"),
]


def answer(number: object) -> str:
    return rf"<think>so</think>\boxed{{{number}}}"


def code(line: str) -> str:
    return f"<think>so</think>\n```python\n{line}\n```\n"


RIGHT, WRONG = code("print(int(input()) ** 2)"), code("print(int(input()) * 2)")
SAMPLES = [
    Sample("a", PROBLEMS[0].prompt, answer(4), "x", "t", True),
    Sample("a", PROBLEMS[0].prompt, answer(4), "x", "t", False),  # its label stays
    Sample("a", PROBLEMS[0].prompt, answer(5), "x", "t"),
    Sample("b", PROBLEMS[1].prompt, "no tags: \\boxed{6}", "y", ""),
    Sample("b", PROBLEMS[1].prompt, r"template's tag</think>\boxed{6}", "y", "u"),
    Sample("b", PROBLEMS[1].prompt, r"<think>\boxed{6}", "y", "u"),  # never ends
    Sample("b", PROBLEMS[1].prompt, answer(6), "y", "u", None, "timeout"),
    Sample("c", SQUARE.prompt, RIGHT, "z", "u"),
    Sample("c", SQUARE.prompt, WRONG, "z", "u"),
    Sample("d", PROBLEMS[3].prompt, "because", "z", "u"),
]
LABELS = [True, False, False, True, True, False, None, True, False, None]


@pytest.fixture
def inputs(tmp_path):
    found = {name: tmp_path / name for name in ("problems", "responses", "reference")}
    for folder in found.values():
        folder.mkdir()
    write_problems(PROBLEMS, found["problems"] / "problems.jsonl")
    write_samples(SAMPLES, found["responses"] / "responses.parquet")
    licences = {"licences": {"x": {"mit": 1}, "y": {"cc": 1}, "w": {"cc": 3}}}
    (found["problems"] / "card.json").write_text(json.dumps(licences))
    rates = {"a": (4, 0), "b": (1, 2), "c": (2, 0), "d": (0, 0)}
    rows = (asdict(PassRate(name, 4, *counts)) for name, counts in rates.items())
    write_lines(rows, found["reference"] / RATES)
    return found


def run(inputs, tmp_path, name="out", **changes):
    select(RunFolder(tmp_path / name), inputs, **HOW | changes)
    out = tmp_path / name
    samples = list(read_samples(out / "examples.parquet"))
    card = json.loads((out / "card.json").read_text())
    rejects = [(r["row"], r["reason"]) for r in read_lines(out / "rejects.jsonl")]
    assert card["num_read"] == len(SAMPLES) == len(samples) + len(rejects)
    assert sum(card["labels"].values()) == card["num_kept"] == len(samples)
    for row in card["funnel"]:
        assert row["num_in"] - row["num_removed"] == row["num_out"]
    return samples, card, rejects


def test_without_filters_all_stays_in_order_and_nothing_is_judged(inputs, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "judge_samples", None)
    samples, card, rejects = run(inputs, tmp_path)
    assert samples == SAMPLES and not rejects
    assert card["labels"] == {"correct": 1, "no label": 7, "not judged": 1, "wrong": 1}
    assert card["licences"] == {"x": {"mit": 1}, "y": {"cc": 1}}
    assert card["teachers"] == {"t": 3, "": 1, "u": 6}


def test_correct_keeps_the_labels_of_the_source_and_judges_the_others(inputs, tmp_path):
    samples, card, rejects = run(inputs, tmp_path, wrong_share=0.0)
    assert [s.response for s in samples] == [
        s.response for s, label in zip(SAMPLES, LABELS, strict=True) if label
    ]
    assert [s.reason for s in samples] == ["", "correct", "correct", "correct"]
    assert rejects == [
        (1, "wrong"),
        (2, "wrong"),
        (5, "wrong"),
        (6, "not judged"),
        (8, "wrong"),
        (9, "no label"),
    ]
    details = {r["row"]: r["detail"] for r in read_lines(tmp_path / "out" / "rejects.jsonl")}
    assert details[1] == "label of the source" and details[5] == "bad_format"
    assert details[6] == "timeout" and details[2] == details[8] == "wrong"
    assert card["sources"]["y"] == {
        "num_read": 4,
        "num_kept": 2,
        "rejected": {"not judged": 1, "wrong": 1},
    }


@pytest.mark.parametrize("reason", NOT_JUDGED)
def test_what_the_judge_could_not_decide_here_is_not_wrong(inputs, tmp_path, monkeypatch, reason):
    def judge(samples, problems, **_):
        return [Verdict(False, reason) for _ in samples]

    monkeypatch.setattr(module, "judge_samples", judge)
    samples, _, rejects = run(inputs, tmp_path, wrong_share=0.0)
    assert samples == SAMPLES[:1]
    assert [word for _, word in rejects] == ["wrong"] + ["not judged"] * 8


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (r"\boxed{6}", "correct"),  # by hand
        (r"so</think>\boxed{6}", "correct"),  # the template opened the thought
        (r"<think>so</think>\boxed{6}", "correct"),
        (r"</think><think>so</think>\boxed{6}", "correct"),
        (r"\boxed{6}</think>\boxed{7}", "wrong"),
        (r"<think>\boxed{6}", "bad_format"),
        (r"</think><think>\boxed{6}", "bad_format"),  # what stands before ends no thought
        (r"so</think>wait<think>\boxed{6}", "bad_format"),
    ],
)
def test_a_response_is_judged_as_it_stands(response, reason):
    problems = {"b": PROBLEMS[1], "c": SQUARE}
    limits = {"test_timeout_s": 2.0, "test_memory_mb": 256}
    (verdict,) = judge_samples([Sample("b", "?", response)], problems, **limits)
    assert verdict.reason == reason
    programs = {r"\boxed{6}": "print(int(input()) ** 2)", r"\boxed{7}": "print(7)"}
    for box, line in programs.items():
        response = response.replace(box, f"\n```python\n{line}\n```\n")
    (verdict,) = judge_samples([Sample("c", "?", response)], problems, **limits)
    assert verdict.reason == reason


@pytest.mark.parametrize("difficulty, kept, unknown", [("easy", ["a", "c"], 4), ("hard", ["d"], 4)])
def test_difficulty_is_the_references(inputs, tmp_path, difficulty, kept, unknown):
    samples, _, _ = run(inputs, tmp_path, difficulty=difficulty, easy_from=0.5)
    assert list(dict.fromkeys(s.problem_id for s in samples)) == kept
    details = [r["detail"] for r in read_lines(tmp_path / "out" / "rejects.jsonl")]
    assert details.count("unknown") == unknown


def test_sources(inputs, tmp_path):
    samples, card, rejects = run(inputs, tmp_path, sources=["x", "z"])
    assert [s.source for s in samples] == ["x", "x", "x", "z", "z", "z"]
    assert rejects[0] == (3, "another source")
    assert card["sources"]["y"]["rejected"] == {"another source": 4}
    with pytest.raises(
        ValueError, match="no response belongs to a problem of w: choose from x, y, z"
    ):
        run(inputs, tmp_path, "none", sources=["x", "w"])


def test_size_covers_before_it_repeats_and_equals_the_greedy_choice(inputs, tmp_path):
    samples, _, rejects = run(inputs, tmp_path, size=4, embedding=TFIDF)
    assert [s.problem_id for s in samples] == ["a", "b", "c", "d"]
    assert samples[0] == SAMPLES[0]
    assert {reason for _, reason in rejects} == {"covered by others"}
    seen = []

    def embed(texts, **how):
        seen.append((list(texts), how))
        return np.arange(float(len(seen[-1][0])))[:, None]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("klearlib.curation.embeddings.hashed_tfidf", embed)
        both = TFIDF | {"text": "both"}
        samples, _, _ = run(inputs, tmp_path, "line", sources=["x", "y"], size=3, embedding=both)
    ((texts, how),) = seen
    assert texts == [f"{s.prompt}\n{s.response}" for s in SAMPLES[:7]]
    assert how == {"dim": 64, "seed": 0}
    # On the line 0 .. 6 the farthest from 0 is 6, then 3.
    assert [s.response for s in samples] == [SAMPLES[i].response for i in (0, 3, 6)]


def test_all_that_are_left_are_taken_when_the_size_is_their_number(inputs, tmp_path):
    samples, _, _ = run(inputs, tmp_path, size=len(SAMPLES), embedding=TFIDF)
    assert samples == SAMPLES
    for share, size, words in (
        (0.0, 5, "size 5 needs 5 responses, but only 4 pass"),
        (0.5, 10, "size 10 needs 5 correct responses, but only 4 pass"),
        (0.8, 8, "size 8 needs 6 wrong responses, but only 4 pass"),
        (0.1, 3, "size 3 at a wrong share of 0.1 has no wrong responses: raise size"),
    ):
        with pytest.raises(ValueError, match=words):
            run(inputs, tmp_path, "more", wrong_share=share, size=size, embedding=TFIDF)


def test_of_a_share_of_wrong_responses_right_and_wrong_are_chosen_each_by_itself(
    inputs, tmp_path, monkeypatch
):
    line = np.array([0.0, 1, 2, 5, 6, 3, 7, 9])  # of the responses with a label
    monkeypatch.setattr(
        "klearlib.curation.embeddings.hashed_tfidf", lambda texts, **how: line[:, None]
    )
    labelled = [i for i, label in enumerate(LABELS) if label is not None]
    places = dict(zip(labelled, line, strict=True))
    right = [i for i in labelled if LABELS[i]]  # at 0, 5, 6, 7
    wrong = [i for i in labelled if not LABELS[i]]  # at 1, 2, 3, 9
    assert [places[i] for i in right + wrong] == [0, 5, 6, 7, 1, 2, 3, 9]
    samples, card, _ = run(inputs, tmp_path, wrong_share=0.4, size=5, embedding=TFIDF)
    # Of the right ones 0, the farthest 7, then 5 at a distance of 2; of the wrong ones 1 and 9.
    chosen = {right[0], right[3], right[1], wrong[0], wrong[3]}
    assert [s.response for s in samples] == [SAMPLES[i].response for i in sorted(chosen)]
    assert card["labels"] == {"correct": 3, "wrong": 2}


def test_a_stop_while_judging_leaves_nothing_and_the_next_run_starts_anew(
    inputs, tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "_CHUNK", 2)
    how = HOW | {"wrong_share": 0.0}
    with pytest.raises(Stopped, match="of 10 responses; run again"):
        select(RunFolder(tmp_path / "out", stop_requested=lambda: True), inputs, **how)
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"progress.json"}
    samples, _, _ = run(inputs, tmp_path, wrong_share=0.0)
    assert len(samples) == 4


def test_filters_that_leave_nothing_are_named(inputs, tmp_path):
    with pytest.raises(ValueError, match="no response passes the filters"):
        run(inputs, tmp_path, difficulty="middle", easy_from=0.5)
