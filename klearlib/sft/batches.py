"""Token examples, and the order in which they are drawn."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from klearlib.errors import KlearError
from klearlib.policy.load import chat_prompt, control_ids
from klearlib.run.seeding import derive_seed


@dataclass(frozen=True, slots=True)
class Example:
    """Token ids of prompt and response; the loss is on the tokens from `num_prompt` on.

    The ids may be given as any sequence and are kept as ``array("i")``, 4 bytes each: those of the
    paper's 88,000 examples of some 8,000 tokens lie in memory together.

    Raises KlearError without a prompt token, from which the first response token is predicted, or
    without a response token.
    """

    ids: Sequence[int]
    num_prompt: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", array("i", self.ids))
        if not 1 <= self.num_prompt < len(self.ids):
            raise KlearError(
                f"an example needs a prompt and a response token, got {len(self.ids)} tokens with "
                f"a prompt of {self.num_prompt}"
            )


def chat_example(tokenizer, prompt: str, response: str) -> Example:
    """One turn of chat: the prompt through the chat template, the response and the end token.

    A control token in the response stays one; see `usable`.
    """
    _, head = chat_prompt(tokenizer, prompt)
    tail = tokenizer(response, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    return Example(ids=head + tail, num_prompt=len(head))


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


def usable(
    examples: Sequence[Example], tokenizer, *, max_tokens: int
) -> tuple[list[Example], Counter[str]]:
    """The examples that can be trained on whole, and how many others there are, by what is wrong.

    Left out are those whose response holds a control token before its last, as an end token there
    would be learnt as the end and what follows it as its rest, and those of more than `max_tokens`.
    Raises KlearError if none is left.
    """
    control = control_ids(tokenizer)
    kept, left_out = [], Counter()
    for example in examples:
        if control.intersection(example.ids[example.num_prompt : -1]):
            left_out["with a control token in the response"] += 1
        elif len(example.ids) > max_tokens:
            left_out[f"of more than {max_tokens} tokens"] += 1
        else:
            kept.append(example)
    if not kept:
        why = ", ".join(f"{number} {fault}" for fault, number in left_out.items())
        raise KlearError(f"no example to train on: {why or 'there are none'}")
    return kept, left_out
