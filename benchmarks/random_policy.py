"""A random Qwen3 with a tokenizer of as many words, for benchmarks."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

PAD, END, FIRST_WORD = 0, 1, 2


def save_random_policy(
    folder: Path,
    *,
    vocab_size: int,
    width: int,
    layers: int,
    heads: int,
    kv_heads: int,
    mlp: int,
    ends: bool,
    max_positions: int = 1024,
) -> int:
    """Write model and tokenizer to `folder` in the Hugging Face format.

    Words are numbers, ``2``, ``3``, ... A prompt of n words has n tokens, its chat template adds
    none.

    Args:
        ends: the end token is a word of the model, as likely as the others; otherwise it is one
            more, which is never drawn, so that every response has the length of the budget.

    Returns:
        The number of parameters.
    """
    end = END if ends else vocab_size
    words = {"<pad>": PAD} | {str(i): i for i in range(1, vocab_size) if i != end} | {"<end>": end}
    backend = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="<end>"
    )
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(words),
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            head_dim=width // heads,
            intermediate_size=mlp,
            max_position_embeddings=max_positions,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=end,
            pad_token_id=PAD,
        )
    )
    if not ends:
        _never_draw(model, end)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model.num_parameters()


@torch.no_grad()
def _never_draw(model: Qwen3ForCausalLM, token: int) -> None:
    """Give `token` a logit far below all others, whatever the prompt.

    Qwen3's head has no bias, so one is made: the first coordinate of every state stays that of the
    embedding, 0.1 before the norm, which the head multiplies by -1000 for `token` and 0.1 for the
    others.
    """
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight[0] = layer.mlp.down_proj.weight[0] = 0
    rows = model.get_input_embeddings().weight
    rows[:, 0] = 0.1
    rows[token] = 0
    rows[token, 0] = -1000
