"""The data of the miniature: pretraining text, chains of thought, training pool, held-out
benchmarks."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from klearlib.data.problems import write_problems
from klearlib.errors import ParameterError
from klearlib.miniature.problems import Draft, Slips, draw, response_text, to_problem, work_out
from klearlib.run.seeding import derive_seed

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder

# math_a stands where the paper has AIME 2024, math_b where it has LiveCodeBench V5.
BENCHMARK_SIZE = 30
BENCHMARKS = ("math_a", "math_b")


def build(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    seed: int,
    modulus: int,
    max_difficulty: int,
    slip_share: float,
    slip_rate: float,
    step_noise: float,
    base_examples: int,
    sft_examples: int,
    num_train_problems: int,
    num_validation: int,
) -> None:
    """Stage ``world``: writes corpus.jsonl, sft.jsonl, train.jsonl, validation.jsonl, math_a.jsonl
    and math_b.jsonl into `folder`.

    The benchmarks (30 problems each) draw from the upper half of the dial, of which two families
    round odd numbers down; they and the validation set come from the tenth of all prompts that
    `problems.held_out` keeps from training.

    Args:
        modulus: of all arithmetic. max_difficulty: most reasoning steps of a problem; at least 2.
        slip_share, slip_rate, step_noise: how the chains of thought for SFT go wrong, see
            `problems.Slips`; the pretraining text is always right.
        base_examples, sft_examples, num_train_problems, num_validation: numbers of rows.
    """
    if max_difficulty < 2 or modulus < 3:
        raise ParameterError(
            f"need max_difficulty >= 2 and modulus >= 3, got {max_difficulty} and {modulus}"
        )
    slips = Slips(derive_seed(seed, "world", "slips"), slip_share, slip_rate, step_noise)
    every, hard = range(2, max_difficulty + 1), range(max_difficulty // 2 + 1, max_difficulty + 1)

    def pool(name: str, count: int, difficulties: range, **how) -> list[Draft]:
        random = Random(derive_seed(seed, "world", name))
        return draw(random, count, difficulties=difficulties, modulus=modulus, **how)

    seen: set[str] = set()
    evaluation = {name: (BENCHMARK_SIZE, hard) for name in BENCHMARKS}
    evaluation["validation"] = (num_validation, every)
    for name, (count, difficulties) in evaluation.items():
        drafts = pool(name, count, difficulties, held_out_part=True, seen=seen)
        _write(folder.path / f"{name}.jsonl", drafts, name, modulus)
    _write(
        folder.path / "train.jsonl",
        pool("train", num_train_problems, every, held_out_part=False, seen=set()),
        "train",
        modulus,
    )
    noise = Random(derive_seed(seed, "world", "noise"))
    with (folder.path / "sft.jsonl").open("w") as file:
        for draft in pool("sft", sft_examples, every, held_out_part=False, seen=None):
            lines, answer = work_out(draft, modulus=modulus, slips=slips, random=noise)
            row = {"prompt": draft.prompt, "response": response_text(lines, answer)}
            file.write(json.dumps(row) + "\n")
    with (folder.path / "corpus.jsonl").open("w") as file:
        for draft in pool("corpus", base_examples, every, held_out_part=False, seen=None):
            lines, answer = work_out(draft, modulus=modulus)
            text = f"{draft.prompt}\n" + "\n".join(lines) + f"\nThe answer is {answer}."
            file.write(json.dumps({"text": text}) + "\n")


def _write(path: Path, drafts: list[Draft], source: str, modulus: int) -> None:
    problems = [
        to_problem(draft, id=f"{source}-{index}", modulus=modulus, source=source)
        for index, draft in enumerate(drafts)
    ]
    write_problems(problems, path)
