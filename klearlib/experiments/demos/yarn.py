"""The method cell of notebook 10: what YaRN does to each rotary frequency, against its formula."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from klearlib.params import load, uses_miniature

if TYPE_CHECKING:
    from klearlib.experiments.headline_pipeline import HeadlineParams

_FAST, _SLOW = 32, 1  # turns over the original positions: more keep their frequency, fewer lose it
_DISTANCE = 64  # tokens, far within any budget


def yarn_frequencies(
    *, dim: int, theta: float, positions: int, factor: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """YaRN by its formula: (gamma in [0, 1], frequency) of each rotary pair, float [dim / 2], and
    the factor on cosines and sines.

    Pair i turns by ``theta ** (-2 i / dim)`` radians a token. gamma is 1, for kept, up to the pair
    that turns 32 times over the original `positions` and 0, for divided by `factor`, from the pair
    that turns once, both rounded outwards, and linear in i between; the factor on cosines and sines
    is ``0.1 ln(factor) + 1``.
    """
    pair = np.arange(dim // 2)
    plain = theta ** (-2.0 * pair / dim)

    def pair_with(turns: float) -> float:
        return dim * math.log(positions / (2 * math.pi * turns)) / (2 * math.log(theta))

    first = max(math.floor(pair_with(_FAST)), 0)
    last = min(math.ceil(pair_with(_SLOW)), dim - 1)
    gamma = 1 - np.clip((pair - first) / max(last - first, 0.001), 0, 1)
    mixed = plain / factor * (1 - gamma) + plain * gamma
    return gamma, mixed, 0.1 * math.log(factor) + 1


def yarn_demo(params: HeadlineParams) -> Iterator[dict]:
    """The rotary positions of Qwen3-8B-Base and, where the notebook runs in it, of the miniature,
    stretched in configs of their geometry, against the formula.

    `change_at_64` is the largest change, in radians, of the angle between two tokens 64 apart, a
    distance that needs no longer budget: the factor is static. `logits_factor` multiplies every
    attention logit, at any distance.
    """
    with warnings.catch_warnings():
        # Without ipywidgets its progress bars warn into the notebook, with a path of the machine.
        warnings.simplefilter("ignore")
        from transformers import Qwen3Config
        from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

        from klearlib.policy.load import with_yarn

    geometries = {"Qwen3-8B-Base": (128, 1.0e6, 32768)}
    if uses_miniature(params):
        joint = load(params.profile, "joint_miniature")
        geometries["the miniature"] = (joint.head_dim, 1.0e4, joint.yarn_original)
    for model, (dim, theta, positions) in geometries.items():
        config = Qwen3Config(
            head_dim=dim,
            max_position_embeddings=positions,
            rope_parameters={"rope_type": "default", "rope_theta": theta},
        )
        plain = Qwen3RotaryEmbedding(config).inv_freq.double().numpy()
        stretched = Qwen3RotaryEmbedding(with_yarn(config, params.yarn_factor))
        real = stretched.inv_freq.double().numpy()
        gamma, formula, scale = yarn_frequencies(
            dim=dim, theta=theta, positions=positions, factor=params.yarn_factor
        )
        errors = np.abs(real / formula - 1).max(), abs(stretched.attention_scaling - scale)
        yield {
            "model": model,
            "positions": positions,
            "with_yarn": config.max_position_embeddings,
            "pairs": dim // 2,
            "kept": int((gamma == 1).sum()),
            "mixed": int(((gamma > 0) & (gamma < 1)).sum()),
            "divided": int((gamma == 0).sum()),
            "change_at_64": float(np.abs(real - plain).max() * _DISTANCE),
            "logits_factor": float(stretched.attention_scaling) ** 2,
            "largest_error": float(max(errors)),
        }
