"""The metrics of a step by hand, and the page that explains every one of them."""

import dataclasses
import json
import math
from collections import Counter

import pytest
import torch
from metric_names import LISTED, METRICS, TIMINGS
from rollout_fakes import group

from klearlib.records import OUTCOMES, Group, TestCase, TestReport, Verdict
from klearlib.rl.coefficients import CORNERS
from klearlib.rl.metrics import UpdateSums, step_metrics
from klearlib.rl.mismatch import Mismatch
from klearlib.rl.rollouts import RolloutBatch


def with_verdicts(base: Group, verdicts: list[Verdict]) -> Group:
    return Group(base.problem, base.responses, tuple(verdicts), base.rewards)


RIGHT = Verdict(True, "correct", "1", found="boxed")
LAST = dataclasses.replace(RIGHT, found="last")
LEFT = Verdict(False, "not_worked_out", "1 + 0", found="boxed")
NO_TAG = Verdict(False, "bad_format", has_think_close=False)
GROUPS = (
    with_verdicts(group(0, [1.0, 1.0], lengths=[3, 5]), [RIGHT, LAST]),
    with_verdicts(group(1, [1.0, -1.5], lengths=[4, 9], truncated=[False, True]), [RIGHT, NO_TAG]),
    with_verdicts(
        group(2, [-1.0, -1.0], lengths=[2, 2]),
        [Verdict(False, "no_answer"), Verdict(False, "timeout")],
    ),
    with_verdicts(group(3, [-1.0, -1.0], lengths=[6, 1]), [LEFT, Verdict(False, "judge_error")]),
)
BATCH = RolloutBatch(
    GROUPS,
    advantages=torch.tensor([[0.0, 0.0], [1.0, -1.0], [0.0, 0.0], [0.0, 0.0]]),
    kept_groups=torch.tensor([False, True, False, False]),
    kept_rollouts=torch.ones(4, 2, dtype=torch.bool),
)
SUMS = UpdateSums(
    Mismatch(
        max_tokens=12,
        num_tokens=10,
        abs_sum=0.5,
        max_abs=0.25,
        k3_sum=0.02,
        quarter_abs=[0.1, 0.4, 0.0, 0.0],
        quarter_tokens=[4, 5, 1, 0],
        corrected_tokens=20,
        factor_sum=19.0,
        capped_tokens=3,
    ),
    log_ratio=-3.0,
    k3=0.4,
    log_ratio_by_sign={"positive": 1.0, "negative": -4.0},
    tokens_by_sign={"positive": 8, "negative": 10},
    moved={"positive": 2.0, "negative": -6.0},
    moved_tokens={"positive": 8, "negative": 12},
    pushed_down=9,
    corner_gradients={"norm2_inside": 0.5, "cosine_low_negative": -0.25},
    num_tokens=20,
    num_positive_tokens=8,
    entropy=30.0,
    ratio_min=0.5,
    ratio_max=3.0,
    corner_tokens=dict(zip(CORNERS, (1, 2, 3, 4), strict=True)),
    corner_gradient=dict(zip(CORNERS, (4.0, 3.0, 2.0, 1.0), strict=True)),
    gradient=40.0,
    policy_loss=-0.6,
    lm_loss=1.5,
    grad_norms=[1.0, 4.0],
    skipped_updates=1,
)


def of_corners(name: str, *values) -> dict:
    return {f"train/{name}_{corner}": v for corner, v in zip(CORNERS, values, strict=True)}


def test_every_metric_by_hand():
    assert step_metrics(BATCH, SUMS, step=7, learning_rate=1e-5) == pytest.approx(
        {
            "step": 7,
            "rollout/reward_mean": (1 + 1 + 1 - 1.5 - 1 - 1 - 1 - 1) / 8,
            # Group 1 alone is trained on.
            "rollout/reward_mean_trained": (1 - 1.5) / 2,
            # Mean -0.3125; the groups' own deviations are 0, 1.25, 0 and 0.
            "rollout/reward_std": math.sqrt((3 * 1.3125**2 + 4 * 0.6875**2 + 1.1875**2) / 8),
            "rollout/reward_std_in_group": 1.25 / 4,
            "rollout/correct_rate": 3 / 8,
            "rollout/groups_all_correct": 1 / 4,
            "rollout/groups_all_wrong": 2 / 4,
            "rollout/groups_mixed": 1 / 4,
            "rollout/advantage_abs_mean": 2 / 8,
            "rollout/groups_trained": 1,
            "rollout/response_tokens_mean": 32 / 8,
            "rollout/response_tokens_max": 9,
            "rollout/truncated_rate": 1 / 8,
            "rollout/bad_format_rate": 1 / 8,
            "rollout/no_answer_rate": 1 / 8,
            "rollout/not_worked_out_rate": 1 / 8,
            "rollout/right_boxed_rate": 2 / 3,
            "rollout/right_marked_rate": 0,
            "rollout/right_last_rate": 1 / 3,
            "rollout/judge_failures": 2,
            "rollout/pass_rate_mean": None,
            "train/num_updates": 2,
            "train/skipped_updates": 1,
            "train/num_tokens": 20,
            "train/positive_tokens": 8,
            "train/learning_rate": 1e-5,
            "train/policy_loss": -0.2,
            "train/lm_loss": 0.5,
            "train/entropy": 1.5,
            "train/grad_norm": 2.5,
            "train/grad_norm_max": 4.0,
            "train/ratio_min": 0.5,
            "train/ratio_max": 3.0,
            "train/kl_k1": 0.15,
            "train/kl_k3": 0.02,
            "train/log_ratio_positive": 0.125,
            "train/log_ratio_negative": -0.4,
            "train/moved_positive": 0.25,
            "train/moved_negative": -0.5,
            "train/pushed_down_share": 0.75,
            "train/gradient_norm2_inside": 0.5,
            **of_corners("gradient_norm2", None, None, None, None),
            **of_corners("gradient_cosine", -0.25, None, None, None),
            "train/mismatch_mean": 0.05,
            "train/mismatch_max": 0.25,
            "train/mismatch_k3": 0.002,
            "train/mismatch_mean_quarter_1": 0.025,
            "train/mismatch_mean_quarter_2": 0.08,
            "train/mismatch_mean_quarter_3": 0.0,
            "train/mismatch_mean_quarter_4": None,
            "train/correction_mean": 0.95,
            "train/correction_capped_share": 0.15,
            **of_corners("token_share", 0.05, 0.1, 0.15, 0.2),
            **of_corners("gradient_share", 0.1, 0.075, 0.05, 0.025),
            "tests/num_run": 0,
            **{f"tests/{outcome}_rate": None for outcome in OUTCOMES},
        }
    )


def test_metrics_of_programs_by_hand():
    """Three programs of one problem (a fourth response has none) beside a maths problem."""
    code = dataclasses.replace(GROUPS[0].problem, answer=None, tests=(TestCase("1", stdin=""),))
    reports = [
        TestReport.of(["passed"] * 4),
        TestReport.of(["passed", "wrong_answer", "time_limit", "wrong_answer"]),
        TestReport.of(["runtime_error", "runtime_error", "compile_error", "judge_error"]),
    ]
    verdicts = [Verdict(r.pass_rate == 1, "x", report=r) for r in reports]
    verdicts.append(Verdict(False, "no_answer"))
    programs = with_verdicts(group(9, [1.0, 0.25, 0.0, 0.0]), verdicts)
    programs = dataclasses.replace(programs, problem=code)
    batch = dataclasses.replace(
        BATCH,
        groups=(programs, GROUPS[0]),
        kept_groups=torch.tensor([True, False]),
        kept_rollouts=torch.ones(2, 4, dtype=torch.bool),
    )
    line = step_metrics(batch, SUMS, step=1, learning_rate=1e-5)
    assert line["rollout/pass_rate_mean"] == (1 + 0.25) / 4
    assert line["rollout/right_boxed_rate"] == 1 / 2  # a right program has no such place
    shares = {key: line[key] for key in line if key.startswith("tests/")}
    assert shares == {
        "tests/num_run": 12,
        "tests/passed_rate": 5 / 12,
        "tests/wrong_answer_rate": 2 / 12,
        "tests/runtime_error_rate": 2 / 12,
        "tests/compile_error_rate": 1 / 12,
        "tests/time_limit_rate": 1 / 12,
        "tests/memory_limit_rate": 0,
        "tests/output_limit_rate": 0,
        "tests/judge_error_rate": 1 / 12,
    }


def test_the_trained_mean_leaves_out_what_the_filters_drop():
    """Groups by the first filter, single rollouts (`drop_truncated`) by the second."""
    kept = torch.tensor([[True, True], [True, False], [True, True], [False, True]])
    for groups, expected in (([1, 3], (1.0 - 1.0) / 2), ([], None)):
        chosen = torch.isin(torch.arange(4), torch.tensor(groups))
        batch = dataclasses.replace(BATCH, kept_groups=chosen, kept_rollouts=kept)
        line = step_metrics(batch, SUMS, step=1, learning_rate=1e-5)
        assert line["rollout/reward_mean_trained"] == expected
        assert line["rollout/reward_mean"] == (1 + 1 + 1 - 1.5 - 1 - 1 - 1 - 1) / 8


def test_step_without_updates_has_no_means_of_nothing():
    line = step_metrics(BATCH, UpdateSums(Mismatch(max_tokens=9)), step=1, learning_rate=1e-5)
    assert set(line) == {"step", *METRICS}
    counts = {"num_updates", "skipped_updates", "num_tokens", "positive_tokens"}
    for key, value in line.items():
        if key.startswith("train/"):
            name = key.removeprefix("train/")
            assert value == (0 if name in counts else 1e-5 if name == "learning_rate" else None)
    json.dumps(line, allow_nan=False)


def test_the_page_explains_exactly_the_keys_that_are_written(tiny_stages):
    assert [key for key, count in Counter(LISTED).items() if count > 1] == []
    supervised = set()
    for name in ("metrics.jsonl", "timings.jsonl"):
        for stage in (tiny_stages.base, tiny_stages.sft):
            for line in (stage / name).read_text().splitlines():
                supervised |= set(json.loads(line))
    assert any(key.startswith("sft/") for key in supervised)
    assert set(LISTED) == (set(METRICS) | set(TIMINGS) | supervised) - {"step"}
