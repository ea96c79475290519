"""The costs of stages: numbers worked out by hand, and a rule for every kind of stage."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from small_cluster import small_cluster

from klearlib.experiments.catalogue import check, notebooks_of, stages_of
from klearlib.params import load_profile, profiles
from klearlib.policy import memory
from klearlib.policy.compute import Compute, local_compute
from klearlib.policy.shape import ModelShape
from klearlib.run.stage import Stage
from klearlib.scale.cluster import parted
from klearlib.suite import estimate
from klearlib.suite.estimate import (
    RESPONSE_SHARE,
    Cost,
    Setup,
    cost_of,
    model_of_stage,
    sampling,
    sampling_memory,
    setup_of,
    training,
)

COMPUTE = asdict(local_compute("bf16", batch_rows=100, micro_batch_tokens=4096))
TIGHT = COMPUTE | {"engine": "vllm", "gpu_memory_share": 0.95, "micro_batch_tokens": 256}
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
LARGE = ModelShape(36, 4096, 32, 8, 128, 12288, 151936, False)
SETTINGS = {
    "num_steps": 4,
    "num_problems": 8,
    "group_size": 5,
    "mini_batch_problems": 4,
    "max_new_tokens": 60,
    "eval_every": 2,
    "validation_every": 0,
    "eval_responses": 3,
    "benchmarks": {"a": 30, "b": 20},
    "num_validation": 25,
    "validation_responses": 2,
    "logp_old": "sampler",
}
PAPERS = small_cluster(
    nodes=2,
    gpus_per_node=8,
    sequence_parallel=4,
    precision="bf16",
    attention="flash_attention_2",
    max_tokens_per_gpu=8704,
    prompt_tokens=2048,
    gradient_checkpointing=True,
)
BASE = Stage(
    "base",
    "klearlib.miniature.base:pretrain",
    {"num_steps": 10, "batch_size": 8, "max_positions": 200, "compute": COMPUTE, **MODEL},
)
SFT = Stage("sft", "klearlib.sft.train:train_sft", {}, {"base": BASE})
SHAPE = model_of_stage(BASE)[0]
COUNT = SHAPE.num_parameters


def rl(compute=COMPUTE, **changes) -> Stage:
    params = {"settings": SETTINGS | changes, "compute": compute}
    return Stage("rl", "klearlib.rl.train:train_rl", params, {"sft": SFT})


def rl_of_verl(cluster, **changes) -> Stage:
    what, resources = parted(cluster)
    params = {"settings": SETTINGS | changes, "cluster": what}
    placing = {"resources": resources}
    return Stage("rl", "klearlib.scale.stage:train_rl", params, {"sft": SFT}, placing=placing)


def test_the_shape_comes_from_what_made_the_model():
    assert model_of_stage(rl()) == (ModelShape(tie_word_embeddings=True, **MODEL), 200)
    assert SHAPE.forward_flops(context=0) == 2 * WEIGHTS
    # Each of 4 heads of 16 does 2 x 16 for scores and for values a token of context, in 2 layers.
    assert SHAPE.forward_flops(context=50) - 2 * WEIGHTS == 50 * 4 * (4 * 16) * 2


def test_pretraining_is_six_operations_a_weight_and_token():
    cost = cost_of(BASE)
    assert cost.trained == pytest.approx(10 * 8 * 200 * estimate.EXAMPLE_SHARE)
    attention = 3 * cost.trained * 50 * 4 * 64 * 2  # 200 positions, half full, half of it behind
    assert cost.flops == pytest.approx(6 * WEIGHTS * cost.trained + attention)
    assert cost.sampled == 0
    again = COMPUTE | {"gradient_checkpointing": True}
    again = Stage("base", BASE.target, BASE.params | {"compute": again})
    assert cost_of(again).flops == pytest.approx(cost.flops * 4 / 3)


def test_epochs_of_chosen_examples():
    selections = [Stage("s", "klearlib.curation.select:select", {"size": n}) for n in (30, 12)]
    world = Stage("w", "klearlib.miniature.joint:build", {"sft_long_maths": 8})
    inputs = {"1": selections[0], "2": selections[1], "world": world}
    combined = Stage("c", "klearlib.curation.combine:combine", {}, inputs)
    params = {"num_epochs": 4, "batch_size": 2, "compute": COMPUTE}
    for examples, count in ((selections[0], 30), (combined, 50)):
        stage = Stage("sft", SFT.target, params, {"base": BASE, "examples": examples})
        assert cost_of(stage).trained == pytest.approx(count * 4 * 200 * estimate.EXAMPLE_SHARE)


def test_rl_samples_rollouts_and_evaluations_and_trains_on_the_rollouts():
    cost = cost_of(rl())
    rollouts = 4 * 40
    evaluated = 3 * (30 + 20) * 3 + 2 * 25 * 2  # before, at steps 2 and 4; validation at both ends
    assert cost.sampled == (rollouts + evaluated) * 60 * RESPONSE_SHARE
    assert cost.trained == rollouts * (estimate.PROMPT_TOKENS + 60 * RESPONSE_SHARE)
    twice = cost_of(rl(logp_old="trainer"))
    trained = cost.trained * 2 * WEIGHTS
    assert twice.flops - cost.flops == pytest.approx(trained, rel=0.1)  # attention on top
    assert twice.flops > cost.flops + trained


def test_sampling_takes_what_reading_or_starting_kernels_takes():
    def seconds(shape: ModelShape, rows: int, **how) -> float:
        setup = Setup(shape, Compute(**COMPUTE | how))
        return sampling(setup, calls=1, rows=rows, budget=1000).gpu_s

    # A small model waits for its kernels: 1,000 steps of 2 layers, once for 100 rows.
    assert seconds(SHAPE, 100) == pytest.approx(1000 * 2 * 6e-4)
    assert seconds(SHAPE, 101) == pytest.approx(2 * 1000 * 2 * 6e-4)
    assert seconds(SHAPE, 100, engine="vllm") == pytest.approx(1000 * 2 * 5e-5)
    # 8 billion weights in bf16 are read in about 5 ms at the data sheet's bandwidth.
    assert LARGE.num_parameters == 8_190_735_360
    step = seconds(LARGE, 1, engine="vllm", batch_rows=1) / 1000
    assert 2 * LARGE.num_parameters / 3.35e12 < step < 4 * LARGE.num_parameters / 3.35e12 * 1.2


def test_memory_of_rl_is_that_of_training_or_of_sampling_beside_its_states():
    row, states = estimate.PROMPT_TOKENS + 60, 16 * COUNT
    held = memory.activation_bytes(SHAPE, compute=Compute(**COMPUTE), tokens=4096, row_tokens=row)
    trained = memory.state_bytes(SHAPE.num_parameters, precision=COMPUTE["precision"]) + held
    assert cost_of(rl()).memory == trained
    # Many rows at once: their cache beside gradients and AdamW, the weights counted once.
    many = COMPUTE | {"batch_rows": 10**5}
    how = {"rows": 10**5, "row_tokens": row, "trained": True}
    sampled = memory.sampling_bytes(SHAPE, compute=Compute(**many), **how)
    assert cost_of(rl(many, num_problems=20_000)).memory == sampled + states - 4 * COUNT
    # vLLM leaves the trainer's state what its share does not take.
    assert cost_of(rl(TIGHT)).memory == pytest.approx(states / 0.05, rel=1e-6)
    vllm = Compute(**COMPUTE | {"engine": "vllm"})
    alone = memory.sampling_bytes(SHAPE, compute=vllm, rows=10, row_tokens=row)
    assert sampling_memory(Setup(SHAPE, vllm), rows=10, budget=60) == int(alone / 0.5)


def test_a_benchmark_of_unknown_size_costs_what_is_assumed():
    known, unknown = cost_of(rl()), cost_of(rl(benchmarks={"a": 30, "b": 20, "window": None}))
    responses = 3 * 3 * estimate.WINDOW_SIZE  # three times, three to each
    assert unknown.sampled - known.sampled == responses * 60 * RESPONSE_SHARE


def test_costs_add_up_and_memory_is_the_largest():
    one = Cost(sampled=1, flops=2, gpu_s=3, memory=5)
    two = Cost(sampled=10, trained=4, memory=3)
    both = Cost(sampled=11, trained=4, flops=2, gpu_s=3, memory=5)
    assert one + two == two + one == both == both + Cost()


@pytest.mark.parametrize("profile", [name for name in profiles() if notebooks_of(name)])
def test_every_stage_of_every_notebook_has_a_cost(profile):
    """A stage that computes with a model has a cost, and no other has one."""
    kinds = set()
    for notebook in notebooks_of(profile):
        for stage in stages_of(notebook, check(notebook, load_profile(profile, notebook))).values():
            cost = cost_of(stage)
            uses_a_model = bool({"compute", "cluster"} & stage.params.keys())
            assert uses_a_model == bool(cost.sampled or cost.trained), stage.title
            assert uses_a_model == (cost.gpu_s > 0), stage.title
            kinds |= {stage.target} if uses_a_model else set()
    assert {"klearlib.rl.train:train_rl", "klearlib.scale.stage:train_rl"} & kinds
    assert kinds <= estimate.RULES.keys()


def test_a_new_kind_of_stage_with_a_model_is_an_error():
    with pytest.raises(KeyError, match=r"klearlib\.new:stage"):
        cost_of(Stage("new", "klearlib.new:stage", {"compute": COMPUTE}))


def test_a_run_of_verl_has_the_tokens_of_a_local_one_and_its_gpus_work_at_once():
    cluster = small_cluster(gpus_per_node=2)
    local = cost_of(rl(asdict(local_compute(engine="vllm", batch_rows=256))))
    cost = cost_of(rl_of_verl(cluster))
    for name in ("sampled", "trained", "flops"):
        assert getattr(cost, name) == pytest.approx(getattr(local, name))
    assert cost.gpu_s > 2 * estimate.CLUSTER_S and cost.memory == 0


def test_each_engine_gets_its_part_of_the_responses():
    def seconds(rows: int, **changes) -> float:
        setup = replace(setup_of(rl_of_verl(replace(PAPERS, **changes))), shape=LARGE)
        return sampling(setup, calls=1, rows=rows, budget=1000).gpu_s / 16

    # 17 responses of 1,000 tokens: an engine has two of them, and samples them at once.
    assert seconds(16) < seconds(17) < 1.1 * seconds(16)
    # 8 billion weights in bf16 are read in about 5 ms, at half of the bandwidth in 10.
    assert 9.7 < seconds(16) < 11
    # An engine of two GPUs reads half of the weights on each of them, both at once.
    assert seconds(8, tensor_parallel=2) == pytest.approx(seconds(16) / 2)
    # Starting the kernels takes as long on any number of them.
    waits = 1000 * 36 * estimate.LAYER_STEP_S["vllm"]
    assert seconds(1, tensor_parallel=16) == pytest.approx(waits)
    assert seconds(0) == 0


def test_training_takes_all_gpus_at_their_share_of_the_peak():
    def trained(nodes: int, tokens: float, longest: int, *, forward_again: bool = False) -> Cost:
        setup = replace(setup_of(rl_of_verl(replace(PAPERS, nodes=nodes))), shape=LARGE)
        how = {"tokens": tokens, "longest": longest, "updates": 8.0}
        return training(setup, **how, forward_again=forward_again)

    few, many = trained(2, 1e9, 34816), trained(4, 1e9, 34816)
    assert few.flops == many.flops > 8 * LARGE.num_parameters * 0.9 * 1e9
    ideal = few.flops / estimate.GPU_FLOPS / estimate.TRAINING_SHARE
    assert ideal < few.gpu_s < 1.1 * ideal and many.gpu_s == pytest.approx(few.gpu_s)
    # Each pass waits for its layers at least.
    little = trained(32, 1.0, 10, forward_again=True)
    assert little.gpu_s == pytest.approx(256 * 8 * 36 * estimate.LAYER_PASS_S, rel=1e-3)
