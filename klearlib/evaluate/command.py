"""``klear evaluate``: a model, or responses that exist, scored on a benchmark."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from klearlib.data.problems import sha256_of
from klearlib.errors import KlearError
from klearlib.evaluate.arguments import check_arguments, chosen_preset
from klearlib.evaluate.benchmark_files import open_benchmark
from klearlib.evaluate.judging import file_settings, judge_all, read_responses
from klearlib.evaluate.record_files import UNKNOWN_TOKENS, save_record
from klearlib.evaluate.scores import avg_at_n, pass_at_k, problem_interval, sampling_interval
from klearlib.records import FOUND, NOT_JUDGED, REASONS, EvalRecord
from klearlib.run.files import one_line_failures, read_json, write_json

SETTINGS, SCORES = "evaluation.json", "scores.json"
_HINT_SHARE = 0.5  # of responses without think tags, above which a hint is given


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
    folder = Path(arguments.out or _default_folder(arguments, name)).expanduser()
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
    scores = summarise(record)
    save_record(record, folder / "record.npz")
    write_json(folder / SCORES, scores)
    print(f"{benchmark.summary}, {len(responses[0])} responses to each")
    print(summary_text(scores))
    print(f"written to {folder}")
    return 0


def _default_folder(arguments: argparse.Namespace, benchmark: str) -> Path:
    path = Path(arguments.model or arguments.responses).expanduser()
    path = path.resolve() if path.exists() else path
    # Two parts: the suite's models are all in folders named "model".
    parts = (path.parent.name, path.name.removesuffix(".jsonl"))
    return Path("evaluations") / "-".join([benchmark, *filter(None, parts)])


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


def summarise(record: EvalRecord) -> dict:
    """The scores of a record, as plain values for JSON.

    ``truncated`` and ``mean_tokens`` are None if that is not known. ``not_judged`` counts responses
    whose judge failed; in all scores they are wrong. ``found`` counts right answers by where they
    stood.
    """
    num_problems, n = record.correct.shape
    reasons = {reason: int((record.reason == reason).sum()) for reason in REASONS}
    knows_tokens = bool((record.num_tokens != UNKNOWN_TOKENS).all())
    knows_truncated = record.sampling.get("truncated_known", True)
    return {
        "benchmark": record.benchmark,
        "num_problems": num_problems,
        "num_responses": n,
        "avg_at_n": avg_at_n(record.correct),
        "sampling_interval": list(sampling_interval(record.correct)),
        "problem_interval": list(problem_interval(record.correct)),
        "level": 0.95,
        "pass_at_k": {str(k): pass_at_k(record.correct, k) for k in _ks(n)},
        "truncated": int(record.truncated.sum()) if knows_truncated else None,
        "mean_tokens": float(record.num_tokens.mean()) if knows_tokens else None,
        "not_judged": sum(reasons[reason] for reason in NOT_JUDGED),
        "reasons": reasons,
        "found": {p: int((record.correct & (record.found == p)).sum()) for p in FOUND},
        "mean_pass_rate": float(record.pass_rate.mean()),
        "sampling": record.sampling,
        "problems": dict(
            zip(record.problem_ids, record.correct.mean(axis=1).tolist(), strict=True)
        ),
    }


def summary_text(scores: dict) -> str:
    """The scores as lines for a terminal, shares in per cent."""
    n, total = scores["num_responses"], scores["num_problems"] * scores["num_responses"]
    sampling = dict(scores["sampling"])
    rule = sampling.pop("truncated")  # beside their number
    judged = "as text" if scores["truncated"] is None or rule == "as_text" else "wrong"
    cut = scores["truncated"]
    cut_words = "not known" if cut is None else f"{cut} of {total} responses"
    failed = scores["not_judged"]
    rows = [
        (f"avg@{n}", f"{100 * scores['avg_at_n']:.1f}"),
        ("", f"{_span(scores['sampling_interval'])} over other responses to these problems"),
        ("", f"{_span(scores['problem_interval'])} over other problems of the same kind"),
        *((f"pass@{k}", f"{100 * value:.1f}") for k, value in scores["pass_at_k"].items()),
        ("truncated", f"{cut_words}, judged {judged}"),
        ("not judged", f"{failed} of {total} responses" + (", scored as wrong" if failed else "")),
        ("verdicts", ", ".join(f"{r} {c}" for r, c in scores["reasons"].items() if c)),
    ]
    if places := ", ".join(f"{place} {c}" for place, c in scores["found"].items() if c):
        rows.append(("right answers", places))
    if scores["mean_tokens"] is not None:
        rows.append(("mean tokens", f"{scores['mean_tokens']:.0f}"))
    rows.extend((name, str(value)) for name, value in sampling.items())
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {value}" for name, value in rows]
    if cut == total:
        lines.append("the budget cut off every response: raise --max-new-tokens")
    if scores["reasons"]["bad_format"] > _HINT_SHARE * total:
        lines.append(
            f"{scores['reasons']['bad_format']} responses lack a think tag and count as wrong: "
            "--think-tags optional judges them as the released evaluation does"
        )
    return "\n".join(lines)


def _ks(n: int) -> list[int]:
    """1, 2, 4, ... and n.

    >>> _ks(1), _ks(6)
    ([1], [1, 2, 4, 6])
    """
    powers = 2 ** np.arange(int(np.log2(n)) + 1)
    return sorted({*map(int, powers), n})


def _span(ends: list[float]) -> str:
    return f"{100 * ends[0]:.1f} to {100 * ends[1]:.1f}"
