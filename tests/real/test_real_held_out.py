"""What the curves are measured on is trained on by nobody."""

from __future__ import annotations

from real_project import card_of, rows_of, run_here, write_rows

from klearlib.data.problems import read_problems
from klearlib.data.tables import read_rows
from klearlib.experiments.origins import origin
from klearlib.real.world import NEAR_HELD_OUT, VALIDATION, near_held_out
from klearlib.records import Problem

LONG = "Every task of this contest is given on the first line as one number. "


def rewrite(path, change) -> None:
    rows = rows_of(path)
    for number, row in enumerate(rows):
        change(number, row)
    write_rows(path, rows)


def test_no_validation_problem_of_either_domain_is_an_example(project):
    """The pool holds the very questions of both sources of SFT."""

    def maths(number, row):
        if number < 8:
            row["prompt"][0]["content"] = f"What is 2 + {number}?"
            row["reward_model"]["ground_truth"] = str(number + 2)

    def code(number, row):
        if number < 4:
            row["prompt"][0]["content"] = f"Print n plus {number}."

    rewrite(project / "data" / "klear_math.jsonl", maths)
    rewrite(project / "data" / "klear_code.jsonl", code)
    start = origin("tiny")
    selections = start.start("math").sft.inputs["examples"].inputs.values()
    num_met = 0
    for domain, selection in zip(("math", "code"), selections, strict=True):
        world = run_here(start.start(domain).world)
        held_out = {problem.prompt for problem in read_problems(world / VALIDATION)}
        examples = run_here(selection) / "examples.parquet"
        assert not held_out & {row["prompt"] for row in read_rows(examples)}
        # None is among those that a smaller or larger choice could take.
        learnable = selection.inputs["responses"]
        responses = read_rows(run_here(learnable) / "responses.parquet", columns=["prompt"])
        assert not held_out & {row["prompt"] for row in responses}
        card = card_of(run_here(learnable))["learnable"]
        num_met += sum(card["held_out"].values())
        others = sum(sum(kinds.values()) for kinds in card["other_domain"].values())
        assert card["num_read"] == card["num_kept"] + others + sum(card["held_out"].values())
    assert num_met, "the case never came up"


def test_no_training_problem_is_a_variant_of_a_validation_problem(project):
    twins = "Ann has {} red boxes with a sweet in each of them and eats three. How many are left?"

    def maths(number, row):
        row["prompt"][0]["content"] = f"{number // 2} or {number // 2 + 70}? " + twins.format(
            " ".join(f"w{number // 2}x{k}" for k in range(9)) + f" {number}"
        )

    rewrite(project / "data" / "klear_math.jsonl", maths)
    world = run_here(origin("tiny").start("math").world)
    held_out, train = (
        {problem.prompt.partition(" or ")[0] for problem in read_problems(world / f"{name}.jsonl")}
        for name in ("validation", "train")
    )
    assert held_out and not held_out & train
    card = card_of(world)
    assert card["num_rejected"][NEAR_HELD_OUT] > 0
    counts = card["num_kept"] + card["num_validation"] + sum(card["num_rejected"].values())
    assert card["num_read"] == counts == 20


def test_what_several_validation_problems_say_removes_nothing():
    problems = [Problem(str(n), LONG + f"Do {n} of it.", "1") for n in range(3)]
    prompts = [LONG + "Something else.", LONG + "do 1 OF it", "What is 2 + 2?"]
    rule = {"ngram_words": 9, "ngram_mode": "words"}
    assert list(near_held_out(prompts, problems, **rule)) == [False, True, False]
