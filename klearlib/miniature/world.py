"""The data of the miniature: pretraining text, chains of thought, training pool, held-out
benchmarks; and what the maths teachers learn from."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING

from klearlib.data.lines import read_lines, write_lines
from klearlib.data.problems import write_problems
from klearlib.miniature.problems import Draft, Slips, draw, response_text, to_problem, work_out
from klearlib.run.seeding import derive_seed

if TYPE_CHECKING:
    from klearlib.params.worlds import MathsText
    from klearlib.run.folder import RunFolder

# math_a stands where the paper has AIME 2024, math_b where it has AIME 2025.
BENCHMARK_SIZE = 30
BENCHMARKS = ("math_a", "math_b")
DECIDING = "math_decide"
"""The benchmark that decides claims: of more problems, and nothing was tuned on it."""
TEACHERS = ("weak", "middle", "strong")
"""The maths teachers; they stand where the paper has QwQ-32B, DeepSeek-R1-0120 and R1-0528."""


def build(folder: RunFolder, inputs: dict[str, Path], **params: object) -> None:
    """Stage ``world``: writes corpus.jsonl, sft.jsonl, train.jsonl, validation.jsonl, math_a.jsonl,
    math_b.jsonl and math_decide.jsonl into `folder`. The parameters are those of `MathsText`.

    The benchmarks (30 problems each, math_decide `num_deciding`) draw from the upper half of the
    dial, of which two families round odd numbers down; they and the validation set come from the
    tenth of all prompts that `problems.held_out` keeps from training. Only the chains for SFT go
    wrong, see `problems.Slips`; the pretraining text is always right.
    """
    world: MathsText = SimpleNamespace(**params)
    slips = Slips(habits(world.seed), world.slip_share, world.slip_rate, world.step_noise)
    every = range(2, world.max_difficulty + 1)
    hard = range(world.max_difficulty // 2 + 1, world.max_difficulty + 1)

    def pool(name: str, count: int, difficulties: range = every, **how) -> list[Draft]:
        random = Random(derive_seed(world.seed, "world", name))
        return draw(random, count, difficulties=difficulties, modulus=world.modulus, **how)

    def write(name: str, drafts: list[Draft]) -> None:
        problems = (
            to_problem(draft, id=f"{name}-{index}", modulus=world.modulus, source=name)
            for index, draft in enumerate(drafts)
        )
        write_problems(problems, folder.path / f"{name}.jsonl")

    seen: set[str] = set()
    for name in BENCHMARKS:
        write(name, pool(name, BENCHMARK_SIZE, hard, held_out_part=True, seen=seen))
    write("validation", pool("validation", world.num_validation, held_out_part=True, seen=seen))
    write(DECIDING, pool(DECIDING, world.num_deciding, hard, held_out_part=True, seen=seen))
    write("train", pool("train", world.num_train_problems, held_out_part=False, seen=set()))
    noise = Random(derive_seed(world.seed, "world", "noise"))
    turns = pool("sft", world.sft_examples, held_out_part=False, seen=None)
    write_lines(_turns(turns, world.modulus, slips, noise), folder.path / "sft.jsonl")
    corpus = (
        {"text": "\n".join([draft.prompt, *lines, f"The answer is {answer}."])}
        for draft in pool("corpus", world.base_examples, held_out_part=False, seen=None)
        for lines, answer in [work_out(draft, modulus=world.modulus)]
    )
    write_lines(corpus, folder.path / "corpus.jsonl")


def build_teacher_examples(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    seed: int,
    modulus: int,
    max_difficulty: int,
    slip_seed: int,
    slip_rate: float,
    writers: dict[str, dict],
) -> None:
    """Stage ``teacher_examples``: writes ``<name>.jsonl`` (rows of prompt and response) for each of
    `writers`, in the form that the stage ``sft`` reads.

    Prompts come from the nine tenths that `problems.held_out` leaves for training, without those of
    the pool in ``inputs["sources"]``, which the teachers are asked.

    Args:
        modulus, max_difficulty: of the maths world. slip_seed: its seed; teachers have a part of
            the same habits as the writer of its SFT chains. slip_rate: how often a habit shows.
        writers: by teacher ``slip_share`` and ``step_noise``, see `problems.Slips`, and
            ``num_examples``.
    """
    pool = read_lines(inputs["sources"] / "math_pool.jsonl")
    asked = {row["prompt"][0]["content"] for row in pool}
    for name, writer in writers.items():
        slips = Slips(habits(slip_seed), writer["slip_share"], slip_rate, writer["step_noise"])
        random = Random(derive_seed(seed, "teacher", name))
        count, drafts = writer["num_examples"], []
        while len(drafts) < count:
            drawn = draw(
                random,
                count,
                difficulties=range(2, max_difficulty + 1),
                modulus=modulus,
                held_out_part=False,
                seen=None,
            )
            drafts += [draft for draft in drawn if draft.prompt not in asked]
        rows = _turns(drafts[:count], modulus, slips, random)
        write_lines(rows, folder.path / f"{name}.jsonl")


def habits(seed: int) -> int:
    """The seed of the slips that all writers of the maths world with this seed share."""
    return derive_seed(seed, "world", "slips")


def _turns(drafts: list[Draft], modulus: int, slips: Slips, random: Random) -> Iterable[dict]:
    for draft in drafts:
        chain = work_out(draft, modulus=modulus, slips=slips, random=random)
        yield {"prompt": draft.prompt, "response": response_text(*chain)}
