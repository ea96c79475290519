"""``klear evaluate``: a model, or responses that exist, scored on a benchmark."""

from __future__ import annotations

import argparse
from pathlib import Path

from klearlib.data.problems import sha256_of
from klearlib.errors import KlearError
from klearlib.evaluate.arguments import check_arguments, chosen_preset
from klearlib.evaluate.benchmark_files import open_benchmark
from klearlib.evaluate.judging import file_settings, judge_all
from klearlib.evaluate.record_files import save_record
from klearlib.evaluate.responses_file import read_responses
from klearlib.evaluate.score_summary import summarise, summary_text
from klearlib.run.files import one_line_failures, read_json, write_json

SETTINGS, SCORES = "evaluation.json", "scores.json"
_OTHER_RULES = ("optional", "equivalent", "as_text")  # than those by which RL is judged


def evaluate_command(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code.

    Writes ``evaluation.json`` (the settings that the folder is for), ``scores.json`` and
    ``record.npz`` (`klearlib.evaluate.record_files`) to ``--out``, with a model also
    ``responses.jsonl``; prints the table. After a kill the same call goes on with what was sampled,
    and ends with the same files. KlearError for whatever would shrink or swell the denominator of a
    score.
    """
    check_arguments(arguments)
    preset = chosen_preset(arguments)
    rule = {
        "think_tags": arguments.think_tags,
        "answer_form": preset.answer_form,
        "truncated": preset.truncated,
    }
    benchmark = open_benchmark(arguments.benchmark, arguments.data)
    problems, name = benchmark.problems, benchmark.name
    folder = Path(arguments.out or _default_folder(arguments, name, rule)).expanduser()
    if arguments.model:
        # Only here: responses that exist are judged without torch.
        from klearlib.evaluate.model_responses import asked_model

        sampling, sample = asked_model(arguments, preset, problems, name)
    else:
        path = Path(arguments.responses).expanduser()
        responses = read_responses(path, problems, num_responses=arguments.n)
        sampling = file_settings(path)
    sampling["problems_sha256"] = sha256_of(problems)
    num_responses = arguments.n or len(responses[0])
    _claim(folder, {"benchmark": name, **rule, **sampling, "num_responses": num_responses})
    if arguments.model:
        responses = sample(folder)
    limits = {key: getattr(arguments, key) for key in ("test_timeout_s", "test_memory_mb")}
    record = judge_all(
        problems, responses, benchmark=name, sampling=sampling, rule=rule, limits=limits
    )
    num_repeated = sum(len(group) - len({r.text for r in group}) for group in responses)
    scores = summarise(record, num_repeated=num_repeated)
    save_record(record, folder / "record.npz")
    write_json(folder / SCORES, scores)
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


def _claim(folder: Path, settings: dict) -> None:
    """Make the folder this evaluation's; KlearError if it holds another one."""
    path = folder / SETTINGS
    if not path.exists():
        if any(folder.glob("*.json*")):  # a model's folder, say
            raise KlearError(f"{folder} holds other files: give --out another folder")
        with one_line_failures(folder):
            folder.mkdir(parents=True, exist_ok=True)
        write_json(path, settings)
        return
    held = read_json(path)
    if others := sorted(n for n in held | settings if held.get(n) != settings.get(n)):
        raise KlearError(
            f"{folder} holds another evaluation ({', '.join(others)} differ): give --out another "
            "folder, or delete it"
        )
