"""The keys and values of a decoding loop in buffers that are written in place."""

from __future__ import annotations

import torch
from transformers import DynamicCache, PreTrainedConfig
from transformers.cache_utils import DynamicLayer

# A full buffer grows by half: each key is then copied twice at most on average, and a third of the
# memory at most is unused.
_GROWTH = 1.5


class BufferedLayer(DynamicLayer):
    """A layer of full attention whose keys and values are views of larger buffers.

    transformers' own layer copies all it holds for every new token. Under autocast the buffers have
    the type in which attention is computed, so that no key is cast twice.

    Args:
        max_length: positions that will ever be held; no buffer is longer.
    """

    def __init__(self, max_length: int) -> None:
        super().__init__()
        self._max_length = max_length
        self._length = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.device = key_states.device
        kind = self.device.type
        cast = torch.is_autocast_enabled(kind) and key_states.dtype == torch.float32
        self.dtype = torch.get_autocast_dtype(kind) if cast else key_states.dtype
        self._buffers = tuple(
            states.new_empty((*states.shape[:2], 0, states.shape[3]), dtype=self.dtype)
            for states in (key_states, value_states)
        )
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """All keys and values [N, heads, T, size] with those of the new positions at the end."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start, self._length = self._length, self._length + key_states.shape[2]
        if self._length > self._buffers[0].shape[2]:
            room = min(int(_GROWTH * self._length), max(self._max_length, self._length))
            self._rebuild(lambda held: held, room=room)
        for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[:, :, start : self._length] = states
        self._set_views()
        return self.keys, self.values

    def get_seq_length(self) -> int:
        return self._length

    def batch_repeat_interleave(self, repeats: int) -> None:
        self._rebuild(lambda held: held.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        self._rebuild(lambda held: held[indices])

    def _rebuild(self, change, *, room: int | None = None) -> None:
        """New buffers of `room` positions that hold `change` of what the present ones hold."""
        rebuilt = []
        for buffer in self._buffers:
            held = change(buffer[:, :, : min(self._length, buffer.shape[2])])
            shape = (*held.shape[:2], room or buffer.shape[2], held.shape[3])
            larger = held.new_empty(shape)
            larger[:, :, : held.shape[2]] = held
            rebuilt.append(larger)
        self._buffers = tuple(rebuilt)
        self._set_views()

    def _set_views(self) -> None:
        self.keys, self.values = (buffer[:, :, : self._length] for buffer in self._buffers)


def decoding_cache(config: PreTrainedConfig, *, max_length: int) -> DynamicCache:
    """An empty cache for a model of `config`: `BufferedLayer` for the layers of full attention, and
    what transformers has for all others (sliding windows, linear attention).

    Args:
        max_length: positions of prompt and response together.
    """
    cache = DynamicCache(config=config)
    cache.layers = [
        BufferedLayer(max_length) if type(layer) is DynamicLayer else layer
        for layer in cache.layers
    ]
    return cache
