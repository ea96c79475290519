"""The data of the miniature's model for mathematics and code: pretraining text of both, the
benchmarks of both worlds, and one with longer problems."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain, zip_longest
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from klearlib.curation.overlap import OverlapIndex
from klearlib.curation.select_pool import EXAMPLES
from klearlib.data.problems import read_problems, write_problems
from klearlib.data.tables import Sample, write_samples
from klearlib.errors import ParameterError
from klearlib.miniature import code_problems, code_world, problems, world
from klearlib.miniature.code_families import MIN_DIFFICULTY
from klearlib.miniature.source_plants import TEMPLATES
from klearlib.run.files import write_text
from klearlib.run.seeding import derive_seed

if TYPE_CHECKING:
    from klearlib.records import Problem
    from klearlib.run.folder import RunFolder

LONG_BENCHMARK = "math_c"  # stands where the paper has HMMT 2025
BENCHMARK_SIZE = 30
MATHS_BENCHMARKS = (*world.BENCHMARKS, LONG_BENCHMARK)
CODE_BENCHMARKS = code_world.BENCHMARKS
BENCHMARKS = (*MATHS_BENCHMARKS, *CODE_BENCHMARKS)

# A prompt in the layout of `tokenizer.CHAT_TEMPLATE`, to where the assistant begins.
_OPENING = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
_TOKENIZER_TURNS = 400  # of each kind; the words of chat turns are few


def build(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    seed: int,
    modulus: int,
    max_difficulty: int,
    long_max_difficulty: int,
    code_max_difficulty: int,
    base_maths: int,
    base_long_maths: int,
    base_code: int,
    sft_long_maths: int,
    num_validation: int,
) -> None:
    """Stage ``joint_world``: writes corpus.jsonl, sft.jsonl, validation.jsonl and one file for each
    of `BENCHMARKS` into `folder`.

    math_a, math_b, code_a and code_b are the files of ``inputs["maths"]`` and ``inputs["code"]``,
    which curation keeps out of the training data. The 30 problems of math_c have more steps than
    any problem of the curated sources or of RL (a family whose steps come in pairs rounds down),
    and chains that do not all fit into the base budget; pretraining and SFT examples have chains
    as long, of other problems. No text that is made here shares a 9-gram with a benchmark, nor
    comes from the tenth of all prompts that `problems.held_out` keeps from training. Half of the
    validation set is the first problems of each world's validation set.

    The corpus has both domains in turn, right throughout; a row's problem is read and not learnt.
    Its long chains are whole chat turns. sft.jsonl are chat turns for the tokenizer alone.
    examples.parquet are right long chains for SFT: after the short chains of the sources alone, a
    model of this size stops early on longer problems and exhausts no budget.

    Args:
        modulus: of all arithmetic. max_difficulty, code_max_difficulty: most steps of a maths
            problem and most operations of a code problem, as in the two worlds.
        long_max_difficulty: most steps of math_c, which asks for at least one more than
            `max_difficulty`.
        base_maths, base_long_maths, base_code: rows of the corpus: short maths problems, those as
            long as math_c's, code. sft_long_maths: long chains for SFT.
        num_validation: an even number of problems.

    Raises:
        ParameterError: `long_max_difficulty` is not above `max_difficulty`, or `num_validation` is
            odd or more than twice what a world has.
    """
    if long_max_difficulty <= max_difficulty:
        raise ParameterError(
            f"long_max_difficulty {long_max_difficulty} must be above max_difficulty "
            f"{max_difficulty}: math_c has the longer problems"
        )
    short = range(2, max_difficulty + 1)
    long = range(max_difficulty + 1, long_max_difficulty + 1)
    code = range(MIN_DIFFICULTY, code_max_difficulty + 1)

    def maths(name: str, count: int, steps: range, **how) -> list[problems.Draft]:
        random = Random(derive_seed(seed, "joint_world", name))
        return problems.draw(random, count, difficulties=steps, modulus=modulus, **how)

    evaluated: dict[str, list[Problem]] = {}
    for name in (*world.BENCHMARKS, *CODE_BENCHMARKS):
        source = inputs["maths" if name in MATHS_BENCHMARKS else "code"]
        found = read_problems(source / f"{name}.jsonl", expected_size=BENCHMARK_SIZE)
        evaluated[name] = found
    drafts = maths(LONG_BENCHMARK, BENCHMARK_SIZE, long, held_out_part=True, seen=set())
    evaluated[LONG_BENCHMARK] = [
        problems.to_problem(
            draft, id=f"{LONG_BENCHMARK}-{index}", modulus=modulus, source=LONG_BENCHMARK
        )
        for index, draft in enumerate(drafts)
    ]
    for name, found in evaluated.items():
        write_problems(found, folder.path / f"{name}.jsonl")
    index = OverlapIndex(
        {name: [(p.id, p.prompt) for p in found] for name, found in evaluated.items()},
        templates=TEMPLATES,
    )

    def chains(name: str, count: int, steps: range) -> list[tuple[str, list[str], int]]:
        """(prompt, lines, answer) of right chains."""
        drafts = maths(name, _with_slack(count), steps, held_out_part=False, seen=None)
        clean = _without_overlap(drafts, index, count)
        return [(draft.prompt, *problems.work_out(draft, modulus=modulus)) for draft in clean]

    def programs(name: str, count: int) -> list[tuple[str, list[str], str]]:
        """(prompt, lines, program) of right programs."""
        random = Random(derive_seed(seed, "joint_world", name))
        drafts = code_problems.draw(
            random, _with_slack(count), difficulties=code, held_out_part=False, seen=None
        )
        clean = _without_overlap(drafts, index, count)
        return [(draft.prompt, *code_problems.work_out(draft)) for draft in clean]

    validation = [_validation(inputs[name], name, num_validation) for name in ("maths", "code")]
    write_problems(list(chain(*validation)), folder.path / "validation.jsonl")

    _write_rows(
        folder.path / "corpus.jsonl",
        _in_turn(
            _in_turn(
                [
                    {
                        "given": f"{prompt}\n",
                        "text": "\n".join([*lines, f"The answer is {answer}."]),
                    }
                    for prompt, lines, answer in chains("short corpus", base_maths, short)
                ],
                [
                    {
                        "given": _OPENING.format(prompt),
                        "text": problems.response_text(lines, answer),
                    }
                    for prompt, lines, answer in chains("long corpus", base_long_maths, long)
                ],
            ),
            [
                {"given": f"{prompt}\n", "text": "\n".join([*lines, program])}
                for prompt, lines, program in programs("code corpus", base_code)
            ],
        ),
    )
    _write_rows(
        folder.path / "sft.jsonl",
        [
            {"prompt": prompt, "response": problems.response_text(lines, answer)}
            for prompt, lines, answer in chains("maths turns", _TOKENIZER_TURNS, short)
        ]
        + [
            {"prompt": prompt, "response": code_problems.response_text(lines, program)}
            for prompt, lines, program in programs("code turns", _TOKENIZER_TURNS)
        ],
    )
    long_chains = chains("long examples", sft_long_maths, long)
    write_samples(
        (
            Sample(
                problem_id=f"long_maths-{number}",
                prompt=prompt,
                response=problems.response_text(lines, answer),
                source="long_maths",
            )
            for number, (prompt, lines, answer) in enumerate(long_chains)
        ),
        folder.path / EXAMPLES,
    )


def _with_slack(count: int) -> int:
    return count + count // 3 + 20


def _without_overlap(drafts: list, index: OverlapIndex, count: int) -> list:
    """The first `count` drafts that share no 9-gram with a benchmark. The tenth of all prompts that
    training leaves alone does not suffice: a recurrence with another number of terms is another
    prompt, and its chain can hold a benchmark's."""
    found = index.removals([draft.prompt for draft in drafts])
    clean = [draft for draft, hit in zip(drafts, found, strict=True) if hit is None]
    if len(clean) < count:
        raise ParameterError(
            f"only {len(clean)} of {count} problems share no 9-gram with the benchmarks: raise "
            "modulus or the difficulty"
        )
    return clean[:count]


def _validation(source: Path, name: str, num_validation: int) -> list[Problem]:
    found = read_problems(source / "validation.jsonl")
    half, odd = divmod(num_validation, 2)
    if odd or half > len(found):
        raise ParameterError(
            f"num_validation must be even and at most {2 * len(found)}, twice what the {name} "
            f"world has, got {num_validation}"
        )
    return [replace(problem, id=f"{name}-{problem.id}") for problem in found[:half]]


def _in_turn(*kinds: list) -> list:
    """The elements of all lists, one of each in turn while it lasts."""
    absent = object()
    return [
        each
        for turn in zip_longest(*kinds, fillvalue=absent)
        for each in turn
        if each is not absent
    ]


def _write_rows(path: Path, rows: list[dict]) -> None:
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))
