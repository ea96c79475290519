"""The method cells of notebooks 01 to 04: each rule on a case small enough to check by hand."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from klearlib.curation.duplicates import Deduplicator
from klearlib.curation.overlap import OverlapIndex

_ITEM = "How many ways are there to seat ten guests around a round table if two must not be apart?"
_PHRASE = "where m and n are relatively prime positive integers. Find m+n."
_FIRST = f"The area is written as m/n, {_PHRASE}"
_SECOND = f"The chance of three heads is m/n, {_PHRASE}"
_OVERLAPS = (
    ("the item itself", _ITEM, True),
    ("in capitals, with other signs and blanks", _ITEM.upper().replace(" ", "  ") + "!!", True),
    ("inside another prompt", f"Read this. {_ITEM} Explain each step.", True),
    ("9 of its words in a row", "Say how many ways are there to seat ten guests.", True),
    ("only 8 of its words in a row", "Say how many ways are there to seat ten dogs.", False),
    (
        "its words in another order",
        "If two guests must not be apart, to seat ten around a round table there are how many?",
        False,
    ),
    ("a phrase that two items hold", f"Another sum equals m/n, {_PHRASE}", True),
)
_PROMPT = "Find f(3) modulo 7."
_DUPLICATES = (
    ("as it is", _PROMPT, True),
    ("in capitals", _PROMPT.upper(), True),
    ("with other blanks", "  Find  f(3)\nmodulo 7. ", True),
    ("with another number", "Find f(4) modulo 7.", False),
    ("with another sign", "Find f(-3) modulo 7.", False),
)


def rule_cases() -> Iterator[dict]:
    """The rules of overlap and of duplicates on edge cases: what they must do and what they do."""
    items = {"benchmark": [("a", _ITEM), ("b", _FIRST), ("c", _SECOND)]}
    strict = OverlapIndex(items, templates=())
    lenient = OverlapIndex(items, templates=(), stop_more_than=1)
    prompts = [prompt for _, prompt, _ in _OVERLAPS]
    found = zip(_OVERLAPS, strict.removals(prompts), lenient.removals(prompts), strict=True)
    for (what, _, expected), removal, stopped in found:
        yield {
            "rule": "overlap",
            "prompt": what,
            "must_go": expected,
            "goes": removal is not None,
            "shared_ngram": removal.ngram if removal else "",
            "is_boilerplate": bool(removal and removal.is_boilerplate),
            "goes_with_stop_list": stopped is not None,
        }
    for how, prompt, expected in _DUPLICATES:
        _, is_new = Deduplicator().is_new([_PROMPT, prompt])
        row = {"rule": "duplicate", "prompt": how, "must_go": expected, "goes": not is_new}
        yield row | dict.fromkeys(["shared_ngram", "is_boilerplate", "goes_with_stop_list"], "")


def normalizers() -> Iterator[dict]:
    """Eq. 8's normaliser, ``sequence_sum``, and two others on one batch: the loss and its gradients
    by autograd of the sum, token by token, against `sft.objective.sft_loss`, whole and in two
    micro-batches. A weight is that of one token of the shortest, of the longest response."""
    import torch

    from klearlib.sft.objective import NORMALIZERS, sft_loss

    generator = torch.Generator().manual_seed(0)
    lengths = (2, 5, 11)
    logits = torch.randn(3, 11, 7, generator=generator, dtype=torch.float64)
    tokens = torch.randint(7, logits.shape[:2], generator=generator)
    mask = torch.arange(11) < torch.tensor(lengths)[:, None]

    def row(normalizer: str) -> dict:
        per_response = normalizer == "sequence"
        total = sum(lengths) if normalizer == "token" else len(lengths)

        def printed(x):
            value = 0.0
            for i, length in enumerate(lengths):
                inner = 0.0
                for t in range(length):
                    inner = inner - x[i, t].log_softmax(-1)[tokens[i, t]]
                value = value + (inner / length if per_response else inner)
            return value / total

        def ours(x, rows=slice(None), denominator=None):
            logp = _logp(x[rows], tokens[rows])
            return sft_loss(logp, mask[rows], normalizer=normalizer, denominator=denominator)

        def in_parts(x):
            return ours(x, slice(1), total) + ours(x, slice(1, None), total)

        exact = _with_gradient(logits, printed)
        return {
            "normalizer": normalizer,
            "loss": exact[0],
            "weight_short": 1 / (total * min(lengths)) if per_response else 1 / total,
            "weight_long": 1 / (total * max(lengths)) if per_response else 1 / total,
            "largest_error": _distance(exact, _with_gradient(logits, ours)),
            "largest_error_in_parts": _distance(exact, _with_gradient(logits, in_parts)),
        }

    return map(row, NORMALIZERS)


def _logp(logits, tokens):
    return logits.log_softmax(-1).gather(-1, tokens[..., None])[..., 0]


def _with_gradient(logits, objective) -> tuple[float, np.ndarray]:
    import torch

    leaf = logits.clone().requires_grad_()
    loss = objective(leaf)
    (gradient,) = torch.autograd.grad(loss, leaf)
    return loss.item(), gradient.numpy()


def _distance(a: tuple[float, np.ndarray], b: tuple[float, np.ndarray]) -> float:
    return max(abs(a[0] - b[0]), float(np.abs(a[1] - b[1]).max()))
