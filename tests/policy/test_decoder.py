"""The decoder computes what transformers does, for every shape of its three families; and so does
the step that a GPU captures, on a CPU: `Captured` runs what was captured again as it is."""

from array import array
from types import SimpleNamespace

import pytest
import torch
from small_models import small_model
from torch.utils._python_dispatch import TorchDispatchMode

from klearlib.policy.captured import CapturedDecoding
from klearlib.policy.decoder import Decoder, Decoding, can_decode, rms_norm, token_line

YARN = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
}
BIASES = {"head_dim": 16, "attention_bias": True}
SHAPES = {
    "llama": ("Llama", {"head_dim": 16}),
    "llama, biases, tied": ("Llama", BIASES | {"mlp_bias": True, "tie_word_embeddings": True}),
    "qwen2, no groups": ("Qwen2", {"num_key_value_heads": 6}),
    "qwen2, tied, one key head": ("Qwen2", {"num_key_value_heads": 1, "tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
    "qwen3, biases, yarn": ("Qwen3", BIASES | {"rope_parameters": YARN}),
}


def new_model(family: str, **changes):
    small = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6}
    model = small_model(family, **small | {"intermediate_size": 80} | changes)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name or "bias" in name:
                weight.uniform_(0.5, 1.5)
    return model


@pytest.fixture(scope="module", params=SHAPES)
def model(request):
    family, changes = SHAPES[request.param]
    return new_model(family, **changes)


@pytest.fixture(scope="module")
def rollouts():
    """Two responses to each of three prompts of 5, 8 and 11 tokens."""
    draws, found = torch.Generator().manual_seed(1), []
    for length in (5, 8, 11):
        prompt = torch.randint(0, 97, (length,), generator=draws).tolist()
        for more in (7, 11):
            response = torch.randint(0, 97, (more,), generator=draws).tolist()
            found.append(SimpleNamespace(ids=prompt + response, num_prompt=length))
    return found


def expected_of(model, rollouts) -> torch.Tensor:
    """log softmax [K, V] before each response token, one rollout at a time."""
    return torch.cat(
        [
            torch.log_softmax(model(input_ids=torch.tensor([x.ids])).logits[0], -1)[
                x.num_prompt - 1 : -1
            ]
            for x in rollouts
        ]
    )


def apart(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float(((found - expected).norm() / expected.norm()).detach())


@pytest.mark.parametrize("kind", [tuple, lambda ids: array("i", ids), torch.tensor])
def test_ids_may_be_any_sequence_or_a_tensor(kind):
    rows = [((5, 6, 7), 2), ((5, 6, 8, 9), 2), ((5, 6, 8, 9), 3)]
    made = [SimpleNamespace(ids=kind(ids), num_prompt=num_prompt) for ids, num_prompt in rows]
    line = token_line(made, device="cpu")
    assert line.ids.tolist() == [5, 6, 8, 5, 6, 8]
    assert line.positions.tolist() == [0, 1, 2, 0, 1, 2]
    assert line.rows.tolist() == [[0, 1, 0], [0, 1, 2], [3, 4, 5]]
    assert line.places.tolist() == [0, 1, 5, 6, 7, 8]
    assert line.before.tolist() == [1, 1, 2, 5]


@pytest.mark.parametrize("recompute", [False, True])
def test_a_line_has_the_states_and_the_gradients_of_transformers(
    model, rollouts, recompute, monkeypatch
):
    assert can_decode(model)
    calls, compute = [], Decoder._compute
    monkeypatch.setattr(Decoder, "_compute", lambda *args: calls.append(1) or compute(*args))
    decoder = Decoder(model, recompute=recompute)
    states = decoder.line_states(token_line(rollouts, device="cpu"))
    found, expected = torch.log_softmax(decoder.logits(states), -1), expected_of(model, rollouts)
    assert apart(found, expected) < 1e-6
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(2))
    gradients = []
    for values in (found, expected):
        model.zero_grad()
        (values * weights).sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    assert max(map(apart, *gradients)) < 1e-5
    assert len(calls) == (1 + recompute) * len(model.model.layers)


@torch.no_grad()
@pytest.mark.parametrize("padded", [False, True])
def test_tokens_one_by_one_have_the_probabilities_of_the_whole(model, rollouts, padded):
    """Through a cache that grows, after rows were repeated and some have left."""
    chosen = rollouts if padded else rollouts[-2:]
    prompts = [x.ids[: x.num_prompt] for x in chosen[::2]]
    width = max(map(len, prompts))
    ids, mask = (torch.zeros(len(prompts), width, dtype=torch.long) for _ in range(2))
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
        mask[row, width - len(prompt) :] = 1
    loop = Decoding(Decoder(model), ids, mask, width + 7)
    loop.repeat(2)
    for step in range(7):
        if step == 4:
            loop.keep(torch.tensor([1]))
            chosen = chosen[1:2]
        for found, x in zip(torch.log_softmax(loop.logits, -1), chosen, strict=True):
            so_far = torch.tensor([x.ids[: x.num_prompt + step]])
            expected = torch.log_softmax(model(input_ids=so_far).logits[0, -1], -1)
            assert apart(found, expected) < 1e-5
        loop.step(torch.tensor([x.ids[x.num_prompt + step] for x in chosen]))


def test_bf16_agrees_with_autocast_within_its_precision(model, rollouts):
    decoder = Decoder(model, precision="bf16")
    states = decoder.line_states(token_line(rollouts, device="cpu"))
    found = torch.log_softmax(decoder.logits(states).float(), -1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        autocast = expected_of(model, rollouts)
    whole = expected_of(model, rollouts)
    assert apart(found, whole) < 1.5 * apart(autocast.float(), whole)
    assert states.dtype == torch.float32


def test_a_token_that_is_padding_elsewhere_has_the_gradient_of_transformers(rollouts):
    """Its embedding has none, as in torch."""
    pad = SimpleNamespace(ids=[7, 3, 7, 9], num_prompt=2)
    model = new_model("Llama", pad_token_id=7)
    states, gradients = Decoder(model).line_states(token_line([pad], device="cpu")), []
    found = torch.log_softmax(states @ model.lm_head.weight.T, -1)
    for values in (found, expected_of(model, [pad])):
        model.zero_grad()
        values[:, 5].sum().backward()
        gradients.append(model.model.embed_tokens.weight.grad.clone())
    assert not gradients[1][7].any() and apart(*gradients) < 1e-5


ROPE = {"rope_theta": 1e4, "factor": 2.0}
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
SLIDING = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
UNUSUAL_MODELS = {
    "another family": ("Mistral", {}),
    "window": ("Qwen2", SLIDING),
    "activation": ("Llama", {"hidden_act": "gelu"}),
    "dropout": ("Llama", {"attention_dropout": 0.1}),
    "dynamic": ("Llama", {"rope_parameters": ROPE | {"rope_type": "dynamic"}}),
    "linear": ("Llama", {"rope_parameters": ROPE | {"rope_type": "linear"}}),
    "llama3": ("Llama", {"rope_parameters": ROPE | LLAMA3 | {"rope_type": "llama3"}}),
}
CHANGES = {"other attention": lambda model: model.set_attn_implementation("eager")}


@pytest.mark.parametrize("unusual", [*UNUSUAL_MODELS, *CHANGES])
def test_what_it_does_not_compute_is_left_to_transformers(unusual):
    family, changes = UNUSUAL_MODELS.get(unusual, ("Qwen3", {}))
    model = new_model(family, **changes)
    if unusual in CHANGES:
        assert can_decode(model)
        CHANGES[unusual](model)
    assert not can_decode(model)


@pytest.mark.parametrize("shape", [(16,), (4, 8)])
def test_norm_by_its_formula(shape):
    draws = torch.Generator().manual_seed(0)
    states, weight = (
        torch.randn(x, dtype=torch.float64, generator=draws).requires_grad_()
        for x in ((5, *shape), shape)
    )
    plain = states / (states.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight
    assert torch.allclose(rms_norm(states, weight, 1e-6), plain, rtol=1e-12)
    with torch.no_grad():
        assert torch.allclose(rms_norm(states, weight, 1e-6), plain, rtol=1e-12)
    assert torch.autograd.gradcheck(lambda s, w: rms_norm(s, w, 1e-6), (states, weight))


# What asks the device for a number, for which the host would wait, and cannot be captured.
ASKING = {"_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal"}


class Captured:
    """In place of a CUDA graph; its first run stands for the warm-up."""

    number = 0

    def __init__(self, advance):
        type(self).number += 1
        with Watch():
            advance()
        self.replay = advance


class Watch(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert function.overloadpacket.__name__ not in ASKING, function
        return function(*args, **(kwargs or {}))


@pytest.fixture
def prompts():
    """Ids and mask [2, 5] of a prompt of five tokens and one of three."""
    ids = torch.tensor([[9, 8, 7, 6, 5], [0, 0, 4, 3, 2]])
    return ids, torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@torch.no_grad()
def test_it_gives_the_logits_of_the_plain_loop(new_policy, prompts, precision, padded):
    ids, mask = prompts if padded else (each[:1] for each in prompts)
    decoder = Decoder(new_policy(3), precision=precision)
    loops = [
        Decoding(decoder, ids, mask, 40),
        CapturedDecoding(decoder, ids, mask, 40, capture=Captured),
    ]
    Captured.number, draws = 0, torch.Generator().manual_seed(1)
    for loop in loops:
        loop.repeat(3)
    for step in range(35):
        plain, captured = (loop.logits for loop in loops)
        torch.testing.assert_close(
            captured, plain, atol=2e-5 if precision == "fp32" else 0.1, rtol=0
        )
        if step == 20:
            for loop in loops:
                loop.keep(torch.tensor([0, 2]))
        token = torch.randint(0, 200, (len(loops[0].logits),), generator=draws)
        for loop in loops:
            loop.step(token)
    # Once at first, once for the rows that left, and where the buffers were full.
    assert 2 < Captured.number < 12
