"""Responses and pass rates of a real tiny model: its own responses, judged one by one."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from klearlib.curation import responses as module
from klearlib.curation.labels import labelled
from klearlib.curation.pass_rates import RATES, read_pass_rates
from klearlib.curation.responses import CARD, RESPONSES, respond
from klearlib.data.problems import read_problems, write_problems
from klearlib.data.tables import Sample, read_samples
from klearlib.errors import Stopped
from klearlib.policy.compute import local_compute
from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.engines import TransformersEngine
from klearlib.policy.load import load_policy
from klearlib.policy.sampling import sample_groups
from klearlib.records import NOT_JUDGED, Response, Verdict
from klearlib.run.folder import RunFolder
from klearlib.run.seeding import derive_seed
from klearlib.verify.answers import verify_answer

HOW = {
    "seed": 3,
    "problems": "train.jsonl",
    "teacher": "tiny",
    "num_responses": 4,
    "temperature": 1.0,
    "top_p": 1.0,
    "max_new_tokens": 40,
    "test_timeout_s": 2.0,
    "test_memory_mb": 256,
    "compute": asdict(local_compute()),
}
RESULTS = (RESPONSES, RATES, CARD)


@pytest.fixture
def inputs(tiny_stages, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 24)
    return {"problems": tiny_stages.world, "model": tiny_stages.sft}


def results(path: Path) -> dict[str, bytes]:
    return {name: (path / name).read_bytes() for name in RESULTS}


def test_rates_and_labels_are_those_of_the_responses(inputs, tmp_path):
    folder = RunFolder(tmp_path)
    respond(folder, inputs, **HOW)
    rates = read_pass_rates(tmp_path / RATES)
    samples = list(read_samples(tmp_path / RESPONSES))
    problems = read_problems(inputs["problems"] / "train.jsonl")
    assert list(rates) == [problem.id for problem in problems]
    model, tokenizer = load_policy(inputs["model"] / "model")
    place = 0
    for start in (0, 24, 48):
        chosen = problems[start : start + 24]
        settings = SamplingSettings(
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            max_tokens=40,
            seed=derive_seed(3, "responses", "tiny", start),
        )
        groups = sample_groups(model, tokenizer, chosen, group_size=4, settings=settings)
        for problem, group in zip(chosen, groups, strict=True):
            correct = []
            for response in group:
                flag = {"prompt": response.prompt, "truncated": response.truncated}
                verdict = verify_answer(response.text, problem.answer, **flag)
                correct.append(verdict.correct)
                sample = samples[place]
                place += 1
                assert (sample.problem_id, sample.prompt) == (problem.id, problem.prompt)
                assert (sample.response, sample.reason) == (response.text, verdict.reason)
                assert sample.is_correct == verdict.correct
                assert (sample.source, sample.teacher) == (problem.source, "tiny")
            assert rates[problem.id].num_correct == sum(correct)
            assert rates[problem.id].pass_rate == sum(correct) / 4
    assert place == len(samples) == 240
    assert len({rate.num_correct for rate in rates.values()}) > 1
    card = json.loads((tmp_path / CARD).read_text())
    assert card["num_responses"] == sum(card["num_by_reason"].values()) == 240
    assert card["num_by_reason"]["correct"] == sum(rate.num_correct for rate in rates.values())
    assert {file.name for file in tmp_path.iterdir() if file.is_dir()} == set()
    folder.finish()


SMALL = HOW | {"problems": "problems.jsonl", "num_responses": 2, "max_new_tokens": 20}


@pytest.fixture
def small(inputs, tmp_path, monkeypatch):
    """The inputs of runs with three chunks."""
    monkeypatch.setattr(module, "_CHUNK", 6)
    problems = read_problems(inputs["problems"] / "train.jsonl")[:15]
    write_problems(problems, tmp_path / "problems.jsonl")
    return inputs | {"problems": tmp_path}


@pytest.fixture(scope="module")
def whole(tiny_stages, tmp_path_factory):
    """What an unbroken small run gives."""
    path = tmp_path_factory.mktemp("whole")
    problems = read_problems(tiny_stages.world / "train.jsonl")[:15]
    write_problems(problems, path / "problems.jsonl")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CHUNK", 6)
        respond(RunFolder(path), {"problems": path, "model": tiny_stages.sft}, **SMALL)
    return results(path)


def test_a_stopped_run_is_not_done_and_starts_anew(small, whole, tmp_path):
    stopped = RunFolder(tmp_path / "out", stop_requested=lambda: True)
    with pytest.raises(Stopped, match="stopped after 6 of 15 problems; run again to start anew"):
        respond(stopped, small, **SMALL)
    assert not (tmp_path / "out" / CARD).exists()
    last = RunFolder(tmp_path / "out")
    respond(last, small, **SMALL)
    last.finish()
    assert results(tmp_path / "out") == whole
    left = {file.name for file in (tmp_path / "out").iterdir()}
    assert left == {*RESULTS, "done.json", "progress.json"}


def test_two_models_of_the_same_weights_draw_their_own_responses(small, tmp_path):
    """A reference that shared its draws with a teacher would find hard what that one got wrong."""
    texts = []
    for teacher in ("one", "another"):
        respond(RunFolder(tmp_path / teacher), small, **SMALL | {"teacher": teacher})
        texts.append([sample.response for sample in read_samples(tmp_path / teacher / RESPONSES)])
    assert sum(a == b for a, b in zip(*texts, strict=True)) < len(texts[0]) / 2


@pytest.mark.parametrize("reason", NOT_JUDGED)
def test_what_could_not_be_judged_is_not_wrong(small, tmp_path, monkeypatch, reason):
    def judge(problems, groups, **_):
        verdict = Verdict(correct=False, reason=reason)
        return [tuple(replace(verdict) for _ in group) for group in groups]

    monkeypatch.setattr(module, "judge_responses", judge)
    respond(RunFolder(tmp_path), small, **SMALL)
    assert {sample.is_correct for sample in read_samples(tmp_path / RESPONSES)} == {None}
    assert {r.num_not_judged for r in read_pass_rates(tmp_path / RATES).values()} == {2}
    assert json.loads((tmp_path / CARD).read_text())["num_by_reason"][reason] == 30


@pytest.mark.parametrize(("tags", "reason"), [("required", "bad_format"), ("optional", "correct")])
def test_a_teacher_without_think_tags_is_judged_as_rl_is_told(
    small, tmp_path, monkeypatch, tags, reason
):
    def sample_groups(_, problems, **how):
        texts = [f"\\boxed{{{problem.answer}}}" for problem in problems]
        return [[Response("a", "?", (1,), (2,), (-1.0,), text, False)] for text in texts]

    monkeypatch.setattr(TransformersEngine, "sample_groups", sample_groups)
    respond(RunFolder(tmp_path), small, **SMALL, think_tags=tags)
    assert {sample.reason for sample in read_samples(tmp_path / RESPONSES)} == {reason}


def test_a_response_without_an_answer_is_wrong():
    for reason in ("wrong", "no_answer", "bad_format"):
        assert labelled(Sample("a", "?", "5"), Verdict(False, reason)).is_correct is False
