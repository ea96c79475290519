"""The authors' published responses, in the format in which they are released, decide cells of
Table 1."""

from __future__ import annotations

import json

import pytest

from klearlib.errors import KlearError, ParameterError
from klearlib.evaluate.judging import judge_released
from klearlib.experiments.experiment import runs_dir
from klearlib.experiments.headline_pipeline import HeadlineParams
from klearlib.experiments.nb10_headline import Headline
from klearlib.run.folder import RunFolder


@pytest.fixture
def published(project):
    """A function that writes the files, of which so many responses to each problem are right."""

    def write(num_right: int, num_responses: int = 64) -> HeadlineParams:
        golds = {f"Problem {n} of the year?": str(n) for n in range(30)}
        lines = [
            {
                "id": j,
                "meta": {"messages": [], "meta": {"problem": problem, "solution": gold}},
                "messages": [
                    {"role": "user", "content": problem},
                    {
                        "role": "assistant",
                        "content": f"<think>hm</think> \\boxed{{{int(gold) + (j >= num_right)}}}",
                    },
                ],
            }
            for problem, gold in golds.items()
            for j in range(num_responses)
        ]
        known = [{"problem": problem, "answer": gold} for problem, gold in golds.items()]
        for name, rows in (("out.jsonl", lines), ("aime.jsonl", known)):
            (project / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        files = {"responses": "out.jsonl", "problems": "aime.jsonl"}
        return HeadlineParams(released_responses={"aime_2024": files})

    return write


def judge(e: Headline) -> None:
    (stage,) = e.released.values()
    assert stage in e.stages()
    folder = RunFolder(stage.folder(runs_dir()))
    judge_released(folder, {}, **stage.params)
    folder.finish()


@pytest.mark.parametrize(
    ("num_right", "verdict", "words"),
    [
        # 58 of 64 are 90.6 where the paper has 90.5; the other nine numbers are not measured.
        (58, "undecided", "outside its own noise: none"),
        (48, "not reproduced", "outside the noise of all numbers at once: AIME 2024, 64K"),
    ],
)
def test_published_responses_decide_their_cell(published, num_right, verdict, words):
    e = Headline(published(num_right))
    judge(e)
    *_, about = Headline(e.params).verdicts()
    assert (about.claim, about.verdict) == ("C13", verdict) and words in about.reason
    assert "AIME 2024, 64K: the authors' published responses" in about.reason
    (comparison,) = about.comparisons
    assert comparison.difference == pytest.approx(num_right / 64 - 0.905)
    row = (
        Headline(e.params)
        .table("table1")
        .set_index("model")
        .loc["authors' published responses, judged here"]
    )
    assert row["AIME 2024 / maths A"] == f"{100 * num_right / 64:.1f}"
    assert row["AIME 2025 / maths B"] == "" and row["budget"] == "64K"


def test_another_number_of_responses_is_refused(published):
    e = Headline(published(3, num_responses=4))
    with pytest.raises(KlearError, match="64"):
        judge(e)


@pytest.mark.parametrize(
    ("name", "file", "words"),
    [
        ("aime_2024", "none.jsonl", "no file at .*inference_avg64.jsonl.zip"),
        ("livecodebench_v5", "out.jsonl", "one of aime_2024, aime_2025, hmmt_feb_2025"),
    ],
)
def test_what_is_not_there_is_named(published, name, file, words):
    published(1)
    params = HeadlineParams(released_responses={name: {"responses": file, "problems": None}})
    with pytest.raises(ParameterError, match=words):
        Headline(params).stages()
