"""Code problems: one line says what to do, a program of some ten lines does it; their tests, and
what writers make of them.

Every problem has two to four branches, each with one or two operations on a number; difficulty is
the number of operations in all. A mistake in one branch fails the tests that reach it and no
others, so partial credit is real.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from random import Random

from klearlib.miniature.problems import Slips, draw_from
from klearlib.records import Problem, TestCase
from klearlib.run.seeding import derive_seed

MIN_DIFFICULTY = 2
MIN_TESTS = 16
OPERATIONS: dict[str, tuple[str, Callable[[int], int]]] = {
    "double": ("n *= 2", lambda n: 2 * n),
    "triple": ("n *= 3", lambda n: 3 * n),
    "square": ("n *= n", lambda n: n * n),
    "halve": ("n //= 2", lambda n: n // 2),
    "negate": ("n = -n", lambda n: -n),
    "mirror": ("n = 99 - n", lambda n: 99 - n),
    "increment": ("n += 1", lambda n: n + 1),
    "decrement": ("n -= 1", lambda n: n - 1),
    "raise": ("n += 10", lambda n: n + 10),
    "lower": ("n -= 10", lambda n: n - 10),
}
"""The words of a specification: what each is in Python, and what it does."""
_MAX_BRANCHES = 4


@dataclass(frozen=True)
class Branch:
    """One case of a specification, or of a program.

    `when` is how the specification names the case ("below 30"), `condition` what the program asks
    for it ("< 30") and `misread` what a writer may ask by mistake ("<= 30", or "" for nothing).
    `operations` are words of `OPERATIONS`.
    """

    when: str
    condition: str
    misread: str
    operations: tuple[str, ...]

    @property
    def recipe(self) -> str:
        """The operations as specification and thinking say them."""
        return " ".join(self.operations)


@dataclass(frozen=True)
class Draft:
    """A code problem before its tests are worked out.

    `read` maps an input to (the number to start with, the branches that it passes, in order);
    `program` writes branches as Python; `propose` draws that many different inputs, in which each
    branch is reached by several and missed by several.
    """

    family: str
    prompt: str
    branches: tuple[Branch, ...]
    read: Callable[[str], tuple[int, list[int]]]
    program: Callable[[Sequence[Branch]], str]
    propose: Callable[[Random, int], list[str]]

    @property
    def difficulty(self) -> int:
        """The number of operations of all branches."""
        return sum(len(branch.operations) for branch in self.branches)

    def reached(self, stdin: str) -> set[int]:
        """The branches that an input passes."""
        return set(self.read(stdin)[1])

    def output(self, stdin: str) -> str:
        """What a right program prints."""
        number, path = self.read(stdin)
        for index in path:
            for word in self.branches[index].operations:
                number = OPERATIONS[word][1](number)
        return str(number)


def remainder(random: Random, difficulty: int) -> Draft:
    """What happens to n depends on n mod 2, 3 or 4."""
    dealt = _deal(random, difficulty)
    modulus = len(dealt)
    branches = tuple(
        Branch(f"n mod {modulus} is {rest}" if rest == 0 else str(rest), str(rest), "", operations)
        for rest, operations in enumerate(dealt)
    )

    def read(stdin: str) -> tuple[int, list[int]]:
        return int(stdin), [int(stdin) % modulus]

    def program(written: Sequence[Branch]) -> str:
        body = _cases(written, lambda condition: f"n % {modulus} == {condition}")
        return "\n".join(["n = int(input())", *body, "print(n)"])

    def propose(random: Random, count: int) -> list[str]:
        return _spread(random, count, [range(rest, 100, modulus) for rest in range(modulus)])

    return Draft("remainder", _prompt("Read n.", branches), branches, read, program, propose)


def bands(random: Random, difficulty: int) -> Draft:
    """What happens to n depends on the band that it lies in; "below" and "up to" differ at the
    bound itself."""
    dealt = _deal(random, difficulty)
    bounds = sorted(random.sample(range(10, 100, 10), len(dealt) - 1))
    branches, stops = [], []
    for bound, operations in zip(bounds, dealt, strict=False):
        below = random.random() < 0.5
        words, sign, other = ("below", "<", "<=") if below else ("up to", "<=", "<")
        branches.append(
            Branch(f"{words} {bound}", f"{sign} {bound}", f"{other} {bound}", operations)
        )
        stops.append(bound if below else bound + 1)
    branches.append(Branch("else", "else", "", dealt[-1]))
    starts, stops = [0, *stops], [*stops, 110]

    def read(stdin: str) -> tuple[int, list[int]]:
        return int(stdin), [next(i for i, stop in enumerate(stops) if int(stdin) < stop)]

    def program(written: Sequence[Branch]) -> str:
        body = _cases(written, lambda condition: f"n {condition}")
        return "\n".join(["n = int(input())", *body, "print(n)"])

    def propose(random: Random, count: int) -> list[str]:
        others = [
            [n for n in range(start, stop) if n not in bounds]
            for start, stop in zip(starts, stops, strict=True)
        ]
        return [str(b) for b in bounds] + _spread(random, count - len(bounds), others)

    return Draft("bands", _prompt("Read n.", branches), tuple(branches), read, program, propose)


def letters(random: Random, difficulty: int) -> Draft:
    """A word of commands: each letter stands for what happens to n."""
    dealt = _deal(random, difficulty)
    start, alphabet = random.randrange(1, 10), "abcd"[: len(dealt)]
    branches = tuple(
        Branch(letter, letter, "", operations)
        for letter, operations in zip(alphabet, dealt, strict=True)
    )

    def read(stdin: str) -> tuple[int, list[int]]:
        return start, [alphabet.index(letter) for letter in stdin]

    def program(written: Sequence[Branch]) -> str:
        body = _cases(written, lambda condition: f'c == "{condition}"', indent="    ")
        return "\n".join([f"n = {start}", "for c in input():", *body, "print(n)"])

    def propose(random: Random, count: int) -> list[str]:
        longest = max(3, 2 * count // (3 * len(alphabet)))
        words = [letter * length for letter in alphabet for length in range(1, longest + 1)]
        while len(words) < count:
            pair = random.sample(alphabet, 2)
            word = "".join(pair + random.choices(pair, k=random.randrange(3)))
            if word not in words:
                words.append(word)
        return words

    prompt = _prompt(f"n is {start}. Each letter of the input changes n.", branches)
    return Draft("letters", prompt, branches, read, program, propose)


FAMILIES = {"remainder": remainder, "bands": bands, "letters": letters}


def work_out(
    draft: Draft, *, slips: Slips | None = None, random: Random | None = None
) -> tuple[list[str], str]:
    """The lines of thinking and the program that a writer makes of a specification.

    Args:
        slips: how the writer misreads words and conditions, with `random` for the draws; a habit
            belongs to a family, a branch's number and a word, such as ``double``. What is misread
            in the thinking stands in the program as well. None gives the right program.
    """
    written = draft.branches if slips is None else misread(draft, slips=slips, random=random)
    lines = [f"{branch.condition}: {branch.recipe}" for branch in written]
    return lines, draft.program(written)


def misread(draft: Draft, *, slips: Slips, random: Random) -> tuple[Branch, ...]:
    """The branches as a writer with `slips` understands them."""
    words = list(OPERATIONS)
    branches = []
    for index, branch in enumerate(draft.branches):
        place, condition = f"{draft.family} {index}", branch.condition
        if branch.misread:
            wrong = slips.result(f"{place}: {branch.when}", 0, modulus=2, random=random)
            condition = branch.misread if wrong else condition
        operations = []
        for word in branch.operations:
            right = words.index(word)
            written = slips.result(f"{place}: {word}", right, modulus=len(words), random=random)
            operations.append(words[written])
        branches.append(replace(branch, condition=condition, operations=tuple(operations)))
    return tuple(branches)


def response_text(lines: list[str], program: str) -> str:
    """A response in the form that the verifier asks for: think tags, then a closed Python block."""
    return "<think>\n" + "\n".join(lines) + f"\n</think>\n```python\n{program}\n```"


def make_tests(draft: Draft, *, num_tests: int) -> tuple[TestCase, ...]:
    """`num_tests` different tests, the same ones for the same prompt."""
    random = Random(derive_seed("tests", draft.prompt))
    inputs = draft.propose(random, num_tests)
    random.shuffle(inputs)
    return tuple(TestCase(stdin=stdin, expected=draft.output(stdin)) for stdin in inputs)


def draw(
    random: Random,
    count: int,
    *,
    difficulties: range,
    held_out_part: bool,
    seen: set[str] | None,
) -> list[Draft]:
    """As `problems.draw`, of code."""
    return draw_from(
        list(FAMILIES.values()),
        random,
        count,
        difficulties=difficulties,
        held_out_part=held_out_part,
        seen=seen,
        raised="max_difficulty",
    )


def to_problem(
    draft: Draft, *, id: str, source: str, tests: tuple[TestCase, ...], date: str = ""
) -> Problem:
    return Problem(
        id=id,
        prompt=draft.prompt,
        tests=tests,
        date=date,
        family=draft.family,
        difficulty=draft.difficulty,
        source=source,
    )


def _deal(random: Random, difficulty: int) -> list[tuple[str, ...]]:
    """The operations of each branch: one or two, `difficulty` in all."""
    fewest = max(2, (difficulty + 1) // 2)
    num_branches = random.randint(fewest, min(_MAX_BRANCHES, difficulty))
    double = set(random.sample(range(num_branches), difficulty - num_branches))
    words = list(OPERATIONS)
    return [
        tuple(random.sample(words, 2 if index in double else 1)) for index in range(num_branches)
    ]


def _prompt(opening: str, branches: Sequence[Branch]) -> str:
    cases = (f"{branch.when}: {branch.recipe}" for branch in branches)
    return f"{opening} {'; '.join(cases)}. Print n."


def _cases(
    branches: Sequence[Branch], test: Callable[[str], str], *, indent: str = ""
) -> list[str]:
    """The lines of an if statement; the last branch is what is left."""
    lines = []
    for index, branch in enumerate(branches):
        if index == len(branches) - 1:
            lines.append(f"{indent}else:")
        else:
            word = "elif" if index else "if"
            lines.append(f"{indent}{word} {test(branch.condition)}:")
        lines += [f"{indent}    {OPERATIONS[word][0]}" for word in branch.operations]
    return lines


def _spread(random: Random, count: int, parts: Sequence[Sequence[int]]) -> list[str]:
    """`count` different numbers, taken from the parts in turn as long as these last."""
    shuffled = [random.sample(part, len(part)) for part in parts]
    turns = chain.from_iterable(zip_longest(*shuffled))
    return [str(number) for number in turns if number is not None][:count]
