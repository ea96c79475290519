"""Slips: which steps go wrong, how often, and that a wrong result is carried on."""

from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from prompt_reader import step_holds

from klearlib.miniature.problems import FAMILIES, Slips, work_out

MODULUS = 20
STEPS = [
    (f"{a}{sign}{b}", value % MODULUS)
    for a in range(MODULUS)
    for b in range(MODULUS)
    for sign, value in (("+", a + b), ("-", a - b), ("*", a * b))
]


def wrong_results(slips: Slips, left: str, true: int, *, num_draws: int = 300) -> Counter:
    """The wrong results of one step over many chains, with how often each came."""
    random = Random(f"chains of {left}")
    results = [slips.result(left, true, modulus=MODULUS, random=random) for _ in range(num_draws)]
    assert all(0 <= result < MODULUS for result in results)
    return Counter(result for result in results if result != true)


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_share_of_steps_slips_at_the_rate_and_always_in_the_same_way(share):
    slips = Slips(seed=1, share=share, rate=0.6, noise=0.0)
    habits = {}
    for left, true in STEPS:
        wrong = wrong_results(slips, left, true, num_draws=40)
        if wrong:
            assert len(wrong) == 1, f"{left} goes wrong in two ways"
            habits[left] = wrong
    # 1,200 steps: a standard error of 0.013; 40 draws at 0.6 all but never miss a habit.
    assert len(habits) / len(STEPS) == pytest.approx(share, abs=0.05)
    total = sum(sum(wrong.values()) for wrong in habits.values())
    assert total / (40 * len(habits)) == pytest.approx(0.6, abs=0.04)


def test_other_steps_go_wrong_by_noise_in_many_ways():
    slips = Slips(seed=1, share=0.0, rate=0.9, noise=0.25)
    total, ways = 0, Counter()
    for left, true in STEPS[:100]:
        wrong = wrong_results(slips, left, true)
        total += sum(wrong.values())
        ways.update((result - true) % MODULUS for result in wrong.elements())
    assert total / 30_000 == pytest.approx(0.25, abs=0.015)
    assert set(ways) == set(range(1, MODULUS))
    assert max(ways.values()) < 1.3 * min(ways.values())


def test_noise_does_not_touch_the_habits():
    # Every step that does not slip goes wrong now and then; habits keep their one wrong result.
    slips = Slips(seed=1, share=0.5, rate=0.6, noise=0.3)
    kinds = Counter(len(wrong_results(slips, left, true)) == 1 for left, true in STEPS[:200])
    assert kinds[True] / 200 == pytest.approx(0.5, abs=0.12)


def test_habits_depend_on_the_seed_alone():
    def habits(seed: int) -> list[int]:
        slips = Slips(seed=seed, share=0.3, rate=0.999, noise=0.0)
        return [slips.result(*step, modulus=MODULUS, random=Random(0)) for step in STEPS]

    assert habits(1) == habits(1) != habits(2)


def test_wrong_result_is_carried_on():
    slips = Slips(seed=3, share=0.0, rate=0.0, noise=0.4)
    random, changed = Random(0), 0
    for index in range(200):
        family = list(FAMILIES.values())[index % 3]
        draft = family(random, 6, MODULUS)
        lines, answer = work_out(draft, modulus=MODULUS, slips=slips, random=random)
        assert int(lines[-1].partition("=")[2]) == answer
        for before, after in pairwise(lines):
            result = before.partition("=")[2]
            assert after.startswith((f"{result}+", f"{result}-", f"{result}*"))
        changed += not all(step_holds(line, MODULUS) for line in lines)
    # Six steps at 0.4: a chain is right throughout in 5 % of all cases.
    assert changed > 170
