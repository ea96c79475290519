"""verl's training worker with our loss, on one and on two processes, against the local trainer:
the same losses, gradient norms, weights and sums from the same rollouts."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import sys

import pytest
import torch
from worker_cases import CASES, SKIPPED, Case, groups_of_steps, start_rank

from klearlib.policy.batch_plan import plan_batches
from klearlib.policy.compute import local_compute
from klearlib.policy.load import load_policy, save_policy
from klearlib.rl.coefficients import CORNERS
from klearlib.rl.rollouts import form_batch
from klearlib.rl.rule_specs import rule_from
from klearlib.rl.train import train_on

CLOSE = 1e-5
# Sums over tokens of terms that nearly cancel: the absolute difference that rounding may make.
CANCELS = {"log_ratio": 1e-3, "positive": 1e-3, "negative": 1e-3, "k3": 2e-5}
NUM_RANKS = (1, 2)


@pytest.fixture(scope="module")
def work(tmp_path_factory, new_policy, tiny_tokenizer):
    """A folder with a policy and the rollouts of two steps."""
    folder = tmp_path_factory.mktemp("worker")
    model = new_policy(3)
    save_policy(model, tiny_tokenizer, folder / "model")
    torch.save(groups_of_steps(model), folder / "steps.pt")
    return folder


@pytest.fixture(scope="module")
def made(work):
    """What each case gave: here, and for each number of ranks on verl."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["worker_ranks"])  # verl is imported once for all ranks
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        ranks = [
            context.Process(target=start_rank, args=(rank, num_ranks, work), daemon=True)
            for num_ranks in NUM_RANKS
            for rank in range(num_ranks)
        ]
        for process in ranks:
            process.start()
    steps = torch.load(work / "steps.pt", weights_only=False)
    found = {"here": {name: _here(case, work, steps) for name, case in CASES.items()}}
    for process in ranks:
        process.join()
        assert process.exitcode == 0
    return found | {n: torch.load(work / f"ranks-{n}.pt", weights_only=False) for n in NUM_RANKS}


def _here(case: Case, work, steps):
    """A case on the local trainer: the sums of its steps, and the weights at the end."""
    settings = case.settings
    model, _ = load_policy(work / "model", device="cpu")
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=settings.learning_rate,
        betas=(settings.adam_beta1, settings.adam_beta2),
        weight_decay=settings.weight_decay,
        fused=True,
    )
    plan = plan_batches(model, local_compute(micro_batch_tokens=200))
    sums = [
        train_on(
            form_batch(groups, settings),
            model,
            optimizer,
            rule=rule_from(case.spec),
            settings=settings,
            plan=plan,
            step=step,
        )
        for step, groups in enumerate(case.groups(steps), start=1)
    ]
    return sums, model.state_dict()


@pytest.mark.parametrize("num_ranks", NUM_RANKS)
@pytest.mark.parametrize("name", [name for name in CASES if name != SKIPPED])
def test_the_worker_of_verl_trains_as_the_local_trainer(name, num_ranks, made):
    wanted_sums, wanted_weights = made["here"][name]
    sums, losses, weights = made[num_ranks][name]
    assert len(sums) == len(wanted_sums)
    for found, wanted in zip(sums, wanted_sums, strict=True):
        # Tokens are kept by the local trainer alone.
        mine = (dataclasses.asdict(dataclasses.replace(x, last=None)) for x in (found, wanted))
        _assert_same(*mine)
    policy = sum(each.policy_loss for each in wanted_sums)
    lm = sum(each.lm_loss for each in wanted_sums)
    total = policy + CASES[name].settings.alpha * lm
    assert sum(losses) == pytest.approx(total, rel=CLOSE, abs=1e-6)
    _assert_same_weights(weights, wanted_weights)


@pytest.mark.parametrize("num_ranks", NUM_RANKS)
def test_an_update_without_a_finite_gradient_is_skipped_and_counted(num_ranks, made):
    (wanted,), wanted_weights = made["here"][SKIPPED]
    (found,), _, weights = made[num_ranks][SKIPPED]
    assert found.skipped_updates == wanted.skipped_updates == 1
    assert found.grad_norms == pytest.approx(wanted.grad_norms, rel=CLOSE)
    assert found.num_tokens == wanted.num_tokens
    _assert_same_weights(weights, wanted_weights)


def _assert_same_weights(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    """A weight whose gradient is next to 0 may differ by a share of AdamW's step, 6e-4 of the
    largest weight; it does so between two cuts of the local trainer too."""
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        distance = found[key] - value
        assert distance.norm() < CLOSE * value.norm(), key
        assert distance.abs().max() < 10 * CLOSE * value.abs().max(), key


def _assert_same(found: dict, wanted: dict) -> None:
    """Counts exactly, other numbers but for rounding."""
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        if isinstance(value, dict):
            _assert_same(found[key], value)
        elif value is None or isinstance(value, int):
            assert found[key] == value, key
        else:
            assert found[key] == pytest.approx(value, rel=CLOSE, abs=CANCELS.get(key, 1e-6)), key


def test_the_cases_reach_what_they_are_for(made):
    plain = made["here"]["gppo alpha 0.1 token"][0][0]
    assert all(plain.corner_tokens[corner] > 10 for corner in CORNERS)
    assert plain.ratio_max > 10 and plain.num_positive_tokens > 0
    assert len(plain.grad_norms) == 3
    assert len(made["here"]["no filter"][0][0].grad_norms) == 3
    assert made["here"]["corrected"][0][0].mismatch.capped_tokens > 0
