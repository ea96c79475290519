"""How verl computes: what is refused before anything starts, each in one line with the fix."""

from __future__ import annotations

import dataclasses

import pytest
from small_cluster import small_cluster

from klearlib import params
from klearlib.errors import ParameterError
from klearlib.params.fields import check_values
from klearlib.scale.cluster import OURS, Cluster

VALUES = dataclasses.asdict(small_cluster(nodes=2, gpus_per_node=4))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes": 0}, "nodes must be at least 1, got 0"),
        (
            {"gpus_per_node": "4"},
            "gpus_per_node must be an integer, got '4': a string",
        ),
        ({"tensor_parallel": 3}, "tensor_parallel 3 does not divide the 8 GPUs of 2 x 4: give a"),
        ({"sequence_parallel": 16}, "sequence_parallel 16 does not divide the 8 GPUs of 2 x 4"),
        ({"precision": "fp16"}, "precision must be one of ('fp32', 'bf16'), got 'fp16'"),
        ({"attention": "flash"}, "attention must be one of ('sdpa', 'eager', 'flash_attention_2')"),
        ({"gpu_memory_share": 1.0}, "gpu_memory_share must be above 0 and at most 0.95, got 1.0"),
        ({"offload": "yes"}, "offload must be true or false, got 'yes'"),
        ({"modules": "mine"}, "modules must be a list of strings, got 'mine': write [mine]"),
        ({"environment": {"OMP_NUM_THREADS": 1}}, "OMP_NUM_THREADS: 1 must be text: quote it"),
        ({"rollout": "mine"}, "rollout is 'mine' and no module registers it: give vllm or sglang"),
        ({"environment": {1: "a"}}, "environment: 1: 'a' must be text: quote it"),
        *(({"environment": {name: "x"}}, f"klear sets {name} itself") for name in OURS),
        ({"environment": []}, "environment must be a mapping"),
        ({"node": 2}, "unknown parameter 'node': did you mean 'nodes'?"),
    ],
)
def test_mistake_is_one_line_that_names_the_fix(changes, message):
    with pytest.raises(ParameterError) as caught:
        check_values(Cluster, VALUES | changes, "mini/compute.yaml")
    assert str(caught.value).startswith("mini/compute.yaml: ") and message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_field_has_a_default():
    for name in VALUES:
        with pytest.raises(ParameterError, match=f"x: {name} is missing"):
            check_values(Cluster, {k: v for k, v in VALUES.items() if k != name}, "x")


def test_further_modules_overrides_and_variables_may_be_none_or_some():
    some = {
        "rollout": "mine",
        "modules": ["mine.plugin"],
        "overrides": ["+ray_kwargs.ray_init.num_gpus=2", "~trainer.logger", "a={b:1}"],
        "environment": {"NCCL_DEBUG": "WARN"},
    }
    for each in (some, {"modules": [], "overrides": [], "environment": {}}):
        checked = dataclasses.asdict(check_values(Cluster, VALUES | each, "x"))
        assert checked == VALUES | each


def test_a_rollout_has_to_fit_into_one_pass():
    cluster = small_cluster(gpus_per_node=4, prompt_tokens=100, max_tokens_per_gpu=50)
    with pytest.raises(ParameterError, match=r"up to 160 tokens .* give max_tokens_per_gpu 160"):
        cluster.require_fits(max_new_tokens=60)
    over_two = dataclasses.replace(
        cluster, sequence_parallel=2, attention="flash_attention_2", max_tokens_per_gpu=80
    )
    over_two.require_fits(max_new_tokens=60)
    with pytest.raises(ParameterError, match="give max_tokens_per_gpu 81 or more"):
        over_two.require_fits(max_new_tokens=61)
    with pytest.raises(ParameterError, match="sequence_parallel 2 needs rows without padding"):
        dataclasses.replace(over_two, attention="sdpa").require_fits(max_new_tokens=60)


@pytest.mark.parametrize(
    ("overrides", "is_on_cpu"),
    [
        ([], False),
        (["trainer.device=cpu"], True),
        (["++trainer.device=cpu"], True),
        (["trainer.device=cpu", "trainer.device=cuda"], False),
        (["actor_rollout_ref.actor.fsdp_config.device=cpu"], False),
    ],
)
def test_training_on_cores_is_what_the_last_override_says(overrides, is_on_cpu):
    assert small_cluster(overrides=overrides).is_on_cpu is is_on_cpu


def with_verl() -> list[str]:
    """The profiles whose compute.yaml says how verl trains them."""
    files = (params.root() / "params").glob("*/compute.yaml")
    return sorted(file.parent.name for file in files if "\nverl:\n" in file.read_text())


@pytest.mark.parametrize("profile", with_verl())
def test_every_profile_has_a_cluster_that_holds_its_rollouts(profile):
    """Those of every world; and they fit into the positions that the worlds' models have."""
    from klearlib.experiments.origins import origin

    cluster = Cluster(**dataclasses.asdict(params.load(profile, params.VERL)))
    of = origin(profile)
    for each in (of.start("math"), of.start("code"), of.joint.params):
        budget = each.max_new_tokens
        cluster.require_fits(max_new_tokens=budget)
    if not params.is_real(profile):
        for world in ("miniature", "code_miniature", "joint_miniature"):
            world = params.load(profile, world)
            assert cluster.prompt_tokens + world.max_new_tokens <= world.max_positions
