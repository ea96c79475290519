"""The means of Eqs. 7 and 8 by hand."""

import pytest
import torch

from klearlib.sft.objective import shares

LENGTHS = torch.tensor([3, 1])


@pytest.mark.parametrize(
    ("normalizer", "denominator", "expected"),
    [
        ("token", 4, [1 / 4, 1 / 4, 1 / 4, 1 / 4]),
        # Eq. 8: 1/N sum_i 1/|y_i| sum_t
        ("sequence", 2, [1 / 6, 1 / 6, 1 / 6, 1 / 2]),
    ],
)
def test_shares_by_hand_whole_and_in_parts(normalizer, denominator, expected):
    whole = shares(LENGTHS, normalizer=normalizer)
    assert whole.tolist() == pytest.approx(expected, rel=1e-12)
    how = {"normalizer": normalizer, "denominator": denominator}
    assert torch.equal(torch.cat([shares(part, **how) for part in LENGTHS.split(1)]), whole)


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="normalizer"):
        shares(LENGTHS, normalizer="mean")
    for denominator in (0, -1.0, float("inf")):
        with pytest.raises(ValueError, match="denominator must be positive"):
            shares(LENGTHS, normalizer="token", denominator=denominator)
