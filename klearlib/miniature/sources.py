"""The miniature's raw data: ten maths and six code sources of known rank and a pool of problems for
each domain, as files in the schemas of real data sets, with the truth about what is planted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from klearlib.data.problems import read_problems
from klearlib.errors import ParameterError
from klearlib.miniature import code_world, world
from klearlib.miniature.code_families import Draft as CodeDraft
from klearlib.miniature.code_problems import MIN_TESTS
from klearlib.miniature.problems import Draft as MathsDraft
from klearlib.miniature.source_columns import COLUMNS, RawItem
from klearlib.miniature.source_items import CodeItems, MathsItems
from klearlib.miniature.source_plan import SOURCES, SourcePlan
from klearlib.miniature.source_plants import (
    BREAKS,
    CONTAMINATIONS,
    REPEATS,
    Planted,
    broken,
    contaminated_prompt,
    is_plantable,
    mixed,
    repeated_prompt,
)
from klearlib.records import Problem
from klearlib.run.files import write_json
from klearlib.run.seeding import derive_seed

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder

MANIFEST, TRUTH = "sources.json", "truth.jsonl"
BENCHMARKS = {"math": world.BENCHMARKS, "code": code_world.BENCHMARKS}
"""The benchmarks of each domain; the input of the stage that holds them has the domain's name."""


def build(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    seed: int,
    modulus: int,
    max_difficulty: int,
    code_max_difficulty: int,
    num_tests: int,
    slip_seed: int,
    code_slip_seed: int,
    slip_rate: float,
    num_maths: int,
    num_code: int,
    num_pool: int,
    max_generations: int,
    num_contaminated: int,
    duplicate_share: float,
    broken_share: float,
    few_tests_share: float,
) -> None:
    """Stage ``sources``: a raw file for each of `source_plan.SOURCES` in the columns of a real data
    set; sources.json, the sources in that order (name, dataset, domain, rank, file, ...); and
    truth.jsonl, a line for each planted row (source, row, kind, how, of).

    Problems come from the nine tenths that `problems.held_out` leaves for training, no prompt
    twice, so that every repeated prompt and every prompt of a benchmark is a planted one. The pools
    hold no prompt that a world's SFT checkpoint or teacher has learnt from: those models are
    measured on them. Besides its sound rows a source has:

    - ``duplicate``: the prompt (`of`: source, row) of another row of this or an earlier source, see
      `source_plants.REPEATS`, with a response of its own;
    - ``contamination``: a prompt (`of`: benchmark, id) of the benchmarks in ``inputs["math"]`` or
      ``inputs["code"]``, see `source_plants.CONTAMINATIONS`;
    - ``broken``: a row that no adapter can use, see `source_plants.BREAKS`;
    - ``few_tests``: in the code pool, a problem with 1 to 15 tests.

    Args:
        modulus, max_difficulty, code_max_difficulty, num_tests: of the maths and code worlds.
        slip_seed, code_slip_seed: the worlds' seeds; the writers share their habits.
        slip_rate: how often a habit shows.
        num_maths, num_code, num_pool: sound rows of each maths source, code source and pool.
        max_generations: most responses to a problem where the schema has several, at least 2.
        num_contaminated: such rows of each source.
        duplicate_share, broken_share, few_tests_share: such rows for each sound one.

    Raises:
        ParameterError: a number out of range, or the world has too few different problems.
    """
    for name, share in (
        ("duplicate_share", duplicate_share),
        ("broken_share", broken_share),
        ("few_tests_share", few_tests_share),
    ):
        if not 0 <= share < 1:
            raise ParameterError(f"{name} must be in [0, 1), got {share}")
    if max_generations < 2:
        raise ParameterError(f"max_generations must be at least 2, got {max_generations}")
    makers = {
        "math": MathsItems(
            modulus,
            max_difficulty,
            derive_seed(slip_seed, "world", "slips"),
            slip_rate,
            max_generations,
        ),
        "code": CodeItems(
            code_max_difficulty,
            num_tests,
            derive_seed(code_slip_seed, "code_world", "slips"),
            slip_rate,
        ),
    }
    leaks = {
        domain: _leaks(inputs[domain], names, Random(derive_seed(seed, "leaks", domain)))
        for domain, names in BENCHMARKS.items()
    }
    sizes = {"math": num_maths, "code": num_code}
    counts = _Counts(num_contaminated, duplicate_share, broken_share, few_tests_share)
    seen: set[str] = set()
    taught = {domain: _taught(inputs[domain]) for domain in BENCHMARKS}
    earlier: dict[str, list[_Sound]] = {"math": [], "code": []}
    truth, manifest = [], []
    places: dict[str, dict[str, int]] = {}
    for plan in SOURCES:
        random = Random(derive_seed(seed, "sources", plan.name))
        if not plan.rank:  # pools come last, so the sources may hold what the models have seen
            seen |= taught[plan.domain]
        desk = _Desk(plan, makers[plan.domain], random, seen)
        size = sizes[plan.domain] if plan.rank else num_pool
        rows = desk.rows(size, counts, earlier=earlier[plan.domain], leaks=leaks[plan.domain])
        _write_lines(folder.path / plan.file, [COLUMNS[plan.dataset](row.item) for row in rows])
        places[plan.name] = {
            row.item.name: number for number, row in enumerate(rows) if not row.kind
        }
        truth += [
            {"source": plan.name, "row": number, "kind": row.kind, "how": row.how}
            | {"of": _place(row.of, places)}
            for number, row in enumerate(rows)
            if row.kind
        ]
        manifest.append(plan.record() | {"num_rows": len(rows), "num_sound": size})
    _write_lines(folder.path / TRUTH, truth)
    write_json(folder.path / MANIFEST, manifest)


@dataclass(frozen=True)
class _Counts:
    """How many rows of each kind are planted."""

    num_contaminated: int
    duplicate_share: float
    broken_share: float
    few_tests_share: float


@dataclass(frozen=True)
class _Sound:
    """A sound row that later ones may repeat."""

    source: str
    item: RawItem
    draft: MathsDraft | CodeDraft


_Leaks = dict[str, list[tuple[str, Problem]]]
"""By way of `CONTAMINATIONS` the (benchmark, problem) pairs that are still to be planted so."""


class _Desk:
    """Where the rows of one source are written, sound ones first, then the planted ones."""

    def __init__(
        self, plan: SourcePlan, maker: MathsItems | CodeItems, random: Random, seen: set[str]
    ) -> None:
        self._plan, self._maker, self._random, self._seen = plan, maker, random, seen
        self._numbers = count()

    def rows(
        self,
        size: int,
        counts: _Counts,
        *,
        earlier: list[_Sound],
        leaks: _Leaks,
    ) -> list[Planted]:
        """All rows in their final order; the sound ones are added to `earlier`."""
        own = self._sound(size)
        rows = [Planted(sound.item) for sound in own]
        rows += self._duplicates(round(counts.duplicate_share * size), own, earlier)
        rows += self._contaminated(counts.num_contaminated, own, leaks)
        rows += self._broken(round(counts.broken_share * size))
        if self._plan.has_tests:
            rows += self._few_tests(round(counts.few_tests_share * size))
        earlier += own
        return mixed(rows, self._random)

    def _sound(self, size: int) -> list[_Sound]:
        drafts = self._maker.draw(self._random, size, seen=self._seen)
        return [_Sound(self._plan.name, self._item(draft), draft) for draft in drafts]

    def _item(self, draft: MathsDraft | CodeDraft) -> RawItem:
        return self._maker.item(self._plan, next(self._numbers), draft, random=self._random)

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
                    f"num_contaminated is too large at {num}: all {self._plan.domain} prompts of "
                    "benchmarks are planted already"
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
        ways = BREAKS[self._plan.dataset]
        return [
            Planted(broken(sound.item, ways[turn % len(ways)]), "broken", ways[turn % len(ways)])
            for turn, sound in enumerate(self._sound(num))
        ]

    def _few_tests(self, num: int) -> list[Planted]:
        rows = []
        for sound in self._sound(num):
            kept = self._random.randrange(1, MIN_TESTS)
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
    prompts = set()
    for file in (folder / "sft.jsonl", folder / "teacher.jsonl"):
        if file.exists():
            with file.open(encoding="utf-8") as lines:
                prompts |= {json.loads(line)["prompt"] for line in lines}
    return prompts


def _leaks(folder: Path, names: Sequence[str], random: Random) -> _Leaks:
    problems = [(name, p) for name in names for p in read_problems(folder / f"{name}.jsonl")]
    return {
        how: random.sample(fit, len(fit))
        for how in CONTAMINATIONS
        for fit in [[(name, p) for name, p in problems if is_plantable(p, how)]]
    }


def _write_lines(path: Path, rows: Sequence[dict]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
