"""Log-probabilities on a GPU or its stand-in: a CPU's values and gradients; a long row's memory."""

import pytest
import torch
from small_models import small_model

from klearlib.policy.reader import in_chunks, reader_of
from klearlib.sft.batches import Example

pytestmark = pytest.mark.gpu


def values_and_gradient(model, ids, precision):
    model.zero_grad()
    rows, found = [Example(row, num_prompt=1) for row in ids.tolist()], []
    reader = reader_of(model, precision=precision)
    for _, logp, entropy in in_chunks(reader, rows):
        logp.sum().backward()
        found.append(torch.stack([logp.detach(), entropy]).cpu())
    gradient = torch.cat([p.grad.flatten() for p in model.parameters()]).cpu()
    return *torch.cat(found, dim=1), gradient


@pytest.mark.parametrize(("precision", "apart"), [("fp32", 1e-4), ("bf16", 0.1)])
def test_values_and_gradients_are_those_of_a_cpu(new_policy, device, precision, apart):
    ids = torch.randint(0, 250, (5, 60), generator=torch.Generator().manual_seed(0))
    expected = values_and_gradient(new_policy(0), ids, "fp32")
    found = values_and_gradient(new_policy(0).to(device), ids, precision)
    for value, other in zip(found, expected, strict=True):
        assert float((value - other).norm() / other.norm()) < apart
        assert value.dtype == torch.float32


def test_a_long_row_never_holds_the_logits_of_all_its_tokens():
    """8,192 tokens x 151,936 words are 5 GB in float32, and 10 with their gradient."""
    model = small_model(
        vocab_size=151_936,
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        intermediate_size=128,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        initializer_range=0.02,
    ).to("cuda")
    row = Example(torch.randint(0, 151_936, (8192,)).tolist(), num_prompt=1)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    reader = reader_of(model, precision="bf16")
    for _, logp, _ in in_chunks(reader, [row], with_entropy=False):
        logp.sum().backward()
    extra = torch.cuda.max_memory_allocated() - before
    dense = 2 * 4 * 8191 * 151_936
    assert extra < dense / 5
