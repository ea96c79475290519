"""The loop of sampling on a GPU, where a small model waits for the host: one token more is a CUDA
graph, which starts all kernels of the model at once."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from klearlib.policy.decoder import Decoder, Decoding


def cuda_graph(advance: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """The kernels of `advance`, which reads and writes tensors that stay where they are."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # libraries choose their kernels in a first run
        advance()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        advance()
    return graph


class CapturedDecoding(Decoding):
    """`Decoding` whose step neither asks the device for anything nor allocates: each one attends to
    the whole buffers, under a mask [N, room]. They are filled in place; where they are full, or
    rows leave, they move, and the step is captured anew.

    capture: `cuda_graph`, or what stands for it.
    """

    def __init__(
        self,
        decoder: Decoder,
        ids: torch.Tensor,
        mask: torch.Tensor,
        max_length: int,
        *,
        capture: Callable[[Callable[[], None]], torch.cuda.CUDAGraph] = cuda_graph,
    ):
        self._capture, self._graph = capture, None
        self._place: torch.Tensor | None = None  # long [1]: where the next token is written
        super().__init__(decoder, ids, mask, max_length)
        self._mask = mask.bool()

    @property
    def _room(self) -> int:
        return self._buffers[0][0].shape[2]

    def step(self, token: torch.Tensor) -> None:
        if self._graph is None or self._length == self._room:
            self._prepare()
        self._token.copy_(token)
        self._mask.index_fill_(1, self._place, True)
        self._positions.add_(1)
        self._graph.replay()
        self._place.add_(1)
        self._length += 1

    def _prepare(self) -> None:
        start = self._length
        if start == self._room:
            for held in self._buffers:
                held[:] = self._larger(held, held[0].transpose(1, 2), start, start + 1)
        self._mask = F.pad(self._mask[:, :start], (0, self._room - start), value=False)
        self._place = torch.full((1,), start, device=self._mask.device)
        self._token = torch.zeros(len(self._mask), dtype=torch.long, device=self._mask.device)
        # What it writes at `_place` is written again by the step that comes.
        self._graph = self._capture(self._advance)

    def _advance(self) -> None:
        attends = [self._attend(index, self._length) for index in range(len(self._buffers))]
        how = {"length": self._max_length}
        states = self._decoder.hidden(self._token[:, None], self._positions, attends, **how)
        self.logits.copy_(self._decoder.logits(states[:, -1]))

    def _write(self, index: int, start: int, k: torch.Tensor, v: torch.Tensor):
        if self._place is None:  # the prompts
            return super()._write(index, start, k, v)
        for buffer, new in zip(self._buffers[index], (k, v), strict=True):
            buffer.index_copy_(2, self._place, new.transpose(1, 2))
        return self._buffers[index]

    def _larger(self, held, new: torch.Tensor, start: int, stop: int) -> list[torch.Tensor]:
        larger = super()._larger(held, new, start, stop)
        for buffer in larger:  # what is masked is multiplied by 0, and so must be a number
            buffer[:, :, start:] = 0
        return larger

    def _rows(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super()._rows(change)
        self._graph = None
