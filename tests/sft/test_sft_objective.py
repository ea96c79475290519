"""The normalisers by hand, and Eq. 8 as it is printed."""

import pytest
import torch

from klearlib.sft.objective import log_likelihood_loss, shares, token_mask

LENGTHS = torch.tensor([3, 1])


@pytest.mark.parametrize(
    ("normalizer", "denominator", "expected"),
    [
        ("token", 4, [1 / 4, 1 / 4, 1 / 4, 1 / 4]),
        # Eq. 3: 1/N sum_i 1/|y_i| sum_t
        ("sequence", 2, [1 / 6, 1 / 6, 1 / 6, 1 / 2]),
        # Eq. 8: 1/N sum_j sum_t
        ("sequence_sum", 2, [1 / 2, 1 / 2, 1 / 2, 1 / 2]),
    ],
)
def test_shares_by_hand_whole_and_in_parts(normalizer, denominator, expected):
    whole = shares(LENGTHS, normalizer=normalizer)
    assert whole.tolist() == pytest.approx(expected, rel=1e-12)
    how = {"normalizer": normalizer, "denominator": denominator}
    assert torch.equal(torch.cat([shares(part, **how) for part in LENGTHS.split(1)]), whole)


def test_sequence_sum_is_eq_8_as_printed_and_the_token_mean_times_the_mean_length():
    """L = -1/N sum_{j=1}^N sum_{t=1}^{T_j} log pi(y_t^(j))."""
    logits = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits.requires_grad_()
    tokens, mask = torch.tensor([[1, 4, 0], [2, 3, 3]]), torch.tensor([[1, 1, 1], [1, 0, 0]]).bool()
    printed = 0.0
    for j, length in enumerate(LENGTHS.tolist()):
        for t in range(length):
            printed = printed - torch.softmax(logits[j, t], -1)[tokens[j, t]].log() / 2
    (expected,) = torch.autograd.grad(printed, logits)
    for normalizer, factor in (("sequence_sum", 1.0), ("token", 2.0)):  # mean length (3 + 1) / 2
        logp = torch.log_softmax(logits, -1).gather(2, tokens[..., None])[..., 0]
        loss = log_likelihood_loss(logp[mask], shares(LENGTHS, normalizer=normalizer))
        (found,) = torch.autograd.grad(loss, logits)
        assert factor * loss.item() == pytest.approx(printed.item(), rel=1e-12)
        torch.testing.assert_close(factor * found, expected, rtol=1e-12, atol=1e-14)


def test_a_mask_of_shares_and_an_unknown_normaliser_are_refused():
    with pytest.raises(ValueError, match="loss_mask must hold 0 and 1"):
        token_mask(torch.zeros(2, 2), torch.full((2, 2), 0.5))
    with pytest.raises(ValueError, match="normalizer"):
        shares(LENGTHS, normalizer="mean")
