"""The responses of a model to a benchmark, in blocks that survive a kill."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from klearlib.errors import DamagedEntry, KlearError, MissingAsset
from klearlib.evaluate.presets import SETTINGS, Preset
from klearlib.evaluate.progress_lines import ProgressLines
from klearlib.evaluate.response_rows import FileResponse
from klearlib.evaluate.responses_file import read_responses
from klearlib.policy.compute import Compute
from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.engines import Engine, open_engine
from klearlib.policy.load import chat_prompt, load_policy
from klearlib.policy.prompts import num_positions
from klearlib.records import Problem, Response
from klearlib.run.files import sha256_file, write_json, write_text
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
    ``responses.jsonl``, in the suite's own format.

    Args:
        model_path: a local folder or a hub id.
        max_new_tokens: token budget of a response; None for the preset's, or what the model's
            positions leave after the longest prompt where that is less.
        folder: of this evaluation alone.

    Raises:
        MissingAsset: no such model. KlearError: no chat template, too few positions, or a folder
            that holds another evaluation.
    """
    model, tokenizer = _load(model_path, preset, compute)
    if tokenizer.chat_template is None:
        raise KlearError(
            f"{model_path} has no chat template, and problems are asked as a user's turn: add one "
            "to its tokenizer"
        )
    settings = SamplingSettings(
        temperature=preset.temperature,
        top_p=preset.top_p,
        top_k=preset.top_k,
        repetition_penalty=preset.repetition_penalty,
        max_tokens=_budget(model, tokenizer, problems, preset.budget, max_new_tokens),
        seed=seed,
    )
    sampling = {
        "model": str(model_path),
        **settings.record(),
        "engine": compute.engine,
        "precision": compute.precision,
        "batch_rows": compute.batch_rows,
        "yarn_factor": preset.yarn_factor,
        "yarn_original": preset.yarn_original,
        "rope_scaling": None if preset.yarn_factor else _rope_scaling(model),
    }
    _claim(
        folder,
        {
            "benchmark": benchmark,
            "problems": _digest_of(problems),
            "weights": _weights(model_path, model),
            "num_responses": num_responses,
            **sampling,
        },
    )
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
            yarn_factor=preset.yarn_factor,
            yarn_original=preset.yarn_original,
        ) as engine:
            rows = compute.batch_rows
            _sample_blocks(engine, problems, benchmark, num_responses, settings, rows, folder)
    # Not file by file: a kill leaves half-written ones among them.
    shutil.rmtree(folder / BLOCKS, ignore_errors=True)
    return read_responses(path, problems, num_responses=num_responses), sampling


def _load(model_path: str, preset: Preset, compute: Compute):
    try:
        return load_policy(
            model_path,
            device="cpu" if compute.engine == "vllm" else None,
            yarn_factor=preset.yarn_factor,
            yarn_original=preset.yarn_original,
            attention=compute.attention,
        )
    except DamagedEntry as error:  # its advice is for results of the suite, not for a user's model
        reason = str(error).partition("; delete")[0]
        raise KlearError(f"{reason}: fetch it again, or mend what --model names") from error


def _rope_scaling(model) -> dict | None:
    """How the model's own config scales its rotary positions; None where it does not."""
    rope = getattr(model.config, "rope_parameters", None) or {}
    if rope.get("rope_type", "default") == "default":
        return None
    return {key: value for key, value in rope.items() if key != "rope_theta"}


def _sample_blocks(
    engine: Engine,
    problems: Sequence[Problem],
    benchmark: str,
    num_responses: int,
    settings: SamplingSettings,
    batch_rows: int,
    folder: Path,
) -> None:
    """Sample the blocks that are missing, then join all of them."""
    blocks = [
        (*block, folder / BLOCKS / f"{block[0]:05d}-{block[2]:05d}.jsonl")
        for block in _blocks(len(problems), num_responses, batch_rows)
    ]
    missing = [block for block in blocks if not block[-1].exists()]
    kept = _num_responses(blocks) - _num_responses(missing)
    total = len(problems) * num_responses
    print(
        f"{kept} of {total} responses are there, {len(missing)} blocks to sample, each kept in "
        f"{folder / BLOCKS} when it ends",
        file=sys.stderr,
    )
    show = ProgressLines("sampled", total, kept=kept)
    for number, (first, last, start, stop, path) in enumerate(missing, start=1):
        groups = engine.sample_groups(
            problems[first:last],
            group_size=stop - start,
            settings=replace(
                settings, seed=derive_seed(settings.seed, "evaluate", benchmark, first, start)
            ),
        )
        write_text(path, "".join(map(_lines, groups)), make_folder=True)
        show(kept + _num_responses(missing[:number]))
    # In the order of the problems: where n is split, all parts of one problem follow each other.
    paths = [block[-1] for block in blocks]
    write_text(folder / RESPONSES, "".join(path.read_text(encoding="utf-8") for path in paths))


def _num_responses(blocks: Sequence[tuple[int, int, int, int, Path]]) -> int:
    return sum((last - first) * (stop - start) for first, last, start, stop, _ in blocks)


def _blocks(num_problems: int, n: int, batch_rows: int) -> list[tuple[int, int, int, int]]:
    """Problems [first, last) and responses [start, stop) of each block.

    >>> _blocks(3, 2, 4), _blocks(1, 5, 4)
    ([(0, 2, 0, 2), (2, 3, 0, 2)], [(0, 1, 0, 4), (0, 1, 4, 5)])
    """
    together = max(1, batch_rows // n)
    return [
        (first, min(first + together, num_problems), start, min(start + batch_rows, n))
        for first in range(0, num_problems, together)
        for start in range(0, n, batch_rows)
    ]


def _lines(group: Sequence[Response]) -> str:
    rows = (
        {
            "problem_id": response.problem_id,
            "response": response.text,
            "truncated": response.truncated,
            "num_tokens": len(response.token_ids),
            "prompt": response.prompt,
        }
        for response in group
    )
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _budget(model, tokenizer, problems: Sequence[Problem], usual: int, wanted: int | None) -> int:
    """`wanted` tokens of a response; where None, `usual` or what the positions leave."""
    positions = num_positions(model)
    if positions is None:
        return wanted or usual
    longest = max(len(chat_prompt(tokenizer, problem.prompt)[1]) for problem in problems)
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
    if path.exists():
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise KlearError(f"{path} is damaged ({error}): delete {folder}") from error
        if not isinstance(held, dict):
            raise KlearError(f"{path} is damaged (no JSON object): delete {folder}")
        if others := sorted(k for k in {*held, *wanted} if held.get(k) != wanted.get(k)):
            raise KlearError(
                f"{folder} holds another evaluation ({', '.join(others)} differ): give --out "
                "another folder, or delete it"
            )
        return
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, wanted)


def _digest_of(problems: Sequence[Problem]) -> str:
    digest = hashlib.sha256()
    for problem in problems:
        digest.update(json.dumps(asdict(problem), sort_keys=True).encode())
    return digest.hexdigest()


def _weights(model_path: str, model) -> str:
    """What tells one model from another at the same path: a digest of its files, or the hub's
    commit."""
    path = Path(model_path)
    if not path.is_dir():
        commit = getattr(model.config, "_commit_hash", None)
        if commit is None:
            raise MissingAsset(f"{model_path} has no commit on the hub: give a local folder")
        return commit
    digest = hashlib.sha256()
    for file in sorted(path.iterdir()):
        if file.is_file() and not file.name.startswith("."):
            digest.update(f"{file.name} {sha256_file(file)}\n".encode())
    return digest.hexdigest()
