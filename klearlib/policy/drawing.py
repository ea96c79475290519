"""What one token is drawn by: the settings, the penalty, the cuts, the draw."""

from __future__ import annotations

from dataclasses import dataclass

import torch

# Tokens that top-p looks at before it sorts them all: what it keeps is nearly always among them.
_LIKELY = 64


@dataclass(frozen=True)
class SamplingSettings:
    """How responses are drawn. The whole record is stored with every score.

    temperature 0 is greedy; top_k 0 and top_p 1 keep all tokens; max_tokens counts generated
    tokens, the end token included. repetition_penalty: logits of the tokens that prompt and
    response so far hold are divided by it where positive and multiplied where negative, before the
    temperature; 1 for none.
    """

    temperature: float
    top_p: float
    top_k: int
    max_tokens: int
    seed: int
    repetition_penalty: float = 1.0


def draw(
    logits: torch.Tensor,
    settings: SamplingSettings,
    generator: torch.Generator,
    seen: torch.Tensor | None,
):
    """One token for each row of logits [N, V], and its log-probability before penalty and cuts,
    which is no number where a logit is none.

    seen: bool [N, V], the tokens that the repetition penalty meets; None without one.
    """
    scale = settings.temperature or 1.0
    logp = torch.log_softmax(logits if scale == 1 else logits / scale, dim=-1)  # [N, V]
    drawn = logp
    if seen is not None:
        with_penalty = penalised(logits, seen, settings.repetition_penalty)
        drawn = torch.log_softmax(with_penalty / scale, dim=-1)
    if settings.temperature == 0:
        token = drawn.argmax(dim=-1, keepdim=True)
    else:
        token = choose(cut(drawn.exp(), settings), generator)
    return token.squeeze(1), logp.gather(1, token).squeeze(1)


def choose(weights: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A column [N, 1] of each row of weights [N, V], with the chance of its weight, never one of
    weight 0.

    It inverts the cumulative sum in float64: one random number a row, where torch.multinomial draws
    one for each of the V columns.
    """
    mass = weights.cumsum(dim=-1, dtype=torch.float64)
    chance = torch.rand((len(mass), 1), dtype=mass.dtype, device=mass.device, generator=generator)
    # In (0, mass]: the first column that reaches it has a weight, and there is one.
    # Past the end only where a weight is no number, which the log-probability tells.
    return torch.searchsorted(mass, (1 - chance) * mass[:, -1:]).clamp_(max=mass.shape[1] - 1)


def penalised(logits: torch.Tensor, seen: torch.Tensor, penalty: float) -> torch.Tensor:
    """Logits [N, V] with the `seen` ones divided by `penalty` if positive, else multiplied."""
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def cut(probability: torch.Tensor, settings: SamplingSettings) -> torch.Tensor:
    """Zero what top-k and top-p remove; the most probable token always stays."""
    if settings.top_k:
        k = min(settings.top_k, probability.shape[-1])
        kth = probability.topk(k, dim=-1).values[:, -1:]
        probability = torch.where(probability < kth, 0.0, probability)
    if settings.top_p < 1:
        least = settings.top_p * probability.sum(-1, keepdim=True)
        ordered, index = probability.topk(min(_LIKELY, probability.shape[-1]))
        if (ordered.sum(-1, keepdim=True) < least).any():
            ordered, index = probability.sort(dim=-1, descending=True)
        # A token stays while the mass before it is below top_p of what top-k left.
        ordered = torch.where(ordered.cumsum(dim=-1) - ordered < least, ordered, 0.0)
        probability = torch.zeros_like(probability).scatter(-1, index, ordered)
    return probability
