"""Three families of maths problems with a dial for difficulty, and their chains of thought.

Difficulty is the number of reasoning steps. All arithmetic is modulo a small number, so that a
small model can learn every single step and only their sequence is hard.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from klearlib.errors import ParameterError
from klearlib.records import Problem
from klearlib.run.seeding import derive_seed

Step = Callable[[list[int]], tuple[str, int]]


@dataclass(frozen=True)
class Draft:
    """A problem before its answer is worked out.

    Each step maps the numbers so far (`start` and all results) to (text of the left side, result),
    so one wrong result carries on through the chain. The last result is the answer.
    """

    family: str
    difficulty: int
    prompt: str
    start: tuple[int, ...]
    steps: tuple[Step, ...]


def chain(random: Random, difficulty: int, modulus: int) -> Draft:
    """Start with a number and apply `difficulty` operations to it."""
    operations = [(random.choice("+-*"), random.randrange(2, modulus)) for _ in range(difficulty)]
    start = random.randrange(modulus)
    recipe = " ".join(f"{sign}{number}" for sign, number in operations)
    prompt = f"Start with {start} and apply {recipe} in turn. Result modulo {modulus}?"
    steps = tuple(_on_last(sign, number, modulus) for sign, number in operations)
    return Draft("chain", difficulty, prompt, (start,), steps)


def recurrence(random: Random, difficulty: int, modulus: int) -> Draft:
    """A term of f(n) = c f(n-1) + or - f(n-2): two operations for each term."""
    first, second = random.randrange(modulus), random.randrange(modulus)
    factor, sign = random.randrange(2, modulus), random.choice("+-")
    num_terms = difficulty // 2
    prompt = (
        f"f(0)={first}, f(1)={second}, f(n)={factor}f(n-1){sign}f(n-2). "
        f"Find f({num_terms + 1}) modulo {modulus}."
    )

    def with_term(before: int) -> Step:
        return lambda numbers: (
            f"{numbers[-1]}{sign}{numbers[before]}",
            _apply(sign, numbers[-1], numbers[before], modulus),
        )

    # The numbers so far are f(0), f(1), c f(1), f(2), c f(2), f(3), ...: f(n) stands at 2 n - 1.
    places = [max(0, 2 * n - 1) for n in range(num_terms)]
    steps = [
        step for place in places for step in (_on_last("*", factor, modulus), with_term(place))
    ]
    return Draft("recurrence", len(steps), prompt, (first, second), tuple(steps))


def polynomial(random: Random, difficulty: int, modulus: int) -> Draft:
    """A polynomial at a point by Horner's rule: two operations for each coefficient after the
    first."""
    point = random.randrange(2, modulus)
    coefficients = [random.randrange(1, modulus) for _ in range(difficulty // 2 + 1)]
    prompt = (
        f"Polynomial with coefficients {' '.join(map(str, coefficients))}, highest power first: "
        f"value at {point} modulo {modulus}?"
    )
    operations = [pair for c in coefficients[1:] for pair in (("*", point), ("+", c))]
    steps = tuple(_on_last(sign, number, modulus) for sign, number in operations)
    return Draft("polynomial", len(steps), prompt, (coefficients[0],), steps)


FAMILIES = {"chain": chain, "recurrence": recurrence, "polynomial": polynomial}


@dataclass(frozen=True)
class Slips:
    """How a writer of chains of thought goes wrong.

    A share `share` of all single steps (such as ``7*3``) are slips: the writer gives them a wrong
    result of their own with probability `rate`, always the same one. Any other step goes wrong at
    random with probability `noise`. Slips are habits that sampling at a lower temperature does not
    mend, and that reinforcement learning can.
    """

    seed: int
    share: float
    rate: float
    noise: float

    def result(self, left: str, true: int, *, modulus: int, random: Random) -> int:
        """What the writer writes behind ``left=``."""
        habit = Random(derive_seed(self.seed, "slip", left))
        if habit.random() < self.share:
            wrong = (true + habit.randrange(1, modulus)) % modulus
            return wrong if random.random() < self.rate else true
        if random.random() < self.noise:
            return (true + random.randrange(1, modulus)) % modulus
        return true


def work_out(
    draft: Draft, *, modulus: int, slips: Slips | None = None, random: Random | None = None
) -> tuple[list[str], int]:
    """The lines of the chain of thought and the final number.

    Args:
        slips: how steps go wrong, with `random` for the draws; a wrong result is carried on. None
            gives the true answer.
    """
    numbers, lines = list(draft.start), []
    for step in draft.steps:
        left, result = step(numbers)
        if slips is not None:
            result = slips.result(left, result, modulus=modulus, random=random)
        lines.append(f"{left}={result}")
        numbers.append(result)
    return lines, numbers[-1]


def response_text(lines: list[str], answer: int) -> str:
    """A response in the form that the verifier asks for: think tags, then the boxed answer."""
    return "<think>\n" + "\n".join(lines) + f"\n</think>\n\\boxed{{{answer}}}"


def held_out(prompt: str) -> bool:
    """Whether a prompt belongs to the tenth that training never sees; a property of its text
    alone."""
    return hashlib.sha256(prompt.encode()).digest()[0] % 10 == 0


def draw(
    random: Random,
    count: int,
    *,
    difficulties: range,
    modulus: int,
    held_out_part: bool,
    seen: set[str] | None,
) -> list[Draft]:
    """`count` drafts, the families in turn, difficulties at random.

    Args:
        held_out_part: draw from the prompts that `held_out` keeps from training, or from the
            others.
        seen: prompts that may not come again; the new ones are added to it. None: repeats may come.

    Raises:
        ParameterError: the world holds no further prompts of that kind.
    """
    return draw_from(
        [partial(family, modulus=modulus) for family in FAMILIES.values()],
        random,
        count,
        difficulties=difficulties,
        held_out_part=held_out_part,
        seen=seen,
        raised=f"max_difficulty or modulus {modulus}",
    )


def draw_from(
    families: Sequence[Callable],
    random: Random,
    count: int,
    *,
    difficulties: range,
    held_out_part: bool,
    seen: set[str] | None,
    raised: str,
) -> list:
    """`draw` of any `families` of drafts; `raised` is what gives more problems where it raises."""
    drafts: list = []
    misses = 0
    while len(drafts) < count:
        draft = families[len(drafts) % len(families)](random, random.choice(difficulties))
        repeated = seen is not None and draft.prompt in seen
        if repeated or held_out(draft.prompt) is not held_out_part:
            misses += 1
            if misses > 1000 * count + 10_000:
                raise ParameterError(
                    f"only {len(drafts)} of {count} different problems exist at difficulty "
                    f"{difficulties.start} to {difficulties.stop - 1}: raise {raised}"
                )
            continue
        if seen is not None:
            seen.add(draft.prompt)
        drafts.append(draft)
    return drafts


def to_problem(draft: Draft, *, id: str, modulus: int, source: str) -> Problem:
    _, answer = work_out(draft, modulus=modulus)
    return Problem(
        id=id,
        prompt=draft.prompt,
        answer=str(answer),
        family=draft.family,
        difficulty=draft.difficulty,
        source=source,
    )


def _on_last(sign: str, number: int, modulus: int) -> Step:
    """The step that applies one operation with a given number to the last result."""
    return lambda numbers: (
        f"{numbers[-1]}{sign}{number}",
        _apply(sign, numbers[-1], number, modulus),
    )


def _apply(sign: str, left: int, right: int, modulus: int) -> int:
    value = {"+": left + right, "-": left - right, "*": left * right}[sign]
    return value % modulus
