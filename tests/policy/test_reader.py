"""The log-probabilities that train are those of the dense softmax, by the decoder and, for models
that it does not compute, by their own forward pass over padded rows."""

import pytest
import torch
from small_models import small_gpt2, small_model

from klearlib.policy import reader
from klearlib.sft.batches import Example

MAMBA = {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8}
OTHERS = {
    "learnt positions": lambda: small_gpt2(vocab_size=97, n_positions=16),
    "a scaled head, a state": lambda: small_model("FalconH1", **MAMBA, lm_head_multiplier=0.2),
    "a capped head": lambda: small_model("Gemma2", head_dim=8),
    "biases of positions": lambda: small_model("Bloom"),
}


DECODED = [(kind, size) for kind in ("sdpa", "eager") for size in (1, 7, 100)]


@pytest.mark.parametrize(("kind", "size"), [*DECODED, *((kind, 7) for kind in OTHERS)])
def test_values_and_gradients_are_those_of_the_models_own_logits(
    new_policy, monkeypatch, kind, size
):
    """At a temperature, in rows of unequal length, in chunks of the head."""
    if kind in OTHERS:
        model = OTHERS[kind]()
    else:
        model = new_policy(1, dtype=torch.float64)
        model.set_attn_implementation(kind)
    draws = torch.Generator().manual_seed(5)
    rows = [
        Example(torch.randint(0, 97, (length,), generator=draws).tolist(), num_prompt=3)
        for length in (9, 4, 11, 14)
    ]
    scale, expected = torch.arange(1.0, 27.0), []
    for row in rows:
        ids = torch.tensor([[*row.ids]])
        logp = torch.log_softmax(model(input_ids=ids).logits[0, :-1] / 0.7, -1)
        expected.append(logp.gather(1, ids[0, 1:, None])[row.num_prompt - 1 :, 0])
    expected = torch.cat(expected)
    weights = list(model.parameters())
    wanted = torch.autograd.grad((scale * expected.exp()).sum(), weights, allow_unused=True)
    monkeypatch.setattr(reader, "head_chunk_tokens", lambda *_, **__: size)
    seen = []
    for chunk, logp, _ in reader.in_chunks(
        reader.reader_of(model, precision="fp32"), rows, temperature=0.7
    ):
        assert len(logp) <= size
        (scale[chunk] * logp.exp()).sum().backward()
        seen.append(logp.detach())
    torch.testing.assert_close(torch.cat(seen).to(expected.dtype), expected, rtol=1e-5, atol=1e-5)
    for weight, gradient in zip(weights, wanted, strict=True):
        if gradient is not None:
            torch.testing.assert_close(weight.grad, gradient, rtol=1e-4, atol=1e-5)
