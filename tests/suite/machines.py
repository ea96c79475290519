"""Machines for the tests of checks and plans."""

from __future__ import annotations

from klearlib.suite.checks import Machine

GB = 10**9
SERVER = Machine(
    gpus=(80 * GB, 80 * GB),
    memory=500 * GB,
    cores=32,
    packages=frozenset({"vllm", "flash-attn", "verl", "ray"}),
)
LAPTOP = Machine((), 8 * GB, 2, frozenset())
