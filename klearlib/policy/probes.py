"""What a model is asked once, before it is trained: a few tokens show what no config says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from klearlib.errors import KlearError
from klearlib.policy.load import autocast
from klearlib.policy.logprobs import last_states, state_logprobs
from klearlib.policy.token_line import OtherAttention, in_one_line, line_states, token_line

# Of the norm, between two ways to compute the same. Measured: below 1e-6 in float32, 4e-3 in bf16.
_APART, _APART_BF16 = 1e-5, 2e-2
# Two rows that differ behind their first tokens.
_IDS, _OTHERS, _NUM_EQUAL = (3, 1, 2, 4, 0, 5, 1, 6), (3, 1, 2, 4, 0, 2, 6, 3), 5


@torch.no_grad()
def require_plain_head(model, *, precision: str) -> None:
    """Check that the logits are those of the output embeddings over the last hidden states, and
    that these see no later token: what `klearlib.policy.logprobs` computes.

    precision: of the check.

    Raises:
        KlearError: another transform, a scale or a cap stands between them, the model is not
            causal, or it gives no such states.
    """
    ids = _ids_of(model, _IDS)
    with _without_dropout(model), autocast(model.device, precision):
        states = last_states(model, input_ids=_ids_of(model, _OTHERS))[0, :_NUM_EQUAL]
        logits = model(input_ids=ids, use_cache=False).logits[0, :_NUM_EQUAL]
        head = model.get_output_embeddings()
        plain = head is not None and head.weight.shape == (logits.shape[-1], states.shape[-1])
        if plain:
            targets = ids[0, 1 : _NUM_EQUAL + 1]
            found, _ = state_logprobs(model, states, targets, chunk_size=_NUM_EQUAL)
            logp = torch.log_softmax(logits.double(), dim=-1)
            expected = logp.gather(1, targets[:, None]).squeeze(1)
            plain = _agree(found, expected, _APART if precision == "fp32" else _APART_BF16)
    if not plain:
        raise KlearError(
            f"{type(model).__name__} is no causal model whose logits are a linear head of its last "
            "hidden states (a scale, a cap, another transform, a look ahead): not supported"
        )


@torch.no_grad()
def reads_lines(model) -> bool:
    """Whether token lines give the states of padded rows: with sdpa attention over all tokens
    before and no other term in it, in a model that hands its arguments on to the attention.

    Two rollouts of one prompt and one of another go through the model both ways, without dropout.
    They are shorter than any window, so that the config is asked for those.
    """
    if model.config._attn_implementation != "sdpa" or _has_window(model.config):
        return False
    made = [_Probe((3, 1, 2, *tail), 3) for tail in ((4, 0, 5), (1, 6))] + [_Probe((2, 5, 0), 1)]
    made = [_Probe(tuple(_ids_of(model, x.ids)[0].tolist()), x.num_prompt) for x in made]
    line = token_line(made, device=model.device)
    try:
        with _without_dropout(model):
            with in_one_line(model):
                found = line_states(model, line)
            expected = [_plain_states(model, probe) for probe in made]
    except (TypeError, OtherAttention):
        return False
    return _agree(found, torch.cat(expected), _APART)


@dataclass(frozen=True)
class _Probe:
    ids: tuple[int, ...]
    num_prompt: int


def _plain_states(model, probe: _Probe) -> torch.Tensor:
    ids = _ids_of(model, probe.ids)
    return last_states(model, input_ids=ids)[0, probe.num_prompt - 1 : -1]


def _has_window(config) -> bool:
    """Whether a layer's attention may look at a part of the tokens before alone."""
    config = config.get_text_config()
    if set(getattr(config, "layer_types", None) or ()) - {"full_attention"}:
        return True
    slides = getattr(config, "use_sliding_window", True) and getattr(config, "sliding_window", None)
    return bool(slides or getattr(config, "attention_chunk_size", None))


def _ids_of(model, ids: tuple[int, ...]) -> torch.Tensor:
    """[1, T] on the model's device, within its words."""
    words = model.get_input_embeddings().weight.shape[0]
    return torch.tensor([ids], device=model.device) % words


def _agree(found: torch.Tensor, expected: torch.Tensor, apart: float) -> bool:
    return bool((found - expected).norm() <= apart * expected.norm())


@contextmanager
def _without_dropout(model) -> Iterator[None]:
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
