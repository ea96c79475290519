"""A model on benchmarks: n responses to each problem are sampled and judged, all of it is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.data.problems import read_problems
from klearlib.errors import Stopped
from klearlib.evaluate.record_files import evaluation_record, save_record
from klearlib.policy.compute import Compute
from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.engines import Engine, open_engine
from klearlib.records import EvalRecord, Problem
from klearlib.run.seeding import derive_seed
from klearlib.verify.groups import judge_responses

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder


@dataclass(frozen=True)
class Measurement:
    """What is asked of one benchmark: n = `num_responses` responses to each problem, drawn as
    `settings` say."""

    benchmark: str
    problems: Sequence[Problem]
    num_responses: int
    settings: SamplingSettings


def evaluate_all(
    engine: Engine,
    measurements: Sequence[Measurement],
    *,
    test_timeout_s: float,
    test_memory_mb: int,
    think_tags: str = "required",
    answer_form: str = "written",
    truncated: str = "wrong",
    reward_function: dict | None = None,
) -> list[EvalRecord]:
    """avg@n's raw material for each benchmark: n independent responses a problem, judged.

    The benchmarks are sampled one after the other, so that the records of one do not depend on its
    company, and judged in one batch.

    Args:
        engine: samples from the policy; see `klearlib.policy.engines.open_engine`.
        test_timeout_s, test_memory_mb: limits of one test of a program, all of whose tests are run.
        think_tags: ``"required"``, or ``"optional"``: responses are judged with or without them.
        answer_form, truncated, reward_function: those of `klearlib.verify.groups.judge_responses`.

    Raises:
        ValueError: a problem without an answer or tests.
    """
    groups = []  # [benchmarks] of responses [P][n]
    for asked in measurements:
        how = {"group_size": asked.num_responses, "settings": asked.settings}
        groups.append(engine.sample_groups(asked.problems, **how))
    verdicts = iter(
        judge_responses(
            [problem for asked in measurements for problem in asked.problems],
            [group for each in groups for group in each],
            test_timeout_s=test_timeout_s,
            test_memory_mb=test_memory_mb,
            require_think=think_tags == "required",
            answer_form=answer_form,
            truncated=truncated,
            reward_function=reward_function,
        )
    )
    return [
        evaluation_record(
            asked.problems,
            each,
            [next(verdicts) for _ in asked.problems],
            benchmark=asked.benchmark,
            sampling=asdict(asked.settings) | engine.setting,
        )
        for asked, each in zip(measurements, groups, strict=True)
    ]


def evaluate(
    engine: Engine,
    problems: Sequence[Problem],
    *,
    benchmark: str,
    num_responses: int,
    settings: SamplingSettings,
    **how,
) -> EvalRecord:
    """`evaluate_all` of one benchmark; how: its keywords."""
    (record,) = evaluate_all(
        engine, [Measurement(benchmark, problems, num_responses, settings)], **how
    )
    return record


def evaluate_benchmarks(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    seed: int,
    benchmarks: dict[str, int | None],
    num_responses: int,
    temperature: float,
    top_p: float,
    max_new_tokens: int,
    compute: dict,
    deciding: dict[str, int | None] | None = None,
    yarn_factor: float | None = None,
    yarn_original: int | None = None,
    **judge,
) -> None:
    """Stage ``evaluate``: `num_responses` responses of ``inputs["model"]/model`` to each problem of
    the benchmarks, judged.

    Writes ``evaluations/<benchmark>-00000.npz`` (`klearlib.evaluate.record_files`), under the names
    and with the seeds of the RL runs' evaluations before the first step, so that the experiments
    read both; here the sampling record names the YaRN factor as well. A kill costs no more than the
    benchmark that it hit; the files are those of an unbroken run.

    Args:
        seed: of all sampling; each benchmark has draws of its own.
        benchmarks: name -> number of problems, None for any; ``<name>.jsonl`` in
            ``inputs["benchmarks"]`` where that is given and in ``inputs["world"]`` otherwise must
            hold exactly that many.
        deciding: further benchmarks, which are answered once a problem.
        temperature, top_p: the paper: 0.6 and 0.95.
        max_new_tokens: token budget of a response, end token included.
        compute: the fields of `klearlib.policy.compute.Compute`.
        yarn_factor, yarn_original: see `klearlib.policy.load.with_yarn`; None for the model as it
            is. The paper: 2.5 for its 64K budget.
        judge: the keywords of `evaluate_all`.

    Raises:
        Stopped: a stop was asked for; the benchmarks that are done are kept.
        MissingAsset: no such model or benchmark file.
        KlearError: a benchmark of another size, or more positions than the model has.
        ParameterError: YaRN that the model cannot have.
    """
    source = inputs["benchmarks"] if "benchmarks" in inputs else inputs["world"]
    # All are read before the first is sampled: a wrong size shows at once.
    problems = {
        name: read_problems(source / f"{name}.jsonl", expected_size=size)
        for name, size in (benchmarks | (deciding or {})).items()
    }
    responses = dict.fromkeys(deciding or {}, 1) | dict.fromkeys(benchmarks, num_responses)
    stretched = {"yarn_factor": yarn_factor, "yarn_original": yarn_original}
    total, done, name = sum(len(problems[name]) * responses[name] for name in problems), 0, ""
    folder.progress(0, total)

    def count(sampled: int, _: int) -> None:
        folder.progress(done + sampled, total, name)

    with open_engine(
        inputs["model"] / "model", compute=Compute(**compute), on_sampled=count, **stretched
    ) as engine:
        for number, name in enumerate(problems, start=1):
            settings = SamplingSettings(
                temperature=temperature,
                top_p=top_p,
                top_k=0,
                max_tokens=max_new_tokens,
                seed=derive_seed(seed, "evaluate", name, 0),
            )
            path = folder.path / "evaluations" / f"{name}-00000.npz"
            if not path.exists():
                asked = {"benchmark": name, "num_responses": responses[name]}
                record = evaluate(engine, problems[name], settings=settings, **asked, **judge)
                save_record(replace(record, sampling=record.sampling | stretched), path)
            done += len(problems[name]) * responses[name]
            folder.progress(done, total, name)
            if folder.stop_requested and number < len(problems):
                raise Stopped(
                    f"stopped after {number} of {len(problems)} benchmarks; run again to go on"
                )
