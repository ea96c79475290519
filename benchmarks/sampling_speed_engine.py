"""One engine of benchmarks/sampling_speed.py: klear's sampler, transformers' generate, or vLLM.

Run by the interpreter that has the engine. Seconds are those of the process, one thread.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

import torch
from peers import answer, next_task

VLLM_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # in this process, whose seconds are counted
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}


def klear(folder: str, shape: dict) -> Callable[[int], int]:
    from klearlib.policy.drawing import SamplingSettings
    from klearlib.policy.load import load_policy
    from klearlib.policy.sampling import sample_groups
    from klearlib.records import Problem

    model, tokenizer = load_policy(folder)
    problems = [
        Problem(id=str(index), prompt=" ".join(map(str, ids)), answer="")
        for index, ids in enumerate(prompts(shape))
    ]

    def sample(seed: int) -> int:
        settings = SamplingSettings(
            temperature=1.0, top_p=1.0, top_k=0, max_tokens=shape["max_tokens"], seed=seed
        )
        groups = sample_groups(
            model,
            tokenizer,
            problems,
            group_size=shape["group_size"],
            settings=settings,
            precision=shape["precision"],
        )
        return sum(len(response.token_ids) for group in groups for response in group)

    return sample


def generate(folder: str, shape: dict) -> Callable[[int], int]:
    from contextlib import nullcontext

    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    rows = [ids for ids in prompts(shape) for _ in range(shape["group_size"])]
    width = max(map(len, rows))
    padded = torch.tensor([[0] * (width - len(ids)) + ids for ids in rows])
    mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in rows])

    def sample(seed: int) -> int:
        torch.manual_seed(seed)
        bf16 = shape["precision"] == "bf16"
        with torch.autocast("cpu", torch.bfloat16) if bf16 else nullcontext():
            ids = model.generate(
                padded,
                attention_mask=mask,
                do_sample=True,
                top_k=0,
                max_new_tokens=shape["max_tokens"],
            )
        return ids[:, width:].numel()

    return sample


def vllm(folder: str, shape: dict) -> Callable[[int], int]:
    os.environ |= VLLM_ENVIRONMENT
    from vllm import LLM, SamplingParams

    torch.cpu._init_amx()  # vLLM asks for it only where it binds threads to cores
    engine = LLM(
        folder,
        dtype="bfloat16" if shape["precision"] == "bf16" else "float32",
        max_model_len=512,
        max_num_seqs=shape["problems"] * shape["group_size"],
        enable_prefix_caching=True,
        disable_log_stats=True,
    )
    given = [{"prompt_token_ids": ids} for ids in prompts(shape)]

    def sample(seed: int) -> int:
        settings = SamplingParams(
            n=shape["group_size"],
            temperature=1.0,
            max_tokens=shape["max_tokens"],
            ignore_eos=True,
            logprobs=0,
            detokenize=False,
        )
        engine.reset_prefix_cache()
        outputs = engine.generate(given, settings, use_tqdm=False)
        return sum(len(x.token_ids) for output in outputs for x in output.outputs)

    return sample


ENGINES = {"klear": klear, "generate": generate, "vllm": vllm}


def prompts(shape: dict) -> list[list[int]]:
    """Ids of random words; the first two ids are padding and the end token."""
    draws = random.Random(0)
    shortest, longest = shape["prompt_tokens"]
    return [
        [draws.randrange(2, shape["vocabulary"]) for _ in range(draws.randint(shortest, longest))]
        for _ in range(shape["problems"])
    ]


def serve(name: str, folder: str) -> None:
    torch.set_num_threads(1)
    sample = ENGINES[name](folder, next_task())
    while (task := next_task()) is not None:
        began = time.process_time()
        tokens = sample(task["seed"])
        answer(seconds=time.process_time() - began, tokens=tokens)
