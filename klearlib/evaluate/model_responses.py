"""The responses of a model to a benchmark, in blocks that survive a kill."""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

from rich.console import Console
from rich.progress import track

from klearlib.errors import KlearError
from klearlib.evaluate.judging import FileResponse, read_responses
from klearlib.hub import model_folder
from klearlib.policy.compute import local_compute
from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.engines import open_engine
from klearlib.policy.load import chat_prompt, load_policy
from klearlib.policy.prompts import num_positions
from klearlib.records import Problem, Response
from klearlib.run.files import sha256_file, write_text
from klearlib.run.seeding import derive_seed

RESPONSES, BLOCKS = "responses.jsonl", "blocks"


def asked_model(
    arguments: argparse.Namespace,
    preset: SimpleNamespace,
    problems: Sequence[Problem],
    benchmark: str,
) -> tuple[dict, Callable[[Path], list[list[FileResponse]]]]:
    """How n responses of ``--model`` to each problem are drawn, and the function that draws them
    into ``responses.jsonl`` of a folder. preset: of `klearlib.evaluate.arguments.chosen_preset`.

    Without ``--max-new-tokens`` a response has the preset's budget, or what the model's positions
    leave after the longest prompt if that is less.

    Raises:
        MissingAsset: no such model. KlearError: no chat template, or too few positions.
    """
    model_path, n = arguments.model, arguments.n
    compute = local_compute(
        arguments.precision or "fp32",
        engine=arguments.engine or "transformers",
        batch_rows=arguments.batch_rows or 64,
        micro_batch_tokens=0,
        tensor_parallel=arguments.tensor_parallel or 1,
        gpu_memory_share=arguments.gpu_memory_share or 0.9,
    )
    stretched = {"yarn_factor": preset.yarn_factor, "yarn_original": preset.yarn_original}
    is_vllm = compute.engine == "vllm"
    if is_vllm:  # which holds the weights itself
        from klearlib.policy.vllm_engine import description

        model, tokenizer = description(model_path, **stretched)
    else:
        how = {"attention": compute.attention, "precision": compute.precision}
        model, tokenizer = load_policy(model_path, **how, **stretched)
    settings = SamplingSettings(
        temperature=preset.temperature,
        top_p=preset.top_p,
        top_k=preset.top_k,
        repetition_penalty=preset.repetition_penalty,
        max_tokens=_budget(model, tokenizer, problems, preset.budget, arguments.max_new_tokens),
        seed=arguments.seed or 0,
    )
    sampling = {
        "model": model_path,
        "weights": weights_of(model_path),
        **asdict(settings),
        "engine": compute.engine,
        "precision": compute.precision,
        "batch_rows": compute.batch_rows,
        **stretched,
    }

    def sample(folder: Path) -> list[list[FileResponse]]:
        """A block is as many problems as fit into the batch, or a part of one problem's responses
        if n is more. It is drawn by a seed of its own into a file that appears when it is whole, so
        a kill costs one block, and the responses are those of an unbroken run."""
        together = max(1, compute.batch_rows // n)
        # In the order of the problems: if n is split, all parts of one problem follow each other.
        blocks = {
            folder / BLOCKS / f"{first}-{start}.jsonl": (first, start)
            for first in range(0, len(problems), together)
            for start in range(0, n, compute.batch_rows)
        }
        whole = folder / RESPONSES
        if not whole.exists():
            shared = {"model": None if is_vllm else model, "tokenizer": tokenizer, **stretched}
            missing = [path for path in blocks if not path.exists()]
            shown = {"console": Console(stderr=True), "disable": not sys.stderr.isatty()}
            with open_engine(model_path, compute=compute, **shared) as engine:
                for path in track(missing, "sampling", **shown):
                    first, start = blocks[path]
                    seed = derive_seed(settings.seed, "evaluate", benchmark, first, start)
                    groups = engine.sample_groups(
                        problems[first : first + together],
                        group_size=min(compute.batch_rows, n - start),
                        settings=replace(settings, seed=seed),
                    )
                    rows = [_row(response) for group in groups for response in group]
                    write_text(path, "".join(rows), make_folder=True)
            write_text(whole, "".join(path.read_text(encoding="utf-8") for path in blocks))
        shutil.rmtree(folder / BLOCKS, ignore_errors=True)
        return read_responses(whole, problems, num_responses=n)

    return sampling, sample


def _row(response: Response) -> str:
    row = {
        "problem_id": response.problem_id,
        "response": response.text,
        "truncated": response.truncated,
        "num_tokens": response.num_tokens,
        "prompt": response.prompt,
    }
    return json.dumps(row, ensure_ascii=False) + "\n"


def _budget(model, tokenizer, problems: Sequence[Problem], usual: int, wanted: int | None) -> int:
    """`wanted` tokens of a response; if None, `usual` or what the positions leave."""
    longest = max(len(chat_prompt(tokenizer, problem.prompt)[1]) for problem in problems)
    positions = num_positions(model)
    if positions is None:
        return wanted or usual
    room = positions - longest
    if room < (wanted or 1):
        raise KlearError(
            f"the longest prompt has {longest} tokens and the model {positions} positions, which "
            f"leaves {max(0, room)} for a response: lower --max-new-tokens, give --yarn, or take "
            "another model"
        )
    return wanted or min(usual, room)


def weights_of(model_path: str) -> str:
    """What tells one model from another at the same path: a digest of its files, or the hub's
    commit."""
    path = Path(model_path)
    if not path.is_dir():
        return model_folder(model_path).name
    files = sorted((file.name, sha256_file(file)) for file in path.iterdir() if file.is_file())
    return hashlib.sha256(json.dumps(files).encode()).hexdigest()
