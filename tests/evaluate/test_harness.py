"""Evaluation keeps everything it measured, in the right places, through saving and loading."""

import dataclasses

import numpy as np
import pytest

from klearlib.data.problems import read_problems
from klearlib.errors import DamagedEntry
from klearlib.evaluate import harness
from klearlib.evaluate.harness import Measurement, evaluate, evaluate_all
from klearlib.evaluate.record_files import load_record, save_record
from klearlib.policy.compute import local_compute
from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.engines import TransformersEngine
from klearlib.policy.load import load_policy
from klearlib.policy.sampling import sample_groups
from klearlib.records import EvalRecord, Problem, Response, TestCase
from klearlib.verify.answers import verify_answer

SETTINGS = SamplingSettings(temperature=0.6, top_p=0.95, top_k=0, max_tokens=40, seed=7)
LIMITS = {"test_timeout_s": 2.0, "test_memory_mb": 256}


@pytest.fixture(scope="module")
def measured(tiny_stages):
    """One real evaluation: policy, problems, record."""
    model, tokenizer = load_policy(tiny_stages.sft / "model", device="cpu")
    problems = read_problems(tiny_stages.world / "math_a.jsonl", expected_size=30)
    engine = TransformersEngine(model, tokenizer, local_compute())
    record = evaluate(
        engine, problems, benchmark="math_a", num_responses=3, settings=SETTINGS, **LIMITS
    )
    return model, tokenizer, problems, record


def test_record_is_what_sampling_and_judging_say(measured):
    model, tokenizer, problems, record = measured
    groups = sample_groups(model, tokenizer, problems, group_size=3, settings=SETTINGS)
    assert record.benchmark == "math_a"
    assert record.problem_ids == tuple(f"math_a-{index}" for index in range(30))
    assert record.correct.shape == (30, 3) and record.correct.dtype == np.bool_
    for row, (problem, group) in enumerate(zip(problems, groups, strict=True)):
        for column, response in enumerate(group):
            flag = {"prompt": response.prompt, "truncated": response.truncated}
            verdict = verify_answer(response.text, problem.answer, **flag)
            assert record.correct[row, column] == verdict.correct
            assert record.reason[row, column] == verdict.reason
            assert record.num_tokens[row, column] == len(response.token_ids)
            assert record.truncated[row, column] == response.truncated
            assert record.pass_rate[row, column] == verdict.correct
            assert record.found[row, column] == (verdict.found or "")
    assert 0 < record.correct.mean() < 1, "the test needs right and wrong responses"
    drawn = {"temperature": 0.6, "top_p": 0.95, "top_k": 0, "max_tokens": 40, "seed": 7}
    how = {"repetition_penalty": 1.0, "engine": "transformers", "precision": "fp32"}
    assert record.sampling == drawn | how | {"num_responses": 3}


class Canned:
    """An engine that answers by a function."""

    def __init__(self, sample_groups):
        self.sample_groups = sample_groups
        self.setting = {"engine": "canned", "precision": "fp32"}


def test_benchmarks_are_sampled_one_after_the_other_and_judged_in_one_batch(monkeypatch):
    seeds, calls = (1, 2, 1), ["ab", "c", "de"]
    problems = [Problem(name, f"What is {name}?", "4") for name in "abcde"]
    parts = {"one": problems[:2], "two": problems[2:3], "three": problems[3:]}
    asked, judged, real = [], [], harness.judge_responses

    def canned(problems, *, group_size, settings):
        asked.append("".join(problem.id for problem in problems))
        return [
            [
                Response(
                    problem_id=problem.id,
                    prompt="<think>",
                    prompt_ids=(1,),
                    token_ids=(2,) * (ord(problem.id) + index + 10 * settings.seed),
                    logp=(-1.0,),
                    text=f"</think>\\boxed{{{4 if problem.id in 'ad' else index}}}",
                    truncated=False,
                )
                for index in range(group_size)
            ]
            for problem in problems
        ]

    def judge(problems, responses, **how):
        judged.append(len(problems))
        return real(problems, responses, **how)

    monkeypatch.setattr(harness, "judge_responses", judge)
    measurements = [
        Measurement(name, part, 3, dataclasses.replace(SETTINGS, seed=seed))
        for (name, part), seed in zip(parts.items(), seeds, strict=True)
    ]
    together = evaluate_all(Canned(canned), measurements, **LIMITS)
    assert asked == calls and judged == [5]
    for (name, part), seed, record in zip(parts.items(), seeds, together, strict=True):
        assert record.benchmark == name and record.sampling["seed"] == seed
        assert record.problem_ids == tuple(problem.id for problem in part)
        firsts = [ord(problem.id) + 10 * seed for problem in part]
        assert record.num_tokens.tolist() == [[n, n + 1, n + 2] for n in firsts]
        assert record.correct.all(axis=1).tolist() == [p.id in "ad" for p in part]


def test_programs_are_judged_by_all_tests_and_keep_their_pass_rates():
    programs = ["print(int(input()) * 2)", "print(4)", "print(", "no program"]
    blocks = [f"<think>x</think>\n```python\n{p}\n```" for p in programs[:3]]

    def canned(problems, *, group_size, settings):
        texts = [*blocks, f"<think>x</think>{programs[3]}"]
        return [[Response("a", "?", (1,), (2,), (-1.0,), text, False) for text in texts]]

    tests = tuple(TestCase(stdin=str(n), expected=str(2 * n)) for n in (2, 3, 5, 7))
    record = evaluate(
        Canned(canned),
        [Problem("a", "?", tests=tests)],
        benchmark="x",
        num_responses=4,
        settings=SETTINGS,
        **LIMITS,
    )
    assert record.correct.tolist() == [[True, False, False, False]]
    assert record.pass_rate.tolist() == [[1.0, 0.25, 0.0, 0.0]]
    assert record.reason.tolist() == [["correct", "wrong", "wrong", "no_answer"]]


def assert_equal_records(a: EvalRecord, b: EvalRecord) -> None:
    assert (a.benchmark, a.problem_ids, a.sampling) == (b.benchmark, b.problem_ids, b.sampling)
    for name in ("correct", "truncated", "num_tokens", "reason", "pass_rate", "found"):
        found, expected = getattr(a, name), getattr(b, name)
        assert found.dtype == expected.dtype and np.array_equal(found, expected)


def test_round_trip_and_equal_bytes(measured, tmp_path):
    record = measured[3]
    for name in ("a", "b"):
        save_record(record, tmp_path / name / "math_a-00010.npz")
        assert_equal_records(load_record(tmp_path / name / "math_a-00010.npz"), record)
        assert [path.name for path in (tmp_path / name).iterdir()] == ["math_a-00010.npz"]
    one, two = ((tmp_path / name / "math_a-00010.npz").read_bytes() for name in "ab")
    assert one == two


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 97])
def test_cut_off_file_is_damaged_at_any_length(measured, tmp_path, step):
    path = tmp_path / "x-00001.npz"
    save_record(measured[3], path)
    content = path.read_bytes()
    for length in range(0, len(content), step):
        path.write_bytes(content[:length])
        with pytest.raises(DamagedEntry, match="delete its run folder"):
            load_record(path)
