"""The costs of stages: numbers worked out by hand, a rule for every kind of stage, and the printed
plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from klearlib.experiments import headline_pipeline
from klearlib.experiments.catalogue import stages_of
from klearlib.params import check, load_profile, notebooks_of, profiles
from klearlib.policy import memory
from klearlib.policy.compute import Compute
from klearlib.policy.shape import ModelShape
from klearlib.run import cost as assumed
from klearlib.run import costs, workloads
from klearlib.run.cost import Cost, Parts
from klearlib.run.costs import cost_of, shape_of_stage
from klearlib.run.planned import ASSUMED, PlannedNotebook, describe, in_words
from klearlib.run.stage import Stage

REPOSITORY = Path(__file__).resolve().parents[2]
COMPUTE = {
    "engine": "transformers",
    "precision": "bf16",
    "attention": "sdpa",
    "batch_rows": 100,
    "micro_batch_tokens": 4096,
    "pack_tokens": None,
    "gradient_checkpointing": False,
    "tensor_parallel": 1,
    "gpu_memory_share": 0.5,
}
MODEL = {
    "vocab_size": 1000,
    "hidden_size": 64,
    "num_layers": 2,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
}
# 1,000 x 64 + 2 x 64 x (2 x 64 + 2 x 32 + 3 x 128), by hand.
WEIGHTS = 64_000 + 73_728
BASE = Stage(
    "base",
    "klearlib.miniature.base:pretrain",
    {"num_steps": 10, "batch_size": 8, "max_positions": 200, "compute": COMPUTE, **MODEL},
)


def rl(compute=COMPUTE, **changes) -> Stage:
    settings = {
        "num_steps": 4,
        "num_problems": 8,
        "group_size": 5,
        "mini_batch_problems": 4,
        "max_new_tokens": 60,
        "eval_every": 2,
        "eval_responses": 3,
        "benchmarks": {"a": 30, "b": 20},
        "num_validation": 25,
        "validation_responses": 2,
        "logp_old": "sampler",
    }
    sft = Stage("sft", "klearlib.sft.train:train_sft", {}, {"base": BASE})
    params = {"settings": settings | changes, "compute": compute}
    return Stage("rl", "klearlib.rl.train:train_rl", params, {"sft": sft})


def test_the_shape_comes_from_what_made_the_model():
    shape = shape_of_stage(rl())
    assert shape == ModelShape(tie_word_embeddings=True, **MODEL)
    assert shape.forward_flops(context=0) == 2 * WEIGHTS
    # Each of 4 heads of 16 does 2 x 16 for scores and for values a token of context, in 2 layers.
    assert shape.forward_flops(context=50) - 2 * WEIGHTS == 50 * 4 * (4 * 16) * 2


def test_pretraining_is_six_operations_a_weight_and_token():
    cost = cost_of(BASE)
    assert cost.trained_most == 10 * 8 * 200
    assert cost.trained == pytest.approx(cost.trained_most * assumed.EXAMPLE_SHARE)
    attention = 3 * cost.trained * 50 * 4 * 64 * 2  # 200 positions, half full, half of it behind
    assert cost.flops == pytest.approx(6 * WEIGHTS * cost.trained + attention)
    assert (cost.sampled, cost.disk) == (0, 4 * shape_of_stage(BASE).num_parameters)
    again = Stage(
        "base", BASE.target, BASE.params | {"compute": COMPUTE | {"gradient_checkpointing": True}}
    )
    assert cost_of(again).flops == pytest.approx(cost.flops * 4 / 3)


def test_epochs_of_chosen_examples():
    selections = [Stage("s", "klearlib.curation.select:select", {"size": n}) for n in (30, 12)]
    world = Stage("w", "klearlib.miniature.joint:build", {"sft_long_maths": 8})
    combined = Stage(
        "c",
        "klearlib.curation.combine:combine",
        {},
        {"1": selections[0], "2": selections[1], "world": world},
    )
    for examples, count in ((selections[0], 30), (combined, 50)):
        stage = Stage(
            "sft",
            "klearlib.sft.train:train_sft",
            {"num_epochs": 4, "batch_size": 2, "compute": COMPUTE},
            {"base": BASE, "examples": examples},
        )
        assert cost_of(stage).trained_most == count * 4 * 200


def test_rl_samples_rollouts_and_evaluations_and_trains_on_the_rollouts():
    cost = cost_of(rl())
    rollouts = 4 * 40
    evaluated = 3 * (30 + 20) * 3 + 2 * 25 * 2  # before, at steps 2 and 4; validation at both ends
    assert cost.sampled_most == (rollouts + evaluated) * 60
    assert cost.sampled == cost.sampled_most * assumed.RESPONSE_SHARE
    assert cost.trained_most == rollouts * (assumed.PROMPT_TOKENS + 60)
    once, twice = cost, cost_of(rl(logp_old="trainer"))
    trained = cost.trained * 2 * WEIGHTS
    assert twice.flops - once.flops == pytest.approx(trained, rel=0.1)  # attention on top
    assert twice.flops > once.flops + trained


def test_sampling_takes_what_reading_or_starting_kernels_takes():
    shape = shape_of_stage(BASE)

    def seconds(shape: ModelShape, rows: int, **how) -> float:
        compute = Compute(**COMPUTE | how)
        return workloads.sampling(shape, compute, name="", calls=1, rows=rows, budget=1000).gpu_s

    # A small model waits for its kernels: 1,000 steps of 2 layers, once for 100 rows.
    assert seconds(shape, 100) == pytest.approx(1000 * 2 * 6e-4)
    assert seconds(shape, 101) == pytest.approx(2 * 1000 * 2 * 6e-4)
    assert seconds(shape, 100, engine="vllm") == pytest.approx(1000 * 2 * 5e-5)
    # 8 billion weights in bf16 are read in about 5 ms at the data sheet's bandwidth.
    large = ModelShape(36, 4096, 32, 8, 128, 12288, 151936, False)
    assert large.num_parameters == 8_190_735_360
    step = seconds(large, 1, engine="vllm", batch_rows=1) / 1000
    assert 2 * large.num_parameters / 3.35e12 < step < 4 * large.num_parameters / 3.35e12 * 1.2


def test_memory_of_rl_is_that_of_training_or_of_sampling_beside_its_states():
    shape, compute = shape_of_stage(BASE), Compute(**COMPUTE)
    row, states = assumed.PROMPT_TOKENS + 60, 16 * shape_of_stage(BASE).num_parameters
    training = memory.training_bytes(shape, compute=compute, tokens=4096, row_tokens=row)
    assert cost_of(rl()).memory == training
    # Many rows at once: their cache beside gradients and AdamW, the weights counted once.
    many = COMPUTE | {"batch_rows": 10**5}
    sampling = memory.sampling_bytes(shape, compute=Compute(**many), rows=10**5, row_tokens=row)
    assert (
        cost_of(rl(compute=many, num_problems=20_000)).memory
        == sampling + states - 4 * shape.num_parameters
    )
    # vLLM leaves the trainer's state what its share does not take.
    tight = COMPUTE | {"engine": "vllm", "gpu_memory_share": 0.95, "micro_batch_tokens": 256}
    assert cost_of(rl(compute=tight)).memory == pytest.approx(states / 0.05, rel=1e-6)
    vllm = Compute(**COMPUTE | {"engine": "vllm"})
    alone = memory.sampling_bytes(shape, compute=vllm, rows=10, row_tokens=row)
    assert workloads._sampling_memory(shape, vllm, 10, 60) == int(alone / 0.5)


def test_the_peak_of_rl_is_named_with_what_it_is_made_of():
    count = shape_of_stage(BASE).num_parameters
    assert cost_of(rl()).parts == Parts("training", state=18 * count, beside=16 * count)
    tight = COMPUTE | {"engine": "vllm", "gpu_memory_share": 0.95, "micro_batch_tokens": 256}
    parts = cost_of(rl(compute=tight)).parts
    assert (parts.peak, parts.beside) == (assumed.BESIDE_VLLM, 16 * count)
    assert 0 < parts.vllm < 18 * count
    both = Cost(memory=1, parts=Parts("a")) + Cost(memory=2, parts=Parts("b"))
    assert both.parts.peak == "b" == (both + Cost()).parts.peak


def test_a_benchmark_of_unknown_size_costs_what_is_assumed_and_says_so():
    known, unknown = cost_of(rl()), cost_of(rl(benchmarks={"a": 30, "b": 20, "window": None}))
    responses = 3 * 3 * assumed.WINDOW_SIZE  # three times, three to each
    assert unknown.sampled_most - known.sampled_most == responses * 60
    assert (known.unsized, unknown.unsized) == ((), ("window",))
    planned = PlannedNotebook("10_headline", "will run", "forced", None, (), {}, {}, unknown)
    (line,) = [each for each in describe([planned]).splitlines() if "window" in each]
    assert (
        line == f"Assumed to have {assumed.WINDOW_SIZE} problems, as no file says how many: window."
    )
    assert headline_pipeline.WINDOW_SIZE == assumed.WINDOW_SIZE


def test_a_model_whose_shape_nothing_says_is_named_and_not_guessed():
    model = Stage(
        "model", "klearlib.real.model:link_model", {"model": "org/teacher", "shape": None}
    )
    problems = Stage("world", "klearlib.miniature.world:build", {"num_train_problems": 7})
    stage = Stage(
        "responses",
        "klearlib.curation.responses:respond",
        {"num_responses": 3, "max_new_tokens": 100, "compute": COMPUTE},
        {"problems": problems, "model": model},
    )
    cost = cost_of(stage)
    assert (cost.sampled_most, cost.flops, cost.unknown) == (2100, 0, ("org/teacher",))


def test_costs_add_up_and_memory_is_the_largest():
    one = Cost(sampled=1, flops=2, gpu_s=3, memory=5, disk=7, scratch=1, unknown=("a",))
    two = Cost(sampled=10, trained=4, memory=3, scratch=9, unknown=("a", "b"))
    assert one + two == Cost(
        sampled=11, trained=4, flops=2, gpu_s=3, memory=5, disk=7, scratch=9, unknown=("a", "b")
    )


@pytest.mark.parametrize("profile", [name for name in profiles() if notebooks_of(name)])
def test_every_stage_of_every_notebook_has_a_cost(profile):
    """A kind of stage without a rule is a KeyError; a model that is used has a cost."""
    kinds = set()
    for notebook in notebooks_of(profile):
        for stage in stages_of(notebook, check(notebook, load_profile(profile, notebook))).values():
            cost = cost_of(stage)
            uses_a_model = bool({"compute", "cluster"} & stage.params.keys())
            assert uses_a_model == bool(cost.sampled or cost.trained), stage.title
            assert uses_a_model == (cost.gpu_s > 0 or bool(cost.unknown)), stage.title
            assert cost.sampled <= cost.sampled_most and cost.trained <= cost.trained_most
            kinds.add(stage.target)
    assert {"klearlib.rl.train:train_rl", "klearlib.scale.stage:train_rl"} & kinds
    assert kinds <= costs.RULES.keys()


def test_a_new_kind_of_stage_is_an_error():
    with pytest.raises(KeyError, match=r"klearlib\.new:stage"):
        cost_of(Stage("new", "klearlib.new:stage", {}))


def test_the_plan_adds_up_and_names_its_assumptions_once():
    def planned(name: str, cost: Cost | None, *missing: str) -> PlannedNotebook:
        return PlannedNotebook(name, "will run", "forced", None, missing, {}, {}, cost)

    text = describe(
        [
            planned(
                "05_clipping", Cost(sampled=2e6, sampled_most=5e6, flops=1e15, gpu_s=3600), "a GPU"
            ),
            planned(
                "06_alpha_sweep",
                Cost(sampled=1e6, sampled_most=2e6, flops=1e15, gpu_s=1800, unknown=("org/m",)),
            ),
            planned("00_overview", Cost()),
        ]
    )
    lines = text.splitlines()
    assert (
        lines[1].strip().startswith("samples 2.0 M tokens (at most 5.0 M), 1e+15 FLOP, 1 GPU hours")
    )
    assert lines[2].strip() == "missing: a GPU"
    (total,) = [line for line in lines if line.startswith("in all")]
    assert "samples 3.0 M tokens (at most 7.0 M), 2e+15 FLOP, 1.5 GPU hours" in total
    assert text.count(ASSUMED) == 1
    assert "no file says their shape: org/m" in lines[-1]


def test_the_table_of_the_page_is_what_the_plan_says():
    """docs/gpu.md and the README name what the profile gpu takes from nothing."""
    page = (REPOSITORY / "docs" / "gpu.md").read_text(encoding="utf-8")
    seen: set[str] = set()
    total = Cost()
    for notebook in notebooks_of("gpu"):
        stages = stages_of(notebook, check(notebook, load_profile("gpu", notebook)))
        mine = sum((cost_of(s) for d, s in stages.items() if d not in seen), Cost())
        seen |= stages.keys()
        total += mine
        if mine.gpu_s:
            assert f"\n| {notebook} | {table_row(mine)} |\n" in page
    assert f"\n| in all | {table_row(total)} |\n" in page
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert f"it takes {total.gpu_s / 3600:.2g} GPU hours of an H100" in readme
    assert total.gpu_s < 24 * 3600


def table_row(cost: Cost) -> str:
    words = in_words(cost)
    for before, after in (
        ("samples ", ""), (" tokens (at most ", " | "), ("), trains on ", " | "), ("), ", " | "),
        (" FLOP, ", " | "), (" GPU hours, ", " | "),
    ):  # fmt: skip
        words = words.replace(before, after)
    first, _, rest = words.partition("memory ")
    return first + rest.partition(", disk ")[2]
