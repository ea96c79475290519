"""Cutting and laying out: every token once, within the budget, where the model looks for it."""

import random
from types import SimpleNamespace

import pytest
import torch

from klearlib.errors import KlearError
from klearlib.policy.layout import cut_by_tokens, cut_rows, pack, token_rows


def tokens(ids, num_prompt):
    return SimpleNamespace(ids=tuple(ids), num_prompt=num_prompt)


def test_rows_by_hand():
    rows = [
        [tokens((11, 12, 13, 14), 1), tokens((21, 22, 23), 2)],
        [tokens((31, 32), 1)],
    ]
    found = token_rows(rows, pad_id=9, device="cpu")
    assert found.ids.tolist() == [[11, 12, 13, 14, 21, 22, 23], [31, 32, 9, 9, 9, 9, 9]]
    assert found.positions.tolist() == [[0, 1, 2, 3, 0, 1, 2], [0, 1, 0, 0, 0, 0, 0]]
    # Before 12, 13, 14 and 23; never before 21.
    assert found.before.nonzero().tolist() == [[0, 0], [0, 1], [0, 2], [0, 5], [1, 0]]


def test_a_row_of_one_sequence_needs_no_positions():
    found = token_rows([[tokens((7, 9, 9), 1)], [tokens((7, 8, 8, 8), 3)]], pad_id=9, device="cpu")
    assert found.positions is None and found.ids.dtype == torch.long
    # Padding that is also a word of the response is told from it.
    assert found.before.tolist() == [[True, True, False, False], [False, False, True, False]]


@pytest.mark.parametrize("seed", range(20))
def test_packing_keeps_every_example_once_in_few_rows(seed):
    draws = random.Random(seed)
    lengths = [min(100, 1 + int(draws.expovariate(1 / 25))) for _ in range(draws.randint(1, 200))]
    rows = pack(lengths, row_tokens=100)
    assert sorted(index for row in rows for index in row) == list(range(len(lengths)))
    loads = [sum(lengths[index] for index in row) for row in rows]
    assert max(loads) <= 100
    fewest = -(-sum(lengths) // 100)
    assert len(rows) <= 11 / 9 * fewest + 6 / 9
    assert pack(lengths, row_tokens=100) == rows


def test_packing_takes_the_longest_first_and_equal_ones_in_order():
    assert pack([2, 5, 5, 3, 8], row_tokens=10) == [[4, 0], [1, 2], [3]]
    assert pack([], row_tokens=10) == []
    with pytest.raises(KlearError, match="has 11 tokens, a packed row 10: raise pack_tokens"):
        pack([3, 11], row_tokens=10)


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


LENGTHS = [2, 12, 40, 3, 14, 21, 10, 10, 11, 17]


@pytest.mark.parametrize("micro_batch_tokens", [None, 1, 50, 90])
@pytest.mark.parametrize("pack_tokens", [None, 40, 64, 1000])
def test_micro_batches_hold_every_sequence_once_within_the_budget(pack_tokens, micro_batch_tokens):
    how = {"pack_tokens": pack_tokens, "micro_batch_tokens": micro_batch_tokens}
    parts = cut_rows(LENGTHS, **how)
    assert sorted(i for part in parts for row in part for i in row) == list(range(len(LENGTHS)))
    assert micro_batch_tokens or len(parts) == 1
    for part in parts:
        loads = [sum(LENGTHS[i] for i in row) for row in part]
        assert pack_tokens is None or max(loads) <= pack_tokens
        in_one = micro_batch_tokens is None or len(part) == 1
        assert in_one or len(part) * max(loads) <= micro_batch_tokens
    if pack_tokens:
        assert all(len(part) == 1 for part in cut_rows(LENGTHS, one_row=True, **how))
