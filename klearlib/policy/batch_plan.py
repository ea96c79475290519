"""How a run cuts its forward and backward plan, and what it does where the memory runs out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeVar

import torch

from klearlib.errors import KlearError
from klearlib.policy.compute import Compute
from klearlib.policy.decoder import can_decode
from klearlib.policy.layout import Tokens, cut_rows
from klearlib.policy.memory import choose_micro_batch_tokens
from klearlib.policy.reader import Reader, has_plain_head, reading, require_separate, wants_one_row

T, S = TypeVar("T"), TypeVar("S", bound=Tokens)

# What torch's CPU allocator, CUDA and its libraries say; torch's allocator of a GPU has an
# exception of its own.
_OUT_OF_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


@dataclass
class BatchPlan:
    """The parts in which a run computes; where the memory ran out once, they stay smaller.

    micro_batch_tokens: padded tokens of one forward and backward pass, None for no limit.
    precision, pack_tokens, recompute (gradient_checkpointing): see
    `klearlib.policy.compute.Compute`. pad_id: of transformers' padded rows. one_row: packed rows of
    a pass are joined into one, for varlen kernels. plain_head: see
    `klearlib.policy.reader.has_plain_head`. parts_count: the objective depends on how a batch is
    cut, so that no part may become smaller. num_halvings: how often the memory ran out so far.
    """

    micro_batch_tokens: int | None
    precision: str
    pad_id: int
    pack_tokens: int | None = None
    one_row: bool = False
    recompute: bool = False
    plain_head: bool = False
    parts_count: bool = False
    num_halvings: int = 0

    def reading(self, model) -> AbstractContextManager[Reader]:
        names = ("precision", "recompute", "plain_head", "pad_id")
        return reading(model, **{name: getattr(self, name) for name in names})

    def cut(self, sequences: Sequence[S]) -> list[list[list[S]]]:
        """The micro-batches of `sequences`, each of rows of one sequence or, packed, of several;
        see `klearlib.policy.layout.cut_rows`."""
        cut = cut_rows(
            [len(each.ids) for each in sequences],
            pack_tokens=self.pack_tokens,
            micro_batch_tokens=self.micro_batch_tokens,
            one_row=self.one_row,
        )
        return [[[sequences[index] for index in row] for row in part] for part in cut]

    def fitting(self, attempt: Callable[[], T], *, sequences: Sequence[Tokens]) -> T:
        """What `attempt` returns, after as many halvings of `micro_batch_tokens` as it takes.

        attempt: computes one whole batch of `sequences` from the start, by `cut`; what an attempt
        that failed has left behind is thrown away by the next. Raises KlearError where a row does
        not fit alone, or the parts may not become smaller.
        """
        while True:
            try:
                return attempt()
            except (RuntimeError, MemoryError) as error:
                if not _is_out_of_memory(error):
                    raise
                said = (str(error).splitlines() or [type(error).__name__])[0]
            # Only here, where the failed pass is no longer held by the exception, is its memory
            # free.
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            lengths = [len(each.ids) for each in sequences]
            rows = cut_rows(lengths, pack_tokens=self.pack_tokens, micro_batch_tokens=None)[0]
            self._halve(sorted(sum(lengths[index] for index in row) for row in rows), said)

    def _halve(self, rows: Sequence[int], said: str) -> None:
        """`rows` by rising length: no part holds two where the two shortest do not fit."""
        if self.parts_count:
            raise KlearError(
                f"out of memory ({said}), and the objective depends on micro_batch_tokens: set "
                "loss_denominator and lm_normalizer to mini_batch, or lower micro_batch_tokens"
            )
        now = self.micro_batch_tokens or len(rows) * rows[-1]
        if len(rows) < 2 or 2 * rows[1] > now:
            what = "pack_tokens" if self.pack_tokens else "max_new_tokens or max_positions"
            raise KlearError(
                f"out of memory with a row of {rows[-1]} tokens at most alone in a pass ({said}): "
                f"set gradient_checkpointing: true or precision: bf16, or lower {what}"
            )
        self.micro_batch_tokens = now // 2
        self.num_halvings += 1


def plan_batches(model, compute: Compute, *, pad_id: int, parts_count: bool = False) -> BatchPlan:
    """The plan of a run over `model`, made before the state of a checkpoint takes memory.

    `micro_batch_tokens` 0 takes as many as the memory holds, see
    `klearlib.policy.memory.choose_micro_batch_tokens`. Raises KlearError where the model is not
    causal, or sees other sequences of a packed row.
    """
    if compute.gradient_checkpointing and not can_decode(model):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if compute.pack_tokens is not None:
        require_separate(model, precision=compute.precision)
    return BatchPlan(
        micro_batch_tokens=compute.micro_batch_tokens
        or choose_micro_batch_tokens(model, compute=compute),
        precision=compute.precision,
        pad_id=pad_id,
        # The decoder reads sequences in a line, without padding: nothing is there to be packed.
        pack_tokens=None if can_decode(model) else compute.pack_tokens,
        one_row=wants_one_row(model),
        recompute=compute.gradient_checkpointing,
        plain_head=has_plain_head(model, precision=compute.precision),
        parts_count=parts_count,
    )


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return any(words in str(error) for words in _OUT_OF_MEMORY)
