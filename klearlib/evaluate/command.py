"""``klear evaluate``: a model, or responses that exist, scored on a benchmark."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from klearlib.data.problems import sha256_of
from klearlib.errors import KlearError, ParameterError
from klearlib.evaluate.arguments import SETTINGS, check_arguments, chosen_preset
from klearlib.evaluate.benchmark_files import open_benchmark
from klearlib.evaluate.judging import judge_all
from klearlib.evaluate.record_files import save_record
from klearlib.evaluate.responses_file import FileResponse, read_responses
from klearlib.evaluate.score_summary import summarise, summary_text
from klearlib.policy.compute import Compute
from klearlib.records import Problem
from klearlib.run.files import (
    one_line_failures,
    read_json,
    remove_written,
    sha256_file,
    write_json,
)

LOCK, SCORES, JUDGED = ".lock", "scores.json", "judged"
_OTHER_RULES = ("optional", "equivalent", "as_text")  # than those by which RL is judged


def evaluate_command(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code.

    Writes ``scores.json`` and ``record.npz`` (`klearlib.evaluate.record_files`) to ``--out``, with
    a model also ``responses.jsonl``; prints the table. After a kill the same call goes on with what
    was sampled and judged, and ends with the same files. KlearError for whatever would shrink or
    swell the denominator of a score.
    """
    check_arguments(arguments)
    preset = chosen_preset(arguments)
    rule = {
        "think_tags": arguments.think_tags,
        "answer_form": preset.answer_form,
        "truncated": preset.truncated,
    }
    benchmark = open_benchmark(arguments.benchmark, arguments.data)
    folder = Path(arguments.out or _default_folder(arguments, benchmark.name, rule)).expanduser()
    ask = _of_model if arguments.model else _of_file
    with _own_folder(folder):
        digest = sha256_of(benchmark.problems)
        needed = {"benchmark": benchmark.name, "problems_sha256": digest} | rule
        _check_scores(folder, arguments, needed)
        responses, sampling = ask(arguments, benchmark.problems, benchmark.name, folder)
        record = judge_all(
            benchmark.problems,
            responses,
            benchmark=benchmark.name,
            sampling={**sampling, "problems_sha256": digest},
            require_think=arguments.think_tags == "required",
            answer_form=preset.answer_form,
            truncated=preset.truncated,
            test_timeout_s=arguments.test_timeout_s,
            test_memory_mb=arguments.test_memory_mb,
            kept=folder / JUDGED,
        )
        num_repeated = sum(len(group) - len({r.text for r in group}) for group in responses)
        scores = summarise(record, num_repeated=num_repeated)
        save_record(record, folder / "record.npz")
        write_json(folder / SCORES, scores)
        remove_written(folder / JUDGED, r"[0-9a-f]{32}\.json")
        print(f"{benchmark.summary}, {len(responses[0])} responses to each")
        print(summary_text(scores))
        print(f"written to {folder}")
    return 0


def _default_folder(arguments: argparse.Namespace, benchmark: str, rule: dict[str, str]) -> Path:
    path = Path(arguments.model or arguments.responses).expanduser()
    # Two parts: the suite's models are all in folders named "model".
    path = path.resolve() if path.exists() else path
    parts = [part for part in path.parts[-2:] if part != path.anchor]
    if arguments.responses:
        parts[-1] = parts[-1].removesuffix(".gz").removesuffix(".jsonl")
        parts += [word for word in rule.values() if word in _OTHER_RULES]
    return Path("evaluations") / "-".join([benchmark, *parts])


@contextlib.contextmanager
def _own_folder(folder: Path) -> Iterator[None]:
    """Hold the folder, which is made where it is absent and removed again where it stays empty;
    KlearError where another process holds it, or where it cannot be made."""
    with one_line_failures(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(folder / LOCK, "ab")  # noqa: SIM115 - closed below
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = os.fstat(lock.fileno()).st_nlink > 0  # 0: removed since by who held it
        except BlockingIOError:
            free = False
        if not free:
            raise KlearError(
                f"another klear evaluate works in {folder}: wait for it, or give --out another "
                "folder"
            )
        try:
            yield
        finally:
            (folder / LOCK).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # it holds something
                folder.rmdir()


def _check_scores(folder: Path, arguments: argparse.Namespace, needed: dict[str, str]) -> None:
    """KlearError where a folder holds scores of other responses or problems, judged otherwise, or
    damaged. needed: what must be the same."""
    if arguments.responses:
        if (folder / SETTINGS).exists():
            raise ParameterError(
                f"{folder} holds the evaluation of a model: give --out another folder"
            )
        if (file := Path(arguments.responses).expanduser()).is_file():
            needed = needed | {"responses_sha256": sha256_file(file)}
    path = folder / SCORES
    if not path.exists():
        return
    try:
        scores = read_json(path)
        held = {**scores["sampling"], "benchmark": scores["benchmark"]}
    except (ValueError, KeyError, TypeError) as error:
        raise KlearError(f"{path} is damaged ({error}): delete it") from error
    keys = dict.fromkeys([*needed, "responses_sha256"])
    if others := [key for key in keys if held.get(key) != needed.get(key)]:
        raise KlearError(
            f"{folder} holds other scores ({', '.join(others)} differ): give --out another folder, "
            f"or delete {path}"
        )


def _of_file(
    arguments: argparse.Namespace, problems: tuple[Problem, ...], _benchmark: str, _folder: Path
) -> tuple[list[list[FileResponse]], dict]:
    path = Path(arguments.responses).expanduser()
    responses = read_responses(path, problems, num_responses=arguments.n)
    return responses, {"responses": path.name, "responses_sha256": sha256_file(path)}


def _of_model(
    arguments: argparse.Namespace, problems: tuple[Problem, ...], benchmark: str, folder: Path
) -> tuple[list[list[FileResponse]], dict]:
    preset = chosen_preset(arguments)
    compute = Compute(
        engine=arguments.engine or "transformers",
        precision=arguments.precision or "fp32",
        attention="sdpa",
        batch_rows=arguments.batch_rows or 64,
        micro_batch_tokens=0,
        pack_tokens=None,
        gradient_checkpointing=False,
        tensor_parallel=arguments.tensor_parallel or 1,
        gpu_memory_share=arguments.gpu_memory_share or 0.9,
    )
    # Only here: responses that exist are judged without torch.
    from klearlib.evaluate.model_responses import sample_responses

    return sample_responses(
        arguments.model,
        problems,
        benchmark=benchmark,
        num_responses=arguments.n,
        preset=preset,
        max_new_tokens=arguments.max_new_tokens,
        seed=arguments.seed or 0,
        compute=compute,
        folder=folder,
    )
