"""How mini-batches of any sizes are laid out for verl, which cuts equal parts for every rank."""

import random

import pytest
import torch

from klearlib.rl.rollouts import Row
from klearlib.scale.layout import lay_out, row_fields, token_fields


def row(place, length, *, is_correct=False, correction=None):
    return Row(
        ids=torch.arange(3 + length),
        num_prompt=3,
        logp_old=-0.1 * torch.arange(1, length + 1),
        advantage=place[0] - 0.5,
        is_correct=is_correct,
        correction=correction,
        place=place,
    )


def batches(sizes, seed=0):
    """Mini-batches of so many rows, of random lengths."""
    draw = random.Random(seed)
    return [
        [row((part, index), draw.randint(1, 30), is_correct=index % 3 == 0) for index in range(n)]
        for part, n in enumerate(sizes)
    ]


def as_verl_cuts(layout, num_ranks):
    """[rank][mini-batch] -> rows, by verl's two cuts: the batch by ranks, each run by mini-batches
    of ``mini_batch_size // num_ranks``."""
    share, run = layout.mini_batch_rows // num_ranks, len(layout.rows) // num_ranks
    assert share * num_ranks == layout.mini_batch_rows and run * num_ranks == len(layout.rows)
    return [
        [layout.rows[start : start + share] for start in range(rank * run, (rank + 1) * run, share)]
        for rank in range(num_ranks)
    ]


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("sizes", [[8], [8, 8], [16, 8], [5, 1, 7], [1]])
def test_verl_gets_the_mini_batches_that_were_formed(sizes, num_ranks):
    parts = batches(sizes)
    layout = lay_out(parts, num_ranks=num_ranks)
    cut = as_verl_cuts(layout, num_ranks)
    for part, rows in enumerate(parts):
        found = [each for rank in cut for each in rank[part] if each is not None]
        assert sorted(found, key=lambda each: each.place) == rows
    num_filling = layout.rows.count(None)
    assert num_filling == len(layout.rows) - sum(sizes)
    assert num_filling < len(sizes) * (max(sizes) - min(sizes) + num_ranks)


def test_ranks_get_about_as_many_tokens():
    parts = batches([64])
    for rank in (cut := as_verl_cuts(lay_out(parts, num_ranks=4), 4)):
        tokens = sum(len(each.ids) for each in rank[0])
        mean = sum(len(each.ids) for each in parts[0]) / len(cut)
        assert abs(tokens - mean) < 0.05 * mean


def test_fields_hold_what_the_loss_divides_by():
    parts = batches([5, 2])
    layout = lay_out(parts, num_ranks=2)
    fields = row_fields(layout, parts, count_mismatch=True)
    for index, (each, part) in enumerate(zip(layout.rows, layout.parts, strict=True)):
        assert fields["num_rollouts"][index] == len(parts[part])
        positive = sum(len(r.logp_old) for r in parts[part] if r.is_correct)
        assert fields["num_positive_tokens"][index] == positive
        assert fields["first_of_step"][index] == (part == 0)
        logp, advantages = (fields[name][index] for name in ("old_log_probs", "advantages"))
        if each is None:
            assert logp.tolist() == advantages.tolist() == [0.0]
            assert not fields["is_correct"][index]
        else:
            assert torch.equal(logp, each.logp_old)
            assert advantages.tolist() == [each.advantage] * len(each.logp_old)
            assert fields["is_correct"][index] == each.is_correct
        assert set(fields["rollout_is_weights"][index].tolist()) == {1.0}
    assert not row_fields(layout, parts, count_mismatch=False)["first_of_step"].any()


def test_corrections_reach_their_own_tokens():
    parts = [[row((0, 0), 2, correction=torch.tensor([0.5, 2.0])), row((0, 1), 3)]]
    layout = lay_out(parts, num_ranks=3)
    weights = row_fields(layout, parts, count_mismatch=False)["rollout_is_weights"]
    found = {
        None if each is None else each.place: weights[index].tolist()
        for index, each in enumerate(layout.rows)
    }
    assert found == {(0, 0): [0.5, 2.0], (0, 1): [1.0, 1.0, 1.0], None: [1.0]}


def test_rows_that_fill_up_have_tokens_and_no_token_of_the_loss():
    layout = lay_out([[row((0, 0), 4), row((0, 1), 2)], [row((1, 0), 3)]], num_ranks=2)
    fields = token_fields(layout, end_token=9)
    for index, each in enumerate(layout.rows):
        prompt, response, mask = (
            fields[name][index].tolist() for name in ("prompts", "responses", "response_mask")
        )
        assert prompt + response == fields["input_ids"][index].tolist()
        assert fields["position_ids"][index].tolist() == list(range(len(prompt + response)))
        assert fields["loss_mask"][index].tolist() == mask
        if each is None:
            assert (prompt, response, mask) == ([9], [9], [0])
        else:
            assert (prompt + response, len(prompt)) == (each.ids.tolist(), each.num_prompt)
            assert mask == [1] * len(response)
