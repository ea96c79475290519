"""The distance of the trainer's log-probabilities from the sampler's, by hand and in a run."""

import dataclasses
import math

import pytest
import torch
from rollout_fakes import contents, row
from tiny_runs import run

from klearlib.policy import engines
from klearlib.records import Response
from klearlib.rl import train
from klearlib.rl.mismatch import Mismatch, corrected, observe


def by_hand(differences, positions, max_tokens):
    quarters = [[] for _ in range(4)]
    for difference, position in zip(differences, positions, strict=True):
        bounds = [max_tokens * (index + 1) / 4 for index in range(4)]
        place = next(i for i, bound in enumerate(bounds) if position < bound)
        quarters[place].append(abs(difference))
    return {
        "num_tokens": len(differences),
        "abs_sum": sum(map(abs, differences)),
        "max_abs": max(map(abs, differences)),
        "k3_sum": sum(math.exp(d) - 1 - d for d in differences),
        "quarter_abs": [sum(part) for part in quarters],
        "quarter_tokens": [len(part) for part in quarters],
    }


@pytest.mark.parametrize("max_tokens", [1, 3, 4, 7, 30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sums_are_those_of_the_tokens_however_they_come(max_tokens, dtype):
    draws = torch.Generator().manual_seed(max_tokens)
    differences = torch.randn(40, generator=draws).to(dtype)
    positions = torch.randint(0, max_tokens, (40,), generator=draws)
    expected = by_hand(differences.tolist(), positions.tolist(), max_tokens)
    for cuts in ([40], [1, 39], [13, 0, 20, 7]):
        seen = Mismatch(max_tokens=max_tokens)
        for part, places in zip(differences.split(cuts), positions.split(cuts), strict=True):
            seen.add(part, places)
        for name, value in expected.items():
            assert getattr(seen, name) == pytest.approx(value, rel=1e-12), name


def test_k3_is_the_divergence_of_the_sampler_from_the_trainer():
    """Over every word of q once, weighed by q: KL(q || p) to the last digit."""
    draws = torch.Generator().manual_seed(0)
    q, p = (torch.randn(50, generator=draws).double().softmax(0) for _ in range(2))
    total = 0.0
    for word in range(50):
        seen = Mismatch(max_tokens=1)
        seen.add((p[word] / q[word]).log()[None], torch.zeros(1, dtype=torch.long))
        assert seen.k3_sum >= 0
        total += float(q[word]) * seen.k3_sum
    assert total == pytest.approx(float((q * (q / p).log()).sum()), rel=1e-9)


SAMPLED = [
    row(range(6), 2, logp_old=(-1.0, -2.0, -0.5, -3.0)),
    row(range(4), 1, logp_old=(-1.0, -1.0, -4.0)),
]
TRAINER = [
    row(range(6), 2, logp_old=(-1.0, -1.5, -1.5, -1.0)),
    row(range(4), 1, logp_old=(-1.1, -0.1, -4.0)),
]
DIFFERENCES = [0.0, 0.5, -1.0, 2.0, -0.1, 0.9, 0.0]


def test_rows_are_observed_and_corrected_by_the_ratio_up_to_the_cap():
    seen = Mismatch(max_tokens=4)
    observe(seen, TRAINER, SAMPLED)
    for name, value in by_hand(DIFFERENCES, [0, 1, 2, 3, 0, 1, 2], 4).items():
        assert getattr(seen, name) == pytest.approx(value), name
    found = corrected(TRAINER, SAMPLED, cap=2.0, mismatch=seen)
    factors = torch.cat([mine.correction for mine in found]).tolist()
    expected = [min(math.exp(difference), 2.0) for difference in DIFFERENCES]
    assert factors == pytest.approx(expected)
    assert [len(mine.correction) for mine in found] == [4, 3]
    uncorrected = [dataclasses.replace(mine, correction=None) for mine in found]
    assert list(map(contents, uncorrected)) == list(map(contents, TRAINER))
    assert (seen.corrected_tokens, seen.capped_tokens) == (7, 2)
    assert seen.factor_sum == pytest.approx(sum(expected))


def shifted(monkeypatch, shift):
    """A sampler whose log-probabilities are off by `shift`, as another engine's would be."""
    original = engines.sample_groups

    def sample(*arguments, **how):
        groups = original(*arguments, **how)
        return [[_moved(response, shift) for response in group] for group in groups]

    monkeypatch.setattr(engines, "sample_groups", sample)


def _moved(response, shift):
    values = tuple(value - shift for value in response.logp)
    return Response(**{**vars(response), "logp": values})


@pytest.mark.parametrize("logp_old", ["sampler", "trainer"])
def test_a_run_reports_the_mismatch_of_its_sampler(inputs, tmp_path, monkeypatch, logp_old):
    shifted(monkeypatch, 0.1)
    (line,) = run(tmp_path, inputs, num_steps=1, logp_old=logp_old)
    assert line["train/mismatch_mean"] == pytest.approx(0.1, abs=1e-5)
    assert line["train/mismatch_max"] == pytest.approx(0.1, abs=1e-4)
    assert line["train/mismatch_k3"] == pytest.approx(math.exp(0.1) - 1.1, abs=1e-5)
    assert line["train/mismatch_mean_quarter_1"] == pytest.approx(0.1, abs=1e-5)
    assert line["train/correction_mean"] is line["train/correction_capped_share"] is None


def test_the_trainers_way_measures_every_mini_batch_before_the_first_update(
    inputs, tmp_path, monkeypatch
):
    seen = []
    original = train.train_on

    def kept(*arguments, **how):
        seen.append(original(*arguments, **how))
        return seen[-1]

    monkeypatch.setattr("klearlib.rl.train.train_on", kept)
    run(tmp_path / "trainer", inputs, num_steps=1, logp_old="trainer", learning_rate=1e-2)
    run(tmp_path / "sampler", inputs, num_steps=1, logp_old="sampler", learning_rate=1e-2)
    trainer, sampler = seen
    assert len(trainer.grad_norms) > 1
    assert trainer.mismatch.num_tokens == trainer.num_tokens
    assert 0 < sampler.mismatch.num_tokens < sampler.num_tokens
    assert sum(trainer.mismatch.quarter_tokens) == trainer.num_tokens
    # Large updates would show here if any of it were measured after one.
    assert trainer.mismatch.max_abs < 1e-4


def test_a_capped_correction_scales_the_policy_gradient(inputs, tmp_path, monkeypatch):
    """Every ratio is e^0.5, so every factor is the cap, and only the size of the gradient moves."""
    shifted(monkeypatch, 0.5)
    how = {"num_steps": 1, "logp_old": "trainer", "mini_batch_problems": 6}
    (plain,) = run(tmp_path / "plain", inputs, **how)
    (capped,) = run(tmp_path / "capped", inputs, sampler_correction=1.5, **how)
    assert capped["train/correction_capped_share"] == 1 and capped["train/correction_mean"] == 1.5
    assert capped["train/grad_norm"] == pytest.approx(1.5 * plain["train/grad_norm"], rel=1e-4)
