"""The words of ``klear evaluate``; nothing heavy is imported here."""

from __future__ import annotations

import argparse


def add_evaluate_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``klear evaluate`` takes."""
    scored = parser.add_mutually_exclusive_group(required=True)
    scored.add_argument("--model", metavar="PATH", help="a model's folder, or its id on the hub")
    scored.add_argument("--responses", metavar="FILE", help="responses that exist, as JSON lines")
    parser.add_argument(
        "--benchmark",
        required=True,
        metavar="NAME",
        help="aime24, aime25, hmmt25, lcb_v5, lcb_v6, or any name with --data",
    )
    parser.add_argument(
        "--data", metavar="PATH", help="the benchmark's file or folder (default: from the hub)"
    )
    parser.add_argument(
        "--n", type=int, help="responses to each problem (needed with --model)", metavar="N"
    )
    parser.add_argument(
        "--out", metavar="DIR", help="folder of the results (default: evaluations/<benchmark>-...)"
    )
    parser.add_argument(
        "--think-tags",
        choices=("required", "optional"),
        default="required",
        help="whether a response without both think tags is wrong (default: required, as in RL)",
    )
    parser.add_argument("--test-timeout-s", type=float, default=6.0, metavar="S", help="of a test")
    parser.add_argument("--test-memory-mb", type=int, default=1024, metavar="MB", help="of a test")
    asked = parser.add_argument_group("how a model is asked, for --model alone")
    asked.add_argument(
        "--preset",
        choices=("paper", "released"),
        help="paper (default): temperature 0.6, top_p 0.95; released: also top_k 20, "
        "repetition_penalty 1.05, YaRN 2.5",
    )
    asked.add_argument("--max-new-tokens", type=int, metavar="N", help="of a response, at most")
    asked.add_argument("--temperature", type=float, metavar="T", help="0 is greedy")
    asked.add_argument("--top-p", type=float, metavar="P", help="1 keeps all tokens")
    asked.add_argument("--top-k", type=int, metavar="K", help="0 keeps all tokens")
    asked.add_argument("--repetition-penalty", type=float, metavar="R", help="1 is none")
    asked.add_argument(
        "--yarn",
        type=float,
        metavar="F",
        help="factor of the positions; 1 adds none to what the model's config has",
    )
    asked.add_argument(
        "--yarn-original",
        type=int,
        metavar="N",
        help="positions that --yarn multiplies, where the model's config names more than it was "
        "trained on (Qwen3-8B: 32768)",
    )
    asked.add_argument("--seed", type=int, metavar="S", help="of all draws (default: 0)")
    asked.add_argument(
        "--batch-rows", type=int, metavar="N", help="responses decoded together (default: 64)"
    )
    asked.add_argument(
        "--engine", choices=("transformers", "vllm"), help="who samples (default: transformers)"
    )
    asked.add_argument(
        "--precision", choices=("fp32", "bf16"), help="of the forward pass (default: fp32)"
    )
    asked.add_argument(
        "--tensor-parallel", type=int, metavar="N", help="GPUs of one vLLM engine (default: 1)"
    )
    asked.add_argument(
        "--gpu-memory-share",
        type=float,
        metavar="S",
        help="of each GPU's memory for vLLM (default: 0.9)",
    )
