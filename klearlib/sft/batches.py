"""Token examples and their right-padded batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import torch

from klearlib.policy.load import chat_prompt
from klearlib.run.seeding import derive_seed


@dataclass(frozen=True)
class Example:
    """Token ids of prompt and response; the loss is on the tokens from `num_prompt` on."""

    ids: tuple[int, ...]
    num_prompt: int


def chat_example(tokenizer, prompt: str, response: str) -> Example:
    """One turn of chat: the prompt through the chat template, the response and the end token."""
    _, head = chat_prompt(tokenizer, prompt)
    tail = tokenizer(response, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    return Example(ids=tuple(head + tail), num_prompt=len(head))


def example_order(num_examples: int, *, seed: int) -> Iterator[int]:
    """Indices of examples epoch after epoch, each epoch in an order of its own."""
    if num_examples < 1:
        raise ValueError(f"need at least one example, got {num_examples}")
    epoch = 0
    while True:
        order = list(range(num_examples))
        Random(derive_seed(seed, "epoch", epoch)).shuffle(order)
        yield from order
        epoch += 1


def pad_rows(rows: Sequence[Sequence[int]], *, pad_id: int) -> torch.Tensor:
    """Right-padded long tensor [N, longest row]."""
    width = max(map(len, rows))
    padded = torch.full((len(rows), width), pad_id, dtype=torch.long)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = torch.tensor(row)
    return padded


def token_mask(num_prompt: Sequence[int], lengths: Sequence[int], width: int) -> torch.Tensor:
    """bool [N, width - 1]: position t predicts token t + 1, True where that is a response token."""
    position = torch.arange(1, width)
    start, stop = torch.tensor(num_prompt)[:, None], torch.tensor(lengths)[:, None]
    return (position >= start) & (position < stop)
