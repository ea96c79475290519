"""The problems of a run as verl reads them, and verl's reward function.

One row of a parquet file stands for each group of rollouts, in the order in which the run draws
them; a response to it is judged and paid as `klearlib.verify.groups.judge_groups` does it for a
whole step.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from klearlib.errors import KlearError
from klearlib.records import Problem, Response, TestCase, TestReport, Verdict
from klearlib.rl.schedule import judging, problem_order
from klearlib.rl.settings import RLSettings
from klearlib.run.files import one_line_failures
from klearlib.verify import answer_judge, program_judge
from klearlib.verify.code_answers import chosen_tests
from klearlib.verify.groups import is_code, judge_groups
from klearlib.verify.pool import num_workers, shared_pool

KLEAR = "klear"
"""What verl calls the source of all rows, and our agent loop."""
PROMPT_TEXT, BUDGET_ENDED = "prompt_text", "budget_ended"
"""The keys of ``extra_info`` under which that loop hands on the rendered prompt, which may hold the
opening think tag, and whether the token budget ended the response."""
_HANDED_ON = {PROMPT_TEXT: str, BUDGET_ENDED: bool}

_SCHEMA = pa.schema(
    [
        ("prompt", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        ("data_source", pa.string()),
        ("ability", pa.string()),
        ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
        (
            "extra_info",
            pa.struct(
                [("index", pa.int64()), ("problem", pa.int64()), ("problem_id", pa.string())]
            ),
        ),
        ("agent_name", pa.string()),
    ]
)


def write_parquet(
    path: Path, problems: Sequence[Problem], *, settings: RLSettings, seed: int
) -> None:
    """Write the rows of all steps of a run of `seed`: row (t - 1) * num_problems + i is the i-th
    problem of step t, as `klearlib.rl.schedule.problem_order` draws them.

    ``extra_info`` says which row it is (``index``), and which of `problems` (``problem``,
    ``problem_id``). ``reward_model.ground_truth`` holds all that a judge needs, see `problem_of`:
    of a code problem the tests that the run's seed chooses, and no other. Raises KlearError for a
    problem with neither an answer nor tests, or with both, and where the disk is full.
    """
    order = problem_order(len(problems), settings, seed=seed)
    chosen = judging(settings, seed=seed)
    tests = {name: chosen[name] for name in ("max_tests", "tests_seed")}

    def truths(number: int) -> str:
        return ground_truth(problems[number], **tests)

    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with one_line_failures(path):
        with pq.ParquetWriter(beside, _SCHEMA, compression="zstd") as writer:
            for step in range(settings.num_steps):
                first = step * settings.num_problems
                drawn = enumerate(itertools.islice(order, settings.num_problems), first)
                rows = [
                    {
                        "prompt": [{"role": "user", "content": problems[number].prompt}],
                        "data_source": KLEAR,
                        "ability": "code" if is_code(problems[number]) else "math",
                        "reward_model": {"style": "rule", "ground_truth": truths(number)},
                        "extra_info": {
                            "index": index,
                            "problem": number,
                            "problem_id": problems[number].id,
                        },
                        "agent_name": KLEAR,
                    }
                    for index, number in drawn
                ]
                writer.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA))
        os.replace(beside, path)


def ground_truth(problem: Problem, *, max_tests: int | None, tests_seed: int) -> str:
    """What a problem is judged by, as JSON text, with the tests of
    `klearlib.verify.code_answers.chosen_tests`.

    >>> text = ground_truth(Problem("p", "2 + 2?", answer="4"), max_tests=None, tests_seed=0)
    >>> problem_of(text, problem_id="p").answer
    '4'
    """
    if is_code(problem):
        tests = chosen_tests(problem, max_tests=max_tests, seed=tests_seed)
        given = [{k: v for k, v in asdict(test).items() if v is not None} for test in tests]
        how = {"entry_point": problem.entry_point, "preset": problem.preset}
        return json.dumps({"tests": given, **how})
    return json.dumps({"answer": problem.answer})


def problem_of(text: str, *, problem_id: str) -> Problem:
    """The problem of a `ground_truth`, without what it asks. KlearError for what is none."""
    problem = Problem(id=problem_id, prompt="")
    try:
        held = json.loads(text)
        if held.keys() == {"tests", "entry_point", "preset"}:
            held["tests"] = tuple(TestCase(**test) for test in held["tests"])
            return replace(problem, **held)
        (answer,) = held.values()
        answer = answer if isinstance(answer, str) else tuple(answer)
        if "answer" in held and isinstance(held["answer"], str | list) and "".join(answer):
            return replace(problem, answer=answer)
        fault = ""
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        fault = f" ({type(error).__name__}: {error})"
    raise KlearError(
        f"ground_truth of problem {problem_id!r} is not what klear writes there{fault}: "
        "take that of ground_truth(problem)"
    )


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict, **judging
) -> dict[str, float | str]:
    """The reward and the verdict on one response, the same as `judge_groups` gives it in a group.

    verl calls it from several threads of each of its reward workers at once; they share the judges
    of their process, which end with it.

    Args:
        solution_str: the response's text.
        ground_truth: of `ground_truth`. All tests in it are run.
        extra_info: ``problem_id`` of the row, `PROMPT_TEXT` and `BUDGET_ENDED`.
        judging: the keywords of `judge_groups`, see `klearlib.rl.schedule.judging`.

    Returns:
        ``score``, the reward, and ``verdict``, a text that `verdict_of` reads.

    Raises:
        KlearError: the prompt's text is missing, or whether the budget ended the response. What
            hinders the judge itself is raised too, and never paid as a wrong answer.
    """
    told = extra_info or {}
    if lacks := [key for key, kind in _HANDED_ON.items() if not isinstance(told.get(key), kind)]:
        raise KlearError(
            f"extra_info lacks {' and '.join(map(repr, lacks))}, which klear's agent loop adds: "
            "set actor_rollout_ref.rollout.agent.default_agent_loop=klear"
        )
    problem = problem_of(ground_truth, problem_id=told["problem_id"])
    # A call of one response would be content with one judge, and all threads would wait for it.
    judge = program_judge if is_code(problem) else answer_judge
    shared_pool(num_workers(None), judge.__name__)
    response = Response(
        problem_id=problem.id,
        prompt=told[PROMPT_TEXT],
        prompt_ids=(),
        token_ids=(),
        logp=(),
        text=solution_str,
        truncated=told[BUDGET_ENDED],
    )
    (group,) = judge_groups([problem], [[response]], **judging)
    return {"score": float(group.rewards[0]), "verdict": json.dumps(asdict(group.verdicts[0]))}


def verdict_of(text: str) -> Verdict:
    """The verdict of a ``verdict`` of `compute_score`."""
    held = json.loads(text)
    if (report := held["report"]) is not None:
        outcomes, messages = tuple(report["outcomes"]), tuple(report["messages"])
        held["report"] = TestReport(outcomes, report["pass_rate"], messages)
    return Verdict(**held)
