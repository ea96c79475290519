"""Token examples, and the order in which they are drawn."""

from __future__ import annotations

from array import array
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

    A control token in the response stays one; see `keep_whole_turns`.
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


def keep_fitting(
    examples: Sequence[Example], *, max_positions: int, pack_tokens: int | None, drop_longer: bool
) -> tuple[list[Example], int]:
    """The examples that fit whole into the model's positions and `pack_tokens`; how many do not.
    Raises KlearError if one does not fit and `drop_longer` is off, or none is left."""
    limit, name = max_positions, "max_positions"
    if pack_tokens is not None and pack_tokens < limit:
        limit, name = pack_tokens, "pack_tokens"
    lengths = [len(example.ids) for example in examples]
    is_longer = [length > limit for length in lengths]
    if any(is_longer) and not drop_longer:
        raise KlearError(
            f"the longest example has {max(lengths)} tokens, {name} is {limit}: raise {name}, or "
            f"set drop_longer to leave out the {sum(is_longer)} of {len(examples)} that are longer"
        )
    return _without(examples, is_longer, f"longer than {limit} tokens ({name})")


def keep_whole_turns(
    examples: Sequence[Example], tokenizer, *, drop_with_control: bool
) -> tuple[list[Example], int]:
    """The examples whose response holds no control token before its last; how many do.

    An end token within a response would be learnt as its end, and what follows it as its rest.
    Raises KlearError if one has one and `drop_with_control` is off, or none is left.
    """
    control = control_ids(tokenizer)
    inside = [control.intersection(x.ids[x.num_prompt : -1]) for x in examples]
    if any(inside) and not drop_with_control:
        number = next(number for number, tokens in enumerate(inside) if tokens)
        words = ", ".join(repr(tokenizer.decode([token])) for token in sorted(inside[number]))
        raise KlearError(
            f"the response of example {number} holds {words} before its end, and so do "
            f"{sum(map(bool, inside))} of {len(examples)}: correct these texts, or set "
            "drop_with_control to leave them out"
        )
    return _without(examples, list(map(bool, inside)), "control tokens before the end")


def _without(
    examples: Sequence[Example], left_out: Sequence[bool], why: str
) -> tuple[list[Example], int]:
    kept = [example for example, out in zip(examples, left_out, strict=True) if not out]
    if not kept:
        raise KlearError(
            f"no example to train on, {sum(left_out)} of {len(examples)} left out: {why}"
        )
    return kept, sum(left_out)
