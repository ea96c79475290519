"""The GPUs of this machine that may be used."""

from __future__ import annotations

import os

from klearlib.run.provenance import gpu_names


def gpus() -> list[str]:
    """Names of the GPUs to share out, as CUDA_VISIBLE_DEVICES takes them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
    return [str(index) for index in range(len(gpu_names()))]
