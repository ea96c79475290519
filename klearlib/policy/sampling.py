"""The sampling engine in this process: groups of responses with the log-probability of every token.

Models that `klearlib.policy.decoder` computes are sampled by its loop, all others by `generate` of
transformers; a token is drawn by `klearlib.policy.drawing` in both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, LogitsProcessor

from klearlib.errors import KlearError
from klearlib.policy.captured import CapturedDecoding
from klearlib.policy.decoder import Decoder, Decoding, can_decode
from klearlib.policy.drawing import SamplingSettings, draw
from klearlib.policy.head import wide_head
from klearlib.policy.load import autocast
from klearlib.policy.prompts import chat_prompts, end_ids, response_to
from klearlib.records import Problem, Response

# Rows that ended leave the batch once no more than this share of it goes on: each departure copies
# the cache of the rows that stay.
_LEAVING = 0.75
_LOOKS_EVERY = 16  # tokens, on a GPU, which waits while the host looks at who goes on

OnSampled = Callable[[int, int], object]
"""Called with the responses of a call that are done, and with all of them."""


@torch.no_grad()
def sample_groups(
    model,
    tokenizer,
    problems: Sequence[Problem],
    *,
    group_size: int,
    settings: SamplingSettings,
    precision: str = "fp32",
    batch_rows: int = 1024,
    on_sampled: OnSampled | None = None,
) -> list[list[Response]]:
    """G responses to each problem.

    A prompt is read once for its whole group, responses that ended leave the batch. The recorded
    `logp` is that of the policy at `temperature` over all tokens, before a repetition penalty and
    before top-k and top-p cut any, so that at temperature 1 it is the trainer's log pi
    (docs/deviations.md, D14).

    Args:
        group_size: G >= 1.
        precision: of the forward pass, see `klearlib.policy.load.autocast`.
        batch_rows: responses that are decoded together, at least 1.
        on_sampled: called after each batch, and by the decoder after each token of one.

    Returns:
        A list of G responses for each problem. The same seed, settings and weights give the same
        responses on the same machine.

    Raises:
        KlearError: more positions than the model has, or logits that are not numbers.
    """
    decoder = Decoder(model, precision=precision) if can_decode(model) else None
    generator = torch.Generator(device=model.device).manual_seed(settings.seed)
    ends = torch.tensor(end_ids(model, tokenizer), device=model.device)
    prompts = chat_prompts(
        model, tokenizer, problems, group_size=group_size, max_tokens=settings.max_tokens
    )
    # Prompts of similar length share a batch, so that little of it is padding.
    order = sorted(range(len(problems)), key=lambda index: (len(prompts[index][1]), index))
    per_batch = max(1, batch_rows // group_size)
    widths = [min(batch_rows, group_size - n) for n in range(0, group_size, batch_rows)]
    groups: list[list[Response]] = [[] for _ in problems]
    total = len(problems) * group_size
    for start in range(0, len(order), per_batch):
        chosen = order[start : start + per_batch]
        held = [torch.tensor(prompts[i][1]) for i in chosen]
        ids, mask = (  # long [P, T], all prompts end in the last column
            pad_sequence(each, batch_first=True, padding_side="left").to(model.device)
            for each in (held, [torch.ones_like(ids) for ids in held])
        )
        done = start * group_size
        for width in widths:  # several only for a group of more than batch_rows responses
            done += len(chosen) * width

            def tell(num_going: int, at_end: int = done) -> None:
                if on_sampled is not None:
                    on_sampled(at_end - num_going, total)

            how = (ids, mask, width, ends, settings, generator)
            if decoder is not None:
                drawn = _decode(decoder, *how, tell)
            else:
                with autocast(model.device, precision), wide_head(model):
                    drawn = _generate(model, *how)
            tell(0)  # those that the budget ended, too
            for row, (token_ids, logp, truncated) in enumerate(_whole(*drawn, ends)):
                index = chosen[row // width]  # a prompt's responses are rows in turn
                groups[index].append(
                    response_to(
                        problems[index], prompts[index], token_ids, logp, truncated, tokenizer
                    )
                )
    return groups


def _decode(decoder, ids, mask, group_size, ends, settings, generator, tell):
    """Tokens and their log-probabilities [P * G, T] of G responses to each of the prompts [P]; what
    a row draws behind its end stays -1."""
    kind, every = Decoding, 1
    if ids.device.type != "cpu":
        kind, every = CapturedDecoding, _LOOKS_EVERY
    loop = kind(decoder, ids, mask, ids.shape[1] + settings.max_tokens)
    seen = _seen(ids, mask, group_size, settings, loop.logits.shape[-1])
    loop.repeat(group_size)
    rows = num_going = len(loop.logits)
    device = ids.device
    active = torch.arange(rows, device=device)  # which rows are still in the batch
    going = torch.ones(rows, dtype=torch.bool, device=device)
    tokens = torch.full((rows, settings.max_tokens), -1, dtype=torch.long, device=device)
    logps = torch.zeros((rows, settings.max_tokens), device=device)
    for step in range(settings.max_tokens):
        token, logp = draw(loop.logits.float(), settings, generator, seen)  # [rows in the batch]
        # A row that ended draws on until it leaves; what it draws is not kept.
        tokens[active, step], logps[active, step] = torch.where(going, token, -1), logp
        going &= ~torch.isin(token, ends)
        if step % every == every - 1:
            num_going = int(going.sum())
        tell(num_going)
        if step + 1 == settings.max_tokens or not num_going:
            break
        if seen is not None:
            seen.scatter_(1, token[:, None], True)
        if num_going <= _LEAVING * len(going):
            keep = going.nonzero().squeeze(1)
            active, going, token = active[keep], going[keep], token[keep]
            seen = seen if seen is None else seen[keep]
            loop.keep(keep)
        loop.step(token)
    return tokens, logps


class _Drawing(LogitsProcessor):
    """Draws each token of `generate`, which takes the best one of the scores that are left."""

    def __init__(self, settings, generator, seen):
        self._how, self._seen = (settings, generator), seen
        self.tokens: list[torch.Tensor] = []  # [N] of each step
        self.logps: list[torch.Tensor] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        token, logp = draw(scores, *self._how, self._seen)  # [N] of scores [N, V]
        self.tokens.append(token)
        self.logps.append(logp)
        if self._seen is not None:
            self._seen.scatter_(1, token[:, None], True)
        return torch.full_like(scores, -torch.inf).scatter(1, token[:, None], 0.0)


def _generate(model, ids, mask, group_size, ends, settings, generator):
    """As `_decode`, by the `generate` of any model; what a row draws behind its end is kept."""
    num_words = model.get_output_embeddings().weight.shape[0]
    drawing = _Drawing(settings, generator, _seen(ids, mask, group_size, settings, num_words))
    # In place of the model's own, whose penalties and cuts would be added to those of `settings`.
    own, model.generation_config = model.generation_config, GenerationConfig()
    try:
        model.generate(
            input_ids=ids.repeat_interleave(group_size, dim=0),
            attention_mask=mask.repeat_interleave(group_size, dim=0),
            max_new_tokens=settings.max_tokens,
            do_sample=False,
            eos_token_id=ends.tolist() or None,
            pad_token_id=0,
            logits_processor=[drawing],
        )
    finally:
        model.generation_config = own
    return torch.stack(drawing.tokens, dim=1), torch.stack(drawing.logps, dim=1)


def _whole(tokens: torch.Tensor, logps: torch.Tensor, ends: torch.Tensor):
    """(token ids, log-probabilities, whether it is cut off) of each row [T], up to its end."""
    ended = torch.isin(tokens, ends)  # [N, T]
    kept = (ended.cumsum(1) - ended.long() == 0) & (tokens >= 0)  # none before it has ended
    if not logps[kept].isfinite().all():
        raise KlearError(
            "the model gives logits that are not numbers: its weights are damaged, or training "
            "diverged; go back to an earlier checkpoint, or lower the learning rate"
        )
    lengths, ended = kept.sum(1).tolist(), (ended & kept).any(1).tolist()
    rows = zip(tokens.tolist(), logps.tolist(), lengths, ended, strict=True)
    return [(token_ids[:n], logp[:n], not end) for token_ids, logp, n, end in rows]


def _seen(ids, mask, group_size: int, settings: SamplingSettings, num_words: int):
    """bool [P * G, V]: which tokens stand in the prompt of each row; None without a penalty."""
    if settings.repetition_penalty == 1:
        return None
    held = torch.zeros((len(ids), num_words), dtype=torch.long, device=ids.device)
    held = held.scatter_add_(1, ids, mask) > 0  # padding adds nothing
    return held.repeat_interleave(group_size, dim=0)
