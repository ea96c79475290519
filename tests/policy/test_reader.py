"""Models that the decoder does not compute are read by their own forward pass over padded rows."""

import pytest
import torch
from small_models import small_gpt2, small_model

from klearlib.policy.batch_plan import plan_batches
from klearlib.policy.compute import local_compute
from klearlib.policy.reader import in_chunks
from klearlib.sft.batches import Example

MAMBA = {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8}
MODELS = {
    "learnt positions": lambda: small_gpt2(vocab_size=97, n_positions=16),
    "a scaled head, a state": lambda: small_model("FalconH1", **MAMBA, lm_head_multiplier=0.2),
    "a capped head": lambda: small_model("Gemma2", head_dim=8),
    "biases of positions": lambda: small_model("Bloom"),
}


@pytest.mark.parametrize("kind", MODELS)
def test_log_probabilities_are_those_of_its_own_logits(kind):
    """At a temperature, in rows of unequal length, with the gradient of the dense softmax."""
    model = MODELS[kind]()
    rows = [Example((5, 9, 2, 7, 7, 3), 2), Example((4, 1, 8), 1)]
    plan, found = plan_batches(model, local_compute(micro_batch_tokens=100)), []
    expected = torch.cat(
        [
            torch.log_softmax(
                model(input_ids=torch.tensor([[*x.ids]])).logits[0, :-1] / 0.7, -1
            ).gather(1, torch.tensor(x.ids[1:])[:, None])[x.num_prompt - 1 :, 0]
            for x in rows
        ]
    )
    weights = [p for p in model.parameters() if p.requires_grad]
    wanted = torch.autograd.grad(expected.exp().sum(), weights, allow_unused=True)
    reader = plan.reader(model)
    for _, logp, _ in in_chunks(reader, rows, temperature=0.7):
        logp.exp().sum().backward()
        found.append(logp.detach())
    torch.testing.assert_close(torch.cat(found), expected, rtol=1e-5, atol=1e-5)
    for weight, gradient in zip(weights, wanted, strict=True):
        if gradient is not None:
            torch.testing.assert_close(weight.grad, gradient, rtol=1e-4, atol=1e-5)
