"""Writers of sources: each dial does what it says and nothing else."""

import re
from random import Random

import pytest
from code_reader import output_of
from made_worlds import printed
from prompt_reader import answer_of, step_holds

from klearlib.miniature import code_problems, problems
from klearlib.miniature.source_plan import CODE_SOURCES, MATHS_SOURCES, SourcePlan
from klearlib.miniature.writers import NOTATIONS, code_response, maths_response

MODULUS = 10


def writer(share=0.0, noise=0.0, gaps=0.0, repeats=0.0, notation="plain"):
    """A plan and its slips."""
    plan = SourcePlan("x", "openr1_math", "math", 1, share, noise, gaps, repeats, notation)
    return plan, plan.slips(habits=3, slip_rate=0.5)


def maths_drafts(count=60):
    how = {"difficulties": range(4, 9), "held_out_part": False, "seen": set()}
    return problems.draw(Random(1), count, modulus=MODULUS, **how)


def code_drafts(count=60):
    how = {"difficulties": range(3, 7), "held_out_part": False, "seen": set()}
    return code_problems.draw(Random(1), count, **how)


def thinking_of(text: str) -> list[str]:
    return re.fullmatch(r"<think>\n(.*)\n</think>\n.*", text, re.DOTALL)[1].split("\n")


def program_of(text: str) -> str:
    return re.fullmatch(r".*</think>\n```python\n(.*)\n```", text, re.DOTALL)[1]


def plain_line(line: str) -> str:
    """Any notation as ``3*9=7``."""
    if match := re.fullmatch(r"(\d+)=(\d+)([-+*])(\d+)", line):
        return f"{match[4]}{match[3]}{match[2]}={match[1]}"
    return line.replace(" ", "")


@pytest.mark.parametrize("notation", NOTATIONS)
def test_a_flawless_writer_only_changes_the_notation(notation):
    for draft in maths_drafts():
        text, answer = maths_response(
            draft, *writer(notation=notation), modulus=MODULUS, random=Random(0)
        )
        assert str(answer) == str(answer_of(draft.prompt))
        assert text.endswith(f"\n\\boxed{{{answer}}}")
        lines, _ = problems.work_out(draft, modulus=MODULUS)
        written = [*map(plain_line, thinking_of(text))]
        assert written == lines
        assert all(step_holds(line, MODULUS) for line in written)


@pytest.mark.parametrize("notation", NOTATIONS)
@pytest.mark.parametrize("repeats", [0.0, 0.6])
def test_needless_and_spelled_out_programs_print_what_they_should(notation, repeats):
    for draft in code_drafts(30):
        text = code_response(draft, *writer(repeats=repeats, notation=notation), random=Random(4))
        program = program_of(text)
        assert ("n = n " in program or "n = -n" in program) or notation in ("plain", "swapped")
        for stdin in draft.propose(Random(0), 16):
            assert printed(program, stdin) == output_of(draft.prompt, stdin)


@pytest.mark.parametrize(("dial", "share"), [({"gaps": 0.4}, 0.6), ({"repeats": 0.3}, 1.3)])
def test_gaps_and_repeats_leave_answers_alone(dial, share):
    """The one leaves steps out, but never the last, the other writes the same line again."""
    random, written, steps = Random(5), 0, 0
    for draft in maths_drafts(200):
        text, answer = maths_response(draft, *writer(**dial), modulus=MODULUS, random=random)
        lines, _ = problems.work_out(draft, modulus=MODULUS)
        kept, last = thinking_of(text), "gaps" in dial
        assert kept[-1] == lines[-1] and answer == answer_of(draft.prompt)
        assert last or list(dict.fromkeys(kept)) == list(dict.fromkeys(lines))
        assert set(kept) <= set(lines)
        written, steps = written + len(kept) - last, steps + len(lines) - last
    assert written / steps == pytest.approx(share, abs=0.05)


def test_only_slips_make_answers_wrong():
    drafts = maths_drafts(200)

    def share_wrong(how) -> float:
        random = Random(7)
        answers = [
            maths_response(draft, *how, modulus=MODULUS, random=random)[1] for draft in drafts
        ]
        wrong = [a != answer_of(d.prompt) for a, d in zip(answers, drafts, strict=True)]
        return sum(wrong) / len(wrong)

    assert share_wrong(writer(gaps=0.5, repeats=0.5, notation="swapped")) == 0
    # Some 5.5 steps, of which two hardly ever leave a mistake standing: x 0 mod 2 and mod 5.
    assert 0.25 < share_wrong(writer(noise=0.1)) < 0.5
    assert share_wrong(writer(noise=0.1)) < share_wrong(writer(share=0.3, noise=0.1))


@pytest.mark.parametrize("sources", [MATHS_SOURCES, CODE_SOURCES])
def test_each_rank_has_more_wrong_responses_than_the_one_before(sources):
    is_maths = sources is MATHS_SOURCES
    drafts = maths_drafts(600) if is_maths else code_drafts(600)
    shares = []
    for plan in sources:
        slips, random = plan.slips(habits=11, slip_rate=0.55), Random(8)
        if is_maths:
            wrong = [
                maths_response(d, plan, slips, modulus=MODULUS, random=random)[1]
                != answer_of(d.prompt)
                for d in drafts
            ]
        else:
            wrong = [
                code_problems.misread(d, slips=slips, random=random) != d.branches for d in drafts
            ]
        shares.append(sum(wrong) / len(wrong))
    assert shares == sorted(shares) and shares[0] < 0.1 and shares[-1] > 0.3
