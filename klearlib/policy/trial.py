"""Whether a model that is sampled token by token is the one that reads a text whole."""

from __future__ import annotations

from pathlib import Path

import torch

from klearlib.errors import KlearError
from klearlib.policy.decoder import can_decode
from klearlib.policy.sampling import TransformersDecoding

_TOLERANCE = 0.02  # of the largest logit; another model is off by as much as there is
_LENGTHS = (7, 4)


@torch.no_grad()
def refuse_what_cannot_be_sampled(path: str | Path, model) -> None:
    """KlearError for a model of which rows of unequal length, read with a cache, give other logits
    than each row read whole, or which fails at that: some have states that are no such cache, see
    the padding, or look at what comes after. What `decoder` computes is not tried."""
    if can_decode(model):
        return
    rows = model.get_input_embeddings().weight.shape[0]
    longest, steps = max(_LENGTHS), 2
    ids = (torch.arange(len(_LENGTHS) * (longest + steps)) * 7 + 5).view(len(_LENGTHS), -1) % rows
    ids = ids.to(model.device)
    mask = torch.ones_like(ids[:, :longest])
    for row, length in enumerate(_LENGTHS):
        mask[row, : longest - length] = 0
    try:
        loop = TransformersDecoding(model, ids[:, :longest], mask)
        loop.repeat(1)
        for end in range(longest, longest + steps):
            loop.step(ids[:, end])
        loop.keep(torch.arange(len(_LENGTHS), device=ids.device))
        whole = [
            model(input_ids=ids[row : row + 1, longest - length :], use_cache=False).logits[0, -1]
            for row, length in enumerate(_LENGTHS)
        ]
    except Exception as error:  # of the code of any model
        fault = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise KlearError(f"{path} fails where it is sampled ({fault}): {_CURE}") from error
    whole = torch.stack(whole)
    if not (loop.logits - whole).abs().max() <= _TOLERANCE * whole.abs().max():
        raise KlearError(
            f"{path} gives other probabilities where it is sampled, with a cache and padding, than "
            f"where it reads a text whole: {_CURE}"
        )


_CURE = "mend its config.json, give --engine vllm, or name another model"
