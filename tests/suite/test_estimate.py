"""The costs of stages: numbers worked out by hand, and a rule for every kind of stage."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from functools import partial

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
    BESIDE_VLLM,
    TRAINING,
    VLLM,
    Cost,
    Setup,
    cost_of,
    model_of_stage,
    sampling,
    sampling_memory,
    setup_of_verl,
    training,
    training_memory,
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
    "eval_responses": 3,
    "benchmarks": {"a": 30, "b": 20},
    "num_validation": 25,
    "validation_responses": 2,
    "logp_old": "sampler",
    "half_cosine": False,
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
    assert model_of_stage(rl()) == (ModelShape(tie_word_embeddings=True, **MODEL), 200, "")
    assert SHAPE.forward_flops(context=0) == 2 * WEIGHTS
    # Each of 4 heads of 16 does 2 x 16 for scores and for values a token of context, in 2 layers.
    assert SHAPE.forward_flops(context=50) - 2 * WEIGHTS == 50 * 4 * (4 * 16) * 2


def test_pretraining_is_six_operations_a_weight_and_token():
    cost = cost_of(BASE)
    assert cost.trained_most == 10 * 8 * 200
    assert cost.trained == pytest.approx(cost.trained_most * estimate.EXAMPLE_SHARE)
    attention = 3 * cost.trained * 50 * 4 * 64 * 2  # 200 positions, half full, half of it behind
    assert cost.flops == pytest.approx(6 * WEIGHTS * cost.trained + attention)
    assert (cost.sampled, cost.disk, cost.scratch) == (0, 4 * COUNT, 2 * 12 * COUNT)
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
        assert cost_of(stage).trained_most == count * 4 * 200


def test_rl_samples_rollouts_and_evaluations_and_trains_on_the_rollouts():
    cost = cost_of(rl())
    rollouts = 4 * 40
    evaluated = 3 * (30 + 20) * 3 + 2 * 25 * 2  # before, at steps 2 and 4; validation at both ends
    assert cost.sampled_most == (rollouts + evaluated) * 60
    assert cost.sampled == cost.sampled_most * estimate.RESPONSE_SHARE
    assert cost.trained_most == rollouts * (estimate.PROMPT_TOKENS + 60)
    twice = cost_of(rl(logp_old="trainer"))
    trained = cost.trained * 2 * WEIGHTS
    assert twice.flops - cost.flops == pytest.approx(trained, rel=0.1)  # attention on top
    assert twice.flops > cost.flops + trained
    halves = cost_of(rl(half_cosine=True))
    assert halves.trained_most == 2 * cost.trained_most and halves.sampled == cost.sampled


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
    cost = cost_of(rl())
    assert (cost.memory, cost.peak) == (trained, TRAINING)
    assert (cost.state, cost.beside, cost.vllm) == (18 * COUNT, 16 * COUNT, 0)
    # Many rows at once: their cache beside gradients and AdamW, the weights counted once.
    many = COMPUTE | {"batch_rows": 10**5}
    sampled = memory.sampling_bytes(SHAPE, compute=Compute(**many), rows=10**5, row_tokens=row)
    assert cost_of(rl(many, num_problems=20_000)).memory == sampled + states - 4 * COUNT
    # vLLM leaves the trainer's state what its share does not take.
    cost = cost_of(rl(TIGHT))
    assert cost.memory == pytest.approx(states / 0.05, rel=1e-6)
    assert (cost.peak, cost.beside) == (BESIDE_VLLM, states) and 0 < cost.vllm < 18 * COUNT
    vllm = Compute(**COMPUTE | {"engine": "vllm"})
    alone = memory.sampling_bytes(SHAPE, compute=vllm, rows=10, row_tokens=row)
    found = sampling_memory(Setup(SHAPE, vllm), rows=10, budget=60)
    assert (found.memory, found.peak) == (int(alone / 0.5), VLLM)


def test_a_benchmark_of_unknown_size_costs_what_is_assumed_and_says_so():
    known, unknown = cost_of(rl()), cost_of(rl(benchmarks={"a": 30, "b": 20, "window": None}))
    responses = 3 * 3 * estimate.WINDOW_SIZE  # three times, three to each
    assert unknown.sampled_most - known.sampled_most == responses * 60
    assert (known.unsized, unknown.unsized) == ((), ("175 problems of window",))


def test_a_model_whose_shape_nothing_says_is_named_and_not_guessed():
    params = {"model": "org/teacher", "shape": None, "positions": 8}
    model = Stage("model", "klearlib.real.model:link_model", params)
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
    one = Cost(sampled=1, flops=2, gpu_s=3, memory=5, disk=7, scratch=1, peak="a", unknown=("a",))
    two = Cost(sampled=10, trained=4, memory=3, scratch=9, peak="b", vllm=2, unknown=("a", "b"))
    both = {"sampled": 11, "trained": 4, "flops": 2, "gpu_s": 3, "disk": 7, "scratch": 9}
    found = Cost(**both, memory=5, peak="a", unknown=("a", "b"))
    assert one + two == found == replace(two + one, unknown=("a", "b"))
    assert (found + Cost()) == found


@pytest.mark.parametrize("profile", [name for name in profiles() if notebooks_of(name)])
def test_every_stage_of_every_notebook_has_a_cost(profile):
    """A stage that computes with a model has a cost, and no other has one."""
    kinds = set()
    for notebook in notebooks_of(profile):
        for stage in stages_of(notebook, check(notebook, load_profile(profile, notebook))).values():
            cost = cost_of(stage)
            uses_a_model = bool({"compute", "cluster"} & stage.params.keys())
            assert uses_a_model == bool(cost.sampled or cost.trained), stage.title
            assert uses_a_model == (cost.gpu_s > 0 or bool(cost.unknown)), stage.title
            assert cost.sampled <= cost.sampled_most and cost.trained <= cost.trained_most
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
    for name in ("sampled", "sampled_most", "trained", "trained_most", "flops", "disk"):
        assert getattr(cost, name) == pytest.approx(getattr(local, name))
    # Weights, AdamW and a model, of the two that verl keeps and the one that it went on from.
    assert cost.scratch == 2 * (4 + 8 + 4) * COUNT
    assert (cost.nodes, cost.gpus, local.nodes, local.wall_s) == (1, 2, 0, 0.0)
    # All GPUs are taken as long as the run lasts.
    assert cost.gpu_s == pytest.approx(2 * cost.wall_s + estimate.STAGE_S)
    assert cost.wall_s > estimate.CLUSTER_S
    assert cost.memory == training_memory(setup_of_verl(SHAPE, cluster), row=160).memory
    both = cost + cost
    assert (both.wall_s, both.gpus, both.nodes) == (2 * cost.wall_s, 2, 1)


def test_each_engine_gets_its_part_of_the_responses():
    def sampled(rows: int, **changes) -> Cost:
        setup = setup_of_verl(LARGE, replace(PAPERS, **changes))
        return sampling(setup, calls=1, rows=rows, budget=1000)

    sixteen, one_more = sampled(16), sampled(17)
    assert sixteen.gpu_s == pytest.approx(16 * sixteen.wall_s)
    # 17 responses of 1,000 tokens: an engine has two of them, and samples them at once.
    assert one_more.sampled_most == 17_000
    assert sixteen.wall_s < one_more.wall_s < 1.1 * sixteen.wall_s
    # 8 billion weights in bf16 are read in about 5 ms, at half of the bandwidth in 10.
    assert 9.7 < sixteen.wall_s < 11
    # An engine of two GPUs reads half of the weights on each of them, both at once.
    over_two = sampled(8, tensor_parallel=2)
    assert over_two.wall_s == pytest.approx(sixteen.wall_s / 2)
    assert over_two.gpu_s == pytest.approx(16 * over_two.wall_s)
    # Starting the kernels takes as long on any number of them.
    waits = sampled(1, tensor_parallel=16).wall_s
    assert waits == pytest.approx(1000 * 36 * estimate.LAYER_STEP_S["vllm"])
    assert sampled(0) == Cost()


def test_training_takes_all_gpus_at_their_share_of_the_peak():
    def trained(nodes: int, tokens: float, longest: int, *, forward_again: bool = False) -> Cost:
        setup = setup_of_verl(LARGE, replace(PAPERS, nodes=nodes))
        how = {"tokens": tokens, "most": tokens, "longest": longest, "updates": 8.0}
        return training(setup, **how, forward_again=forward_again)

    few, many = trained(2, 1e9, 34816), trained(4, 1e9, 34816)
    assert few.flops == many.flops > 8 * LARGE.num_parameters * 0.9 * 1e9
    ideal = few.flops / 16 / estimate.GPU_FLOPS / estimate.TRAINING_SHARE
    assert ideal < few.wall_s < 1.1 * ideal
    assert many.wall_s == pytest.approx(few.wall_s / 2)
    # Each pass waits for its layers at least.
    little = trained(32, 1.0, 10, forward_again=True)
    assert little.wall_s == pytest.approx(8 * 36 * estimate.LAYER_PASS_S, rel=1e-3)


def test_memory_of_a_gpu_is_its_share_of_the_state_and_what_a_pass_holds():
    def needed(**changes) -> Cost:
        return training_memory(setup_of_verl(LARGE, replace(PAPERS, **changes)), row=34816)

    whole, need = 16 * LARGE.num_parameters, needed().memory
    assert (needed().state, needed().peak) == (whole // 16, TRAINING)
    layer = (LARGE.num_parameters - 2 * 151936 * 4096) // 36
    gathered = 2 * (2 * layer + 2 * 151936 * 4096)
    logits = 3 * 2 * 8704 * 151936
    kept = 4 * 4096 * 36 * 8704  # a checkpoint of each layer
    assert need > whole // 16 + gathered + logits + kept
    assert need - needed(nodes=4).memory == whole // 32
    assert need - needed(max_tokens_per_gpu=4352).memory > (logits + kept) // 2
    assert needed(attention="sdpa").memory - need > (estimate.PADDED - 1) * (logits + kept)
    compute = setup_of_verl(LARGE, PAPERS).compute
    of_a_layer = memory.layer_bytes_per_token(LARGE, compute=compute, row_tokens=8704)
    all_kept = needed(gradient_checkpointing=False).memory
    assert all_kept - need > 30 * 8704 * of_a_layer - kept


def test_memory_while_rollouts_are_sampled_beside_the_training():
    engine = 2 * (LARGE.num_parameters + 36 * 2 * 1024 * 34816)
    state = LARGE.num_parameters  # 16 bytes a parameter over 16 GPUs

    def needed(**changes) -> Cost:
        setup = setup_of_verl(LARGE, replace(PAPERS, **changes))
        return sampling_memory(setup, rows=256, budget=32768, in_training=True)

    alone = int(engine / 0.5)
    assert needed() == Cost(memory=alone, peak=VLLM, beside=state, vllm=engine)
    few = partial(needed, nodes=1, gpus_per_node=4)
    assert few() == Cost(memory=8 * state, peak=BESIDE_VLLM, beside=4 * state, vllm=engine)
    assert few(offload=True) == Cost(memory=alone, peak=VLLM, vllm=engine)
    assert math.isclose(few(gpu_memory_share=0.6).memory, 4 * state / 0.4)
