"""The transformers sampling engine: groups of responses with the log-probability of every token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from transformers import DynamicCache

from klearlib.errors import KlearError
from klearlib.policy.load import autocast, chat_prompt
from klearlib.records import Problem, Response


@dataclass(frozen=True)
class SamplingSettings:
    """How responses are drawn. The whole record is stored with every score.

    temperature 0 is greedy; top_k 0 and top_p 1 keep all tokens; max_tokens counts generated
    tokens, the end token included; batch_rows is the number of responses that are decoded together.
    repetition_penalty: logits of the tokens that prompt and response so far hold are divided by it
    where positive and multiplied where negative, before the temperature; 1 for none.
    """

    temperature: float
    top_p: float
    top_k: int
    max_tokens: int
    seed: int
    batch_rows: int = 1024
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise ValueError(f"temperature must be >= 0, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")
        if self.top_k < 0 or self.max_tokens < 1 or self.batch_rows < 1:
            raise ValueError(
                "top_k must be >= 0, max_tokens and batch_rows >= 1, got "
                f"{self.top_k}, {self.max_tokens}, {self.batch_rows}"
            )
        if not 0 < self.repetition_penalty < float("inf"):
            raise ValueError(f"repetition_penalty must be > 0, got {self.repetition_penalty}")

    def record(self) -> dict:
        return asdict(self)


@torch.no_grad()
def sample_groups(
    model, tokenizer, problems: Sequence[Problem], *, group_size: int, settings: SamplingSettings
) -> list[list[Response]]:
    """G responses to each problem.

    A prompt is read once for its whole group, responses that ended leave the batch. The recorded
    `logp` is that of the policy at `temperature` over all tokens, before a repetition penalty and
    before top-k and top-p cut any, so that at temperature 1 it is the trainer's log pi
    (semantics.md D14).

    Args:
        group_size: G >= 1.

    Returns:
        One list of G responses for each problem, in the order of `problems`. The same seed,
        settings and weights give the same responses on the same machine.

    Raises:
        ValueError: no problems, group_size < 1, or more positions than the model has.
    """
    if not problems or group_size < 1:
        raise ValueError(f"need problems and group_size >= 1, got {len(problems)} and {group_size}")
    generator = torch.Generator(device=model.device).manual_seed(settings.seed)
    prompts = [chat_prompt(tokenizer, problem.prompt) for problem in problems]
    longest = max(len(ids) for _, ids in prompts) + settings.max_tokens
    positions = num_positions(model)
    if positions is not None and longest > positions:
        raise KlearError(
            f"prompt and response may need {longest} positions, the model has "
            f"{positions}: lower max_new_tokens or raise max_positions"
        )
    # Prompts of similar length share a batch, so that little of it is padding.
    order = sorted(range(len(problems)), key=lambda index: (len(prompts[index][1]), index))
    per_batch = max(1, settings.batch_rows // group_size)
    groups: list[list[Response]] = [[] for _ in problems]
    for start in range(0, len(order), per_batch):
        chosen = order[start : start + per_batch]
        ids = [prompts[i][1] for i in chosen]
        with autocast(model.device):  # around the whole loop: it casts the weights once
            rows = _decode(ids, group_size, model, tokenizer, settings, generator)
        for position, index in enumerate(chosen):
            for token_ids, logp, truncated in rows[
                position * group_size : (position + 1) * group_size
            ]:
                groups[index].append(
                    Response(
                        problem_id=problems[index].id,
                        prompt=prompts[index][0],
                        prompt_ids=tuple(prompts[index][1]),
                        token_ids=tuple(token_ids),
                        logp=tuple(logp),
                        text=tokenizer.decode(token_ids, skip_special_tokens=True),
                        truncated=truncated,
                    )
                )
    return groups


def num_positions(model) -> int | None:
    """The positions that a model knows, None where its config names no limit."""
    return getattr(model.config.get_text_config(), "max_position_embeddings", None)


def _decode(prompts, group_size, model, tokenizer, settings, generator):
    """Left-padded prefill of the P prompts, then one token at a time for the P * G rows."""
    device = model.device
    ends = torch.tensor(_end_ids(model, tokenizer), device=device)
    width = max(map(len, prompts))
    pad_id = tokenizer.pad_token_id
    ids = torch.full((len(prompts), width), 0 if pad_id is None else pad_id)  # masked: any will do
    attention = torch.zeros((len(prompts), width), dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
        attention[row, width - len(prompt) :] = 1
    ids, attention = ids.to(device), attention.to(device)
    cache = DynamicCache(config=model.config)
    logits = model(
        input_ids=ids,
        attention_mask=attention,
        position_ids=(attention.cumsum(1) - 1).clamp(min=0),
        past_key_values=cache,
        logits_to_keep=1,
    ).logits[:, -1]
    rows = len(prompts) * group_size
    seen = None
    if settings.repetition_penalty != 1:
        held = _held_tokens(ids, attention, logits.shape[-1])
        seen = held.repeat_interleave(group_size, dim=0)
    logits = logits.repeat_interleave(group_size, dim=0)
    attention = attention.repeat_interleave(group_size, dim=0)
    cache.batch_repeat_interleave(group_size)
    active = torch.arange(rows, device=device)
    tokens = torch.full((rows, settings.max_tokens), -1, dtype=torch.long, device=device)
    logps = torch.zeros((rows, settings.max_tokens), device=device)
    for step in range(settings.max_tokens):
        token, logp = _draw(logits.float(), settings, generator, seen)
        tokens[active, step], logps[active, step] = token, logp
        going = ~torch.isin(token, ends)
        if step + 1 == settings.max_tokens or not going.any():
            break
        if seen is not None:
            seen.scatter_(1, token[:, None], True)
        attention = torch.cat([attention, attention.new_ones(len(attention), 1)], dim=1)
        if not going.all():
            keep = going.nonzero().squeeze(1)
            active, attention, token = active[keep], attention[keep], token[keep]
            seen = seen if seen is None else seen[keep]
            cache.batch_select_indices(keep)
        logits = model(
            input_ids=token[:, None],
            attention_mask=attention,
            position_ids=attention.sum(1, keepdim=True) - 1,
            past_key_values=cache,
        ).logits[:, -1]
    lengths = (tokens >= 0).sum(1).tolist()
    ended = torch.isin(tokens.gather(1, (tokens >= 0).sum(1, keepdim=True) - 1), ends).squeeze(1)
    tokens, logps, ended = tokens.tolist(), logps.tolist(), ended.tolist()
    return [
        (tokens[row][: lengths[row]], logps[row][: lengths[row]], not ended[row])
        for row in range(rows)
    ]


def _held_tokens(ids: torch.Tensor, attention: torch.Tensor, num_words: int) -> torch.Tensor:
    """bool [P, V]: which tokens stand in each row of `ids` [P, T] where `attention` is not 0."""
    held = torch.zeros((len(ids), num_words), dtype=torch.bool, device=ids.device)
    row, column = attention.nonzero(as_tuple=True)
    held[row, ids[row, column]] = True
    return held


def _draw(
    logits: torch.Tensor,
    settings: SamplingSettings,
    generator: torch.Generator,
    seen: torch.Tensor | None,
):
    """One token for each row of logits [N, V] and its log-probability before penalty and cuts.

    seen: bool [N, V], the tokens that the repetition penalty meets; None without one.
    """
    scale = settings.temperature or 1.0
    logp = torch.log_softmax(logits / scale, dim=-1)
    drawn = logp
    if seen is not None:
        penalised = _penalised(logits, seen, settings.repetition_penalty)
        drawn = torch.log_softmax(penalised / scale, dim=-1)
    if settings.temperature == 0:
        token = drawn.argmax(dim=-1)
    else:
        token = torch.multinomial(_cut(drawn.exp(), settings), 1, generator=generator).squeeze(1)
    return token, logp.gather(1, token[:, None]).squeeze(1)


def _penalised(logits: torch.Tensor, seen: torch.Tensor, penalty: float) -> torch.Tensor:
    """Logits [N, V] with the `seen` ones divided by `penalty` if positive, else multiplied."""
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def _cut(probability: torch.Tensor, settings: SamplingSettings) -> torch.Tensor:
    """Zero what top-k and top-p remove; the most probable token always stays."""
    if settings.top_k:
        k = min(settings.top_k, probability.shape[-1])
        kth = probability.topk(k, dim=-1).values[:, -1:]
        probability = torch.where(probability < kth, 0.0, probability)
    if settings.top_p < 1:
        ordered, index = probability.sort(dim=-1, descending=True)
        # A token stays while the mass before it is below top_p of what top-k left.
        before = ordered.cumsum(dim=-1) - ordered
        ordered = torch.where(before < settings.top_p * ordered.sum(-1, keepdim=True), ordered, 0.0)
        probability = torch.zeros_like(probability).scatter(-1, index, ordered)
    return probability


def _end_ids(model, tokenizer) -> list[int]:
    configured = model.generation_config.eos_token_id
    ends = configured if isinstance(configured, list) else [configured]
    return sorted({end for end in [*ends, tokenizer.eos_token_id] if end is not None})
