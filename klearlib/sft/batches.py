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

    Raises KlearError without a prompt token, which the first response token is predicted from, or
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
    examples: Sequence[Example],
    *,
    max_positions: int,
    pack_tokens: int | None,
    drop_longer: bool,
) -> tuple[Sequence[Example], int]:
    """The examples that fit whole into the model's positions and `pack_tokens`; how many do not.

    Raises:
        KlearError: one does not fit and `drop_longer` is off, or none is left.
    """
    limit = max_positions if pack_tokens is None else min(max_positions, pack_tokens)
    kept = [example for example in examples if len(example.ids) <= limit]
    num_dropped = len(examples) - len(kept)
    if num_dropped and not drop_longer:
        longest = max(len(example.ids) for example in examples)
        what, name = f"the model {max_positions} positions", "max_positions"
        if limit != max_positions:
            what, name = f"pack_tokens is {pack_tokens}", "pack_tokens"
        raise KlearError(
            f"the longest example has {longest} tokens, {what}: raise {name}, or set drop_longer "
            f"to leave out the {num_dropped} of {len(examples)} that are too long"
        )
    if not kept:
        raise KlearError(
            f"no example to train on, {num_dropped} are longer than {limit} tokens: give examples, "
            "or raise the limit"
        )
    return kept, num_dropped


def keep_whole_turns(
    examples: Sequence[Example], tokenizer, *, drop_with_control: bool
) -> tuple[Sequence[Example], int]:
    """The examples whose response holds no control token before its last; how many do.

    An end token within a response would be learnt as its end, and what follows it as its rest.

    Raises:
        KlearError: one does and `drop_with_control` is off, or all do.
    """
    control = control_ids(tokenizer)
    broken = [not control.isdisjoint(example.ids[example.num_prompt : -1]) for example in examples]
    if any(broken) and not drop_with_control:
        number = broken.index(True)
        inside = examples[number].ids[examples[number].num_prompt : -1]
        token = next(token for token in inside if token in control)
        raise KlearError(
            f"the response of example {number} holds {tokenizer.decode([token])!r} before its end, "
            f"and so do {sum(broken)} of {len(examples)}: mend these texts, or set "
            "drop_with_control to leave them out"
        )
    kept = [example for example, is_broken in zip(examples, broken, strict=True) if not is_broken]
    if any(broken) and not kept:
        raise KlearError(
            f"no example to train on, the responses of all {len(examples)} hold a control token "
            "before their end: mend these texts"
        )
    return kept, sum(broken)
