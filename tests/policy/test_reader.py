"""What a few tokens show of a model before it trains: whether it is causal, and its head plain."""

import pytest
import torch
from small_models import small_gpt2, small_model

from klearlib.errors import KlearError
from klearlib.policy.batch_plan import plan_batches
from klearlib.policy.compute import local_compute
from klearlib.policy.reader import has_plain_head, in_chunks
from klearlib.sft.batches import Example

SMALL = {"num_hidden_layers": 1, "pad_token_id": 0}
MAMBA = {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8}
RECURRENT = {
    "attention_window_size": 16,
    "lru_width": 32,
    "block_types": ["recurrent", "attention"],
    "num_hidden_layers": 2,
}
OTHER_HEADS = {
    "scale": ("FalconH1", MAMBA | {"lm_head_multiplier": 0.2}),
    "cap": ("RecurrentGemma", RECURRENT | {"logits_soft_cap": 3.0}),
    "transform": ("Bert", {"is_decoder": True, "head": "LMHeadModel"}),
    "soft cap": ("Gemma2", {"head_dim": 8}),
}


@pytest.mark.parametrize("kind", OTHER_HEADS)
def test_models_whose_logits_are_no_linear_head_train_by_their_own_logits(kind):
    """A pass has their log-probabilities, at a temperature too."""
    family, how = OTHER_HEADS[kind]
    model = small_model(family, **SMALL | how).train()
    plan = plan_batches(model, local_compute(micro_batch_tokens=100), pad_id=0)
    assert not plan.plain_head and model.training
    model.eval()
    ids = (5, 9, 2, 7, 7, 3)
    with plan.reading(model) as reader:
        for _, found, _ in in_chunks(reader, [[Example(ids, 2)]], temperature=0.7):
            found.sum().backward()
    logits = model(input_ids=torch.tensor([ids])).logits[0] / 0.7
    expected = torch.log_softmax(logits, -1)[range(1, 5), ids[2:]]
    torch.testing.assert_close(found, expected)


def test_a_model_that_looks_ahead_is_refused():
    model = small_model("BertGeneration", head="Decoder", is_decoder=False, **SMALL)
    with pytest.raises(KlearError, match=r"^BertGenerationDecoder is no causal model.*supported$"):
        plan_batches(model, local_compute(micro_batch_tokens=100), pad_id=0)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_linear_heads_are_seen(new_policy, precision):
    """Tied and not, with and without a bias, of few words and of large logits."""
    phi = small_model("Phi", **SMALL | {"initializer_range": 1.0})
    torch.nn.init.normal_(phi.lm_head.bias)
    for model in (small_gpt2(vocab_size=5), phi, new_policy(3), new_policy(3, dtype=torch.float64)):
        assert has_plain_head(model, precision=precision)


def test_a_scale_in_a_hook_is_no_plain_head(new_policy):
    policy = new_policy(3)
    policy.lm_head.register_forward_hook(lambda _module, _inputs, logits: 1.5 * logits)
    assert not has_plain_head(policy, precision="bf16")
