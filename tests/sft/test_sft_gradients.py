"""The gradient of a batch is that of Eq. 8, however it is cut and read; the normalisers by hand."""

import random

import pytest
import torch

from klearlib.policy.batch_plan import BatchPlan
from klearlib.policy.reader import reader_of
from klearlib.sft.batches import Example
from klearlib.sft.objective import shares, token_mask
from klearlib.sft.train import batch_gradient

_DRAWS = random.Random(2)
# Prompt and response lengths: from the shortest example possible to one that fills a row of 40.
LENGTHS = [(1, 1), (3, 9), (12, 28), (2, 1), (7, 7), (1, 20), (5, 5), (5, 5), (9, 2), (4, 13)]
EXAMPLES = [
    Example(ids=tuple(_DRAWS.randrange(280) for _ in range(a + b)), num_prompt=a)
    for a, b in LENGTHS
]
LAYOUTS = [{"micro_batch_tokens": micro_batch_tokens} for micro_batch_tokens in (None, 1, 50, 90)]


def gradient(policy, *, normalizer: str, layout: dict, examples=EXAMPLES):
    """Loss and gradient of a batch, and its number of response tokens."""
    plan = BatchPlan(**{"precision": "fp32"} | layout)
    loss, count = batch_gradient(policy, examples, normalizer=normalizer, plan=plan, seed=0)
    return loss, torch.cat([p.grad.flatten() for p in policy.parameters()]), count


def by_equation(policy, normalizer: str, examples=EXAMPLES):
    """The normalisers' sums, one example at a time, by the dense softmax in float64."""
    policy.zero_grad()
    lengths = [len(example.ids) - example.num_prompt for example in examples]
    count, loss = len(examples), 0.0
    for example, length in zip(examples, lengths, strict=True):
        ids = torch.tensor(example.ids)
        logp = torch.log_softmax(policy(input_ids=ids[None]).logits[0, :-1], -1)
        mine = logp.gather(1, ids[1:, None])[example.num_prompt - 1 :].sum()
        total = {"token": sum(lengths), "sequence": length * count, "sequence_sum": count}
        loss = loss - mine / total[normalizer]
    loss.backward()
    return loss.item(), torch.cat([p.grad.flatten() for p in policy.parameters()])


def apart(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("normalizer", ["token", "sequence", "sequence_sum"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_every_layout_has_the_loss_and_the_gradient_of_the_equation(
    new_policy, normalizer, attention
):
    exact = new_policy(3, dtype=torch.float64)
    expected_loss, expected = by_equation(exact, normalizer)
    _, other = by_equation(exact, "token" if normalizer == "sequence" else "sequence")
    assert apart(other, expected) > 0.05, "the test can tell the normalisers"
    policy = new_policy(3)
    policy.set_attn_implementation(attention)
    for layout in LAYOUTS:
        loss, found, num_tokens = gradient(policy, normalizer=normalizer, layout=layout)
        assert loss == pytest.approx(expected_loss, rel=1e-5), layout
        assert apart(found.double(), expected) < 1e-5, layout
        assert num_tokens == sum(b for _, b in LENGTHS)
    num_parts = [len(BatchPlan(precision="fp32", **layout).cut(EXAMPLES)) for layout in LAYOUTS]
    assert min(num_parts) == 1 and max(num_parts) == 10


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_values_of_an_example_do_not_depend_on_its_neighbours(new_policy, attention):
    policy = new_policy(3)
    policy.set_attn_implementation(attention)
    first, second, third = EXAMPLES[1], EXAMPLES[4], EXAMPLES[9]
    other = Example(tuple((7 * t + 3) % 280 for t in first.ids), first.num_prompt)
    reader = reader_of(policy, precision="fp32")
    values = [
        reader.states([neighbour, second, third])[len(first.ids) - first.num_prompt :]
        for neighbour in (first, other)
    ]
    alone = reader.states([second])
    assert torch.equal(*values)
    torch.testing.assert_close(values[0][: len(alone)], alone, rtol=1e-5, atol=1e-5)


TWO_LENGTHS = torch.tensor([3, 1])


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
    whole = shares(TWO_LENGTHS, normalizer=normalizer)
    assert whole.tolist() == pytest.approx(expected, rel=1e-12)
    how = {"normalizer": normalizer, "denominator": denominator}
    assert torch.equal(torch.cat([shares(part, **how) for part in TWO_LENGTHS.split(1)]), whole)


def test_a_mask_of_shares_and_an_unknown_normaliser_are_refused():
    with pytest.raises(ValueError, match="loss_mask must hold only 0 and 1"):
        token_mask(torch.zeros(2, 2), torch.full((2, 2), 0.5))
    with pytest.raises(ValueError, match="normalizer"):
        shares(TWO_LENGTHS, normalizer="mean")
