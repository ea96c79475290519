"""Every specification means what its tests and its program say; a mistake costs a part of them."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from code_reader import MEANING, output_of

from klearlib.miniature.code_problems import (
    FAMILIES,
    OPERATIONS,
    make_tests,
    misread,
    response_text,
    work_out,
)
from klearlib.miniature.problems import Slips
from klearlib.verify.extract import read_response
from klearlib.verify.fences import last_code_block
from klearlib.verify.programs import ProgramJob, run_many

LIMITS = {"timeout_s": 5.0, "memory_mb": 256}


def drafts_of(family: str, difficulty: int, count: int):
    random = Random(f"{family} {difficulty}")
    return [FAMILIES[family](random, difficulty) for _ in range(count)]


def test_words_have_one_meaning_each():
    assert OPERATIONS.keys() == MEANING.keys()
    for word, (statement, function) in OPERATIONS.items():
        for number in range(-30, 120):
            names = {"n": number}
            exec(statement, names)
            assert names["n"] == function(number) == MEANING[word](number)


@pytest.mark.parametrize("num_tests", [16, 32])
@pytest.mark.parametrize("difficulty", range(2, 9))
@pytest.mark.parametrize("family", FAMILIES)
def test_tests_are_what_the_prompt_asks_for_and_reach_every_branch(family, difficulty, num_tests):
    for draft in drafts_of(family, difficulty, 25):
        assert draft.family == family and draft.difficulty == difficulty
        assert 2 <= len(draft.branches) <= 4
        assert {len(branch.operations) for branch in draft.branches} <= {1, 2}
        tests = make_tests(draft, num_tests=num_tests)
        assert len({test.stdin for test in tests}) == len(tests) == num_tests
        assert all(test.expected == output_of(draft.prompt, test.stdin) for test in tests)
        for index in range(len(draft.branches)):
            hits = sum(index in draft.reached(test.stdin) for test in tests)
            assert 3 <= hits <= num_tests - 3


def test_right_programs_pass_and_a_wrong_branch_costs_a_part_of_the_tests():
    jobs, kinds = [], []
    for family in FAMILIES:
        for difficulty in (2, 4, 6, 8):
            (draft,) = drafts_of(family, difficulty, 1)
            tests = make_tests(draft, num_tests=16)
            _, program = work_out(draft)
            jobs.append(ProgramJob(program, tests, **LIMITS))
            kinds.append("right")
            for index, branch in enumerate(draft.branches):
                wrong = list(draft.branches)
                wrong[index] = replace(branch, operations=(*branch.operations, "raise"))
                jobs.append(ProgramJob(draft.program(wrong), tests, **LIMITS))
                kinds.append("wrong branch")
    reports = run_many(jobs, workers=1)
    for kind, job, report in zip(kinds, jobs, reports, strict=True):
        assert set(report.outcomes) <= {"passed", "wrong_answer"}, job.source
        if kind == "right":
            assert report.pass_rate == 1, job.source
        else:
            assert 0 < report.pass_rate < 1, job.source
    assert kinds.count("right") == 12 and kinds.count("wrong branch") > 24


def test_a_misread_bound_costs_the_one_test_on_it():
    draft = drafts_of("bands", 4, 1)[0]
    first, *rest = draft.branches
    tests = make_tests(draft, num_tests=16)
    program = draft.program([replace(first, condition=first.misread), *rest])
    (report,) = run_many([ProgramJob(program, tests, **LIMITS)], workers=1)
    bound = first.when.split()[-1]
    failed = [t.stdin for t, word in zip(tests, report.outcomes, strict=True) if word != "passed"]
    assert failed == [bound]


@pytest.mark.parametrize("family", FAMILIES)
def test_response_has_thinking_and_a_closed_block(family):
    (draft,) = drafts_of(family, 5, 1)
    lines, program = work_out(draft)
    response = response_text(lines, program)
    reading = read_response(response)
    assert reading.has_think_open and reading.has_think_close
    assert last_code_block(reading.text).strip() == program
    assert response.startswith("<think>\n") and response.endswith("\n```")
    for branch, line in zip(draft.branches, lines, strict=True):
        assert line == f"{branch.condition}: {' '.join(branch.operations)}"


def test_habits_misread_one_word_in_one_way_and_the_program_follows_the_thinking():
    slips = Slips(seed=3, share=0.4, rate=0.6, noise=0.0)
    random, wrong = Random(0), {}
    for draft in drafts_of("remainder", 4, 1500):
        written = misread(draft, slips=slips, random=random)
        for index, (branch, own) in enumerate(zip(draft.branches, written, strict=True)):
            assert branch.condition == own.condition
            for word, other in zip(branch.operations, own.operations, strict=True):
                wrong.setdefault((index, word), Counter())[other] += 1
    habits = {key: count for key, count in wrong.items() if set(count) != {key[1]}}
    assert all(len(count) == 2 for count in habits.values())
    assert len(habits) / len(wrong) == pytest.approx(0.4, abs=0.2)  # of 40 words
    right = sum(count[word] for (_, word), count in habits.items())
    rate = 1 - right / sum(count.total() for count in habits.values())
    assert rate == pytest.approx(0.6, abs=0.05)
    lines, program = work_out(draft, slips=slips, random=Random(1))
    written = misread(draft, slips=slips, random=Random(1))
    assert program == draft.program(written)
    assert lines == [f"{b.condition}: {' '.join(b.operations)}" for b in written]


def test_bounds_are_misread_too():
    slips = Slips(seed=0, share=0.5, rate=0.9, noise=0.0)
    found = Counter()
    for draft in drafts_of("bands", 4, 200):
        written = misread(draft, slips=slips, random=Random(0))
        for branch, own in zip(draft.branches, written, strict=True):
            assert own.condition in (branch.condition, branch.misread)
            found[own.condition == branch.condition] += 1
    assert found[True] > 100 and found[False] > 50
