"""``klear evaluate``: a model, or responses that exist, scored on a benchmark."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.errors import ParameterError
from klearlib.evaluate.benchmark_files import open_benchmark
from klearlib.evaluate.judging import judge_all
from klearlib.evaluate.presets import SETTINGS, choose
from klearlib.evaluate.progress_lines import ProgressLines
from klearlib.evaluate.record_files import save_record
from klearlib.evaluate.response_rows import FileResponse
from klearlib.evaluate.responses_file import read_responses
from klearlib.evaluate.score_folder import check_scores, own_folder
from klearlib.evaluate.score_summary import summarise, summary_text
from klearlib.policy.compute import Compute
from klearlib.run.files import sha256_file, write_json

if TYPE_CHECKING:
    from klearlib.data.benchmarks import Benchmark

_OF_A_MODEL = (
    "preset",
    "max_new_tokens",
    "temperature",
    "top_p",
    "top_k",
    "repetition_penalty",
    "yarn",
    "yarn_original",
    "seed",
    "batch_rows",
    "engine",
    "precision",
    "tensor_parallel",
    "gpu_memory_share",
)


def evaluate_command(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code.

    Writes ``scores.json`` and ``record.npz`` (`klearlib.evaluate.record_files`) to ``--out``, with
    a model also ``responses.jsonl``; prints the table.

    Raises:
        KlearError: whatever would shrink or swell the denominator of a score; see
            `read_responses`, `open_benchmark` and `klearlib.evaluate.model_scores`.
    """
    _check(arguments)
    benchmark = open_benchmark(arguments.benchmark, arguments.data)
    folder = Path(arguments.out or _default_folder(arguments, benchmark.name))
    with own_folder(folder):
        _score(arguments, benchmark, folder)
    return 0


def _score(arguments: argparse.Namespace, benchmark: Benchmark, folder: Path) -> None:
    needed = {"benchmark": benchmark.name, "think_tags": arguments.think_tags}
    if arguments.responses:
        if (folder / SETTINGS).exists():
            raise ParameterError(
                f"{folder} holds the evaluation of a model: give --out another folder"
            )
        if (path := Path(arguments.responses).expanduser()).is_file():
            needed["responses_sha256"] = sha256_file(path)
    check_scores(folder, needed)
    responses, sampling = (_of_model if arguments.model else _of_file)(arguments, benchmark, folder)
    total = len(benchmark.problems) * len(responses[0])
    record = judge_all(
        benchmark.problems,
        responses,
        benchmark=benchmark.name,
        sampling=sampling,
        needs_think_tags=arguments.think_tags == "required",
        test_timeout_s=arguments.test_timeout_s,
        test_memory_mb=arguments.test_memory_mb,
        done=ProgressLines("judged", total),
    )
    distinct = sum(len({response.text for response in group}) for group in responses)
    scores = summarise(record, num_repeated=total - distinct)
    save_record(record, folder / "record.npz")
    write_json(folder / "scores.json", scores)
    print(f"{benchmark.summary}, {len(responses[0])} responses to each")
    print(summary_text(scores))
    print(f"written to {folder}")


def _check(arguments: argparse.Namespace) -> None:
    given = [name for name in _OF_A_MODEL if getattr(arguments, name) is not None]
    if arguments.responses and given:
        raise ParameterError(
            f"--{given[0].replace('_', '-')} says how a model is asked: leave it out with "
            "--responses"
        )
    if arguments.model and arguments.n is None:
        raise ParameterError("--model needs --n, the number of responses to each problem")
    counts = {
        "--n": arguments.n,
        "--batch-rows": arguments.batch_rows,
        "--tensor-parallel": arguments.tensor_parallel,
        "--max-new-tokens": arguments.max_new_tokens,
    }
    for name, value in counts.items():
        if value is not None and value < 1:
            raise ParameterError(f"{name} must be at least 1, got {value}")
    for name, value in (
        ("--tensor-parallel", arguments.tensor_parallel),
        ("--gpu-memory-share", arguments.gpu_memory_share),
    ):
        if value is not None and arguments.engine != "vllm":
            raise ParameterError(f"{name} is for a vLLM engine: give --engine vllm too")
    share = arguments.gpu_memory_share
    if share is not None and not 0 < share <= 0.95:
        raise ParameterError(f"--gpu-memory-share must be above 0 and at most 0.95, got {share}")
    if arguments.seed is not None and arguments.seed < 0:
        raise ParameterError(f"--seed must be 0 or more, got {arguments.seed}")
    if not 0 < arguments.test_timeout_s < float("inf"):
        raise ParameterError(f"--test-timeout-s must be above 0, got {arguments.test_timeout_s}")
    if arguments.test_memory_mb < 16:
        raise ParameterError(
            f"--test-memory-mb must be at least 16, got {arguments.test_memory_mb}"
        )


def _default_folder(arguments: argparse.Namespace, benchmark: str) -> Path:
    path = Path(arguments.model or arguments.responses).expanduser()
    # Two parts: the suite's models are all in folders named "model".
    path = path.resolve() if path.exists() else path
    parts = [part for part in path.parts[-2:] if part != path.anchor]
    if arguments.responses:
        parts[-1] = parts[-1].removesuffix(".gz").removesuffix(".jsonl")
        parts += ["optional"] if arguments.think_tags == "optional" else []
    return Path("evaluations") / "-".join([benchmark, *parts])


def _of_file(
    arguments: argparse.Namespace, benchmark: Benchmark, _folder: Path
) -> tuple[list[list[FileResponse]], dict]:
    path = Path(arguments.responses).expanduser()
    responses = read_responses(path, benchmark.problems, num_responses=arguments.n)
    return responses, {"responses": path.name, "responses_sha256": sha256_file(path)}


def _of_model(
    arguments: argparse.Namespace, benchmark: Benchmark, folder: Path
) -> tuple[list[list[FileResponse]], dict]:
    preset = choose(
        arguments.preset or "paper",
        temperature=arguments.temperature,
        top_p=arguments.top_p,
        top_k=arguments.top_k,
        repetition_penalty=arguments.repetition_penalty,
        yarn_factor=arguments.yarn,
        yarn_original=arguments.yarn_original,
    )
    if preset.temperature == 0 and arguments.n > 1:
        raise ParameterError(
            "--temperature 0 gives the same response each time: give --n 1, or a temperature "
            "above 0"
        )
    # Only here: responses that exist are judged without torch.
    from klearlib.evaluate.model_scores import sample_responses

    return sample_responses(
        arguments.model,
        benchmark.problems,
        benchmark=benchmark.name,
        num_responses=arguments.n,
        preset=preset,
        max_new_tokens=arguments.max_new_tokens,
        seed=arguments.seed or 0,
        compute=_compute(arguments),
        folder=folder,
    )


def _compute(arguments: argparse.Namespace) -> Compute:
    return Compute(
        engine=arguments.engine or "transformers",
        precision=arguments.precision or "fp32",
        attention="sdpa",
        batch_rows=arguments.batch_rows or 64,
        micro_batch_tokens=0,
        pack_tokens=None,
        gradient_checkpointing=False,
        tensor_parallel=arguments.tensor_parallel or 1,
        gpu_memory_share=0.9 if arguments.gpu_memory_share is None else arguments.gpu_memory_share,
    )
