"""The means of Eqs. 7 and 8 by hand."""

import pytest
import torch

from klearlib.sft.objective import shares

LENGTHS = torch.tensor([3, 1])


@pytest.mark.parametrize(
    ("normalizer", "expected"),
    [
        ("token", [1 / 4, 1 / 4, 1 / 4, 1 / 4]),
        # Eq. 8: 1/N sum_i 1/|y_i| sum_t
        ("sequence", [1 / 6, 1 / 6, 1 / 6, 1 / 2]),
    ],
)
def test_shares_by_hand(normalizer, expected):
    assert shares(LENGTHS, normalizer=normalizer).tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("normalizer", "denominator"), [("token", 4), ("sequence", 2)])
def test_parts_with_the_denominator_of_the_whole_are_its_parts(normalizer, denominator):
    how = {"normalizer": normalizer, "denominator": denominator}
    parts = torch.cat([shares(LENGTHS[i : i + 1], **how) for i in range(2)])
    assert torch.equal(parts, shares(LENGTHS, normalizer=normalizer))


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="normalizer"):
        shares(LENGTHS, normalizer="mean")
    for denominator in (0, -1.0, float("inf")):
        with pytest.raises(ValueError, match="denominator must be positive"):
            shares(LENGTHS, normalizer="token", denominator=denominator)
