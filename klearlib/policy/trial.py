"""Whether a model that is sampled token by token is the one that reads a text whole."""

from __future__ import annotations

from pathlib import Path

import torch

from klearlib.errors import KlearError
from klearlib.policy.decoder import can_decode
from klearlib.policy.sampling import TransformersDecoding

_LENGTHS, _STEPS = (7, 4), 2
_TOLERANCE = 0.02  # of the spread of log-probabilities; those of another model are off by it all
_MASKED = -1e30  # logits that no token is drawn by
_CURE = "mend its config.json, give --engine vllm, or name another model"


@torch.no_grad()
def refuse_what_cannot_be_sampled(path: str | Path, model) -> None:
    """KlearError for a model of which rows of unequal length, read with a cache, give other
    probabilities than each row read whole, or which fails at that: some have states that are no
    such cache, see the padding, or look at what comes after.

    What `decoder` computes is not tried, nor what needs bf16, as FlashAttention does.
    """
    if can_decode(model) or model.config._attn_implementation not in ("eager", "sdpa"):
        return
    words, longest = model.get_input_embeddings().weight.shape[0], max(_LENGTHS)
    ids = torch.arange(len(_LENGTHS) * (longest + _STEPS), device=model.device) * 7 + 5
    ids = ids.view(len(_LENGTHS), -1) % words
    mask = torch.ones_like(ids[:, :longest])
    for row, length in enumerate(_LENGTHS):
        mask[row, : longest - length] = 0
    try:
        loop = TransformersDecoding(model, ids[:, :longest], mask)
        loop.repeat(2)
        for end in range(longest, longest + _STEPS):
            loop.step(ids[:, end].repeat_interleave(2))
        loop.keep(torch.tensor([2, 0], device=model.device))  # the second row, then the first
        whole = [
            model(input_ids=ids[row : row + 1, longest - _LENGTHS[row] :], use_cache=False).logits
            for row in (1, 0)
        ]
    except Exception as error:  # of the code of any model
        fault = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise KlearError(f"{path} fails where it is sampled ({fault}): {_CURE}") from error
    sampled, read = loop.logits.float(), torch.cat([logits[:, -1] for logits in whole]).float()
    drawn = ((sampled > _MASKED) & (read > _MASKED)).all(dim=0)
    sampled, read = (each[:, drawn].log_softmax(-1) for each in (sampled, read))
    if not (sampled - read).abs().max() <= _TOLERANCE * read.std():
        raise KlearError(
            f"{path} gives other probabilities where it is sampled, with a cache and padding, than "
            f"where it reads a text whole: {_CURE}"
        )
