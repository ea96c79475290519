"""The miniature's base model: a small Qwen3, pretrained on the world's own text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from klearlib.miniature.tokenizer import train_tokenizer
from klearlib.policy.compute import Compute
from klearlib.run.seeding import derive_seed
from klearlib.sft.batches import Example
from klearlib.sft.train import fit

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder


def pretrain(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    seed: int,
    vocab_size: int,
    hidden_size: int,
    num_layers: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    intermediate_size: int,
    max_positions: int,
    num_steps: int,
    batch_size: int,
    learning_rate: float,
    compute: dict,
) -> None:
    """Stage ``base``: learns the tokenizer and pretrains the model on
    ``inputs["world"]/corpus.jsonl``, rows of text. What a row has as `given` is read before its
    text and not learnt: at random contents, such as those of a specification, a small model could
    only learn to guess.

    The tokenizer also sees the chains of thought in their chat format (sft.jsonl), so that its
    words hold what every turn repeats; the model does not.

    Writes ``model/`` in the Hugging Face format: architecture Qwen3 with tied embeddings.

    Args:
        max_positions: the longest sequence, prompt and response together, in tokens.
        learning_rate: the peak; cosine to a tenth of it.
        compute: the fields of `klearlib.policy.compute.Compute`.
    """
    with (inputs["world"] / "corpus.jsonl").open() as file:
        rows = [json.loads(line) for line in file]
    texts = [row.get("given", "") + row["text"] for row in rows]
    with (inputs["world"] / "sft.jsonl").open() as file:
        chats = [json.loads(line) for line in file]
    turns = [f"user\n{row['prompt']}\nassistant\n{row['response']}" for row in chats]
    tokenizer = train_tokenizer(texts + turns, vocab_size=vocab_size)
    torch.manual_seed(derive_seed(seed, "base", "weights") % 2**32)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=hidden_size,
            num_hidden_layers=num_layers,
            num_attention_heads=num_heads,
            num_key_value_heads=num_kv_heads,
            head_dim=head_dim,
            intermediate_size=intermediate_size,
            max_position_embeddings=max_positions,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    end = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    examples = []
    for row in rows:
        given, ids = (
            tokenizer(text, add_special_tokens=False)["input_ids"]
            for text in (row.get("given", ""), row["text"])
        )
        examples.append(Example(ids=(*given, *ids, end), num_prompt=max(1, len(given))))
    fit(
        folder,
        model,
        tokenizer,
        examples,
        seed=derive_seed(seed, "base", "order"),
        num_steps=num_steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        final_learning_rate=learning_rate / 10,
        warmup_steps=num_steps // 20,
        normalizer="token",
        compute=Compute(**compute),
        adam_beta1=0.9,
        adam_beta2=0.95,
    )
