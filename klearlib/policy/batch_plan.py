"""How a run cuts its forward and backward plan, and what it does where the memory runs out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from klearlib.errors import KlearError
from klearlib.policy.compute import Compute
from klearlib.policy.decoder import Tokens
from klearlib.policy.memory import choose_micro_batch_tokens
from klearlib.policy.reader import Reader, reader_of

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
    precision, recompute (gradient_checkpointing): see `klearlib.policy.compute.Compute`.
    parts_count: the objective depends on how a batch is cut, so that no part may become smaller.
    num_halvings: how often the memory ran out so far.
    """

    micro_batch_tokens: int | None
    precision: str
    recompute: bool = False
    parts_count: bool = False
    num_halvings: int = 0

    def reader(self, model) -> Reader:
        """`model` at the weights that it has now."""
        return reader_of(model, precision=self.precision, recompute=self.recompute)

    def cut(self, rows: Sequence[S]) -> list[list[S]]:
        """The micro-batches of `rows`: by rising length, cut so that rows x longest row of a part
        stays within `micro_batch_tokens`. A longer row makes a part of its own: nothing is dropped.
        """
        if self.micro_batch_tokens is None:
            return [list(rows)]
        parts: list[list[S]] = []
        for row in sorted(rows, key=lambda row: len(row.ids)):
            if parts and (len(parts[-1]) + 1) * len(row.ids) <= self.micro_batch_tokens:
                parts[-1].append(row)
            else:
                parts.append([row])
        return parts

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
            lengths = sorted(len(each.ids) for each in sequences)
            now = self.micro_batch_tokens or len(lengths) * lengths[-1]
            # No part holds two rows where the two shortest do not fit.
            if self.parts_count or len(lengths) < 2 or 2 * lengths[1] > now:
                setting = "gradient_checkpointing: true or precision: bf16"
                if self.parts_count:
                    setting = "loss_denominator and lm_normalizer to mini_batch"
                raise KlearError(
                    f"out of memory with rows of up to {lengths[-1]} tokens ({said}), "
                    f"and the micro-batch cannot be split further: set {setting}, or lower "
                    "micro_batch_tokens, max_new_tokens or max_positions"
                )
            self.micro_batch_tokens = now // 2
            self.num_halvings += 1


def plan_batches(model, compute: Compute, *, parts_count: bool = False) -> BatchPlan:
    """The plan of a run over `model`, made before the state of a checkpoint takes memory.

    `micro_batch_tokens` 0 takes as many as the memory holds, see
    `klearlib.policy.memory.choose_micro_batch_tokens`.
    """
    tokens = compute.micro_batch_tokens or choose_micro_batch_tokens(model, compute=compute)
    return BatchPlan(tokens, compute.precision, compute.gradient_checkpointing, parts_count)


def _is_out_of_memory(error: BaseException) -> bool:
    is_torchs = isinstance(error, torch.OutOfMemoryError | MemoryError)
    return is_torchs or any(words in str(error) for words in _OUT_OF_MEMORY)
