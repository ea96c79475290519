"""The data of the miniature's code part: pretraining text, responses for SFT and for the teacher, a
training pool with planted flaws, the truth that the test filter is measured against, and two dated
benchmark windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING

from klearlib.data.lines import write_lines
from klearlib.data.problems import write_problems
from klearlib.data.windows import LIVECODEBENCH_V5, LIVECODEBENCH_V6, in_window
from klearlib.errors import KlearError, ParameterError
from klearlib.miniature.code_problems import (
    MIN_DIFFICULTY,
    Draft,
    draw,
    make_tests,
    misread,
    response_text,
    to_problem,
    work_out,
)
from klearlib.miniature.problems import Slips
from klearlib.records import Problem, TestCase
from klearlib.run.seeding import derive_seed

if TYPE_CHECKING:
    from klearlib.params.worlds import CodeText
    from klearlib.run.folder import RunFolder

# They stand where the paper has LiveCodeBench V5 and V6, and have their days.
WINDOWS = {"code_a": LIVECODEBENCH_V5, "code_b": LIVECODEBENCH_V6}
BENCHMARKS = tuple(WINDOWS)
BENCHMARK_SIZE = 30
DECIDING = "code_decide"
"""The benchmark that decides claims: of more problems, and nothing was tuned on it."""
_CONTEST_SIZE = 240  # more than twice what fills both windows from days drawn at random
_CONTEST_DAYS = (date(2024, 7, 1), date(2025, 5, 31))
# First and last days of the windows and their neighbours outside: each has a problem.
_EDGE_DAYS = ("2024-07-31", "2024-08-01", "2025-02-01", "2025-02-02", "2025-05-01", "2025-05-02")


FLAWS = {
    "outputs": "an eighth to a half of the expected outputs are off by 1 to 3",
    "branch": "all tests that reach one branch expect 1 too much",
    "solution": "the expected outputs come from a solution with slips",
    "other": "the tests belong to another problem of the family",
}


def build(folder: RunFolder, inputs: dict[str, Path], **params: object) -> None:
    """Stage ``code_world``: writes corpus.jsonl, sft.jsonl, teacher.jsonl, train.jsonl,
    truth.jsonl, validation.jsonl, contest.jsonl, code_a.jsonl, code_b.jsonl and code_decide.jsonl
    into `folder`. The parameters are those of `CodeText`.

    The benchmarks (30 problems each) are the first problems of contest.jsonl, a dated pool from the
    upper half of the dial, whose days lie in the windows of LiveCodeBench V5 and V6; a problem of
    the day that both windows hold counts to the earlier one. code_decide has
    `num_deciding` further problems of their kind. Contest, validation and code_decide come from the
    tenth of all prompts that `problems.held_out` keeps from training, and their tests are right.

    truth.jsonl has a row for each training problem: id, is_flawed, flaw (a word of `FLAWS`, which
    take turns, or ""), num_wrong_tests. The pretraining text is always right; the teacher's
    responses have a part of the same habits as those for SFT, and no noise.
    """
    world: CodeText = SimpleNamespace(**params)
    habits = derive_seed(world.seed, "code_world", "slips")
    slips = Slips(habits, world.slip_share, world.slip_rate, world.step_noise)
    every = range(MIN_DIFFICULTY, world.max_difficulty + 1)
    hard = range(max(MIN_DIFFICULTY, world.max_difficulty // 2 + 1), world.max_difficulty + 1)

    def random_for(name: str) -> Random:
        return Random(derive_seed(world.seed, "code_world", name))

    def pool(name: str, count: int, difficulties: range = every, **how) -> list[Draft]:
        return draw(random_for(name), count, difficulties=difficulties, **how)

    def clean(drafts: list[Draft], source: str, days: Sequence[str]) -> list[Problem]:
        return [
            to_problem(
                draft,
                id=f"{source}-{index}",
                source=source,
                tests=make_tests(draft, num_tests=world.num_tests),
                date=day,
            )
            for index, (draft, day) in enumerate(zip(drafts, days, strict=True))
        ]

    seen: set[str] = set()
    drafts = pool("contest", _CONTEST_SIZE, hard, held_out_part=True, seen=seen)
    contest = clean(drafts, "contest", _days(_CONTEST_SIZE, random_for("days")))
    write_problems(contest, folder.path / "contest.jsonl")
    for name, problems in _windows(contest).items():
        write_problems(problems, folder.path / f"{name}.jsonl")
    drafts = pool("validation", world.num_validation, held_out_part=True, seen=seen)
    validation = clean(drafts, "validation", [""] * len(drafts))
    write_problems(validation, folder.path / "validation.jsonl")
    drafts = pool(DECIDING, world.num_deciding, hard, held_out_part=True, seen=seen)
    write_problems(clean(drafts, DECIDING, [""] * len(drafts)), folder.path / f"{DECIDING}.jsonl")
    drafts = pool("train", world.num_train_problems, held_out_part=False, seen=set())
    _write_training(folder.path, drafts, world, slips, random_for("flaws"))

    def turns(name: str, count: int, writer: Slips) -> Iterator[dict]:
        noise = random_for(f"{name} noise")
        for draft in pool(name, count, held_out_part=False, seen=None):
            response = response_text(*work_out(draft, slips=writer, random=noise))
            yield {"prompt": draft.prompt, "response": response}

    write_lines(turns("sft", world.sft_examples, slips), folder.path / "sft.jsonl")
    teacher = replace(slips, share=world.teacher_slip_share, noise=0)
    write_lines(turns("teacher", world.teacher_examples, teacher), folder.path / "teacher.jsonl")
    corpus = (
        {"given": f"{draft.prompt}\n", "text": "\n".join([*lines, program])}
        for draft in pool("corpus", world.base_examples, held_out_part=False, seen=None)
        for lines, program in [work_out(draft)]
    )
    write_lines(corpus, folder.path / "corpus.jsonl")


def _days(count: int, random: Random) -> list[str]:
    first, last = _CONTEST_DAYS
    days = [
        (first + timedelta(days=random.randrange((last - first).days + 1))).isoformat()
        for _ in range(count)
    ]
    return [*_EDGE_DAYS, *days[len(_EDGE_DAYS) :]]


def _windows(contest: list[Problem]) -> dict[str, list[Problem]]:
    taken: set[str] = set()
    found = {}
    for name, (start, end) in WINDOWS.items():
        problems = [p for p in contest if in_window(p.date, start, end) and p.id not in taken]
        if len(problems) < BENCHMARK_SIZE:
            raise KlearError(
                f"{name} needs {BENCHMARK_SIZE} problems, but only {len(problems)} are in its "
                "window: take another seed"
            )
        found[name] = problems[:BENCHMARK_SIZE]
        taken |= {problem.id for problem in problems}
    return found


def _write_training(
    path: Path, drafts: list[Draft], world: CodeText, slips: Slips, random: Random
) -> None:
    num_flawed = round(world.flawed_share * len(drafts))
    flaws = [""] * len(drafts)
    for turn, index in enumerate(random.sample(range(len(drafts)), num_flawed)):
        flaws[index] = list(FLAWS)[turn % len(FLAWS)]
    problems, truth = [], []
    for index, (draft, flaw) in enumerate(zip(drafts, flaws, strict=True)):
        tests = make_tests(draft, num_tests=world.num_tests)
        if flaw:
            tests = flawed_tests(draft, tests, drafts, flaw=flaw, slips=slips, random=random)
        problems.append(to_problem(draft, id=f"train-{index}", source="train", tests=tests))
        truth.append(
            {
                "id": problems[-1].id,
                "is_flawed": bool(flaw),
                "flaw": flaw,
                "num_wrong_tests": count_wrong(draft, tests),
            }
        )
    write_problems(problems, path / "train.jsonl")
    write_lines(truth, path / "truth.jsonl")


def flawed_tests(
    draft: Draft,
    tests: tuple[TestCase, ...],
    others: Sequence[Draft],
    *,
    flaw: str,
    slips: Slips,
    random: Random,
) -> tuple[TestCase, ...]:
    """The problem's `tests` with one of `FLAWS`; at least one expected output is wrong.

    Args:
        others: problems whose tests ``other`` may take. slips: the writer of ``solution``.

    Raises:
        ParameterError: `others` holds no problem with as many branches.
    """
    flawed = tests
    while not count_wrong(draft, flawed):
        if flaw == "other":
            flawed = make_tests(_another(draft, others, random), num_tests=len(tests))
        else:
            outputs = _wrong_outputs(draft, tests, flaw, slips, random)
            flawed = tuple(
                replace(test, expected=output) for test, output in zip(tests, outputs, strict=True)
            )
    return flawed


def count_wrong(draft: Draft, tests: Sequence[TestCase]) -> int:
    """How many tests expect what a right program does not print."""
    return sum(test.expected != draft.output(test.stdin) for test in tests)


def _another(draft: Draft, others: Sequence[Draft], random: Random) -> Draft:
    # As many branches: an unknown letter in the input would give the tests away.
    found = [
        other
        for other in others
        if other.family == draft.family
        and len(other.branches) == len(draft.branches)
        and other.prompt != draft.prompt
    ]
    if not found:
        raise ParameterError(
            f"no other {draft.family} problem has {len(draft.branches)} branches: raise the number "
            "of training problems"
        )
    return random.choice(found)


def _wrong_outputs(
    draft: Draft, tests: Sequence[TestCase], flaw: str, slips: Slips, random: Random
) -> list[str]:
    if flaw == "solution":
        # Some noise, so that a specification without habits goes wrong as well.
        writer = replace(slips, noise=max(slips.noise, 0.05))
        wrong = replace(draft, branches=misread(draft, slips=writer, random=random))
        return [wrong.output(test.stdin) for test in tests]
    if flaw == "branch":
        branch = random.randrange(len(draft.branches))
        shifts = [int(branch in draft.reached(test.stdin)) for test in tests]
    else:
        count = random.randint(len(tests) // 8, len(tests) // 2)
        chosen = random.sample(range(len(tests)), count)
        off = (-3, -2, -1, 1, 2, 3)
        shifts = [random.choice(off) if index in chosen else 0 for index in range(len(tests))]
    return [str(int(test.expected) + shift) for test, shift in zip(tests, shifts, strict=True)]
