"""The miniature's base model: a small Qwen3 and its tokenizer, learnt from the world's own text."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from klearlib.data.lines import read_lines
from klearlib.policy.compute import Compute
from klearlib.run.seeding import derive_seed
from klearlib.sft.batches import Example
from klearlib.sft.train import fit

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder


# Qwen's layout of turns; the opening of the assistant's turn holds no <think>, the policy writes
# it.
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Parameters of a shape whose name in Qwen3's config is another one.
_CONFIG_NAMES = {
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
}


def pretrain(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    seed: int,
    vocab_size: int,
    max_positions: int,
    num_steps: int,
    batch_size: int,
    learning_rate: float,
    compute: dict,
    **shape: int,
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
        vocab_size, shape: of the model, the fields of `klearlib.params.worlds.ModelShape`.
    """
    rows = list(read_lines(inputs["world"] / "corpus.jsonl"))
    texts = [row.get("given", "") + row["text"] for row in rows]
    chats = read_lines(inputs["world"] / "sft.jsonl")
    turns = [f"user\n{row['prompt']}\nassistant\n{row['response']}" for row in chats]
    tokenizer = train_tokenizer(texts + turns, vocab_size=vocab_size)
    torch.manual_seed(derive_seed(seed, "base", "weights") % 2**32)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            **{_CONFIG_NAMES.get(name, name): value for name, value in shape.items()},
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
        normalizer="token",
        compute=Compute(**compute),
    )


def train_tokenizer(texts: Iterable[str], *, vocab_size: int) -> PreTrainedTokenizerFast:
    """A tokenizer that can write any text: its alphabet is all 256 bytes, digits stay single.

    vocab_size: at least 261: 256 bytes and 5 special tokens.
    """
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    # The think tags are ordinary tokens, as in Qwen3: decoding keeps them for the verifier.
    tags = [AddedToken(tag, special=False, normalized=False) for tag in ("<think>", "</think>")]
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    core.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=vocab_size - len(control) - len(tags),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    core.add_special_tokens(control)
    core.add_tokens(tags)
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
    )
