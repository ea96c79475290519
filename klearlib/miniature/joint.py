"""The data of the miniature's model for mathematics and code: pretraining text of both, the
benchmarks of both worlds, and one with longer problems."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING

from klearlib.curation.overlap import OverlapIndex
from klearlib.curation.select import EXAMPLES
from klearlib.data.lines import write_lines
from klearlib.data.problems import first_of_both, read_problems, write_problems
from klearlib.data.tables import Sample, write_samples
from klearlib.errors import ParameterError
from klearlib.miniature import code_problems, code_world, problems, world
from klearlib.miniature.sources import TEMPLATES
from klearlib.run.seeding import derive_seed

if TYPE_CHECKING:
    from klearlib.params.worlds import JointText
    from klearlib.records import Problem
    from klearlib.run.folder import RunFolder

LONG_BENCHMARK = "math_c"  # stands where the paper has HMMT 2025
LONG_DECIDING = "math_c_decide"
"""More problems of its kind, on which nothing was tuned: what decides on the longer budget."""
BENCHMARK_SIZE = 30
MATHS_BENCHMARKS = (*world.BENCHMARKS, LONG_BENCHMARK)
CODE_BENCHMARKS = code_world.BENCHMARKS
BENCHMARKS = (*MATHS_BENCHMARKS, *CODE_BENCHMARKS)

# A prompt in the layout of `base.CHAT_TEMPLATE`, to where the assistant begins.
_OPENING = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
_TOKENIZER_TURNS = 400  # of each kind; the words of chat turns are few


def build(folder: RunFolder, inputs: dict[str, Path], **params: object) -> None:
    """Stage ``joint_world``: writes corpus.jsonl, sft.jsonl, validation.jsonl and one file for each
    of `BENCHMARKS` into `folder`.

    math_a, math_b, code_a and code_b are the files of ``inputs["maths"]`` and ``inputs["code"]``,
    which curation keeps out of the training data; code_decide is copied too. The 30 problems of
    math_c, and the `num_deciding` of math_c_decide, have more steps than
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
        params: those of `klearlib.params.worlds.JointText`; modulus, max_difficulty and
            code_max_difficulty of the two worlds.

    Raises:
        ParameterError: `long_max_difficulty` is not above `max_difficulty`, or `num_validation` is
            odd or more than twice what a world has.
    """
    world: JointText = SimpleNamespace(**params)
    if world.long_max_difficulty <= world.max_difficulty:
        raise ParameterError(
            f"long_max_difficulty {world.long_max_difficulty} must be above max_difficulty "
            f"{world.max_difficulty}: math_c has the longer problems"
        )
    short = range(2, world.max_difficulty + 1)
    long = range(world.max_difficulty + 1, world.long_max_difficulty + 1)

    def random_for(name: str) -> Random:
        return Random(derive_seed(world.seed, "joint_world", name))

    evaluated: dict[str, list[Problem]] = {}
    for name in (*MATHS_BENCHMARKS[:-1], *CODE_BENCHMARKS):
        source = inputs["maths" if name in MATHS_BENCHMARKS else "code"]
        evaluated[name] = read_problems(source / f"{name}.jsonl", expected_size=BENCHMARK_SIZE)
    seen: set[str] = set()

    def long_problems(name: str, count: int) -> list[Problem]:
        how = {"difficulties": long, "modulus": world.modulus, "held_out_part": True, "seen": seen}
        drafts = problems.draw(random_for(name), count, **how)
        return [
            problems.to_problem(draft, id=f"{name}-{i}", modulus=world.modulus, source=name)
            for i, draft in enumerate(drafts)
        ]

    evaluated[LONG_BENCHMARK] = long_problems(LONG_BENCHMARK, BENCHMARK_SIZE)
    # What decides claims is held out by its prompts, as in the two worlds.
    decided = {
        LONG_DECIDING: long_problems(LONG_DECIDING, world.num_deciding),
        code_world.DECIDING: read_problems(inputs["code"] / f"{code_world.DECIDING}.jsonl"),
    }
    for name, found in (evaluated | decided).items():
        write_problems(found, folder.path / f"{name}.jsonl")
    index = OverlapIndex(
        {name: [(p.id, p.prompt) for p in found] for name, found in evaluated.items()},
        templates=TEMPLATES,
    )

    def chains(name: str, count: int, steps: range) -> list[tuple[str, list[str], int]]:
        """(prompt, lines, answer) of right chains."""
        draw = partial(problems.draw, difficulties=steps, modulus=world.modulus)
        return [
            (draft.prompt, *problems.work_out(draft, modulus=world.modulus))
            for draft in _without_overlap(draw, random_for(name), index, count)
        ]

    def programs(name: str, count: int) -> list[tuple[str, list[str], str]]:
        """(prompt, lines, program) of right programs."""
        difficulties = range(code_problems.MIN_DIFFICULTY, world.code_max_difficulty + 1)
        draw = partial(code_problems.draw, difficulties=difficulties)
        return [
            (draft.prompt, *code_problems.work_out(draft))
            for draft in _without_overlap(draw, random_for(name), index, count)
        ]

    validation = {name: inputs[name] / "validation.jsonl" for name in ("maths", "code")}
    both = first_of_both(validation, world.num_validation)
    write_problems(both, folder.path / "validation.jsonl")

    short_rows = [
        {"given": f"{prompt}\n", "text": "\n".join([*lines, f"The answer is {answer}."])}
        for prompt, lines, answer in chains("short corpus", world.base_maths, short)
    ]
    long_rows = [
        {"given": _OPENING.format(prompt), "text": problems.response_text(lines, answer)}
        for prompt, lines, answer in chains("long corpus", world.base_long_maths, long)
    ]
    code_rows = [
        {"given": f"{prompt}\n", "text": "\n".join([*lines, program])}
        for prompt, lines, program in programs("code corpus", world.base_code)
    ]
    corpus = _in_turn(_in_turn(short_rows, long_rows), code_rows)
    write_lines(corpus, folder.path / "corpus.jsonl")

    maths_turns = (
        {"prompt": prompt, "response": problems.response_text(lines, answer)}
        for prompt, lines, answer in chains("maths turns", _TOKENIZER_TURNS, short)
    )
    code_turns = (
        {"prompt": prompt, "response": code_problems.response_text(lines, program)}
        for prompt, lines, program in programs("code turns", _TOKENIZER_TURNS)
    )
    write_lines(chain(maths_turns, code_turns), folder.path / "sft.jsonl")

    long_chains = chains("long examples", world.sft_long_maths, long)
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


def _without_overlap(
    draw: Callable[..., list], random: Random, index: OverlapIndex, count: int
) -> list:
    """The first `count` drafts that share no 9-gram with a benchmark. The tenth of all prompts that
    training leaves alone does not suffice: a recurrence with another number of terms is another
    prompt, and its chain can hold a benchmark's."""
    drafts = draw(random, count + count // 3 + 20, held_out_part=False, seen=None)
    found = index.removals([draft.prompt for draft in drafts])
    clean = [draft for draft, hit in zip(drafts, found, strict=True) if hit is None]
    if len(clean) < count:
        raise ParameterError(
            f"only {len(clean)} of {count} problems share no 9-gram with the benchmarks: raise "
            "modulus or the difficulty"
        )
    return clean[:count]


def _in_turn(*kinds: list) -> list:
    """The elements of all lists, one of each in turn while it lasts."""
    absent = object()
    return [
        each
        for turn in zip_longest(*kinds, fillvalue=absent)
        for each in turn
        if each is not absent
    ]
