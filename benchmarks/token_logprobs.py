"""Time and memory of log-probabilities with their gradients, chunks beside the dense softmax.

    .venv/bin/python benchmarks/token_logprobs.py --repeats 3
    .venv/bin/python benchmarks/token_logprobs.py --device cuda --precision bf16 --tokens 4096 32768

The LM head of Qwen3-0.6B (width 1,024, 151,936 words): log pi of one target for each state, the
entropy beside it, a weighted sum of log pi as loss, and its gradients with respect to states and
head. Every way is measured in a process of its own, and the ways take turns. Memory is the peak
beyond the inputs, gradients included: of the resident set on a CPU, of torch's allocator on a GPU.
Seconds are the least of the repeats, of the process on one thread on a CPU, of the clock on a GPU;
ratios are to the dense way of the same run. The last column is the largest relative difference of a
gradient's norm from the first way's. On a GPU, Liger's fused linear cross entropy stands beside
them where liger-kernel is installed; it gives no entropy and no loss but the mean of log pi.
Writes benchmarks/results/token_logprobs_<device>.csv.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from common import arguments_of, keep

from klearlib.policy.load import autocast
from klearlib.policy.reader import Reader, in_chunks

# The first by hand, the second is `in_chunks`, which the trainer takes.
DENSE, BY_CHUNK = "dense", "chunks, a backward pass each"
LIGER = "liger fused linear cross entropy"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--precision", default="fp32", choices=("fp32", "bf16"))
    parser.add_argument("--tokens", type=int, nargs="+", default=[4096])
    parser.add_argument("--words", type=int, default=151_936)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = arguments_of(parser, tokens=[32], words=500, width=16, repeats=1)
    rows = [row for tokens in arguments.tokens for row in compare(tokens, arguments)]
    keep(rows, f"token_logprobs_{arguments.device}", arguments)


def compare(tokens: int, arguments: argparse.Namespace) -> list[dict]:
    """One row for each way at `tokens`."""
    ways = [DENSE, BY_CHUNK]
    if arguments.device == "cuda" and find_spec("liger_kernel") is not None:
        ways.append(LIGER)
    found: dict[str, list[dict]] = {way: [] for way in ways}
    for _ in range(arguments.repeats):
        for way in ways:
            with ProcessPoolExecutor(1, mp_context=get_context("fork")) as process:
                found[way].append(process.submit(measure, way, tokens, arguments).result())
    seconds = {way: min(run["seconds"] for run in runs) for way, runs in found.items()}
    bytes_ = {way: max(run["bytes"] for run in runs) for way, runs in found.items()}
    return [
        {
            "device": arguments.device,
            "precision": arguments.precision,
            "tokens": tokens,
            "words": arguments.words,
            "way": way,
            "GB": bytes_[way] / 1e9,
            "of dense memory": bytes_[way] / bytes_[DENSE],
            "seconds": seconds[way],
            "of dense time": seconds[way] / seconds[DENSE],
            "apart": max(
                abs(ours / theirs - 1)
                for ours, theirs in zip(
                    found[way][0]["norms"], found[DENSE][0]["norms"], strict=True
                )
            )
            if way != LIGER
            else None,
        }
        for way in ways
    ]


def measure(way: str, tokens: int, arguments: argparse.Namespace) -> dict:
    """Seconds, bytes beyond the inputs, and norms of the gradients of one pass."""
    torch.set_num_threads(1)
    device, precision = arguments.device, arguments.precision
    draws = torch.Generator().manual_seed(0)
    states = torch.randn(tokens, arguments.width, generator=draws)
    weight = torch.randn(arguments.words, arguments.width, generator=draws) * 0.03
    targets = torch.randint(0, arguments.words, (tokens,), generator=draws).to(device)
    scale = torch.randn(tokens, generator=draws).to(device) / tokens
    states, weight = (x.to(device).requires_grad_() for x in (states, weight))
    head = SimpleNamespace(weight=weight)

    def one_pass(states: torch.Tensor, targets: torch.Tensor, scale: torch.Tensor) -> None:
        if way == BY_CHUNK:
            dtype = torch.bfloat16 if precision == "bf16" else torch.float32
            reader = Reader(lambda _: states, head, dtype, arguments.words)
            sequence = SimpleNamespace(ids=F.pad(targets, (1, 0)), num_prompt=1)
            for chunk, logp, _ in in_chunks(reader, [sequence]):
                (logp * scale[chunk]).sum().backward()
            return
        with autocast(device, precision):
            if way == LIGER:
                from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

                loss = LigerFusedLinearCrossEntropyLoss()(weight, states, targets)
            else:
                loss = (dense(states, weight, targets)[0] * scale).sum()
        loss.backward()

    few = min(tokens, 64)
    one_pass(states[:few], targets[:few], scale[:few])  # loads kernels, grows workspaces
    states.grad = weight.grad = None
    held = start_peak(device)
    clock = time.process_time if device == "cpu" else time.perf_counter
    began = clock()
    one_pass(states, targets, scale)
    if device == "cuda":
        torch.cuda.synchronize()
    return {
        "seconds": clock() - began,
        "bytes": peak(device) - held,
        "norms": [float(x.grad.norm()) for x in (states, weight)],
    }


def dense(states: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor):
    """log pi and entropy by the softmax over all words of all tokens."""
    logp = F.log_softmax(F.linear(states, weight).float(), dim=-1)
    with torch.no_grad():
        entropy = -(logp.exp() * logp).sum(dim=-1)
    return logp.gather(1, targets[:, None]).squeeze(1), entropy


def start_peak(device: str) -> int:
    """Bytes held now, from which on the peak is counted."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
    return status("VmRSS")


def peak(device: str) -> int:
    return torch.cuda.max_memory_allocated() if device == "cuda" else status("VmHWM")


def status(name: str) -> int:
    """A line of /proc/self/status in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


if __name__ == "__main__":
    main()
