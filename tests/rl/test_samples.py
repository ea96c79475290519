"""What the policy wrote: which rollouts are kept, and that keeping them changes nothing."""

import random
from dataclasses import replace

import numpy as np
import torch
from rollout_fakes import group, settings
from tiny_runs import lines

from klearlib.rl.rollouts import form_batch
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


def test_all_where_there_are_fewer():
    small = form_batch([group(0, [1.0, -1.0])], settings())
    drawn = draw_samples(small, seed=0, step=1)
    assert [(line["problem"], line["response"]) for line in drawn] == [("p0", 0), ("p0", 1)]


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
