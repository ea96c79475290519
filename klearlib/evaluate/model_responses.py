"""The responses of a model to a benchmark, in blocks that survive a kill."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from klearlib.errors import DamagedEntry, KlearError, MissingAsset
from klearlib.evaluate.arguments import Preset
from klearlib.evaluate.responses_file import FileResponse, read_responses
from klearlib.evaluate.score_summary import ProgressLines
from klearlib.hub import cached_snapshot
from klearlib.policy.compute import Compute
from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.engines import Engine, open_engine
from klearlib.policy.load import chat_prompt, load_policy
from klearlib.policy.prompts import end_ids, num_positions
from klearlib.records import Problem, Response
from klearlib.run.files import one_line_failures, sha256_file
from klearlib.run.seeding import derive_seed

RESPONSES, SAMPLED = "responses.jsonl", "responses.partial.jsonl"


def asked_model(
    model_path: str,
    problems: Sequence[Problem],
    *,
    benchmark: str,
    num_responses: int,
    preset: Preset,
    max_new_tokens: int | None,
    seed: int,
    compute: Compute,
) -> tuple[dict, Callable[[Path], list[list[FileResponse]]]]:
    """How n responses of a model to each problem are drawn, and the function that draws them into
    ``responses.jsonl`` of a folder.

    Args:
        model_path: a local folder or a hub id.
        max_new_tokens: token budget of a response; None for the preset's, or what the model's
            positions leave after the longest prompt if that is less.

    Raises:
        MissingAsset: no such model. KlearError: no chat template, an end that is not a token, or
            too few positions.
    """
    stretched = {"yarn_factor": preset.yarn_factor, "yarn_original": preset.yarn_original}
    is_vllm = compute.engine == "vllm"  # which holds the weights itself
    try:
        device = "cpu" if is_vllm else None
        how = {"device": device, "attention": compute.attention, **stretched}
        model, tokenizer = load_policy(model_path, **how)
    except DamagedEntry as error:  # its advice is for results of the suite, not for a user's model
        reason = str(error).partition("; delete")[0]
        raise KlearError(f"{reason}: fetch it again, or correct what --model names") from error
    if tokenizer.chat_template is None:
        raise KlearError(f"{model_path} has no chat template: add one to its tokenizer")
    end_ids(model, tokenizer)  # a model at fault claims no folder
    settings = SamplingSettings(
        temperature=preset.temperature,
        top_p=preset.top_p,
        top_k=preset.top_k,
        repetition_penalty=preset.repetition_penalty,
        max_tokens=_budget(model, tokenizer, problems, preset.budget, max_new_tokens),
        seed=seed,
    )
    rope = getattr(model.config, "rope_parameters", None) or {}
    is_plain = preset.yarn_factor or rope.get("rope_type", "default") == "default"
    sampling = {
        "model": str(model_path),
        **settings.record(),
        "engine": compute.engine,
        "precision": compute.precision,
        "batch_rows": compute.batch_rows,
        **stretched,
        # How the model's own config scales its rotary positions.
        "rope_scaling": None if is_plain else {k: v for k, v in rope.items() if k != "rope_theta"},
    }

    def sample(folder: Path) -> list[list[FileResponse]]:
        if not (folder / RESPONSES).exists():
            shared = {"model": None if is_vllm else model, "tokenizer": tokenizer, **stretched}
            with open_engine(model_path, compute=compute, **shared) as engine:
                blocks = (benchmark, settings, num_responses, compute.batch_rows)
                _sample_blocks(engine, problems, *blocks, folder / SAMPLED)
            os.replace(folder / SAMPLED, folder / RESPONSES)
        return read_responses(folder / RESPONSES, problems, num_responses=num_responses)

    return sampling, sample


def _sample_blocks(
    engine: Engine,
    problems: Sequence[Problem],
    benchmark: str,
    settings: SamplingSettings,
    n: int,
    batch_rows: int,
    path: Path,
) -> None:
    """Sample what `path` lacks, a line for each response.

    A block is as many problems as fit into `batch_rows`, or a part of one problem's responses if n
    is more. It is drawn by a seed of its own and added when it is whole, so a kill costs one block,
    and the file is that of an unbroken run.
    """
    together = max(1, batch_rows // n)
    # In the order of the problems: if n is split, all parts of one problem follow each other.
    blocks = [
        (first, start, problems[first : first + together], min(batch_rows, n - start))
        for first, start in product(range(0, len(problems), together), range(0, n, batch_rows))
    ]
    with one_line_failures(path), path.open("ab+") as file:
        file.seek(0)
        lines = [line for line in file if line.endswith(b"\n")]  # the last may be cut
        done, num_bytes, total = 0, 0, len(problems) * n
        show = ProgressLines("sampled", total)
        for first, start, asked, count in blocks:
            end = done + len(asked) * count
            if end <= len(lines):
                num_bytes += sum(map(len, lines[done:end]))
                show.kept = done = end
                continue
            if done == show.kept:  # what a kill left of the next block
                print(f"{done} of {total} responses are there", file=sys.stderr)
                file.truncate(num_bytes)
                lines = []
            seed = derive_seed(settings.seed, "evaluate", benchmark, first, start)
            drawn = replace(settings, seed=seed)
            groups = engine.sample_groups(asked, group_size=count, settings=drawn)
            file.write("".join(_line(each) for group in groups for each in group).encode())
            file.flush()
            os.fsync(file.fileno())
            done = end
            show(done)


def _line(response: Response) -> str:
    row = {
        "problem_id": response.problem_id,
        "response": response.text,
        "truncated": response.truncated,
        "num_tokens": len(response.token_ids),
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
        snapshot = cached_snapshot("model", model_path)
        if snapshot is None:
            raise MissingAsset(f"{model_path} has no commit on the hub: give a local folder")
        return snapshot.name
    files = sorted((file.name, sha256_file(file)) for file in path.iterdir() if file.is_file())
    return hashlib.sha256(json.dumps(files).encode()).hexdigest()
