"""YaRN in a loaded model, against the formulas of its paper and its authors' code."""

import json
import math

import pytest
import torch
from small_models import small_model
from transformers import GPT2Config

from klearlib.errors import MissingAsset, ParameterError
from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.load import load_policy, save_policy, with_yarn
from klearlib.policy.sampling import sample_groups
from klearlib.records import Problem

FAST, SLOW = 32, 1


def expected_frequencies(dim, theta, original, factor):
    """Radians a token of each rotary pair, by plain Python.

    A pair turns r = original / wavelength times over the original positions. d(r) is the pair, as a
    real number, that turns r times: theta^(2 d / dim) = original / (2 pi r).
    """

    def pair_with(turns):
        return dim / 2 * math.log(original / (2 * math.pi * turns)) / math.log(theta)

    first, last = max(0, math.floor(pair_with(FAST))), min(dim - 1, math.ceil(pair_with(SLOW)))
    found = []
    for pair in range(dim // 2):
        plain = theta ** (-2 * pair / dim)
        kept = 1 - min(1.0, max(0.0, (pair - first) / (last - first)))
        found.append(kept * plain + (1 - kept) * plain / factor)
    return found


def tiny(dim, theta, original):
    return small_model(
        vocab_size=300,
        num_hidden_layers=1,
        head_dim=dim,
        max_position_embeddings=original,
        rope_parameters={"rope_type": "default", "rope_theta": theta},
    )


@pytest.mark.parametrize(
    ("dim", "theta", "original", "factor"),
    [(128, 1e6, 32768, 2.5), (64, 1e4, 2048, 4.0), (12, 1e4, 200, 2.5), (16, 5e5, 512, 1.5)],
)
def test_cosines_and_sines_of_the_loaded_model(
    tmp_path, tiny_tokenizer, dim, theta, original, factor
):
    save_policy(tiny(dim, theta, original), tiny_tokenizer, tmp_path)
    model, _ = load_policy(tmp_path, device="cpu", yarn_factor=factor)
    assert model.config.max_position_embeddings == int(original * factor)
    # Short distances too: the factor is static. Single precision limits the angle of a far one.
    positions = [0, 1, 2, 7, 64, original - 1, int(original * factor) - 1]
    cos, sin = model.model.rotary_emb(torch.zeros(1), torch.tensor([positions]))
    scale = 0.1 * math.log(factor) + 1
    for pair, frequency in enumerate(expected_frequencies(dim, theta, original, factor)):
        for row, position in enumerate(positions):
            error = 1e-5 + 1e-6 * position
            for half in (pair, pair + dim // 2):  # cos and sin are the angles, twice over
                assert abs(cos[0, row, half] - scale * math.cos(position * frequency)) < error
                assert abs(sin[0, row, half] - scale * math.sin(position * frequency)) < error


def test_original_positions_below_those_of_the_config(tmp_path, tiny_tokenizer):
    # As of Qwen3-8B, whose config has 40,960 positions for the 32,768 of its training.
    save_policy(tiny(64, 1e6, 40960), tiny_tokenizer, tmp_path)
    model, _ = load_policy(tmp_path, device="cpu", yarn_factor=2.5, yarn_original=32768)
    assert model.config.max_position_embeddings == 81920
    expected = expected_frequencies(64, 1e6, 32768, 2.5)
    assert model.model.rotary_emb.inv_freq.tolist() == pytest.approx(expected, rel=1e-5)


def test_weights_and_theta_stay_and_positions_go_further(tiny_policy, tiny_tokenizer, tmp_path):
    save_policy(tiny_policy, tiny_tokenizer, tmp_path)
    plain, _ = load_policy(tmp_path, device="cpu")
    model, tokenizer = load_policy(tmp_path, device="cpu", yarn_factor=2.5)
    assert not model.training and model.dtype == torch.float32
    for name, weights in plain.state_dict().items():
        assert torch.equal(model.state_dict()[name], weights), name
    rope = plain.config.rope_parameters
    assert model.config.rope_parameters == rope | {
        "rope_type": "yarn",
        "factor": 2.5,
        "original_max_position_embeddings": plain.config.max_position_embeddings,
    }
    assert rope["rope_type"] == "default"
    ids = torch.arange(20)[None]
    with torch.no_grad():
        assert not torch.allclose(model(input_ids=ids).logits, plain(input_ids=ids).logits)
    over = plain.config.max_position_embeddings + 10
    settings = SamplingSettings(temperature=1.0, top_p=1.0, top_k=0, max_tokens=over, seed=0)
    problem = [Problem("a", "2+2?", "4")]
    (group,) = sample_groups(model, tokenizer, problem, group_size=8, settings=settings)
    assert max(len(response.token_ids) for response in group) == over


@pytest.mark.parametrize("factor", [1, 1.0, 0.5, 0, -2.5, math.nan, math.inf])
def test_factors_that_stretch_nothing_are_refused(tiny_policy, tiny_tokenizer, tmp_path, factor):
    save_policy(tiny_policy, tiny_tokenizer, tmp_path)
    with pytest.raises(ParameterError, match="yarn_factor must be above 1"):
        load_policy(tmp_path, device="cpu", yarn_factor=factor)


@pytest.mark.parametrize("kind", ["yarn", "linear", "dynamic"])
def test_scaled_positions_are_not_scaled_again(tiny_policy, tiny_tokenizer, tmp_path, kind):
    save_policy(tiny_policy, tiny_tokenizer, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["rope_parameters"] |= {
        "rope_type": kind,
        "factor": 4.0,
        "original_max_position_embeddings": 32,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ParameterError, match=f"of this qwen3 are {kind}: leave it out"):
        load_policy(tmp_path, device="cpu", yarn_factor=2.5)
    load_policy(tmp_path, device="cpu")


def test_models_without_rotary_positions_and_missing_ones(tmp_path):
    with pytest.raises(ParameterError, match="of this gpt2 are of another kind"):
        with_yarn(GPT2Config(), 2.5)
    with pytest.raises(MissingAsset):
        load_policy(tmp_path / "none", yarn_factor=2.5)
