"""The costs of the RL runs of verl, worked out by hand, and what keeps them from finishing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from klearlib.experiments import rl_stages
from klearlib.experiments.catalogue import stages_of
from klearlib.params import check, load_profile, notebooks_of
from klearlib.policy import memory
from klearlib.policy.compute import local_compute
from klearlib.policy.shape import ModelShape
from klearlib.run import cost as assumed
from klearlib.run import notebooks, sharded, weighing
from klearlib.run.cluster_refusals import refusals_of_clusters
from klearlib.run.cost import BESIDE_VLLM, TRAINING, Cost, Parts
from klearlib.run.costs import cost_of, shape_of_stage
from klearlib.run.machine import Machine, this_machine
from klearlib.run.notebooks import plan
from klearlib.run.planned import ASSUMED_OF_VERL, PlannedNotebook, describe, in_words
from klearlib.run.refusals import refusals
from klearlib.run.stage import Stage
from klearlib.scale.cluster import parted, small_cluster
from klearlib.scale.require import INSTALL_RAY, INSTALL_VERL

GB = 10**9
SHAPE = {
    "vocab_size": 1000,
    "hidden_size": 64,
    "num_layers": 2,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
}
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
SERVER = Machine(
    gpus=(80 * GB, 80 * GB),
    torch_without_cuda=False,
    memory=500 * GB,
    cores=32,
    free_disk=1000 * GB,
    packages=frozenset({"vllm", "flash-attn", "verl", "ray"}),
)
LAPTOP = Machine((), False, 8 * GB, 2, 20 * GB, SERVER.packages)
NONE = "verl and Ray are not installed"


def rl(target: str = "klearlib.scale.stage:train_rl", cluster=None, **changes) -> Stage:
    base = Stage(
        "base",
        "klearlib.miniature.base:pretrain",
        {"num_steps": 10, "batch_size": 8, "max_positions": 200, "compute": {}, **SHAPE},
    )
    sft = Stage("sft", "klearlib.sft.train:train_sft", {}, {"base": base})
    what, resources = parted(cluster or small_cluster(gpus_per_node=2))
    params = {"settings": SETTINGS | changes, "cluster": what}
    return Stage("rl", target, params, {"sft": sft}, placing={"resources": resources})


def test_tokens_are_those_of_a_local_run_and_the_gpus_work_at_once():
    compute = {
        "engine": "vllm",
        "precision": "fp32",
        "attention": "sdpa",
        "batch_rows": 256,
        "micro_batch_tokens": 16384,
        "pack_tokens": None,
        "gradient_checkpointing": False,
        "tensor_parallel": 1,
        "gpu_memory_share": 0.5,
    }
    stage = rl()
    local = cost_of(
        Stage(
            "rl",
            "klearlib.rl.train:train_rl",
            {"settings": SETTINGS, "compute": compute},
            stage.inputs,
        )
    )
    cost = cost_of(stage)
    assert cost.sampled == pytest.approx(local.sampled)
    assert cost.sampled_most == pytest.approx(local.sampled_most)
    assert (cost.trained, cost.trained_most) == (local.trained, local.trained_most)
    assert cost.flops == pytest.approx(local.flops)
    assert cost.disk == local.disk
    # Weights, AdamW and a model, of the two that verl keeps and the one that it went on from.
    assert cost.scratch == 2 * (4 + 8 + 4) * shape_of_stage(stage).num_parameters
    assert (cost.nodes, cost.gpus, local.nodes, local.wall_s) == (1, 2, 0, 0.0)
    # All GPUs are taken as long as the run lasts.
    assert cost.gpu_s == pytest.approx(2 * cost.wall_s + assumed.STAGE_S)
    assert cost.wall_s > assumed.CLUSTER_S


def test_each_engine_gets_its_part_of_the_responses():
    def sampled(rows: int, **changes) -> Cost:
        cluster = replace(PAPERS, **changes)
        return sharded.sampling_on_cluster(LARGE, cluster, calls=1, rows=rows, budget=1000)

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
    assert waits == pytest.approx(1000 * 36 * assumed.LAYER_STEP_S["vllm"])
    assert sampled(0) == Cost()


def test_training_takes_all_gpus_at_their_share_of_the_peak():
    def trained(cluster) -> Cost:
        how = {"tokens": 1e9, "longest": 34816, "updates": 8.0, "forward_again": False}
        return sharded.training_on_cluster(LARGE, cluster, **how)

    few, many = trained(PAPERS), trained(replace(PAPERS, nodes=4))
    assert few.flops == many.flops > 8 * LARGE.num_parameters * 0.9 * 1e9
    ideal = few.flops / 16 / assumed.GPU_FLOPS / assumed.TRAINING_SHARE
    assert ideal < few.wall_s < 1.1 * ideal
    assert many.wall_s == pytest.approx(few.wall_s / 2)
    # Each pass waits for its layers at least.
    tiny = replace(PAPERS, nodes=32)
    little = sharded.training_on_cluster(
        LARGE, tiny, tokens=1.0, longest=10, updates=8.0, forward_again=True
    )
    assert little.wall_s == pytest.approx(8 * 36 * assumed.LAYER_PASS_S, rel=1e-3)


def test_memory_of_a_gpu_is_its_share_of_the_state_and_what_a_pass_holds():
    whole = 16 * LARGE.num_parameters
    need, parts = sharded.training_memory(LARGE, PAPERS)
    assert parts == Parts(TRAINING, state=whole // 16)
    layer = (LARGE.num_parameters - 2 * 151936 * 4096) // 36
    gathered = 2 * (2 * layer + 2 * 151936 * 4096)
    logits = 3 * 2 * 8704 * 151936
    kept = 4 * 4096 * 36 * 8704  # a checkpoint of each layer
    assert need > whole // 16 + gathered + logits + kept
    doubled, _ = sharded.training_memory(LARGE, replace(PAPERS, nodes=4))
    assert need - doubled == whole // 32
    shorter, _ = sharded.training_memory(LARGE, replace(PAPERS, max_tokens_per_gpu=4352))
    assert need - shorter > (logits + kept) // 2
    padded, _ = sharded.training_memory(LARGE, replace(PAPERS, attention="sdpa"))
    assert padded - need > (assumed.PADDED - 1) * (logits + kept)
    all_kept, _ = sharded.training_memory(LARGE, replace(PAPERS, gradient_checkpointing=False))
    compute = sharded._compute(PAPERS)
    of_a_layer = memory.layer_bytes_per_token(LARGE, compute=compute, row_tokens=8704)
    assert all_kept - need > 30 * 8704 * of_a_layer - kept


def test_memory_while_rollouts_are_sampled_beside_the_training():
    beside = sharded.memory_beside_rollouts(LARGE, PAPERS, budget=32768)
    engine = 2 * (LARGE.num_parameters + 36 * 2 * 1024 * 34816)
    state = LARGE.num_parameters  # 16 bytes a parameter over 16 GPUs
    assert beside.memory == pytest.approx(engine / 0.5)
    assert beside.parts == Parts(BESIDE_VLLM, state=state, beside=state, vllm=engine)
    few = replace(PAPERS, nodes=1, gpus_per_node=4)
    assert sharded.memory_beside_rollouts(LARGE, few, budget=32768).memory == 8 * state
    away = sharded.memory_beside_rollouts(LARGE, replace(few, offload=True), budget=32768)
    assert (away.memory, away.parts.beside) == (beside.memory, 0)


def test_a_run_is_in_words_and_the_plan_names_what_it_assumes():
    cost = cost_of(rl())
    assert f"of these verl {cost.wall_s / 3600:.2g} hours on 1 node of 2 GPUs" in in_words(cost)
    assert "on 32 nodes of 8 GPUs" in in_words(Cost(nodes=32, gpus=256))
    (shape,) = {shape_of_stage(rl())}
    assert cost.memory == sharded.training_memory(shape, small_cluster(gpus_per_node=2))[0]

    def described(cost: Cost) -> str:
        planned = PlannedNotebook("05_clipping", "will run", "forced", None, (), {}, {}, cost)
        return describe([planned])

    assert described(cost).count(ASSUMED_OF_VERL) == 1
    assert "verl" not in described(Cost(gpu_s=1.0, flops=1.0))
    both = cost + cost
    assert (both.wall_s, both.gpus, both.nodes) == (2 * cost.wall_s, 2, 1)


def test_the_table_of_the_page_is_what_the_plan_says():
    page = (Path(__file__).resolve().parents[2] / "docs" / "cluster.md").read_text()
    stages = {}
    for notebook in notebooks_of("paper"):
        stages |= stages_of(notebook, check(notebook, load_profile("paper", notebook)))
    runs = [stage for stage in stages.values() if "cluster" in stage.params]
    for nodes in (1, 4, 8, 32):
        total = Cost()
        for run in runs:
            resources = run.placing["resources"] | {"nodes": nodes}
            total += cost_of(replace(run, placing={"resources": resources}))
        days, memory = total.wall_s / 86400, total.memory / GB
        numbers = f"{total.gpu_s / 3600:,.0f} | {days:.0f} | {memory:.0f} GB |"
        (row,) = [line for line in page.splitlines() if line.startswith(f"| {nodes} ")]
        assert row.endswith(numbers), numbers


def test_what_the_paper_needs_is_the_same_in_the_plan_and_on_the_pages():
    stages = {}
    for notebook in notebooks_of("paper"):
        stages |= stages_of(notebook, check(notebook, load_profile("paper", notebook)))
    most, total = {}, Cost()
    for stage in stages.values():
        cost = cost_of(stage)
        total += cost
        most[stage.name] = max(most.get(stage.name, 0), round(cost.memory / GB))
    assert all(
        stage.params["compute"]["engine"] == "transformers"
        for stage in stages.values()
        if "compute" in stage.params
    )
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs" / "gpu.md").read_text()
    comment = (root / "params" / "paper" / "compute.yaml").read_text()
    for name in ("responses", "evaluate", "sft"):
        assert f"{most[name]} GB" in page and f"{most[name]} GB" in comment
    hours, disk = total.gpu_s / 3600, (total.disk + total.scratch) / GB
    assert f"| {round(hours, -2):,.0f}, of which" in page and f"| {disk:.0f} GB, two" in page


def said(cluster, machine: Machine, cost: Cost | None = None) -> list[str]:
    return refusals_of_clusters("paper", [cluster], [cost or Cost(memory=40 * GB)], machine)


TWO = small_cluster(gpus_per_node=2)


def test_a_machine_that_has_all_is_not_refused():
    assert said(TWO, SERVER) == []
    assert said(replace(PAPERS, nodes=32), replace(LAPTOP, ray_address="head:6379")) == []
    assert refusals_of_clusters("paper", [], [], LAPTOP) == []


@pytest.mark.parametrize(
    ("cluster", "machine", "line"),
    [
        (
            TWO,
            replace(SERVER, verl_lacks=NONE),
            f"verl and Ray are not installed: {INSTALL_VERL}",
        ),
        (
            TWO,
            replace(LAPTOP, verl_lacks="verl is 0.8.0", ray_address="head:6379"),
            "verl is 0.8.0: ",
        ),
        (PAPERS, SERVER, "has 2 nodes and RAY_ADDRESS names no Ray cluster: start Ray"),
        (small_cluster(gpus_per_node=4), SERVER, "has 4 GPUs on a node and 2 can be used here"),
        (TWO, LAPTOP, "has 2 GPUs on a node and none can be used here: use a machine that"),
        (replace(TWO, rollout="sglang"), SERVER, "sglang is not installed, which samples for verl"),
        (
            replace(TWO, attention="flash_attention_2"),
            replace(SERVER, packages=SERVER.packages - {"flash-attn"}),
            "flash attention is not installed: pip install flash-attn",
        ),
        # The nodes of a cluster have the environment of this machine.
        (
            replace(PAPERS, rollout="sglang"),
            replace(LAPTOP, ray_address="head:6379"),
            "sglang is not installed, which samples for verl",
        ),
        # Nodes are not made of cores either.
        (
            replace(TWO, nodes=2, overrides=["trainer.device=cpu"]),
            LAPTOP,
            "has 2 nodes and RAY_ADDRESS names no Ray cluster: start Ray",
        ),
    ],
)
def test_each_lack_is_one_line_that_says_what_to_do(cluster, machine, line):
    (found,) = said(cluster, machine)
    assert line in found and "\n" not in found and ":" in found


@pytest.mark.parametrize(
    ("parts", "changes", "helps", "does_not"),
    [
        (Parts(TRAINING, state=90 * GB), {}, "which no setting lowers: use more", " set "),
        (
            Parts(TRAINING, state=40 * GB),
            {},
            "set gradient_checkpointing: true or a smaller max_tokens_per_gpu",
            "offload",
        ),
        (
            Parts(TRAINING, state=40 * GB),
            {"gradient_checkpointing": True},
            "set a smaller max_tokens_per_gpu with a larger sequence_parallel in",
            "checkpointing",
        ),
        (
            Parts(BESIDE_VLLM, state=30 * GB, beside=30 * GB, vllm=20 * GB),
            {},
            "gpu_memory_share from 0.25 to 0.62 or offload: true",
            "checkpointing",
        ),
        (
            Parts(BESIDE_VLLM, state=30 * GB, beside=0, vllm=70 * GB),
            {"offload": True},
            "gpu_memory_share from 0.88 to 0.95 or a larger tensor_parallel in",
            "offload",
        ),
    ],
)
def test_what_does_not_fit_names_the_settings_that_help(parts, changes, helps, does_not):
    cost = Cost(memory=100 * GB, parts=parts)
    (line,) = said(replace(TWO, **changes), SERVER, cost)
    assert "about 100 GB of each GPU and a GPU here has 80 GB; " in line
    assert helps in line and does_not not in line


def test_what_is_offloaded_has_to_fit_into_the_machine():
    cost = Cost(memory=40 * GB, parts=Parts(BESIDE_VLLM, state=300 * GB, vllm=20 * GB))
    away = replace(TWO, offload=True)
    (line,) = said(away, SERVER, cost)
    assert "keeps 600 GB in the memory of a node and 500 GB are free here" in line
    assert said(TWO, SERVER, cost) == []


def test_training_on_cores_needs_no_gpu_but_time():
    """As tests do: overrides that put verl on a CPU, where a resource stands for its GPUs."""
    on_cores = small_cluster(
        gpus_per_node=2, rollout="mine", modules=["mine"], overrides=["trainer.device=cpu"]
    )
    assert said(on_cores, LAPTOP, Cost(memory=100 * GB)) == []
    cost = replace(Cost(nodes=1, gpus=2), flops=1e18)
    (line,) = refusals("mini", [], [cost], LAPTOP, workers=1, clusters=[on_cores])
    assert "2 cores would take about 289 days" in line
    assert refusals("mini", [], [replace(cost, flops=1e12)], LAPTOP, workers=1) == []


def test_runs_of_verl_are_no_stages_of_this_machine():
    """Neither its memory nor its time is compared with what a run of verl takes of a cluster."""
    far = replace(LAPTOP, ray_address="head:6379")
    cost = Cost(flops=1e22, gpu_s=1e6, memory=70 * GB, nodes=32, gpus=256)
    assert refusals("paper", [], [cost], far, workers=1, clusters=[PAPERS]) == []


def test_packages_are_named_beside_the_gpus_that_are_missing():
    bare = replace(LAPTOP, packages=frozenset({"verl", "ray"}))
    gpus, engine = said(TWO, bare), "vllm is not installed, which samples for verl"
    assert len(gpus) == 2 and engine in gpus[0] and "none can be used here" in gpus[1]


def paper_lines(monkeypatch, machine: Machine, **changes) -> list[str]:
    monkeypatch.setattr(weighing, "this_machine", lambda folder: machine)
    planned = plan("paper", ["08"], force=True)
    planned = [replace(each, values=each.values | changes) for each in planned]
    return [line for each in weighing.weighed("paper", planned) for line in each.missing]


def test_where_verl_trains_nobody_is_told_to_install_our_vllm(monkeypatch):
    """One environment holds either: the profile that takes verl samples by transformers."""
    bare = replace(LAPTOP, packages=frozenset(), verl_lacks=NONE)
    assert not [each for each in paper_lines(monkeypatch, bare) if "vLLM" in each]
    ours = local_compute("bf16", engine="vllm")
    for machine, clusters in (
        (replace(SERVER, packages=frozenset({"verl", "ray"})), []),
        (replace(bare, gpus=SERVER.gpus), [TWO]),
    ):
        lines = refusals("qwen", [ours], [], machine, workers=1, clusters=clusters)
        (line,) = [each for each in lines if "vLLM" in each]
        assert "pip install" not in line
        assert line.endswith(
            "does not fit beside verl into one environment: set engine: transformers in "
            "params/qwen/compute.yaml"
        )


def test_verl_and_workers_on_ray_are_one_lack(monkeypatch):
    bare = replace(LAPTOP, verl_lacks=NONE, packages=frozenset({"vllm", "flash-attn"}))

    def about_ray(**changes) -> list[str]:
        lines = paper_lines(monkeypatch, bare, workers="ray", **changes)
        return [each for each in lines if "installed" in each]

    (line,) = about_ray()
    assert line.startswith(f"{NONE}: {INSTALL_VERL}")
    (line,) = about_ray(engine="local")
    assert line == f"Ray is not installed: {INSTALL_RAY}"


def test_rollouts_longer_than_the_models_positions_are_refused(monkeypatch):
    def too_long(prompt_tokens: int, rollout: str) -> list[str]:
        """Where the model has 200 positions, and the budget is 60."""
        changes = {"prompt_tokens": prompt_tokens, "rollout": rollout}
        return weighing._too_long("mini", rl(cluster=small_cluster(**changes)))

    assert too_long(140, "vllm") == too_long(139, "sglang") == ""
    for prompt_tokens, rollout in ((141, "vllm"), (140, "sglang")):
        assert too_long(prompt_tokens, rollout) == (
            f"params/mini/verl.yaml: prompt_tokens {prompt_tokens} and max_new_tokens 60 need 201 "
            f"positions with {rollout}, the model has 200: lower one of them"
        )
    real = small_cluster()
    monkeypatch.setattr(rl_stages, "cluster_of", lambda name: replace(real, prompt_tokens=4000))
    planned = plan("mini", ["05"], force=True)
    planned = [replace(each, values=each.values | {"engine": "verl"}) for each in planned]
    lines = [line for each in weighing.weighed("mini", planned) for line in each.missing]
    assert len([line for line in lines if "positions with vllm" in line]) == 1


def test_notebooks_of_verl_come_one_after_the_other(monkeypatch):
    monkeypatch.setattr(notebooks, "gpus", list)
    monkeypatch.setattr(notebooks, "num_cores", lambda: 4)
    planned = [
        PlannedNotebook(name, "will run", "forced", None, (), values, {})
        for name, values in (
            ("01", {}),
            ("05", {"engine": "local"}),
            ("06", {"engine": "verl"}),
        )
    ]
    assert notebooks.num_jobs(planned[:2]) == 2
    assert notebooks.num_jobs(planned) == 1


def test_plan_and_run_of_the_paper_say_the_same(monkeypatch, capsys):
    from klearlib import cli

    monkeypatch.setattr(weighing, "this_machine", lambda folder: LAPTOP)
    planned = weighing.weighed("paper", plan("paper", ["05"], force=True))
    lines = [line for each in planned for line in each.missing]
    (line,) = [each for each in lines if "nodes" in each]
    assert "params/paper/verl.yaml has 32 nodes and RAY_ADDRESS" in line
    # RL is not a stage of one card any more.
    assert not [each for each in lines if "of GPU memory" in each or "days" in each]
    assert cli.main(["run", "--profile", "paper", "--only", "05"]) == 1
    assert line in capsys.readouterr().err


def test_the_ray_that_is_joined_is_that_of_the_standard_variable(monkeypatch, tmp_path):
    for value, found in ((None, ""), ("", ""), ("local", ""), ("head:6379", "head:6379")):
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        if value is not None:
            monkeypatch.setenv("RAY_ADDRESS", value)
        assert this_machine(tmp_path).ray_address == found
