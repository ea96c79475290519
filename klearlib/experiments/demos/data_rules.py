"""The method cells of notebooks 01 to 04: each rule on a case small enough to check by hand."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

import numpy as np

from klearlib.curation.coverage import k_center_greedy
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


def pushes() -> Iterator[dict]:
    """What one update of plain gradient descent does to a right and to a wrong response of equal
    probability: on Eq. 8, and on minus advantage times log-probability."""
    import torch

    from klearlib.sft.objective import sft_loss

    tokens = torch.tensor([[0, 1, 2]])
    for objective, name in itertools.product(("Eq. 8", "advantage"), ("right", "wrong")):
        sign = -1.0 if (objective, name) == ("advantage", "wrong") else 1.0
        logits = torch.zeros(1, 3, 5, dtype=torch.float64, requires_grad=True)
        mask = torch.ones_like(tokens, dtype=bool)
        loss = sign * sft_loss(_logp(logits, tokens), mask, normalizer="token")
        (gradient,) = torch.autograd.grad(loss, logits)
        before = _logp(logits, tokens).sum().exp().item()
        after = _logp(logits - gradient, tokens).sum().exp().item()
        yield {
            "objective": objective,
            "response": name,
            "gradient_on_its_tokens": gradient[0, 0, 0].item(),
            "probability_before": before,
            "probability_after": after,
            "pushed": "up" if after > before else "down",
        }


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


def coverage() -> Iterator[dict]:
    """K-center on points of a small grid, with ties and copies, against the plain algorithm and
    against k points drawn at random, mean of 20 draws."""
    source = random.Random(0)
    points = np.array([[source.randrange(9), source.randrange(9)] for _ in range(60)])
    for k in (1, 2, 4, 8, 16, 32):
        chosen, plain = k_center_greedy(points, k).tolist(), _plain_k_center(points, k)
        drawn = [radius(points, source.sample(range(60), k)) for _ in range(20)]
        row = {"k": k, "equal_to_plain": chosen == plain, "radius": radius(points, chosen)}
        row["radius_at_random"] = float(np.mean(drawn))
        yield row | {"first_chosen": ", ".join(map(str, chosen[:6]))}


def radius(points: np.ndarray, chosen: Sequence[int]) -> float:
    """The largest Euclidean distance from a point to its nearest chosen one.

    >>> radius(np.array([[0, 0], [3, 4], [0, 1]]), [0])
    5.0
    """
    differences = points[:, None] - points[list(chosen)]
    return float(np.sqrt((differences**2).sum(axis=2)).min(axis=1).max())


def _plain_k_center(points: np.ndarray, k: int) -> list[int]:
    chosen = [0]
    while len(chosen) < k:
        distances = [
            -1 if i in chosen else min(((p - points[j]) ** 2).sum() for j in chosen)
            for i, p in enumerate(points)
        ]
        chosen.append(distances.index(max(distances)))
    return chosen


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
