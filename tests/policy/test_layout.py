"""Cutting and laying out: every token once, within the budget, where the model looks for it."""

from array import array
from types import SimpleNamespace

import pytest
import torch

from klearlib.policy.batch_plan import BatchPlan
from klearlib.policy.layout import cut_by_tokens, padded_rows, token_line


def tokens(ids, num_prompt):
    return SimpleNamespace(ids=ids, num_prompt=num_prompt)


def test_rows_by_hand():
    ids, before = padded_rows(
        [tokens((7, 9, 9), 1), tokens((7, 8, 8, 8), 3)], pad_id=9, device="cpu"
    )
    assert ids.tolist() == [[7, 9, 9, 9], [7, 8, 8, 8]] and ids.dtype == torch.long
    # Padding that is also a word of the response is told from it.
    assert before.tolist() == [[True, True, False, False], [False, False, True, False]]


@pytest.mark.parametrize("kind", [tuple, lambda ids: array("i", ids), torch.tensor])
def test_ids_may_be_any_sequence_or_a_tensor(kind):
    rows = [((5, 6, 7), 2), ((5, 6, 8, 9), 2), ((5, 6, 8, 9), 3)]
    made = [tokens(kind(ids), num_prompt) for ids, num_prompt in rows]
    line = token_line(made, device="cpu")
    assert line.ids.tolist() == [5, 6, 8, 5, 6, 8]
    assert line.positions.tolist() == [0, 1, 2, 0, 1, 2]
    assert line.rows.tolist() == [[0, 1, 0], [0, 1, 2], [3, 4, 5]]
    assert line.places.tolist() == [0, 1, 5, 6, 7, 8]
    assert line.before.tolist() == [1, 1, 2, 5]
    assert padded_rows(made, pad_id=0, device="cpu")[0].tolist()[0] == [5, 6, 7, 0]


@pytest.mark.parametrize("max_tokens", [1, 7, 20, 33, 1000])
def test_parts_hold_each_row_once_within_the_budget(max_tokens):
    lengths = [4, 9, 1, 9, 30, 2, 2, 7, 16, 5]
    parts = cut_by_tokens(lengths, max_tokens=max_tokens)
    order = [index for part in parts for index in part]
    assert sorted(order) == list(range(10))
    assert [lengths[index] for index in order] == sorted(lengths)
    for part in parts:
        assert len(part) == 1 or len(part) * max(lengths[index] for index in part) <= max_tokens
    assert len(parts) == {1: 10, 7: 8, 20: 5, 33: 4, 1000: 1}[max_tokens]
    rows = [tokens((0,) * length, 1) for length in lengths]
    assert BatchPlan(max_tokens, "fp32", 0).cut(rows) == [[rows[i] for i in p] for p in parts]
    assert BatchPlan(None, "fp32", 0).cut(rows) == [rows]
