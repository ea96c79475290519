"""From groups to the rows that train: filters, mini-batches, alignment of every number."""

import math
from dataclasses import replace

import pytest
from rollout_fakes import group, row, settings

from klearlib.policy.batch_plan import BatchPlan
from klearlib.records import Problem, Response, TestCase
from klearlib.rl.rollouts import form_batch, micro_batches, mini_batches
from klearlib.verify.groups import judge_groups

GROUPS = [
    group(0, [1.0, 1.0, 1.0], correct=[True] * 3),
    group(1, [1.0, -1.0, -1.0]),
    group(2, [0.25, 0.5, 0.25], correct=[False] * 3),
    group(3, [-1.0, -1.0, -1.0]),
    group(4, [-1.0, 1.0, 1.0]),
]


@pytest.mark.parametrize(
    ("filter_name", "kept"),
    [
        ("off", [True, True, True, True, True]),
        ("advantage", [False, True, True, False, True]),
        ("accuracy", [False, True, False, False, True]),
    ],
)
def test_filters(filter_name, kept):
    batch = form_batch(GROUPS, settings(zero_advantage_filter=filter_name))
    assert batch.kept_groups.tolist() == kept
    assert batch.kept_rollouts.all()
    # The advantages themselves know nothing of the filter.
    root = math.sqrt(2)
    assert batch.advantages[1].tolist() == pytest.approx([root, -1 / root, -1 / root])
    assert batch.advantages[4].tolist() == pytest.approx([-root, 1 / root, 1 / root])
    assert batch.advantages[0].tolist() == batch.advantages[3].tolist() == [0.0] * 3


def test_group_std_and_epsilon_reach_the_advantages():
    batch = form_batch(GROUPS, settings(group_std="unbiased", group_epsilon=0.5))
    # mean -1/3, unbiased std sqrt(4/3)
    std = math.sqrt(4 / 3) + 0.5
    expected = [(4 / 3) / std, (-2 / 3) / std, (-2 / 3) / std]
    assert batch.advantages[1].tolist() == pytest.approx(expected)
    plain = form_batch(GROUPS, settings(group_std="none"))
    assert plain.advantages[1].tolist() == pytest.approx([4 / 3, -2 / 3, -2 / 3])


def test_drop_truncated_takes_rollouts_out_of_statistics_and_training():
    cut = [False, False, True]
    groups = [
        group(0, [1.0, 0.0, -1.0], truncated=cut),
        group(1, [1.0, 1.0, -1.0], truncated=cut),
        group(2, [1.0, 0.0, -1.0], truncated=[True] * 3),
    ]
    kept = form_batch(groups, settings(drop_truncated=True))
    assert kept.advantages.tolist() == [[1.0, -1.0, 0.0], [0.0] * 3, [0.0] * 3]
    assert kept.kept_groups.tolist() == [True, False, False]
    rows = [r for part in batches(kept, 1) for r in part]
    assert [r.ids[-1] for r in rows] == [1, 102]
    all_of_them = form_batch(groups, settings(drop_truncated=False))
    assert all_of_them.advantages[0].tolist() == pytest.approx([math.sqrt(1.5), 0, -math.sqrt(1.5)])
    assert len([r for part in batches(all_of_them, 1) for r in part]) == 9

    # Correct, correct and a truncated wrong one: what is left agrees, so nothing is learnt.
    how = {"drop_truncated": True, "zero_advantage_filter": "accuracy"}
    assert form_batch(groups, settings(**how)).kept_groups.tolist() == [True, False, False]
    off = form_batch(groups, settings(drop_truncated=True, zero_advantage_filter="off"))
    assert [len(part) for part in batches(off, 1)] == [2, 2]


def batches(batch, mini_batch_problems, positives="verdict"):
    how = {"mini_batch_problems": mini_batch_problems, "positives": positives}
    return mini_batches(batch, settings(**how))


@pytest.mark.parametrize("mini_batch_problems", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("num_groups", [1, 2, 3, 5, 8, 11, 13])
def test_mini_batches_split_evenly_and_lose_nothing(num_groups, mini_batch_problems):
    groups = [group(i, [1.0, -1.0]) for i in range(num_groups)]
    batch = form_batch(groups, settings())
    parts = batches(batch, mini_batch_problems)
    assert len(parts) == math.ceil(num_groups / mini_batch_problems)
    sizes = [len(part) // 2 for part in parts]
    assert max(sizes) <= mini_batch_problems and max(sizes) - min(sizes) <= 1
    # Each response once, in the order in which the problems were drawn.
    assert [r.ids[-1] // 100 for part in parts for r in part] == [
        10 * i + j for i in range(num_groups) for j in range(2)
    ]


def test_only_kept_groups_are_split():
    parts = batches(form_batch(GROUPS, settings()), 2)
    assert [[r.ids[-1] // 1000 for r in part] for part in parts] == [[1] * 3 + [2] * 3, [4] * 3]
    assert batches(form_batch([GROUPS[0], GROUPS[3]], settings()), 2) == []


def test_rows_carry_what_belongs_to_their_response():
    (part,) = batches(form_batch([GROUPS[4]], settings()), 2)
    root = math.sqrt(2)
    assert [r.ids.tolist() for r in part] == [
        [7, 8, 9, 10, 11, 12, 13, 4000, 4001],
        [7, 8, 9, 10, 11, 12, 13, 4100, 4101, 4102],
        [7, 8, 9, 10, 11, 12, 13, 4200, 4201, 4202, 4203],
    ]
    assert {r.num_prompt for r in part} == {7}
    assert part[1].logp_old.tolist() == pytest.approx([-4.1, -4.101, -4.102])
    assert [r.advantage for r in part] == pytest.approx([-root, 1 / root, 1 / root])
    assert [r.is_correct for r in part] == [False, True, True]


def test_positives_by_verdict_or_by_reward():
    mixed = group(0, [0.5, 1.0, -1.0, 1.0], correct=[True, True, False, False])
    batch = form_batch([mixed], settings())
    by_verdict, by_reward = batches(batch, 1)[0], batches(batch, 1, "reward_is_one")[0]
    assert [r.is_correct for r in by_verdict] == [True, True, False, False]
    assert [r.is_correct for r in by_reward] == [False, True, False, True]


def test_response_tokens_keep_their_numbers_and_weigh_their_share():
    rows = [
        row([5, 6, 7, 8], 2, logp_old=(-0.7, -0.8), advantage=1.5, is_correct=True),
        row([1, 2, 3, 4, 9, 10], 3, logp_old=(-0.4, -0.9, -1.0), advantage=-2.0, is_correct=False),
        row([11, 12], 1, logp_old=(-0.12,), correction=(0.5,), advantage=0.0, is_correct=True),
    ]
    plan = BatchPlan(100, "fp32")
    ((part, batch),) = micro_batches(rows, settings(), plan, device="cpu")
    assert [line.num_prompt for line in part] == [1, 2, 3]  # by rising length
    expected = {
        "logp_old": [-0.12, -0.7, -0.8, -0.4, -0.9, -1.0],
        "advantage": [0.0, 1.5, 1.5, -2.0, -2.0, -2.0],
        "place": [0, 0, 1, 0, 1, 2],
        "weight": [1 / 6] * 6,
        "lm_weight": [1 / 3, 1 / 3, 1 / 3, 0, 0, 0],
        "correction": [0.5, 1, 1, 1, 1, 1],
    }
    for name, values in expected.items():
        assert getattr(batch, name).tolist() == pytest.approx(values), name
        assert getattr(batch[1:3], name).tolist() == pytest.approx(values[1:3]), name
    by_rollout = settings(normalizer="sequence")
    ((_, batch),) = micro_batches(rows, by_rollout, plan, device="cpu")
    assert batch.weight.tolist() == pytest.approx([1 / 3, *[1 / 6] * 2, *[1 / 9] * 3])


def _response(text: str, prompt: str = "") -> Response:
    return Response("p", prompt, (1,), (2,), (-1.0,), text, False)


JUDGING = {
    "think_tags": "required",
    "format_scores": "penalty",
    "format_penalty": 0.0,
    "code_reward": "soft",
    "code_scores": "pass_rate",
    "hard_failure": -1.0,
    "test_timeout_s": 2.0,
    "test_memory_mb": 256,
}


@pytest.mark.parametrize(
    ("rule", "first", "second"),
    [
        ({"format_penalty": 0.5}, (1.0, -1.0, -1.5), (-1.0, 1.0, -1.5)),
        ({"format_scores": "released"}, (1.0, -1.0, -0.5), (-1.0, 1.0, -2.0)),
        ({"think_tags": "optional", "format_penalty": 0.5}, (1.0, -1.0, 1.0), (-1.0, 1.0, 1.0)),
    ],
)
def test_judging_pays_each_response_by_its_own_problem(rule, first, second):
    problems = [Problem("a", "?", "4"), Problem("b", "?", ("5", "7"))]
    texts = [
        [r"<think>x</think>\boxed{4}", r"<think>x</think>\boxed{5}", r"\boxed{4}"],
        [r"<think>x</think>\boxed{4}", r"<think>x</think>\boxed{7}", r"x</think>\boxed{5}"],
    ]
    responses = [[_response(text) for text in group] for group in texts]
    found = judge_groups(problems, responses, **JUDGING | rule)
    assert [g.problem.id for g in found] == ["a", "b"]
    assert [g.rewards for g in found] == [first, second]
    assert [v.correct for g in found for v in g.verdicts] == [r > 0 for r in first + second]
    opened = [[_response(r"x</think>\boxed{4}", prompt="assistant\n<think>\n")]]
    assert judge_groups(problems[:1], opened, **JUDGING | rule)[0].rewards == (1.0,)


@pytest.mark.parametrize(
    ("rule", "rewards"),
    [
        ({}, (-1.0, -1.0)),
        ({"answer_form": "equivalent"}, (1.0, -1.0)),
        ({"truncated": "as_text"}, (-1.0, 1.0)),
    ],
)
def test_a_restated_question_and_an_endless_response_are_paid_by_the_older_rules(rule, rewards):
    endless = replace(_response(r"<think>x</think>\boxed{4} so so"), truncated=True)
    responses = [[_response(r"<think>x</think>\boxed{2+2}"), endless]]
    (found,) = judge_groups([Problem("a", "2+2?", "4")], responses, **JUDGING | rule)
    assert found.rewards == rewards


def test_a_problem_without_an_answer_or_with_both_is_refused():
    both = Problem("a", "?", "4", tests=(TestCase("1", stdin=""),))
    for problem, words in ((Problem("a", "?"), "neither an answer nor tests"), (both, "both")):
        with pytest.raises(ValueError, match=f"'a' has {words}"):
            judge_groups([problem], [[_response("x")]], **JUDGING)


def _program(source: str) -> str:
    return f"<think>x</think>\n```python\n{source}\n```"


TESTS = tuple(TestCase(stdin=str(n), expected=str(n % 4)) for n in range(1, 9))


def test_code_and_mathematics_in_one_batch():
    """Soft, hard and released rewards, each group in its own order."""
    problems = [Problem("c", "?", tests=TESTS), Problem("m", "?", "4")]
    texts = [
        [_program("print(int(input()) % 4)"), _program("print(1)"), "print(1)"],
        [r"<think>x</think>\boxed{5}", r"<think>x</think>\boxed{4}", r"\boxed{4}"],
    ]
    responses = [[_response(text) for text in group] for group in texts]
    penalty = {"format_penalty": 0.5}
    code, maths = judge_groups(problems, responses, **JUDGING | penalty)
    assert code.rewards == (1.0, 0.25, -0.5) and maths.rewards == (-1.0, 1.0, -1.5)
    assert [v.correct for v in code.verdicts] == [True, False, False]
    assert [v.reason for v in code.verdicts] == ["correct", "wrong", "bad_format"]
    code, _ = judge_groups(problems, responses, **JUDGING | {"code_reward": "hard"})
    assert code.rewards == (1.0, -1.0, -1.0)
    code, maths = judge_groups(problems, responses, **JUDGING | {"code_scores": "released"})
    assert code.rewards == (1.0, -0.5, -0.5) and maths.rewards == (-1.0, 1.0, -1.0)


def test_another_seed_chooses_other_tests():
    """docs/deviations.md, D10."""
    problem, responses = Problem("c", "?", tests=TESTS), [[_response(_program("print(1)"))]]
    outcomes = {
        judge_groups([problem], responses, **JUDGING, max_tests=4, tests_seed=seed)[0]
        .verdicts[0]
        .report.outcomes
        for seed in range(4)
    }
    assert {*map(len, outcomes)} == {4} and len(outcomes) > 1
