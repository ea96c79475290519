"""One decoder for dense Llama, Qwen2 and Qwen3 models, the same in sampling and training.

It computes with the weights of a transformers model: in sampling projections that read the same
states are one product, rotary angles come from a table, and each norm is one function.
Shapes: M tokens of a line, N rows, T positions, d the width, H query heads that share J key heads,
D a head's size, f the width of the feed-forward, V words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM

from klearlib.policy.head import head_logits

# Heads [..., heads, D] of queries, keys and values -> [..., H * D].
Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

_ROPE = ("default", "yarn")  # whose angles do not depend on the length


def can_decode(model) -> bool:
    """Whether `Decoder` computes what `model` does: a dense model of the three families as
    `klearlib.policy.load.load_policy` loads it, with sdpa attention to all tokens before."""
    config = model.config
    return (
        type(model) in (LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)
        and config._attn_implementation == "sdpa"
        and not set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
        and config.hidden_act == "silu"
        and config.rope_parameters["rope_type"] in _ROPE
        and 2 * len(model.model.rotary_emb.inv_freq) == model.model.layers[0].self_attn.head_dim
        and not config.attention_dropout
    )


class Tokens(Protocol):
    """Token ids of a prompt and its response, a sequence or a tensor [T]; those from `num_prompt`
    >= 1 on are the response."""

    ids: Sequence[int] | torch.Tensor
    num_prompt: int


@dataclass(frozen=True)
class TokenLine:
    """M tokens of N sequences. The last token of a sequence predicts nothing and is left out.

    ids, positions: long [M]. rows: long [N, T], the place in the line of each token of a sequence,
    0 in the padding. places: long [M], the place in the flattened rows where each token of the line
    first stands. before: long [K], the places in the line that predict the K response tokens.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    rows: torch.Tensor
    places: torch.Tensor
    before: torch.Tensor


def token_line(sequences: Sequence[Tokens], *, device: torch.device | str) -> TokenLine:
    """The line of these sequences, prompts that are equal once.

    >>> from types import SimpleNamespace as Made
    >>> made = [Made(ids=(5, 6, 7), num_prompt=2), Made(ids=(5, 6, 8, 9), num_prompt=2)]
    >>> line = token_line(made, device="cpu")
    >>> line.ids.tolist(), line.rows.tolist(), line.before.tolist()
    ([5, 6, 8], [[0, 1, 0], [0, 1, 2]], [1, 1, 2])
    """
    width = max(len(each.ids) for each in sequences) - 1
    rows = torch.zeros((len(sequences), width), dtype=torch.long)
    starts: dict[bytes, int] = {}  # of a prompt's tokens -> where they start in the line
    ids, positions, places, before, length = [], [], [], [], 0
    for number, each in enumerate(sequences):
        tokens = torch.as_tensor(each.ids, dtype=torch.long)
        split, end = each.num_prompt, len(tokens) - 1
        prompt = tokens[:split].numpy().tobytes()
        begin = split if prompt in starts else 0  # what of the sequence is new to the line
        start = starts.setdefault(prompt, length)
        span = torch.arange(begin, end)
        ids.append(tokens[begin:end])
        positions.append(span)
        places.append(number * width + span)
        rows[number, :split] = torch.arange(start, start + split)
        rows[number, begin:end] = torch.arange(length, length + end - begin)
        before.append(rows[number, split - 1 : end])
        length += end - begin
    ids, positions, places, before = map(torch.cat, (ids, positions, places, before))
    return TokenLine(*(each.to(device) for each in (ids, positions, rows, places, before)))


# Linear maps that read the same states: [out, in] and its bias [out] or None.
Maps = list[tuple[torch.Tensor, torch.Tensor | None]]


@dataclass(frozen=True)
class _Layer:
    norm: torch.Tensor  # [d]
    qkv: Maps  # d -> (H + 2 J) D
    heads_norm: torch.Tensor | None  # [H + J, D], of Qwen3
    out: Maps  # H D -> d
    feed_norm: torch.Tensor  # [d]
    gate_up: Maps  # d -> 2 f
    down: Maps  # f -> d


class Decoder:
    """`model` at the weights that it has now, for one pass or one loop of sampling.

    precision: ``"bf16"`` multiplies in bfloat16 and keeps the residual stream, the norms and the
    logits in float32; ``"fp32"`` takes the weights as they are. recompute: the activations of a
    layer are computed again in the backward pass.
    """

    def __init__(self, model, *, precision: str = "fp32", recompute: bool = False):
        config, inner = model.config, model.model
        self.eps, self.recompute = config.rms_norm_eps, recompute
        first = inner.layers[0].self_attn
        self.num_heads, self.num_kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim, self.scale = first.head_dim, first.scaling
        self.dtype = torch.bfloat16 if precision == "bf16" else model.dtype
        # Of the residual stream: never less than float32.
        self.wide = torch.promote_types(model.dtype, torch.float32)
        self.embedding, self.padding_id = inner.embed_tokens.weight, inner.embed_tokens.padding_idx
        self.norm = inner.norm.weight.to(self.wide)
        self.head = self._maps(model.lm_head)[0][0]
        self.layers = [self._layer(layer) for layer in inner.layers[: config.num_hidden_layers]]
        self._rope = inner.rotary_emb
        self._tables: tuple[torch.Tensor, torch.Tensor] | None = None

    def _layer(self, layer) -> _Layer:
        attention, feed = layer.self_attn, layer.mlp
        heads_norm = None
        if hasattr(attention, "q_norm"):
            times = ((attention.q_norm, self.num_heads), (attention.k_norm, self.num_kv_heads))
            heads_norm = torch.cat([norm.weight.expand(n, -1) for norm, n in times]).to(self.wide)
        return _Layer(
            norm=layer.input_layernorm.weight.to(self.wide),
            qkv=self._maps(attention.q_proj, attention.k_proj, attention.v_proj),
            heads_norm=heads_norm,
            out=self._maps(attention.o_proj),
            feed_norm=layer.post_attention_layernorm.weight.to(self.wide),
            gate_up=self._maps(feed.gate_proj, feed.up_proj),
            down=self._maps(feed.down_proj),
        )

    def _maps(self, *maps: nn.Linear) -> Maps:
        found = [(each.weight, each.bias) for each in maps]
        if torch.is_grad_enabled():
            return found  # a copy here would hold its gradient to the end of the backward pass
        weights, biases = zip(*found, strict=True)
        weight = torch.cat(weights) if len(weights) > 1 else weights[0]
        bias = None if biases[0] is None else torch.cat(biases)
        return [(weight.to(self.dtype), None if bias is None else bias.to(self.dtype))]

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """[..., d] -> [..., V], in float32 at least."""
        return head_logits(states.to(self.dtype), self.head.to(self.dtype))

    def hidden(
        self, ids: torch.Tensor, positions: torch.Tensor, attends: list[Attend], *, length: int
    ) -> torch.Tensor:
        """The last hidden states [..., d] of ids [...] at positions [...] below `length`, by the
        attention that each layer has in `attends`."""
        states = F.embedding(ids, self.embedding, padding_idx=self.padding_id).to(self.wide)
        angles = [table[positions].unsqueeze(-2) for table in self._angles(length)]
        for layer, attend in zip(self.layers, attends, strict=True):
            if self.recompute and torch.is_grad_enabled():
                states = checkpoint(
                    self._compute, layer, states, angles, attend, use_reentrant=False
                )
            else:
                states = self._compute(layer, states, angles, attend)
        return rms_norm(states, self.norm, self.eps)

    def _compute(self, layer: _Layer, states, angles, attend: Attend) -> torch.Tensor:
        """A layer on states [..., d]; angles: cosines and sines [..., 1, D]."""
        h, j = self.num_heads, self.num_kv_heads
        normed = rms_norm(states, layer.norm, self.eps)
        heads = self._linear(normed, layer.qkv).unflatten(-1, (h + 2 * j, self.head_dim))
        qk, v = heads.split([h + j, j], dim=-2)
        if layer.heads_norm is not None:
            qk = rms_norm(qk.to(self.wide), layer.heads_norm, self.eps)
        # Queries and keys [..., H or J, D] in one rotation.
        q, k = _rotated(qk, *angles).to(v.dtype).split([h, j], dim=-2)
        states = states + self._linear(attend(q, k, v), layer.out)
        normed = rms_norm(states, layer.feed_norm, self.eps)
        gate, up = self._linear(normed, layer.gate_up).chunk(2, dim=-1)
        return states + self._linear(F.silu(gate) * up, layer.down)

    def _linear(self, states: torch.Tensor, maps: Maps) -> torch.Tensor:
        """The outputs of all maps, one after the other on the last axis."""
        states = states.to(self.dtype)
        found = [
            F.linear(states, weight.to(self.dtype), None if bias is None else bias.to(self.dtype))
            for weight, bias in maps
        ]
        return found[0] if len(found) == 1 else torch.cat(found, dim=-1)

    def _angles(self, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines [T, D] of positions below `length` at least; the first half of the
        sines is negative, see `_rotated`."""
        if self._tables is None or length > len(self._tables[0]):
            device = self.embedding.device
            # Twice as many: the last ones of a table may be rounded otherwise.
            angle = torch.arange(2 * length, device=device).float()[:, None]
            angle = angle * self._rope.inv_freq.to(device).float()
            cos, sin = (x() * self._rope.attention_scaling for x in (angle.cos, angle.sin))
            tables = torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)
            self._tables = tuple(table.to(self.wide) for table in tables)
        return self._tables

    # training

    def line_states(self, line: TokenLine) -> torch.Tensor:
        """The last hidden states [K, d] that predict the K response tokens of a line."""
        attends = [self._within_rollouts(line)] * len(self.layers)
        states = self.hidden(line.ids, line.positions, attends, length=line.rows.shape[1])
        return states.index_select(0, line.before)

    def _within_rollouts(self, line: TokenLine) -> Attend:
        """Causal attention of each rollout to itself: its tokens are gathered from the line [M]
        into a padded row, where the causal kernel needs no mask, and the results go back."""
        num_rows, width = line.rows.shape

        def gather(heads: torch.Tensor) -> torch.Tensor:  # [M, heads, D] -> [N, heads, T, D]
            rows = heads.flatten(1).index_select(0, line.rows.flatten())
            return rows.view(num_rows, width, *heads.shape[1:]).transpose(1, 2)

        def attend(q, k, v):
            # The CPU's kernel for bf16 takes 13 times as long in its backward pass as for float32.
            slow = v.device.type == "cpu" and v.dtype == torch.bfloat16
            rows = (gather(x.float() if slow else x) for x in (q, k, v))
            mixed = _grouped_attention(*rows, scale=self.scale)
            flat = mixed.transpose(1, 2).reshape(num_rows * width, -1)
            return flat.index_select(0, line.places).to(v.dtype)

        return attend


class Decoding:
    """A loop of sampling: one token more for each of N rows at a time.

    The keys and values of each layer are in buffers [N, J, T, D] that are written in place; a full
    one grows by half. ids, mask: long [P, T] of prompts that all end in the last column, and 1
    where they are no padding. max_length: positions that will ever be held. logits: [N, V] of the
    next token, first N = P.
    """

    def __init__(self, decoder: Decoder, ids: torch.Tensor, mask: torch.Tensor, max_length: int):
        self._decoder, self._max_length = decoder, max_length
        # Where nothing is padded, attention without a mask is faster.
        self._mask = None if mask.all() else mask.bool()
        self._length, self._buffers = 0, [None] * len(decoder.layers)
        self._positions = (mask.cumsum(1) - 1).clamp(min=0)
        self.logits = self._read(ids, self._positions)
        self._positions = self._positions[:, -1:]

    def repeat(self, times: int) -> None:
        """Each row `times` times, one after the other."""
        self._rows(lambda held: held.repeat_interleave(times, dim=0))

    def keep(self, rows: torch.Tensor) -> None:
        """Only these rows [K] go on."""
        self._rows(lambda held: held[rows])

    def step(self, token: torch.Tensor) -> None:
        """Read one token [N] more of each row; `logits` are those after it."""
        if self._mask is not None:
            self._mask = F.pad(self._mask, (0, 1), value=True)
        self._positions = self._positions + 1
        self.logits = self._read(token[:, None], self._positions)

    def _read(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        start, self._length = self._length, self._length + ids.shape[1]
        attends = [self._attend(index, start) for index in range(len(self._buffers))]
        states = self._decoder.hidden(ids, positions, attends, length=self._max_length)
        return self._decoder.logits(states[:, -1])

    def _attend(self, index: int, start: int) -> Attend:
        decoder = self._decoder

        def attend(q, k, v):  # [N, t, heads, D]
            keys, values = self._write(index, start, k, v)
            rows, steps, heads, size = q.shape
            q = q.transpose(1, 2)
            if steps > 1:
                mask = None if self._mask is None else _causal(self._mask)
                mixed = _grouped_attention(q, keys, values, scale=decoder.scale, mask=mask)
                return mixed.transpose(1, 2).flatten(2)
            # One new token: the heads that share a key head become its queries, none of which comes
            # after another. In bf16 on a CPU torch's kernel is faster at grouped heads.
            grouped = v.dtype != torch.bfloat16 or v.device.type != "cpu"
            mixed = F.scaled_dot_product_attention(
                q.reshape(rows, keys.shape[1], -1, size) if grouped else q,
                keys,
                values,
                attn_mask=None if self._mask is None else self._mask[:, None, None],
                scale=decoder.scale,
                enable_gqa=not grouped,
            )
            return mixed.reshape(rows, 1, heads * size)

        return attend

    def _write(self, index: int, start: int, k: torch.Tensor, v: torch.Tensor):
        """All keys and values [N, J, length, D] with the new ones at the end."""
        held, stop = self._buffers[index], self._length
        if held is None or stop > held[0].shape[2]:
            held = self._buffers[index] = self._larger(held, k, start, stop)
        for buffer, new in zip(held, (k, v), strict=True):
            buffer[:, :, start:stop] = new.transpose(1, 2)
        return [buffer[:, :, :stop] for buffer in held]

    def _larger(self, held, new: torch.Tensor, start: int, stop: int) -> list[torch.Tensor]:
        """Buffers of keys and values for `stop` positions and half as many more, with what `held`
        has up to `start`; new: [N, t, J, D]."""
        room = max(stop, min(stop + stop // 2, self._max_length))
        larger = [new.new_empty(len(new), new.shape[2], room, new.shape[3]) for _ in range(2)]
        for buffer, old in zip(larger, held or (), strict=False):
            buffer[:, :, :start] = old[:, :, :start]
        return larger

    def _rows(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.logits, self._positions = change(self.logits), change(self._positions)
        self._mask = None if self._mask is None else change(self._mask)
        for held in self._buffers:  # one after the other: never all of them twice
            held[:] = map(change, held)


def _grouped_attention(q, keys, values, *, scale: float, mask: torch.Tensor | None = None):
    """Causal attention of [N, H, T, D] to [N, J, T, D], or that of a mask [N, 1, T, T]. Of a GPU's
    kernels only one, which holds all scores, takes grouped heads in float32 or with a mask."""
    times = q.shape[1] // keys.shape[1]
    only_slow = mask is not None or (q.device.type != "cpu" and q.dtype == torch.float32)
    if times > 1 and only_slow:
        keys, values = (x.repeat_interleave(times, dim=1) for x in (keys, values))
    return F.scaled_dot_product_attention(
        q, keys, values, attn_mask=mask, is_causal=mask is None, scale=scale,
        enable_gqa=q.shape[1] != keys.shape[1],
    )  # fmt: skip


def _causal(mask: torch.Tensor) -> torch.Tensor:
    """[P, 1, T, T] of left-padded rows [P, T]; padding sees itself, so that it stays a number."""
    width = mask.shape[1]
    causal = torch.ones(width, width, dtype=torch.bool, device=mask.device).tril()
    return (causal & mask[:, None, None, :]) | torch.eye(
        width, dtype=torch.bool, device=mask.device
    )


def _rotated(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary positions: (a, b) -> (a cos - b sin, b cos + a sin) of the halves of the last axis;
    the minus is in the table of the sines."""
    return torch.addcmul(heads * cos, heads.roll(heads.shape[-1] // 2, -1), sin)


def rms_norm(states: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """states / sqrt(mean(states^2) + eps) * weight over the last axis; states: [...,
    *weight.shape], weight: [width] or [heads, width]."""
    if torch.is_grad_enabled():
        return _RMSNorm.apply(states, weight, eps)
    if weight.ndim == 1:
        return F.rms_norm(states, weight.shape, weight, eps)
    return F.rms_norm(states, weight.shape[-1:], None, eps) * weight


class _RMSNorm(torch.autograd.Function):
    """Half the passes over the states, and a graph that keeps less of them."""

    @staticmethod
    def forward(ctx, states, weight, eps):
        squares = torch.linalg.vector_norm(states, dim=-1, keepdim=True).square_()
        scale = squares.div_(states.shape[-1]).add_(eps).rsqrt_()
        ctx.save_for_backward(states, weight, scale)
        return (states * scale).mul_(weight)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        states, weight, scale = ctx.saved_tensors
        unit = states * scale
        of_weight = (gradient * unit).reshape(-1, *weight.shape).sum(0)
        of_states = gradient * weight
        along = (of_states * unit).sum(-1, keepdim=True).div_(-states.shape[-1])
        return of_states.addcmul_(unit, along).mul_(scale), of_weight, None
