"""The miniature's tokenizer: byte-level BPE learnt from its own text, with chat template and think
tags."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from klearlib.errors import ParameterError

# Qwen's layout of turns; the opening of the assistant's turn holds no <think>, the policy writes
# it.
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def train_tokenizer(texts: Iterable[str], *, vocab_size: int) -> PreTrainedTokenizerFast:
    """A tokenizer that can write any text: its alphabet is all 256 bytes, digits stay single.

    Args:
        vocab_size: at least 261: 256 bytes and 5 special tokens.

    Raises:
        ParameterError: `vocab_size` is too small.
    """
    if vocab_size < 261:
        raise ParameterError(
            f"vocab_size must be at least 261 (256 bytes, 5 special tokens), got {vocab_size}"
        )
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
