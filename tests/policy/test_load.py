"""Policies survive saving and loading, and what is missing or damaged says so in one line."""

import pytest
import torch

from klearlib.errors import DamagedEntry, MissingAsset
from klearlib.policy.load import autocast, chat_prompt, load_policy, save_policy


def test_round_trip_keeps_logits_and_tokenizer(tiny_policy, tiny_tokenizer, tmp_path):
    save_policy(tiny_policy, tiny_tokenizer, tmp_path / "model")
    model, tokenizer = load_policy(tmp_path / "model", device="cpu")
    ids = torch.arange(20)[None]
    with torch.no_grad():
        assert torch.equal(model(input_ids=ids).logits, tiny_policy(input_ids=ids).logits)
    assert not model.training
    assert all(p.dtype == torch.float32 for p in model.parameters())
    assert model.config.tie_word_embeddings
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    for text in ("2 + 2", "<think>\n12*3=1\n</think>\n\\boxed{1}"):
        assert chat_prompt(tokenizer, text) == chat_prompt(tiny_tokenizer, text)
    assert tokenizer.pad_token_id == tiny_tokenizer.pad_token_id
    assert tokenizer.eos_token_id == tiny_tokenizer.eos_token_id


def test_chat_prompt_opens_the_assistants_turn(tiny_tokenizer):
    text, ids = chat_prompt(tiny_tokenizer, "2+2?")
    assert text == "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"
    assert tiny_tokenizer.decode(ids) == text
    control = {tiny_tokenizer.convert_tokens_to_ids(t) for t in ("<|im_start|>", "<|im_end|>")}
    assert sum(token in control for token in ids) == 3


def test_missing_folder_is_a_missing_asset(tmp_path):
    with pytest.raises(MissingAsset, match="no-such-model") as error:
        load_policy(tmp_path / "no-such-model")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("what", ["config.json", "model.safetensors", "tokenizer.json"])
def test_damaged_folder_is_named(tiny_policy, tiny_tokenizer, tmp_path, what):
    save_policy(tiny_policy, tiny_tokenizer, tmp_path)
    content = (tmp_path / what).read_bytes()
    (tmp_path / what).write_bytes(content[: len(content) // 2])
    with pytest.raises(DamagedEntry, match="delete it and run again") as error:
        load_policy(tmp_path)
    assert "\n" not in str(error.value)


def test_cpu_forward_is_not_autocast(tiny_policy):
    with autocast("cpu"):
        assert tiny_policy(input_ids=torch.arange(5)[None]).logits.dtype == torch.float32
