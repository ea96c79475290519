"""The cosine of the gradients of two halves, by autograd of the printed objective, and rewards
compared by it on the same rollouts."""

from dataclasses import asdict, replace

import pytest
import torch
from rollout_fakes import SETTINGS as OF_A_RUN
from rollout_fakes import settings
from tiny_runs import lines, run
from update_oracle import NUM_PROMPT, PASSES, SETTINGS, exact_logprobs, make_rows, oracle

from klearlib.errors import Stopped
from klearlib.policy.batch_plan import BatchPlan
from klearlib.policy.compute import local_compute
from klearlib.rl.gradient_measures import half_cosine
from klearlib.rl.reward_noise import compare_rewards
from klearlib.run.folder import RunFolder


@pytest.fixture(scope="module")
def rows(policy):
    return make_rows(policy, lengths=(9, 4, 12, 6, 5, 10, 7, 4, 8, 11))  # groups of 3, 3, 3 and 1


def measured(policy, rows, *, micro_batch_tokens=10_000, **changes):
    plan = BatchPlan(**PASSES | {"micro_batch_tokens": micro_batch_tokens})
    return half_cosine(policy, rows, settings=settings(**SETTINGS | changes), plan=plan)


@pytest.mark.parametrize("normalizer", ["token", "sequence", "prompt"])
def test_cosine_is_that_of_the_printed_gradients_at_ratio_1(policy, rows, normalizer):
    def at_ratio_1(row):
        logp = exact_logprobs(policy, row.ids)[NUM_PROMPT - 1 :]
        return replace(row, logp_old=logp)

    halves = [[at_ratio_1(r) for r in rows if r.place[0] % 2 == half] for half in (0, 1)]
    first, second = (
        oracle(policy, half, "gppo", alpha=0.0, normalizer=normalizer).clone() for half in halves
    )
    expected = torch.nn.functional.cosine_similarity(first, second, dim=0).item()
    policy.zero_grad()
    for tokens in (10_000, 25):
        # alpha and what was sampled take no part in it.
        how = {"normalizer": normalizer, "alpha": 0.5, "micro_batch_tokens": tokens}
        assert measured(policy, rows, **how) == pytest.approx(expected, abs=2e-6)
    assert all(weight.grad is None for weight in policy.parameters())
    assert abs(expected) < 0.99, "the test needs halves that differ"


def test_equal_halves_agree_and_no_second_half_or_gradient_is_no_number(policy, rows):
    one = [row for row in rows if row.place[0] == 0]
    twin = [replace(row, place=(1, row.place[1])) for row in one]
    assert measured(policy, one + twin) == pytest.approx(1.0, abs=1e-6)
    against = [replace(row, advantage=-row.advantage) for row in twin]
    assert measured(policy, one + against) == pytest.approx(-1.0, abs=1e-6)
    still = [replace(row, advantage=0.0) for row in twin]
    assert measured(policy, one + still) is None
    assert measured(policy, one) is None and measured(policy, []) is None


HOW = {"rewards": ["soft", "hard"], "seed": 3}


def compared(path, inputs, *, stop_at=None, **changes):
    def stop_requested() -> bool:
        return stop_at is not None and len(lines(path)) >= stop_at

    compare_rewards(
        RunFolder(path, stop_requested=stop_requested),
        inputs,
        settings=OF_A_RUN | changes,
        compute=asdict(local_compute(micro_batch_tokens=400)),
        **HOW,
    )
    return lines(path)


def test_the_first_batch_is_that_of_the_run_of_rl_and_all_rewards_see_it(inputs, tmp_path):
    found = compared(tmp_path / "noise", inputs, num_steps=1)
    (line,) = run(tmp_path / "rl", inputs, seed=3, num_steps=1)
    (noise,) = found
    for reward in HOW["rewards"]:  # of mathematics, which has one reward
        assert noise[f"reward_std/{reward}"] == pytest.approx(line["rollout/reward_std"])
        assert noise[f"groups_trained/{reward}"] == line["rollout/groups_trained"]
    assert noise["half_cosine/soft"] == noise["half_cosine/hard"]


def test_a_stopped_comparison_goes_on_with_the_next_batch(inputs, tmp_path):
    whole = compared(tmp_path / "whole", inputs, num_steps=3)
    with pytest.raises(Stopped, match="after batch 2 of 3"):
        compared(tmp_path / "part", inputs, stop_at=2, num_steps=3)
    assert compared(tmp_path / "part", inputs, num_steps=3) == whole
    assert len(whole) == 3
