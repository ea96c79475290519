"""The transformers sampling engine: groups of responses with the log-probability of every token."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from transformers import DynamicCache

from klearlib.errors import KlearError
from klearlib.policy.decoder import Decoder, Decoding, can_decode
from klearlib.policy.drawing import SamplingSettings, draw
from klearlib.policy.load import autocast
from klearlib.policy.prompts import chat_prompts, end_ids
from klearlib.records import Problem, Response

# Rows that ended leave the batch once no more than this share of it goes on: each departure copies
# the cache of the rows that stay.
_LEAVING = 0.75

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
        on_sampled: called after each token of a batch.

    Returns:
        A list of G responses for each problem. The same seed, settings and weights give the same
        responses on the same machine.

    Raises:
        ValueError: no problems, group_size < 1, batch_rows < 1.
        KlearError: more positions than the model has, or logits that are no numbers.
    """
    if not problems or group_size < 1 or batch_rows < 1:
        raise ValueError(
            "need problems, group_size >= 1 and batch_rows >= 1, got "
            f"{len(problems)}, {group_size}, {batch_rows}"
        )
    decoder = Decoder(model, precision=precision) if can_decode(model) else None
    generator = torch.Generator(device=model.device).manual_seed(settings.seed)
    ends = torch.tensor(end_ids(model, tokenizer), device=model.device)
    prompts = chat_prompts(model, tokenizer, problems, max_tokens=settings.max_tokens)
    # Prompts of similar length share a batch, so that little of it is padding.
    order = sorted(range(len(problems)), key=lambda index: (len(prompts[index][1]), index))
    per_batch = max(1, batch_rows // group_size)
    widths = [min(batch_rows, group_size - n) for n in range(0, group_size, batch_rows)]
    groups: list[list[Response]] = [[] for _ in problems]
    for start in range(0, len(order), per_batch):
        chosen = order[start : start + per_batch]
        ids = [prompts[i][1] for i in chosen]
        ids, mask = _left_padded(ids, tokenizer.pad_token_id, model.device)
        done = start * group_size
        for width in widths:  # several only for a group of more than batch_rows responses
            done += len(chosen) * width
            tell = on_sampled and functools.partial(
                _tell, on_sampled, done, len(problems) * group_size
            )
            if decoder is not None:
                loop = Decoding(decoder, ids, mask, ids.shape[1] + settings.max_tokens)
                rows = _decode(loop, ids, mask, width, ends, settings, generator, tell)
            else:
                # Around the whole loop, so that autocast casts the weights once.
                with autocast(model.device, precision):
                    loop = TransformersDecoding(model, ids, mask)
                    rows = _decode(loop, ids, mask, width, ends, settings, generator, tell)
            if tell is not None:
                tell(0)  # those that the budget ended, too
            for position, index in enumerate(chosen):
                drawn = rows[position * width : (position + 1) * width]
                groups[index] += [
                    Response(
                        problem_id=problems[index].id,
                        prompt=prompts[index][0],
                        prompt_ids=tuple(prompts[index][1]),
                        token_ids=tuple(token_ids),
                        logp=tuple(logp),
                        text=tokenizer.decode(token_ids, skip_special_tokens=True),
                        truncated=truncated,
                    )
                    for token_ids, logp, truncated in drawn
                ]
    return groups


class TransformersDecoding:
    """`klearlib.policy.decoder.Decoding` by a model's own forward pass and cache."""

    def __init__(self, model, ids: torch.Tensor, mask: torch.Tensor):
        self._model, self._mask, self._cache = model, mask, DynamicCache(config=model.config)
        self._positions = (mask.cumsum(1) - 1).clamp(min=0)
        self._read(ids)
        self._positions = self._positions[:, -1:]

    def repeat(self, times: int) -> None:
        self._cache.batch_repeat_interleave(times)
        self._rows(lambda held: held.repeat_interleave(times, dim=0))

    def keep(self, rows: torch.Tensor) -> None:
        self._cache.batch_select_indices(rows)
        self._rows(lambda held: held[rows])

    def step(self, token: torch.Tensor) -> None:
        self._mask = F.pad(self._mask, (0, 1), value=1)
        self._positions = self._positions + 1
        self._read(token[:, None])

    def _read(self, ids: torch.Tensor) -> None:
        self.logits = self._model(
            input_ids=ids,
            attention_mask=self._mask,
            position_ids=self._positions,
            past_key_values=self._cache,
            logits_to_keep=1,
        ).logits[:, -1]

    def _rows(self, change) -> None:
        self.logits, self._mask = change(self.logits), change(self._mask)
        self._positions = change(self._positions)


def _tell(on_sampled: OnSampled, at_end: int, total: int, num_going: int) -> None:
    on_sampled(at_end - num_going, total)


def _decode(loop, ids, mask, group_size, ends, settings, generator, tell):
    """One token at a time for G responses to each of the prompts that `loop` has read."""
    seen = None
    if settings.repetition_penalty != 1:
        held = _held_tokens(ids, mask, loop.logits.shape[-1])
        seen = held.repeat_interleave(group_size, dim=0)
    loop.repeat(group_size)
    rows, device = len(loop.logits), ids.device
    active = torch.arange(rows, device=device)
    going = torch.ones(rows, dtype=torch.bool, device=device)
    tokens = torch.full((rows, settings.max_tokens), -1, dtype=torch.long, device=device)
    logps = torch.zeros((rows, settings.max_tokens), device=device)
    for step in range(settings.max_tokens):
        token, logp = draw(loop.logits.float(), settings, generator, seen)
        # A row that ended draws on until it leaves; what it draws is not kept.
        tokens[active, step], logps[active, step] = torch.where(going, token, -1), logp
        going &= ~torch.isin(token, ends)
        num_going = int(going.sum())
        if tell is not None:
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
    kept = tokens >= 0
    if not logps[kept].isfinite().all():
        raise KlearError(
            "the model gives logits that are no numbers: its weights are damaged, or training "
            "diverged; go back to an earlier checkpoint, or lower the learning rate"
        )
    lengths = kept.sum(1).tolist()
    ended = torch.isin(tokens.gather(1, kept.sum(1, keepdim=True) - 1), ends).squeeze(1)
    tokens, logps, ended = tokens.tolist(), logps.tolist(), ended.tolist()
    return [
        (tokens[row][: lengths[row]], logps[row][: lengths[row]], not ended[row])
        for row in range(rows)
    ]


def _left_padded(
    prompts: Sequence[Sequence[int]], pad_id: int | None, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and attention mask [P, T] of prompts that all end in the last column."""
    width = max(map(len, prompts))
    ids = torch.full((len(prompts), width), 0 if pad_id is None else pad_id)  # masked: any will do
    attention = torch.zeros((len(prompts), width), dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
        attention[row, width - len(prompt) :] = 1
    return ids.to(device), attention.to(device)


def _held_tokens(ids: torch.Tensor, attention: torch.Tensor, num_words: int) -> torch.Tensor:
    """bool [P, V]: which tokens stand in each row of `ids` [P, T] where `attention` is not 0."""
    held = torch.zeros((len(ids), num_words), dtype=torch.bool, device=ids.device)
    row, column = attention.nonzero(as_tuple=True)
    held[row, ids[row, column]] = True
    return held
