"""How fast an RL round is, beside TRL's GRPOTrainer in the same run, and whether the losses agree.

    .venv/bin/python benchmarks/rl_round.py --rounds 5

A round is 32 problems x 8 responses with old log-probabilities and 4 optimiser updates, on a random
Qwen3 of 0.796 M parameters (width 128, 4 layers, 4 heads, 2 key heads, MLP 384, 64 tied words) with
prompts of 24 tokens and responses of 64, in fp32 or under bf16 autocast, one thread. "natural ends"
has prompts of 18 to 24 tokens and an end token as likely as any word. The reward is the sum of the
ids modulo 7, group advantages are TRL's, no group is left out, the loss is PPO's clip at 0.2 with
the mean over the tokens of an update (TRL: "bnpo"). TRL samples with generate and computes old
log-probabilities in a second pass; klear keeps the sampler's.

Both are processes that take turns, one round each; the first round warms up, and medians are
compared. Seconds are those of the process, so that other work on the machine counts little.

TRL's first round is computed again by klear: TRL's weights before the round, its responses,
advantages, old log-probabilities and mini-batches, a fresh optimiser. The last columns are the
largest differences of an update's loss, the largest relative ones of its gradient's norm, the
relative one of the step of all weights over the round, and the largest difference of klear's
log-probabilities before the round from TRL's old ones.

With --policy, a folder of a model and its tokenizer, the rounds are of that model and of sums, as
the profile smol trains on them: 16 problems x 8 responses of at most 24 tokens and 8 updates, under
the model's own chat template. The checkpoint that smol starts from is results/runs/sft/*/model;
the table is then rl_round_policy.csv.

TRL is installed into .venv-trl unless --peer-python names an interpreter that has it; where it
cannot be had, klear's side runs alone. Writes benchmarks/results/rl_round.csv.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from common import arguments_of, keep
from peers import Worker, peer_python
from random_policy import FIRST_WORD, save_random_policy

VOCABULARY = 64
SHAPE = {
    "problems": 32,
    "group_size": 8,
    "updates": 4,
    "max_tokens": 64,
    # TRL's default. No ratio leaves the clip range, where klear's surrogate has another value.
    "learning_rate": 1e-6,
    "max_grad_norm": 1.0,
}
SUMS = SHAPE | {"problems": 16, "updates": 8, "max_tokens": 24, "learning_rate": 1e-7}
TINY = SHAPE | {"problems": 4, "group_size": 2, "max_tokens": 4}
LENGTHS = {"64 tokens": False, "natural ends": True}
SIZE = {"width": 128, "layers": 4, "heads": 4, "kv_heads": 2, "mlp": 384}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer-python", help="an interpreter that has TRL 1.16")
    parser.add_argument("--lengths", nargs="+", choices=LENGTHS, default=list(LENGTHS))
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"])
    parser.add_argument("--policy", type=Path, help="a model's folder (default: a random Qwen3)")
    parser.set_defaults(shape=SHAPE)
    tiny = {"rounds": 1, "shape": TINY, "lengths": ["natural ends"], "precisions": ["bf16"]}
    arguments = arguments_of(parser, **tiny)
    peer = peer_python(
        "TRL",
        arguments.peer_python,
        Path(__file__).parents[1] / ".venv-trl",
        "trl==1.16.0",
        f"torch=={torch.__version__.partition('+')[0]}",
        f"transformers=={transformers.__version__}",
        install=not arguments.tiny,
    )
    sides = {"TRL": ("rl_round_trl", peer), "klear": ("rl_round_klear", sys.executable)}
    sides = {side: (module, python) for side, (module, python) in sides.items() if python}
    rows, cases, table = [], arguments.lengths, "rl_round"
    if arguments.policy:
        cases, table = ["sums"], "rl_round_policy"
    with tempfile.TemporaryDirectory() as place:
        for lengths, precision in itertools.product(cases, arguments.precisions):
            folder = Path(place, f"{lengths} {precision}")
            if arguments.policy:
                shutil.copytree(arguments.policy, folder)
                shape = SUMS | {"prompts": sums(SUMS["problems"])}
            else:
                ends, shape = LENGTHS[lengths], arguments.shape
                save_random_policy(folder, vocab_size=VOCABULARY, ends=ends, **SIZE)
                shape = shape | {"prompts": draw_prompts(ends, shape["problems"])}
            found = compare(folder, precision, sides, shape, arguments.rounds)
            rows += [{"lengths": lengths, "precision": precision} | row for row in found]
            keep(rows, table, arguments)


def compare(
    policy: Path, precision: str, sides: dict[str, tuple[str, str]], shape: dict, rounds: int
) -> list[dict]:
    """One row for each side."""
    record = {"record": str(policy / "record.pt")}
    answers: dict[str, list[dict]] = {side: [] for side in sides}
    apart = {}
    with contextlib.ExitStack() as stack:
        workers = {
            side: stack.enter_context(Worker(python, module, str(policy), precision))
            for side, (module, python) in sides.items()
        }
        for worker in workers.values():
            worker.tell(**shape)
        # The first round, which warms up, has fresh optimisers on both sides.
        if "TRL" in workers:
            workers["TRL"].ask(**record)
            apart = workers["klear"].ask(**record)
        workers["klear"].ask()
        for _ in range(rounds):
            for side, worker in workers.items():
                answers[side].append(worker.ask())
    medians = {
        side: {key: statistics.median(x[key] for x in given) for key in given[0]}
        for side, given in answers.items()
    }
    return [
        {
            "side": side,
            **{
                f"{phase} s": values[phase]
                for phase in ("sampling", "old_logp", "training", "round")
            },
            "tokens": values["tokens"],
            "ratio": medians["TRL"]["round"] / values["round"] if "TRL" in medians else None,
            **{f"{name} apart": value for name, value in apart.items()},
        }
        for side, values in medians.items()
    ]


def draw_prompts(ends: bool, num_problems: int) -> list[str]:
    draws = random.Random(0)
    return [
        " ".join(
            str(draws.randrange(FIRST_WORD, VOCABULARY))
            for _ in range(draws.randint(18, 24) if ends else 24)
        )
        for _ in range(num_problems)
    ]


def sums(num_problems: int) -> list[str]:
    draws = random.Random(0)
    return [
        f"What is {draws.randint(11, 79)} + {draws.randint(11, 79)}?" for _ in range(num_problems)
    ]


if __name__ == "__main__":
    main()
