"""Every prompt means what its answer says, and every chain of thought leads to it."""

import re
from random import Random

import pytest
from prompt_reader import answer_of, step_holds

from klearlib.miniature import code_problems
from klearlib.miniature.problems import (
    FAMILIES,
    draw,
    held_out,
    response_text,
    work_out,
)
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
