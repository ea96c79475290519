"""Every prompt means what its answer says, and every chain of thought leads to it; which steps
slip, how often, and that a wrong result is carried on."""

import re
from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from prompt_reader import answer_of, step_holds

from klearlib.miniature import code_problems
from klearlib.miniature.problems import FAMILIES, Slips, draw, held_out, response_text, work_out
from klearlib.verify.answers import verify_answer


@pytest.mark.parametrize("modulus", [3, 5, 20, 100])
@pytest.mark.parametrize("difficulty", [2, 3, 4, 7, 10])
@pytest.mark.parametrize("family", FAMILIES)
def test_answer_is_what_the_prompt_asks_for(family, difficulty, modulus):
    random = Random(f"{family} {difficulty} {modulus}")
    for _ in range(60):
        draft = FAMILIES[family](random, difficulty, modulus=modulus)
        lines, answer = work_out(draft, modulus=modulus)
        assert answer == answer_of(draft.prompt)
        assert 0 <= answer < modulus
        assert draft.family == family
        assert len(lines) == len(draft.steps) == draft.difficulty
        # An odd difficulty is rounded down where a term takes two steps.
        assert draft.difficulty == (difficulty if family == "chain" else difficulty // 2 * 2)


@pytest.mark.parametrize("family", FAMILIES)
def test_chain_of_thought_is_true_and_goes_on_from_its_last_result(family):
    random = Random(family)
    for _ in range(60):
        draft = FAMILIES[family](random, 6, modulus=50)
        lines, answer = work_out(draft, modulus=50)
        assert all(step_holds(line, 50) for line in lines)
        results = [line.partition("=")[2] for line in lines]
        assert int(results[-1]) == answer
        for before, after in zip(results, lines[1:], strict=False):
            assert re.match(rf"{before}[-+*]", after)
        # Every number on a left side is in the prompt or was worked out before.
        known = set(re.findall(r"\d+", draft.prompt))
        for line, result in zip(lines, results, strict=True):
            assert set(re.findall(r"\d+", line.partition("=")[0])) <= known
            known.add(result)


@pytest.mark.parametrize("family", FAMILIES)
def test_response_passes_the_verifier_with_its_answer_and_no_other(family):
    draft = FAMILIES[family](Random(1), 4, modulus=20)
    lines, answer = work_out(draft, modulus=20)
    response = response_text(lines, answer)
    verdict = verify_answer(response, str(answer))
    assert verdict.reason == "correct" and verdict.extracted == str(answer)
    assert verdict.has_think_open and verdict.has_think_close
    assert verify_answer(response, str((answer + 1) % 20)).reason == "wrong"


def test_a_tenth_of_all_prompts_is_held_out():
    prompts = {FAMILIES["chain"](Random(seed), 8, modulus=100).prompt for seed in range(20_000)}
    share = sum(map(held_out, prompts)) / len(prompts)
    assert 0.09 < share < 0.115  # 26 of 256, with a standard error of 0.002


WORLDS = {
    "maths": (draw, FAMILIES, range(2, 7), {"modulus": 10}),
    "code": (code_problems.draw, code_problems.FAMILIES, range(3, 7), {}),
}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("part", [True, False])
def test_draw_keeps_to_its_part_and_takes_the_families_in_turn(world, part):
    draw, families, difficulties, how = WORLDS[world]
    seen: set[str] = set()
    how = {"difficulties": difficulties, "held_out_part": part, "seen": seen, **how}
    drafts = draw(Random(0), 60, **how)
    assert [held_out(draft.prompt) for draft in drafts] == [part] * 60
    assert [draft.family for draft in drafts] == list(families) * 20
    first = next(iter(families))  # which rounds no difficulty
    assert {each.difficulty for each in drafts if each.family == first} == set(difficulties)
    more = draw(Random(0), 60, **how)
    assert len({draft.prompt for draft in drafts + more}) == 120 == len(seen)


@pytest.mark.parametrize(("world", "how"), [("maths", {"modulus": 3}), ("code", {})])
def test_world_that_is_too_small_says_so(world, how):
    with pytest.raises(ValueError, match="different problems exist at difficulty 2 to 2"):
        how = {"difficulties": range(2, 3), "held_out_part": True, "seen": set(), **how}
        WORLDS[world][0](Random(0), 90, **how)


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
