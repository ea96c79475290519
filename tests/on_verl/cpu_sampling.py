"""A batch of requests, each with its own seed and settings, decoded together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache

from klearlib.policy.drawing import SamplingSettings, draw

# Words of a request that do not change what is drawn.
_WITHOUT_EFFECT = {"logprobs", "include_stop_str_in_output", "detokenize", "skip_special_tokens"}


@dataclass(frozen=True)
class Request:
    """A prompt and how its response is drawn. ends: the tokens that end it."""

    prompt_ids: tuple[int, ...]
    settings: SamplingSettings
    ends: frozenset[int]

    @classmethod
    def of(cls, prompt_ids: Sequence[int], params: dict, *, model_ends: frozenset[int]) -> Request:
        """A request in the words of verl's vLLM server; without a seed, one of torch's choice.

        Raises ValueError for a word that is not known here.
        """
        params = {name: value for name, value in params.items() if name not in _WITHOUT_EFFECT}
        seed = params.pop("seed", None)
        ends = frozenset(params.pop("stop_token_ids", None) or ())
        if not params.pop("ignore_eos", False):
            ends |= model_ends
        settings = SamplingSettings(
            temperature=float(params.pop("temperature", 1.0)),
            top_p=float(params.pop("top_p", 1.0)),
            top_k=max(0, int(params.pop("top_k", -1))),
            max_tokens=int(params.pop("max_tokens")),
            seed=int(torch.randint(2**31, ())) if seed is None else int(seed),
            repetition_penalty=float(params.pop("repetition_penalty", 1.0)),
        )
        if params or settings.repetition_penalty != 1:
            raise ValueError(f"this server cannot sample with {params or settings}")
        return cls(tuple(map(int, prompt_ids)), settings, ends)


@dataclass(frozen=True)
class Sampled:
    """Tokens and their log-probabilities at the sampling temperature, before top-k and top-p."""

    token_ids: list[int]
    logp: list[float]


@torch.no_grad()
def decode(model, requests: Sequence[Request]) -> list[Sampled]:
    """One response to each request.

    A request's tokens are drawn by its own seed, one random number each, so they do not depend on
    what is decoded beside it, but for the last bits of its logits.
    """
    held = [torch.tensor(request.prompt_ids) for request in requests]
    ids, attention = (
        pad_sequence(each, batch_first=True, padding_side="left")
        for each in (held, [torch.ones_like(prompt) for prompt in held])
    )
    position = (attention.cumsum(1) - 1).clamp(min=0)
    draws = [torch.Generator().manual_seed(request.settings.seed) for request in requests]
    sampled = [Sampled([], []) for _ in requests]
    going = list(range(len(requests)))
    cache = DynamicCache()
    while going:
        logits = model(
            input_ids=ids,
            attention_mask=attention,
            position_ids=position,
            past_key_values=cache,
            logits_to_keep=1,
        ).logits[:, -1]
        staying = []
        for row, index in enumerate(going):
            settings, found = requests[index].settings, sampled[index]
            token, logp = draw(logits[row : row + 1].float(), settings, draws[index], None)
            found.token_ids.append(int(token))
            found.logp.append(float(logp))
            ended = found.token_ids[-1] in requests[index].ends
            if not ended and len(found.token_ids) < settings.max_tokens:
                staying.append(row)
        going = [going[row] for row in staying]
        keep = torch.tensor(staying, dtype=torch.long)
        cache.batch_select_indices(keep)
        ids = torch.tensor([[sampled[index].token_ids[-1]] for index in going])
        position = position[keep, -1:] + 1
        attention = torch.cat([attention[keep], attention.new_ones(len(keep), 1)], dim=1)
    return sampled
