"""Counts the bytes of all tensors that live, exactly, on any device."""

from __future__ import annotations

import weakref
from collections.abc import Iterable

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class LiveBytes(TorchDispatchMode):
    """The most bytes that tensors made inside the context held at once, as `peak`.

    before: tensors that were there already, such as weights and their gradients.
    """

    def __init__(self, before: Iterable[torch.Tensor]):
        super().__init__()
        self.peak = 0
        self._live = 0
        self._known = {tensor.untyped_storage()._cdata for tensor in before}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for tensor in tree_iter(out):
            if isinstance(tensor, torch.Tensor):
                self._count(tensor.untyped_storage())
        return out

    def _count(self, storage) -> None:
        key = storage._cdata
        if key in self._known:
            return
        self._known.add(key)
        self._live += storage.nbytes()
        self.peak = max(self.peak, self._live)
        weakref.finalize(storage, self._forget, key, storage.nbytes())

    def _forget(self, key: int, size: int) -> None:
        self._known.discard(key)
        self._live -= size
