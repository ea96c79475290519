"""What is kept of a step: rollouts drawn without a trace, and the tokens of an update, which give
its ratios, its coefficients and Eq. 14 by hand."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from printed_equations import SPECS
from rollout_fakes import group, settings
from tiny_runs import lines

from klearlib.experiments.explore import KEY, coloured, tokens_of
from klearlib.records import TokenBatch
from klearlib.rl import token_record
from klearlib.rl.coefficients import CORNERS
from klearlib.rl.metrics import MicroBatchStats
from klearlib.rl.rollouts import Row, form_batch
from klearlib.rl.rule_specs import rule_from
from klearlib.rl.samples import MAX_CHARS, draw_samples

BATCH = form_batch([group(i, [1.0, -1.0, 1.0, -1.0]) for i in range(9)], settings())


def test_drawn_by_seed_and_step_alone():
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    drawn = draw_samples(BATCH, seed=3, step=4)
    assert draw_samples(BATCH, seed=3, step=4) == drawn
    assert draw_samples(BATCH, seed=3, step=5) != drawn != draw_samples(BATCH, seed=4, step=4)
    now = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    assert now == states
    assert len({line["problem"] for line in drawn}) == 4 and len(drawn) == 8
    for line in drawn:
        reward = [1.0, -1.0][line["response"] % 2]
        assert line["reward"] == reward and np.sign(line["advantage"]) == reward


def test_a_run_keeps_those_of_its_first_step_and_of_its_evaluations(plain):
    kept = lines(plain, "samples.jsonl")
    assert [line["step"] for line in kept] == [step for step in (1, 2, 3) for _ in range(8)]
    for line in kept:
        assert line["prompt"] and len(line["text"]) <= MAX_CHARS + 80
        assert line["chars"] == len(line["text"])
        assert line["reward"] == {"correct": 1.0, "bad_format": -1.5}.get(line["reason"], -1.0)


def test_long_texts_keep_their_ends():
    groups = [
        replace(group, responses=tuple(replace(r, text="x" * 9000) for r in group.responses))
        for group in BATCH.groups
    ]
    drawn = draw_samples(replace(BATCH, groups=tuple(groups)), seed=0, step=1)
    assert {line["chars"] for line in drawn} == {9000}
    assert all("5000 of 9000 characters left out" in line["text"] for line in drawn)


@pytest.fixture(scope="module")
def kept(plain):
    """The run `plain` and the tokens of its first step, whose last update is off-policy."""
    frame = tokens_of(plain / "tokens" / "00001.npz", rule_from(SPECS["gppo"]), plain / "model")
    return plain, frame


def test_the_steps_with_samples_have_their_tokens(plain):
    assert sorted(path.name for path in (plain / "tokens").iterdir()) == [
        f"0000{step}.npz" for step in (1, 2, 3)
    ]


OWN = """
def spread(ratio, advantage, *, logp, logp_old, entropy):
    return ratio * (1 + entropy) + (logp - logp_old).abs() + logp_old.exp()
"""


@pytest.mark.parametrize(
    "rule", [SPECS["gppo"], {"name": "spread", "source": OWN, "eps_low": 0.2, "eps_high": 0.28}]
)
def test_eq_14_by_hand(finished, rule):
    """Of a step with one update the metrics are those of its tokens."""
    path = finished(alpha=0.5, rule=rule)
    frame = tokens_of(path / "tokens" / "00001.npz", rule_from(rule), path / "model")
    (line,) = lines(path)
    if rule["name"] == "spread":
        assert np.allclose(frame["F"], 1 + frame["entropy"] + frame["logp"].map(np.exp), atol=1e-4)
    assert len(frame) == line["train/num_tokens"]
    policy = -(frame["weight"] * frame["F"] * frame["A"] * frame["correction"]).sum()
    lm = -(frame["lm_weight"] * frame["logp"]).sum()
    assert policy == pytest.approx(line["train/policy_loss"], abs=1e-5)
    assert lm == pytest.approx(line["train/lm_loss"], rel=1e-5)
    assert frame["weight"].sum() == pytest.approx(1, abs=1e-5)
    assert frame["entropy"].mean() == pytest.approx(line["train/entropy"], rel=1e-5)
    assert frame["is_correct"].sum() == line["train/positive_tokens"]


def test_ratios_corners_and_f_by_hand(kept):
    _, frame = kept
    assert np.allclose(frame["ratio"], np.exp(frame["logp"] - frame["logp_old"]))
    low, high = frame["ratio"] < 0.8, frame["ratio"] > 1.28
    expected = np.where(
        low & (frame["A"] < 0), 0.8, np.where(high & (frame["A"] > 0), 1.28, frame["ratio"])
    )
    assert np.allclose(frame["F"], expected)
    assert set(frame["corner"]) <= {"", *CORNERS} and (frame["corner"] == "")[~low & ~high].all()
    assert ((frame["corner"] == "low_negative") == (low & (frame["A"] < 0))).all()


def test_f_is_0_beyond_the_clamp_on_log_ratios(kept):
    path, frame = kept
    size = (frame["logp"] - frame["logp_old"]).abs()
    how = {"rule": rule_from(SPECS["gppo"]), "log_ratio_clamp": float(size.median())}
    clamped = tokens_of(path / "tokens" / "00001.npz", model=path / "model", **how)
    within = size <= how["log_ratio_clamp"]
    assert np.allclose(clamped["F"], frame["F"].where(within, 0.0)) and not within.all()


def test_a_problem_that_is_twice_in_an_update_has_its_responses_apart(kept, tmp_path):
    path, frame = kept
    with np.load(path / "tokens" / "00001.npz") as stored:
        arrays = dict(stored.items())
    for name in ("problem", "response"):
        arrays[name][1::2] = arrays[name][::2]
    np.savez(tmp_path / "twice.npz", **arrays)
    twice = tokens_of(tmp_path / "twice.npz", rule_from(SPECS["gppo"]), path / "model")
    prompts = [mine.attrs["prompts"].values() for mine in (twice, frame)]
    assert [*prompts[0]] == [*prompts[1]] and len(prompts[0]) == frame["row"].nunique()
    assert coloured(twice, rows=100).count("<pre") == len(prompts[0])


def test_the_text_is_that_of_the_responses_and_is_escaped(kept):
    path, frame = kept
    texts = frame.groupby(["problem", "response"], sort=False)["text"].sum()
    known = {(s["problem"], s["response"]): s["text"] for s in lines(path, "samples.jsonl")}
    both = [key for key in texts.index if key in known]
    assert both and any(known[key].strip() in texts[key] for key in both)
    page = coloured(frame.assign(text="<b>"), rows=2)
    assert "<b>" not in page and "&lt;b&gt;" in page and page.count("<pre") == 2
    outside = frame["corner"].ne("").groupby([frame[key] for key in KEY]).sum()
    most = [
        f"{problem}, response {number}, "
        for problem, number, _ in outside.nlargest(keep="all", n=1).index
    ]
    assert outside.max() and any(name in coloured(frame, rows=1) for name in most)


def test_a_large_update_keeps_its_first_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(token_record, "MAX_TOKENS", 8)
    lengths = [3, 4, 5]
    rows = [
        Row(torch.arange(prompt + n), prompt, torch.zeros(n), 1.0, True, place=(0, number))
        for number, (prompt, n) in enumerate(zip([2, 1, 2], lengths, strict=True))
    ]
    batch = TokenBatch(*[torch.arange(sum(lengths)).float()] * 6)
    stats = MicroBatchStats(batch, *[torch.zeros(())] * 2, *[torch.zeros(sum(lengths))] * 2)
    groups = [SimpleNamespace(problem=SimpleNamespace(id="p"))]
    token_record.save_tokens(tmp_path / "1.npz", rows, [stats], groups)
    with np.load(tmp_path / "1.npz") as kept:
        assert kept["row"].tolist() == [0] * 3 + [1] * 4 and kept["response"].tolist() == [0, 1]
        assert kept["id"].tolist() == [2, 3, 4, 1, 2, 3, 4]
        assert kept["weight"].tolist() == list(range(7)) and kept["prompt"].tolist() == [0, 1, 0]
        assert kept["prompt_length"].tolist() == [2, 1]
