"""The miniature's raw data: ten maths and six code sources of known rank and a pool of problems for
each domain, as files in the schemas of real data sets; and the truth about what is planted in
them, so that curation has something true to find: repeated and contaminated prompts, rows that are
broken, code problems with too few tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count, cycle
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING

from klearlib.data.lines import read_lines, write_lines
from klearlib.data.problems import read_problems, write_problems
from klearlib.errors import KlearError, ParameterError
from klearlib.miniature import code_problems, code_world, problems, world
from klearlib.miniature.source_plan import COLUMNS, SOURCES, RawItem, SourcePlan
from klearlib.miniature.writers import code_response, maths_response
from klearlib.records import Problem
from klearlib.run.seeding import derive_seed

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder

TRUTH, ANSWERS = "truth.jsonl", "answers.jsonl"
BENCHMARKS = {"math": world.BENCHMARKS, "code": code_world.BENCHMARKS}
"""The benchmarks of each domain; the input of the stage that holds them has the domain's name."""
REPEATS = ("same", "case", "blanks")
"""How a prompt comes again: as it is, in capitals, with other blanks. Capitals only where they
leave the mathematics alone, as everywhere in the miniature."""

CONTAMINATIONS = ("exact", "wrapped", "shared")
"""How a benchmark's prompt gets into a source: as it is; whole, with sentences around it; its
givens with another question, so that most of its 9-grams stand there."""

FEWEST_WORDS = {
    "math": {"exact": 1, "wrapped": 14, "shared": 14},
    "code": {"exact": 1, "wrapped": 14, "shared": 18},
}
"""Words (runs of letters and digits) of the benchmark prompts that are planted in each way: shorter
ones share no 9-gram once their question and `TEMPLATES` are cut out."""

TEMPLATES = ("f(n-2). Find f", "value at", "letter of the")
"""Phrases that all prompts of a family hold. For the search for overlap they are what "where m and
n are relatively prime" is at AIME: with them in place, the strict rule removes every recurrence
and every word of commands; with them cut out (``OverlapIndex(templates=...)``) it finds what is
planted and little else."""

BREAKS: dict[str, tuple[str, ...]] = {
    "openr1_math": ("no_answer", "unclosed_think"),
    "openthoughts3": ("no_response", "unclosed_think"),
    "numinamath_1_5": ("no_answer", "no_response"),
    "numinamath_cot": ("no_answer",),
    "acereason_sft": ("no_response", "unclosed_think"),
    "deepscaler": ("no_answer",),
    "opencodereasoning": ("no_response", "unclosed_think"),
    "skywork_or1_math": ("no_answer",),
    "klear_code": ("no_tests",),
}
"""What may be broken in a row of each schema."""


@dataclass(frozen=True)
class Planted:
    """An item with what is planted in it: `kind` is ``""`` (nothing), ``duplicate``,
    ``contamination``, ``broken`` or ``few_tests``; `how` says in which way, `of` from where."""

    item: RawItem
    kind: str = ""
    how: str = ""
    of: dict = field(default_factory=dict)


def build(folder: RunFolder, inputs: dict[str, Path], **params: object) -> None:
    """Stage ``sources``: a raw file for each of `source_plan.SOURCES` in the columns of a real data
    set; truth.jsonl, a line for each planted row (source, row, kind, how, of); and answers.jsonl,
    the true answer to every sound maths problem (prompt, answer).

    Problems come from the nine tenths that `problems.held_out` leaves for training, no prompt
    twice, so that every repeated prompt and every prompt of a benchmark is a planted one. The pools
    draw no prompt that a world's SFT checkpoint or teacher has learnt from, since those models are
    measured on them; of the prompts that they repeat from sources some are. Besides its sound rows
    a source has:

    - ``duplicate``: the prompt (`of`: source, row) of another row of this or an earlier source, see
      `REPEATS`, with a response of its own;
    - ``contamination``: a prompt (`of`: benchmark, id) of the benchmarks in ``inputs["math"]`` or
      ``inputs["code"]``, see `CONTAMINATIONS`;
    - ``broken``: a row that no adapter can use, see `BREAKS`;
    - ``few_tests``: in the code pool, a problem with 1 to 15 tests.

    Args:
        params: those of `klearlib.params.worlds.RawSources`; modulus, max_difficulty,
            code_max_difficulty and num_tests of the worlds; slip_seed and code_slip_seed, the
            worlds' seeds, since all writers of a world share their habits.

    Raises:
        ParameterError: the world has too few different problems, or too few benchmark prompts.
    """
    sizes = SimpleNamespace(**params)
    leaks = {
        domain: _leaks(inputs[domain], names, Random(derive_seed(sizes.seed, "leaks", domain)))
        for domain, names in BENCHMARKS.items()
    }
    seen: set[str] = set()
    earlier: dict[str, list[_Sound]] = {"math": [], "code": []}
    truth, answers = [], []
    places: dict[str, dict[str, int]] = {}
    for plan in SOURCES:
        if plan.rank:
            size = sizes.num_maths if plan.domain == "math" else sizes.num_code
        else:  # pools come last, so the sources may hold what the models have seen
            seen |= _taught(inputs[plan.domain])
            size = sizes.num_pool
        random = Random(derive_seed(sizes.seed, "sources", plan.name))
        desk = _Desk(plan, sizes, random, seen)
        rows = desk.rows(size, earlier=earlier[plan.domain], leaks=leaks[plan.domain])
        write_lines((COLUMNS[plan.dataset](row.item) for row in rows), folder.path / plan.file)
        places[plan.name] = {
            row.item.name: number for number, row in enumerate(rows) if not row.kind
        }
        truth += [
            {"source": plan.name, "row": number, "kind": row.kind, "how": row.how}
            | {"of": _place(row.of, places)}
            for number, row in enumerate(rows)
            if row.kind
        ]
        if plan.domain == "math":
            sound = [row.item for row in rows if not row.kind]
            answers += [{"prompt": item.prompt, "answer": item.answer} for item in sound]
    write_lines(truth, folder.path / TRUTH)
    write_lines(answers, folder.path / ANSWERS)


def add_true_answers(folder: RunFolder, inputs: dict[str, Path]) -> None:
    """Stage ``true_answers``: problems.jsonl of ``inputs["curated"]``, each with the answer that
    ``inputs["sources"]`` wrote down when it made the problem, whatever its data set says.

    Raises:
        KlearError: a problem of a benchmark is among them, which has no answer here.
    """
    known = read_lines(inputs["sources"] / ANSWERS)
    answers = {row["prompt"]: row["answer"] for row in known}
    curated = read_problems(inputs["curated"] / "problems.jsonl")
    if unknown := sum(problem.prompt not in answers for problem in curated):
        raise KlearError(
            f"{unknown} benchmark problems passed the search for overlap and have no answer here: "
            "lower ngram_words or stop_more_than"
        )
    write_problems(
        (replace(problem, answer=answers[problem.prompt]) for problem in curated),
        folder.path / "problems.jsonl",
    )


@dataclass(frozen=True)
class _Sound:
    """A sound row that later ones may repeat."""

    source: str
    item: RawItem
    draft: problems.Draft | code_problems.Draft


_Leaks = dict[str, list[tuple[str, Problem]]]
"""By way of `CONTAMINATIONS` the (benchmark, problem) pairs that are still to be planted so."""


class _Desk:
    """Where the rows of one source are written, sound ones first, then the planted ones."""

    def __init__(
        self, plan: SourcePlan, sizes: SimpleNamespace, random: Random, seen: set[str]
    ) -> None:
        self._plan, self._sizes, self._random, self._seen = plan, sizes, random, seen
        self._numbers = count()
        if plan.domain == "math":
            habits = world.habits(sizes.slip_seed)
        else:
            habits = derive_seed(sizes.code_slip_seed, "code_world", "slips")
        self._slips = plan.slips(habits=habits, slip_rate=sizes.slip_rate)

    def rows(self, size: int, *, earlier: list[_Sound], leaks: _Leaks) -> list[Planted]:
        """All rows in their final order; the sound ones are added to `earlier`."""
        own, sizes = self._sound(size), self._sizes
        rows = [Planted(sound.item) for sound in own]
        rows += self._duplicates(round(sizes.duplicate_share * size), own, earlier)
        rows += self._contaminated(sizes.num_contaminated, own, leaks)
        rows += self._broken(round(sizes.broken_share * size))
        if self._plan.dataset == "klear_code":  # whose rows hold tests
            rows += self._few_tests(round(sizes.few_tests_share * size))
        earlier += own
        return _mixed(rows, self._random)

    def _sound(self, size: int) -> list[_Sound]:
        sizes, how = self._sizes, {"held_out_part": False, "seen": self._seen}
        if self._plan.domain == "math":
            steps = range(2, sizes.max_difficulty + 1)
            how |= {"difficulties": steps, "modulus": sizes.modulus}
            drafts = problems.draw(self._random, size, **how)
        else:
            steps = range(code_problems.MIN_DIFFICULTY, sizes.code_max_difficulty + 1)
            drafts = code_problems.draw(self._random, size, difficulties=steps, **how)
        return [_Sound(self._plan.name, self._item(draft), draft) for draft in drafts]

    def _item(self, draft: problems.Draft | code_problems.Draft) -> RawItem:
        name = f"{self._plan.name}-{next(self._numbers)}"
        item = RawItem(name, self._plan.domain, draft.prompt)
        if self._plan.domain == "math":
            return self._with_answer(item, draft)
        if not self._plan.rank:
            return replace(
                item, tests=code_problems.make_tests(draft, num_tests=self._sizes.num_tests)
            )
        text = code_response(draft, self._plan, self._slips, random=self._random)
        return replace(item, responses=(text,))

    def _with_answer(self, item: RawItem, draft: problems.Draft) -> RawItem:
        """`item` with its answer, which is right whatever its writer found, and its responses, of
        which one at least is right where there are several, as in OpenR1-Math."""
        modulus, random = self._sizes.modulus, self._random
        answer = str(problems.work_out(draft, modulus=modulus)[1])
        if not self._plan.rank:
            return replace(item, answer=answer)
        num_written = 1
        if self._plan.dataset == "openr1_math":  # whose rows hold several responses
            num_written = random.randint(2, self._sizes.max_generations)
        while True:
            written = [
                maths_response(draft, self._plan, self._slips, modulus=modulus, random=random)
                for _ in range(num_written)
            ]
            texts, found = zip(*written, strict=True)
            are_correct = tuple(str(number) == answer for number in found)
            if num_written == 1 or any(are_correct):
                return replace(item, answer=answer, responses=texts, are_correct=are_correct)

    def _duplicates(self, num: int, own: list[_Sound], earlier: list[_Sound]) -> list[Planted]:
        """Half of them repeat rows of this source, the others of earlier ones where there are
        any; each row is repeated once at most."""
        firsts = self._random.sample(own, min(len(own), num if not earlier else (num + 1) // 2))
        if earlier:
            firsts += self._random.sample(earlier, min(len(earlier), num // 2))
        rows = []
        for turn, first in enumerate(firsts):
            how = REPEATS[turn % len(REPEATS)]
            prompt = repeated_prompt(first.item.prompt, how)
            again = replace(self._item(first.draft), prompt=prompt)
            of = {"source": first.source, "name": first.item.name}
            rows.append(Planted(again, "duplicate", how, of))
        return rows

    def _contaminated(self, num: int, own: list[_Sound], leaks: _Leaks) -> list[Planted]:
        """Prompts of benchmarks, none twice in the same way, each with the response to another
        problem: only the prompt is looked at before the row goes."""
        rows = []
        for turn in range(num):
            turns = [CONTAMINATIONS[(turn + i) % len(CONTAMINATIONS)] for i in range(3)]
            how = next((how for how in turns if leaks[how]), None)
            if how is None:
                raise ParameterError(
                    f"num_contaminated {num} exceeds the available {self._plan.domain} benchmark "
                    "prompts: lower it"
                )
            benchmark, problem = leaks[how].pop()
            other = self._item(self._random.choice(own).draft)
            item = replace(
                other,
                prompt=contaminated_prompt(problem.prompt, how),
                answer=problem.answer or "",
                are_correct=(False,) * len(other.are_correct),
            )
            of = {"benchmark": benchmark, "id": problem.id}
            rows.append(Planted(item, "contamination", how, of))
        return rows

    def _broken(self, num: int) -> list[Planted]:
        rows = []
        for sound, how in zip(self._sound(num), cycle(BREAKS[self._plan.dataset]), strict=False):
            rows.append(Planted(broken(sound.item, how), "broken", how))
        return rows

    def _few_tests(self, num: int) -> list[Planted]:
        rows = []
        for sound in self._sound(num):
            kept = self._random.randrange(1, code_problems.MIN_TESTS)
            item = replace(sound.item, tests=sound.item.tests[:kept])
            rows.append(Planted(item, "few_tests", str(kept)))
        return rows


def _place(of: dict, places: dict[str, dict[str, int]]) -> dict:
    """`of` with the row's number in its file for its name."""
    if "name" not in of:
        return of
    return {"source": of["source"], "row": places[of["source"]][of["name"]]}


def _taught(folder: Path) -> set[str]:
    """The prompts that a world's SFT checkpoint and teacher learn from."""
    files = (folder / "sft.jsonl", folder / "teacher.jsonl")
    return {row["prompt"] for file in files if file.exists() for row in read_lines(file)}


def _leaks(folder: Path, names: Sequence[str], random: Random) -> _Leaks:
    problems = [(name, p) for name in names for p in read_problems(folder / f"{name}.jsonl")]
    return {
        how: random.sample(fit, len(fit))
        for how in CONTAMINATIONS
        for fit in [[(name, p) for name, p in problems if is_plantable(p, how)]]
    }


def repeated_prompt(prompt: str, how: str) -> str:
    """`prompt` again, in a way of `REPEATS`.

    >>> repeated_prompt("Find f(3) modulo 7.", "blanks")
    ' Find  f(3)  modulo  7. '
    """
    if how == "blanks":
        return f" {'  '.join(prompt.split())} "
    return prompt.upper() if how == "case" else prompt


def contaminated_prompt(prompt: str, how: str) -> str:
    """`prompt` of a benchmark in a way of `CONTAMINATIONS`.

    >>> contaminated_prompt("Start with 3 and apply *4 in turn. Result modulo 7?", "shared")
    'Start with 3 and apply *4 in turn. Result: write down only how many steps it takes.'
    """
    if how == "wrapped":
        return f"Here is an old exercise. {prompt} Work carefully and check every step."
    if how == "shared":
        givens = " ".join(prompt.split()[:-2]).rstrip(".")
        return f"{givens}: write down only how many steps it takes."
    return prompt


def is_plantable(problem: Problem, how: str) -> bool:
    """Whether a benchmark's prompt has the `FEWEST_WORDS` that this way of planting needs."""
    domain = "code" if problem.tests else "math"
    return num_words(problem.prompt) >= FEWEST_WORDS[domain][how]


def num_words(text: str) -> int:
    """Runs of letters and digits.

    >>> num_words("f(0)=3, Find f(3).")
    6
    """
    return len("".join(c if c.isalnum() else " " for c in text).split())


def broken(item: RawItem, how: str) -> RawItem:
    r"""`item` with something missing, in a way that `BREAKS` names for its schema.

    >>> item = RawItem("a-0", "math", "1+1?", "2", responses=("<think>2</think>\\boxed{2}",))
    >>> broken(item, "unclosed_think").responses
    ('<think>2',)
    """
    if how == "no_tests":
        return replace(item, tests=())
    if how == "no_response":
        return replace(item, responses=(), are_correct=())
    if how == "no_answer":
        unboxed = tuple(text.rpartition("\\boxed")[0].rstrip() for text in item.responses)
        return replace(item, answer="", responses=unboxed)
    assert how == "unclosed_think", how
    cut = tuple(text.partition("</think>")[0] for text in item.responses)
    return replace(item, responses=cut, are_correct=(False,) * len(cut))


def _mixed(rows: Sequence[Planted], random: Random) -> list[Planted]:
    """The rows in an order that does not tell the planted ones, but a row that repeats another of
    the same source always behind it, so that it is the one that deduplication drops."""
    names = {row.item.name for row in rows}
    order = [row for row in rows if row.of.get("name") not in names]
    random.shuffle(order)
    for row in rows:
        if row.of.get("name") in names:
            first = next(i for i, other in enumerate(order) if other.item.name == row.of["name"])
            order.insert(random.randint(first + 1, len(order)), row)
    return order
