"""How good the code checkpoints are that RL and the test filter start from.

    .venv/bin/python benchmarks/code_start.py --profile mini

World, base model, SFT checkpoint and teacher are made (or taken from the cache); then the
validation set is answered at temperatures 1 and 0.6, and every program is run on all tests of its
problem. What the teacher's filter makes of the training problems is in notebook 08. Writes
benchmarks/results/code_start_<profile>.csv.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

import numpy as np
import torch
from common import arguments_of, finish, keep

from klearlib.data.problems import read_problems
from klearlib.experiments.experiment import runs_dir
from klearlib.miniature.stages import code_start_stages
from klearlib.params import LOCAL, SMOKE, RLOptions, load
from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.load import load_policy
from klearlib.policy.sampling import sample_groups
from klearlib.verify.groups import judge_responses

_SETTINGS = {"1": (1.0, 1.0), "0.6, top_p 0.95": (0.6, 0.95)}
_DID_NOT_RUN = {"compile_error", "runtime_error"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="mini")
    parser.add_argument("--responses", type=int, default=4)
    arguments = arguments_of(parser, profile=SMOKE, responses=1)
    world, limits = load(arguments.profile, "code_miniature"), RLOptions()
    stages = code_start_stages(world, compute=asdict(load(arguments.profile, LOCAL)))
    torch.set_num_threads(1)
    finish([stages["sft"], stages["teacher"]], arguments)
    rows = [
        {"model": name, "temperature": text}
        | measures(stages, name, arguments.responses, world.max_new_tokens, limits, sampling)
        for name in ("sft", "teacher")
        for text, sampling in _SETTINGS.items()
    ]
    keep(rows, f"code_start_{arguments.profile}", arguments)


def measures(stages, name, num_responses, max_tokens, limits, sampling) -> dict:
    model, tokenizer = load_policy(stages[name].folder(runs_dir()) / "model", device="cpu")
    problems = read_problems(stages["world"].folder(runs_dir()) / "validation.jsonl")
    temperature, top_p = sampling
    settings = SamplingSettings(
        temperature=temperature, top_p=top_p, top_k=0, max_tokens=max_tokens, seed=0
    )
    groups = sample_groups(model, tokenizer, problems, group_size=num_responses, settings=settings)
    verdicts = judge_responses(
        problems,
        groups,
        test_timeout_s=limits.test_timeout_s,
        test_memory_mb=limits.test_memory_mb,
    )
    reports = [[verdict.report for verdict in group] for group in verdicts]
    runs = [
        [report is not None and not _DID_NOT_RUN & set(report.outcomes) for report in group]
        for group in reports
    ]
    right = np.array([[verdict.correct for verdict in group] for group in verdicts])
    rates = [[report.pass_rate if report else 0.0 for report in group] for group in reports]
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "runs": np.mean(runs),
        "fully right": right.mean(),
        "mean pass rate": np.mean(rates),
        "groups mixed": (right.any(axis=1) & ~right.all(axis=1)).mean(),
        "groups with a right one": right.any(axis=1).mean(),
        "tokens": np.mean([len(r.token_ids) for group in groups for r in group]),
        "truncated": np.mean([r.truncated for group in groups for r in group]),
    }


if __name__ == "__main__":
    main()
