"""Seeds that depend on what they are for, and on nothing that happened before."""

from __future__ import annotations

import hashlib


def derive_seed(*parts: object) -> int:
    """A seed in [0, 2**63) for the purpose named by `parts`.

    Every random draw of a run is seeded by (seed, purpose, step), so a resumed run draws what the
    unbroken one would have drawn, and arms that differ in the clipping rule see the same problems.

    >>> derive_seed(0, "rollout", 3) == derive_seed(0, "rollout", 3) != derive_seed(0, "rollout", 4)
    True
    """
    digest = hashlib.sha256("\x1f".join(map(repr, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
