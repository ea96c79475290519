"""Seconds, rates and peak memory on one device, for the benchmarks of a GPU."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from klearlib.policy.shape import ModelShape


def product_rate(arguments: argparse.Namespace) -> float:
    """Operations a second of a bf16 product of square matrices."""
    size = 256 if arguments.tiny else 8192
    a, b = (torch.randn(size, size, device=arguments.device).bfloat16() for _ in range(2))
    return 2 * size**3 / median_of(lambda: a @ b, arguments)[0]


def copy_rate(arguments: argparse.Namespace) -> float:
    """Bytes a second, read and written, of a copy within the device's memory."""
    size = 2**22 if arguments.tiny else 2**30
    source = torch.zeros(size, dtype=torch.uint8, device=arguments.device)
    target = torch.empty_like(source)
    return 2 * size / median_of(lambda: target.copy_(source), arguments)[0]


def line(what: str, seconds: float, amount: float, unit: str, peak: float | None = None) -> dict:
    return {"what": what, "s": seconds, "a second": amount / seconds, "of": unit, "peak GB": peak}


def median_of(run: Callable, arguments: argparse.Namespace) -> tuple[float, float | None]:
    """Median seconds of the repeats behind a first one, and the peak of the last."""
    found = [timed(run, arguments.device)[1:] for _ in range(arguments.repeats + 1)]
    return statistics.median(seconds for seconds, _ in found[1:]), found[-1][1]


def timed(run: Callable, device: str) -> tuple:
    """Result, seconds, and GB at most on a GPU."""
    on_gpu = device == "cuda"
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    result = run()
    if on_gpu:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    return result, seconds, torch.cuda.max_memory_allocated() / 1e9 if on_gpu else None


def device_name(arguments: argparse.Namespace) -> str:
    return torch.cuda.get_device_name() if arguments.device == "cuda" else arguments.device


def new_model(shape: ModelShape, positions: int, attention: str, device: str) -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=shape.vocab_size,
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        intermediate_size=shape.intermediate_size,
        max_position_embeddings=positions,
        tie_word_embeddings=shape.tie_word_embeddings,
        attn_implementation=attention,
    )
    with torch.device(device):
        return Qwen3ForCausalLM(config).eval()


def new_optimizer(model) -> torch.optim.AdamW:
    return torch.optim.AdamW(model.parameters(), lr=1e-6, fused=model.device.type == "cuda")
