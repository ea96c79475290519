"""The responses of a model to a benchmark, in blocks that survive a kill."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from klearlib.data.problems import sha256_of
from klearlib.errors import DamagedEntry, KlearError, MissingAsset
from klearlib.evaluate.arguments import SETTINGS, Preset
from klearlib.evaluate.responses_file import FileResponse, read_responses
from klearlib.evaluate.score_summary import ProgressLines
from klearlib.hub import cached_snapshot, indexed_files
from klearlib.policy.compute import Compute
from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.engines import Engine, open_engine
from klearlib.policy.load import chat_prompt, load_policy
from klearlib.policy.prompts import end_ids, num_positions
from klearlib.policy.trial import refuse_what_cannot_be_sampled
from klearlib.records import Problem, Response
from klearlib.run.files import (
    read_json,
    remove_written,
    sha256_file,
    write_json,
    write_text,
)
from klearlib.run.seeding import derive_seed

RESPONSES, BLOCKS = "responses.jsonl", "blocks"


def sample_responses(
    model_path: str,
    problems: Sequence[Problem],
    *,
    benchmark: str,
    num_responses: int,
    preset: Preset,
    max_new_tokens: int | None,
    seed: int,
    compute: Compute,
    folder: Path,
) -> tuple[list[list[FileResponse]], dict]:
    """n responses of a model to each problem, and how they were drawn.

    A block is as many problems as fit into `compute.batch_rows`, or a part of one problem's
    responses where n is more. Each has a seed of its own and a file in ``blocks``, so a kill costs
    one block, and the responses are those of an unbroken run. At the end all are in
    ``responses.jsonl``.

    Args:
        model_path: a local folder or a hub id.
        max_new_tokens: token budget of a response; None for the preset's, or what the model's
            positions leave after the longest prompt where that is less.
        folder: of this evaluation alone.

    Raises:
        MissingAsset: no such model. KlearError: no chat template or one at fault, an end that is
            no token, too few positions, or a folder that holds another evaluation.
    """
    stretched = {"yarn_factor": preset.yarn_factor, "yarn_original": preset.yarn_original}
    model, tokenizer = _load(model_path, compute, stretched)
    settings = SamplingSettings(
        temperature=preset.temperature,
        top_p=preset.top_p,
        top_k=preset.top_k,
        repetition_penalty=preset.repetition_penalty,
        max_tokens=_budget(model, tokenizer, problems, preset.budget, max_new_tokens),
        seed=seed,
    )
    end_ids(model, tokenizer)  # a model at fault claims no folder
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
    claim = {
        "benchmark": benchmark,
        "problems": sha256_of(problems),
        "weights": _weights(model_path),
        "num_responses": num_responses,
    }
    _claim(folder, claim | sampling)
    path = folder / RESPONSES
    if path.exists():
        print(f"all responses are in {path} already", file=sys.stderr)
    else:
        with open_engine(
            model_path,
            compute=compute,
            # vLLM holds the weights itself.
            model=None if compute.engine == "vllm" else model,
            tokenizer=tokenizer,
            **stretched,
        ) as engine:
            blocks = _blocks(len(problems), num_responses, compute.batch_rows)
            _sample_blocks(engine, problems, benchmark, settings, blocks, folder)
    remove_written(folder / BLOCKS, r"\d+-\d+\.jsonl")
    return read_responses(path, problems, num_responses=num_responses), sampling


def _load(model_path: str, compute: Compute, stretched: dict):
    try:
        model, tokenizer = load_policy(
            model_path,
            device="cpu" if compute.engine == "vllm" else None,
            attention=compute.attention,
            **stretched,
        )
    except DamagedEntry as error:  # its advice is for results of the suite, not for a user's model
        reason, advice, _ = str(error).partition("; delete")
        end = ": fetch it again, or mend what --model names" if advice else ""
        raise KlearError(reason + end) from error
    if compute.engine != "vllm":
        refuse_what_cannot_be_sampled(model_path, model)
    if tokenizer.chat_template is None:
        raise KlearError(
            f"{model_path} has no chat template, and problems are asked as a user's turn: add one "
            "to its tokenizer"
        )
    return model, tokenizer


@dataclass(frozen=True)
class _Block:
    """Responses [start, stop) to each of the problems [first, last)."""

    first: int
    last: int
    start: int
    stop: int

    @property
    def num_responses(self) -> int:
        return (self.last - self.first) * (self.stop - self.start)

    @property
    def name(self) -> str:
        return f"{self.first:05d}-{self.start:05d}.jsonl"


def _blocks(num_problems: int, n: int, batch_rows: int) -> list[_Block]:
    """
    >>> [(b.first, b.last, b.start, b.stop) for b in (*_blocks(3, 2, 4), *_blocks(1, 5, 4))]
    [(0, 2, 0, 2), (2, 3, 0, 2), (0, 1, 0, 4), (0, 1, 4, 5)]
    """
    together = max(1, batch_rows // n)
    return [
        _Block(first, min(first + together, num_problems), start, min(start + batch_rows, n))
        for first in range(0, num_problems, together)
        for start in range(0, n, batch_rows)
    ]


def _sample_blocks(
    engine: Engine,
    problems: Sequence[Problem],
    benchmark: str,
    settings: SamplingSettings,
    blocks: Sequence[_Block],
    folder: Path,
) -> None:
    """Sample the blocks that are missing, then join all of them."""
    place = folder / BLOCKS
    missing = [block for block in blocks if not (place / block.name).exists()]
    total = sum(block.num_responses for block in blocks)
    done = total - sum(block.num_responses for block in missing)
    print(
        f"{done} of {total} responses are there, {len(missing)} blocks to sample, each kept in "
        f"{place} when it ends",
        file=sys.stderr,
    )
    show = ProgressLines("sampled", total, kept=done)
    for block in missing:
        seed = derive_seed(settings.seed, "evaluate", benchmark, block.first, block.start)
        groups = engine.sample_groups(
            problems[block.first : block.last],
            group_size=block.stop - block.start,
            settings=replace(settings, seed=seed),
        )
        lines = "".join(_line(response) for group in groups for response in group)
        write_text(place / block.name, lines, make_folder=True)
        done += block.num_responses
        show(done)
    # In the order of the problems: where n is split, all parts of one problem follow each other.
    texts = [(place / block.name).read_text(encoding="utf-8") for block in blocks]
    write_text(folder / RESPONSES, "".join(texts))


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
    """`wanted` tokens of a response; where None, `usual` or what the positions leave."""
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


def _claim(folder: Path, wanted: dict) -> None:
    """Make the folder this evaluation's, or see that it is."""
    path = folder / SETTINGS
    if not path.exists():
        others = ("config.json", RESPONSES, BLOCKS, "scores.json")
        if there := [name for name in others if (folder / name).exists()]:
            raise KlearError(
                f"{folder} holds {', '.join(there)} of something else: give --out another folder"
            )
        folder.mkdir(parents=True, exist_ok=True)
        write_json(path, wanted)
        return
    try:
        held = read_json(path)
        if not isinstance(held, dict):
            raise ValueError("no JSON object")
    except ValueError as error:
        raise KlearError(f"{path} is damaged ({error}): delete {folder}") from error
    if others := sorted(k for k in {*held, *wanted} if held.get(k) != wanted.get(k)):
        raise KlearError(
            f"{folder} holds another evaluation ({', '.join(others)} differ): give --out another "
            "folder, or delete it"
        )


def _weights(model_path: str) -> str:
    """What tells one model from another at the same path: a digest of its files, or the hub's
    commit."""
    path = Path(model_path)
    if not path.is_dir():
        snapshot = cached_snapshot("model", model_path)
        if snapshot is None:
            raise MissingAsset(f"{model_path} has no commit on the hub: give a local folder")
        return snapshot.name
    files = {file for file in path.iterdir() if not file.name.startswith(".")}
    files |= {*(path / "additional_chat_templates").glob("*")}
    indices = (path / f"{name}.index.json" for name in ("model.safetensors", "pytorch_model.bin"))
    files |= {shard for index in indices if index.is_file() for shard in indexed_files(index)}
    digest = hashlib.sha256()
    for name, file in sorted((os.path.relpath(file, path), file) for file in files):
        if file.is_file():
            digest.update(f"{name} {sha256_file(file)}\n".encode())
    return digest.hexdigest()
