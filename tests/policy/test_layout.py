"""Cutting and laying out: every token once, within the budget, where the model looks for it."""

from array import array
from types import SimpleNamespace

import pytest
import torch

from klearlib.policy.batch_plan import BatchPlan
from klearlib.policy.decoder import token_line


def tokens(ids, num_prompt):
    return SimpleNamespace(ids=ids, num_prompt=num_prompt)


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


@pytest.mark.parametrize("max_tokens", [1, 7, 20, 33, 1000])
def test_parts_hold_each_row_once_within_the_budget(max_tokens):
    lengths = [4, 9, 1, 9, 30, 2, 2, 7, 16, 5]
    rows = [tokens((0,) * length, 1) for length in lengths]
    parts = BatchPlan(max_tokens, "fp32").cut(rows)
    found = [row for part in parts for row in part]
    assert sorted(map(id, found)) == sorted(map(id, rows))
    assert [len(row.ids) for row in found] == sorted(lengths)
    for part in parts:
        assert len(part) == 1 or len(part) * max(len(row.ids) for row in part) <= max_tokens
    assert len(parts) == {1: 10, 7: 8, 20: 5, 33: 4, 1000: 1}[max_tokens]
    assert BatchPlan(None, "fp32").cut(rows) == [rows]
