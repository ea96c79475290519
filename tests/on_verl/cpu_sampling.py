"""A batch of requests, each with its own seed and settings, decoded together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from transformers import DynamicCache

from klearlib.policy.drawing import SamplingSettings, cut

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
    ids, attention = _left_padded([request.prompt_ids for request in requests])
    position = (attention.cumsum(1) - 1).clamp(min=0)
    chances = [
        torch.rand(
            request.settings.max_tokens,
            dtype=torch.float64,
            generator=torch.Generator().manual_seed(request.settings.seed),
        ).tolist()
        for request in requests
    ]
    sampled = [Sampled([], []) for _ in requests]
    going = list(range(len(requests)))
    cache = DynamicCache()
    for step in range(max(request.settings.max_tokens for request in requests)):
        logits = model(
            input_ids=ids,
            attention_mask=attention,
            position_ids=position,
            past_key_values=cache,
            logits_to_keep=1,
        ).logits[:, -1]
        chance = torch.tensor([chances[index][step] for index in going], dtype=torch.float64)
        token, logp = _draw(logits, [requests[index].settings for index in going], chance)
        staying = []
        for row, index in enumerate(going):
            sampled[index].token_ids.append(token[row].item())
            sampled[index].logp.append(logp[row].item())
            ended = sampled[index].token_ids[-1] in requests[index].ends
            if not ended and step + 1 < requests[index].settings.max_tokens:
                staying.append(row)
        if not staying:
            break
        keep = torch.tensor(staying)
        if len(staying) < len(going):
            cache.batch_select_indices(keep)
        going = [going[row] for row in staying]
        ids, position = token[keep, None], position[keep, -1:] + 1
        attention = torch.cat([attention[keep], attention.new_ones(len(keep), 1)], dim=1)
    return sampled


def _left_padded(prompts: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and attention mask [N, T] of prompts that all end in the last column."""
    width = max(map(len, prompts))
    ids = torch.zeros((len(prompts), width), dtype=torch.long)
    attention = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
        attention[row, width - len(prompt) :] = 1
    return ids, attention


def _draw(
    logits: torch.Tensor, settings: Sequence[SamplingSettings], chance: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """A token [N] for each row of logits [N, V] and its log-probability [N], by its settings and
    its random number `chance` [N]."""
    token = torch.empty(len(logits), dtype=torch.long)
    logp = torch.empty(len(logits))
    kinds: dict[SamplingSettings, list[int]] = {}
    for row, own in enumerate(settings):
        kinds.setdefault(replace(own, seed=0, max_tokens=1), []).append(row)
    for kind, rows in kinds.items():
        scores = torch.log_softmax(logits[rows].float() / (kind.temperature or 1.0), dim=-1)
        if kind.temperature == 0:
            chosen = scores.argmax(dim=-1, keepdim=True)
        else:
            mass = cut(scores.exp(), kind).cumsum(dim=-1, dtype=torch.float64)
            # In (0, mass]: the first column that reaches it has a weight.
            aim = (1 - chance[rows, None]) * mass[:, -1:]
            chosen = torch.searchsorted(mass, aim).clamp_(max=mass.shape[1] - 1)
        token[rows] = chosen.squeeze(1)
        logp[rows] = scores.gather(1, chosen).squeeze(1)
    return token, logp
