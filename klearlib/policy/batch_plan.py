"""How a run cuts its forward and backward plan, and what it does where the memory runs out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeVar

import torch

from klearlib.errors import KlearError
from klearlib.policy.compute import Compute
from klearlib.policy.layout import Tokens, cut_by_tokens
from klearlib.policy.memory import choose_micro_batch_tokens
from klearlib.policy.reader import Reader, reading

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
    precision, recompute (gradient_checkpointing): see `klearlib.policy.compute.Compute`. pad_id: of
    transformers' padded rows. parts_count: the objective depends on how a batch is cut, so that no
    part may become smaller. num_halvings: how often the memory ran out so far.
    """

    micro_batch_tokens: int | None
    precision: str
    pad_id: int
    recompute: bool = False
    parts_count: bool = False
    num_halvings: int = 0

    def reading(self, model) -> AbstractContextManager[Reader]:
        how = {"precision": self.precision, "recompute": self.recompute, "pad_id": self.pad_id}
        return reading(model, **how)

    def cut(self, rows: Sequence[S]) -> list[list[S]]:
        """The micro-batches of `rows`; see `klearlib.policy.layout.cut_by_tokens`."""
        if self.micro_batch_tokens is None:
            return [list(rows)]
        lengths = [len(each.ids) for each in rows]
        parts = cut_by_tokens(lengths, max_tokens=self.micro_batch_tokens)
        return [[rows[index] for index in part] for part in parts]

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
            self._halve(sorted(len(each.ids) for each in sequences), said)

    def _halve(self, lengths: Sequence[int], said: str) -> None:
        """Of rows, rising: no part holds two where the two shortest do not fit."""
        if self.parts_count:
            raise KlearError(
                f"out of memory ({said}), and the objective depends on micro_batch_tokens: set "
                "loss_denominator and lm_normalizer to mini_batch, or lower micro_batch_tokens"
            )
        now = self.micro_batch_tokens or len(lengths) * lengths[-1]
        if len(lengths) < 2 or 2 * lengths[1] > now:
            raise KlearError(
                f"out of memory with a single row of at most {lengths[-1]} tokens in a pass "
                f"({said}): set gradient_checkpointing: true or precision: bf16, or lower "
                "max_new_tokens or max_positions"
            )
        self.micro_batch_tokens = now // 2
        self.num_halvings += 1


def plan_batches(model, compute: Compute, *, pad_id: int, parts_count: bool = False) -> BatchPlan:
    """The plan of a run over `model`, made before the state of a checkpoint takes memory.

    `micro_batch_tokens` 0 takes as many as the memory holds, see
    `klearlib.policy.memory.choose_micro_batch_tokens`.
    """
    return BatchPlan(
        micro_batch_tokens=compute.micro_batch_tokens
        or choose_micro_batch_tokens(model, compute=compute),
        precision=compute.precision,
        pad_id=pad_id,
        recompute=compute.gradient_checkpointing,
        parts_count=parts_count,
    )


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return any(words in str(error) for words in _OUT_OF_MEMORY)
