"""The data of the miniature's code part: pretraining text, responses for SFT and for the teacher, a
training pool with planted flaws, two dated benchmark windows."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from klearlib.data.problems import write_problems
from klearlib.data.windows import LIVECODEBENCH_V5, LIVECODEBENCH_V6, problems_in_window
from klearlib.errors import KlearError, ParameterError
from klearlib.miniature.code_families import MAX_DIFFICULTY, MIN_DIFFICULTY, Draft
from klearlib.miniature.code_flaws import FLAWS, count_wrong, flawed_tests
from klearlib.miniature.code_problems import (
    MAX_TESTS,
    MIN_TESTS,
    draw,
    make_tests,
    response_text,
    to_problem,
    work_out,
)
from klearlib.miniature.problems import Slips
from klearlib.records import Problem
from klearlib.run.seeding import derive_seed

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder

# They stand where the paper has LiveCodeBench V5 and V6, and have their days.
WINDOWS = {"code_a": LIVECODEBENCH_V5, "code_b": LIVECODEBENCH_V6}
BENCHMARKS = tuple(WINDOWS)
BENCHMARK_SIZE = 30
_CONTEST_SIZE = 240  # more than twice what fills both windows from days drawn at random
_CONTEST_DAYS = (date(2024, 7, 1), date(2025, 5, 31))
# First and last days of the windows and their neighbours outside: each has a problem.
_EDGE_DAYS = ("2024-07-31", "2024-08-01", "2025-02-01", "2025-02-02", "2025-05-01", "2025-05-02")


def build(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    seed: int,
    max_difficulty: int,
    num_tests: int,
    slip_share: float,
    slip_rate: float,
    step_noise: float,
    teacher_slip_share: float,
    flawed_share: float,
    base_examples: int,
    sft_examples: int,
    teacher_examples: int,
    num_train_problems: int,
    num_validation: int,
) -> None:
    """Stage ``code_world``: writes corpus.jsonl, sft.jsonl, teacher.jsonl, train.jsonl,
    truth.jsonl, validation.jsonl, contest.jsonl, code_a.jsonl and code_b.jsonl into `folder`.

    The benchmarks (30 problems each) are the first problems of contest.jsonl, a dated pool from the
    upper half of the dial, whose days lie in the windows of LiveCodeBench V5 and V6; a problem of
    the day that both windows hold counts to the earlier one. Contest and validation come from the
    tenth of all prompts that `problems.held_out` keeps from training, and their tests are right.

    truth.jsonl has a row for each training problem: id, is_flawed, flaw (a word of
    `code_flaws.FLAWS`, or ""), num_wrong_tests.

    Args:
        max_difficulty: most operations of a problem. num_tests: of each problem.
        slip_share, slip_rate, step_noise: how the responses for SFT go wrong, see `problems.Slips`;
            the pretraining text is always right.
        teacher_slip_share: the same for the teacher's, which have no noise. A smaller share leaves
            a part of the same habits.
        flawed_share: of the training problems; their flaws take turns.
        base_examples, sft_examples, teacher_examples, num_train_problems, num_validation: numbers
            of rows.
    """
    if not MIN_DIFFICULTY <= max_difficulty <= MAX_DIFFICULTY:
        raise ParameterError(
            f"max_difficulty must be {MIN_DIFFICULTY} to {MAX_DIFFICULTY}, got {max_difficulty}"
        )
    if not MIN_TESTS <= num_tests <= MAX_TESTS:
        raise ParameterError(f"num_tests must be {MIN_TESTS} to {MAX_TESTS}, got {num_tests}")
    if not 0 <= flawed_share < 1:
        raise ParameterError(f"flawed_share must be in [0, 1), got {flawed_share}")
    habits = derive_seed(seed, "code_world", "slips")
    slips = Slips(habits, slip_share, slip_rate, step_noise)
    every = range(MIN_DIFFICULTY, max_difficulty + 1)
    hard = range(max(MIN_DIFFICULTY, max_difficulty // 2 + 1), max_difficulty + 1)

    def random_for(name: str) -> Random:
        return Random(derive_seed(seed, "code_world", name))

    def pool(name: str, count: int, difficulties: range = every, **how) -> list[Draft]:
        return draw(random_for(name), count, difficulties=difficulties, **how)

    seen: set[str] = set()
    drafts = pool("contest", _CONTEST_SIZE, hard, held_out_part=True, seen=seen)
    contest = _dated(drafts, random_for("days"), num_tests)
    write_problems(contest, folder.path / "contest.jsonl")
    for name, problems in _windows(contest).items():
        write_problems(problems, folder.path / f"{name}.jsonl")
    drafts = pool("validation", num_validation, held_out_part=True, seen=seen)
    write_problems(_clean(drafts, "validation", num_tests), folder.path / "validation.jsonl")
    drafts = pool("train", num_train_problems, held_out_part=False, seen=set())
    _write_training(folder.path, drafts, flawed_share, num_tests, slips, random_for("flaws"))
    for name, count, writer in (
        ("sft", sft_examples, slips),
        ("teacher", teacher_examples, Slips(habits, teacher_slip_share, slip_rate, 0.0)),
    ):
        drafts = pool(name, count, held_out_part=False, seen=None)
        noise = random_for(f"{name} noise")
        answers = [response_text(*work_out(draft, slips=writer, random=noise)) for draft in drafts]
        _write_rows(
            folder.path / f"{name}.jsonl",
            [
                {"prompt": draft.prompt, "response": answer}
                for draft, answer in zip(drafts, answers, strict=True)
            ],
        )
    corpus = []
    for draft in pool("corpus", base_examples, held_out_part=False, seen=None):
        lines, program = work_out(draft)
        corpus.append({"given": f"{draft.prompt}\n", "text": "\n".join([*lines, program])})
    _write_rows(folder.path / "corpus.jsonl", corpus)


def _clean(drafts: list[Draft], source: str, num_tests: int) -> list[Problem]:
    return [
        to_problem(
            draft,
            id=f"{source}-{index}",
            source=source,
            tests=make_tests(draft, num_tests=num_tests),
        )
        for index, draft in enumerate(drafts)
    ]


def _dated(drafts: list[Draft], random: Random, num_tests: int) -> list[Problem]:
    first, last = _CONTEST_DAYS
    days = [
        (first + timedelta(days=random.randrange((last - first).days + 1))).isoformat()
        for _ in drafts
    ]
    days[: len(_EDGE_DAYS)] = _EDGE_DAYS
    return [
        to_problem(
            draft,
            id=f"contest-{index}",
            source="contest",
            tests=make_tests(draft, num_tests=num_tests),
            date=day,
        )
        for index, (draft, day) in enumerate(zip(drafts, days, strict=True))
    ]


def _windows(contest: list[Problem]) -> dict[str, list[Problem]]:
    taken: set[str] = set()
    found = {}
    for name, (start, end) in WINDOWS.items():
        problems = [p for p in problems_in_window(contest, start, end) if p.id not in taken]
        if len(problems) < BENCHMARK_SIZE:
            raise KlearError(
                f"{name} needs {BENCHMARK_SIZE} problems, only {len(problems)} lie in its window: "
                "take another seed"
            )
        found[name] = problems[:BENCHMARK_SIZE]
        taken |= {problem.id for problem in problems}
    return found


def _write_training(
    path: Path,
    drafts: list[Draft],
    flawed_share: float,
    num_tests: int,
    slips: Slips,
    random: Random,
) -> None:
    num_flawed = round(flawed_share * len(drafts))
    flaws = [""] * len(drafts)
    for turn, index in enumerate(random.sample(range(len(drafts)), num_flawed)):
        flaws[index] = list(FLAWS)[turn % len(FLAWS)]
    problems, truth = [], []
    for index, (draft, flaw) in enumerate(zip(drafts, flaws, strict=True)):
        tests = make_tests(draft, num_tests=num_tests)
        if flaw:
            tests = flawed_tests(
                draft, drafts, flaw=flaw, num_tests=num_tests, slips=slips, random=random
            )
        problem = to_problem(draft, id=f"train-{index}", source="train", tests=tests)
        problems.append(problem)
        truth.append(
            {
                "id": problem.id,
                "is_flawed": bool(flaw),
                "flaw": flaw,
                "num_wrong_tests": count_wrong(draft, tests),
            }
        )
    write_problems(problems, path / "train.jsonl")
    _write_rows(path / "truth.jsonl", truth)


def _write_rows(path: Path, rows: list[dict]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
