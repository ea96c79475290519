"""Which of verl's keys hold a setting of the run or a field of the cluster, and what verl makes of
them: the optimiser, the learning rate, the rule."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch
from composed import GPPO, composed, lines
from hydra.core.override_parser.overrides_parser import OverridesParser
from rollout_fakes import settings
from small_cluster import small_cluster
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.config.optimizer import build_optimizer
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

from klearlib.rl.rule_specs import rule_from
from klearlib.rl.schedule import learning_rate
from klearlib.rl.settings import RLSettings
from klearlib.scale.cluster import Cluster
from klearlib.scale.policy_losses import NORMALIZERS, rule_of

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


def told(model, **changes) -> dict:
    """The value of each override, by its key."""
    parsed = OverridesParser.create().parse_overrides(lines(model, **changes))
    return {each.key_or_group: each.value() for each in parsed}


def both(value, *keys) -> tuple:
    """`value`, and that each of `keys` must have it."""
    return value, dict.fromkeys(keys, value)


# A value that no other test has, and the keys of verl's that must have it.
MAPPED_SETTINGS = {
    "num_steps": (7, {"trainer.total_training_steps": 7}),
    "num_problems": (11, {"data.train_batch_size": 11}),
    "group_size": (5, {f"{ROLLOUT}.n": 5}),
    "mini_batch_problems": (3, {f"{ACTOR}.ppo_mini_batch_size": 3}),
    "learning_rate": (3e-7, {f"{ACTOR}.optim.lr": 3e-7}),
    "alpha": (0.3, {f"{ACTOR}.policy_loss.alpha": 0.3}),
    "max_new_tokens": (
        37,
        {
            "data.max_response_length": 37,
            f"{ROLLOUT}.response_length": 37,
            f"{ROLLOUT}.max_model_len": 165,
        },
    ),
    "temperature": (0.7, {f"{ROLLOUT}.temperature": 0.7}),
    "normalizer": ("sequence", {f"{ACTOR}.loss_agg_mode": "seq-mean-token-mean"}),
    "log_ratio_clamp": (15.0, {f"{ACTOR}.policy_loss.log_ratio_clamp": 15.0}),
    "warmup_steps": (4, {f"{ACTOR}.optim.lr_warmup_steps": 5}),
    "adam_beta1": (0.8, {f"{ACTOR}.optim.betas": [0.8, 0.999]}),
    "adam_beta2": (0.95, {f"{ACTOR}.optim.betas": [0.9, 0.95]}),
    "weight_decay": (0.05, {f"{ACTOR}.optim.weight_decay": 0.05}),
    "max_grad_norm": both(0.5, f"{ACTOR}.optim.clip_grad", f"{ACTOR}.grad_clip"),
}
# verl knows none of them.
OF_OUR_TRAINER = {
    *("think_tags", "answer_form", "truncated", "reward_function"),
    *("format_scores", "format_penalty", "code_reward", "code_scores", "hard_failure"),
    *("max_tests", "test_timeout_s", "test_memory_mb"),
    *("eval_every", "eval_responses", "validation_responses", "num_validation"),
    *("benchmarks", "deciding", "group_std", "group_epsilon", "zero_advantage_filter"),
    *("positives", "drop_truncated", "logp_old", "sampler_correction"),
    *("checkpoint_every", "steps_before"),
}
# Refused where verl trains, see `klearlib.scale.cluster.require_own_parts`.
OF_OUR_LOOP = {"policy_lag", "warmup_updates", "validation_every", "corner_gradients"}
# mini_batch, by which verl computes; see rl_arm
OF_OUR_CUTS = {"loss_denominator", "lm_normalizer"}


def test_no_setting_is_forgotten():
    kinds = [set(MAPPED_SETTINGS), OF_OUR_TRAINER, OF_OUR_CUTS, OF_OUR_LOOP]
    assert sum(map(len, kinds)) == len(set.union(*kinds))
    assert set.union(*kinds) == {field.name for field in dataclasses.fields(RLSettings)}


@pytest.mark.parametrize("name", MAPPED_SETTINGS)
def test_a_setting_reaches_verl(model, name):
    value, keys = MAPPED_SETTINGS[name]
    before, after = told(model), told(model, settings=settings(**{name: value}))
    assert {key: after[key] for key in keys} == keys
    assert all(before[key] != after[key] for key in keys)


MAPPED_FIELDS = {
    "nodes": (4, {"trainer.nnodes": 4}),
    "gpus_per_node": (2, {"trainer.n_gpus_per_node": 2}),
    "rollout": ("sglang", {f"{ROLLOUT}.name": "sglang", f"{ROLLOUT}.max_model_len": 169}),
    "tensor_parallel": (2, {f"{ROLLOUT}.tensor_model_parallel_size": 2}),
    "sequence_parallel": both(
        2,
        f"{ACTOR}.ulysses_sequence_parallel_size",
        f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size",
    ),
    "precision": ("bf16", {f"{ROLLOUT}.dtype": "bfloat16", "klear.precision": "bf16"}),
    "attention": (
        "flash_attention_2",
        {
            "actor_rollout_ref.model.use_remove_padding": True,
            "actor_rollout_ref.model.override_config.attn_implementation": "flash_attention_2",
        },
    ),
    "max_tokens_per_gpu": both(
        999,
        f"{ACTOR}.ppo_max_token_len_per_gpu",
        f"{ROLLOUT}.log_prob_max_token_len_per_gpu",
    ),
    "prompt_tokens": (
        77,
        {
            "data.max_prompt_length": 77,
            f"{ROLLOUT}.prompt_length": 77,
            f"{ROLLOUT}.max_model_len": 117,
        },
    ),
    "gpu_memory_share": (0.3, {f"{ROLLOUT}.gpu_memory_utilization": 0.3}),
    "gradient_checkpointing": both(True, "actor_rollout_ref.model.enable_gradient_checkpointing"),
    "offload": both(
        True, f"{ACTOR}.fsdp_config.param_offload", f"{ACTOR}.fsdp_config.optimizer_offload"
    ),
    "overrides": ([f"{ROLLOUT}.free_cache_engine=false"], {f"{ROLLOUT}.free_cache_engine": False}),
}
OF_THE_DRIVER = {"modules", "environment"}


def test_no_field_of_the_cluster_is_forgotten():
    assert not MAPPED_FIELDS.keys() & OF_THE_DRIVER
    names = {field.name for field in dataclasses.fields(Cluster)}
    assert MAPPED_FIELDS.keys() | OF_THE_DRIVER == names


@pytest.mark.parametrize("name", MAPPED_FIELDS)
def test_a_field_of_the_cluster_reaches_verl(model, name):
    value, keys = MAPPED_FIELDS[name]
    large = {"gpus_per_node": 4, "attention": "flash_attention_2"}
    other = {} if name in large else large
    before = told(model, cluster=small_cluster(**other))
    after = told(model, cluster=small_cluster(**other | {name: value}))
    assert {key: after[key] for key in keys} == keys
    assert all(before[key] != after[key] for key in keys)


@pytest.mark.parametrize("warmup_steps", [0, 3])
def test_the_optimiser_and_the_learning_rate_of_each_step_are_the_local_ones(model, warmup_steps):
    chosen = settings(num_steps=10, warmup_steps=warmup_steps)
    optim = omega_conf_to_dataclass(composed(model, settings=chosen).actor_rollout_ref.actor.optim)
    assert optim.total_training_steps == chosen.num_steps
    optimizer = build_optimizer([torch.nn.Parameter(torch.ones(1))], optim)
    assert type(optimizer) is torch.optim.AdamW and optimizer.param_groups[0]["eps"] == 1e-8
    scheduler = FSDPEngine._build_lr_scheduler(
        SimpleNamespace(optimizer_config=optim, rank=1), optimizer
    )
    found = []
    for _ in range(chosen.num_steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    expected = [learning_rate(chosen, step) for step in range(1, chosen.num_steps + 1)]
    assert found == pytest.approx(expected, rel=1e-12)
    assert warmup_steps == 0 or found[0] < found[1] < found[-1]


@pytest.mark.parametrize(
    "rule",
    [
        {"name": "unclipped"},
        {"name": "ppo_clip", "eps_low": 0.2, "eps_high": 0.2, "dual_clip": 3.0},
        {"name": "clip_higher", "eps_low": 0.2, "eps_high": 0.28},
        GPPO,
        GPPO | {"beta_low": 0.5, "beta_high": 2.0, "dual_clip": 10},
        {"name": "cispo", "eps_low": 0.1, "eps_high": 0.4},
    ],
    ids=str,
)
def test_the_actor_has_the_rule_and_the_objective_of_the_run(model, rule):
    chosen = settings(alpha=0.2, normalizer="sequence", log_ratio_clamp=12.0)
    config = composed(model, rule=rule, settings=chosen)
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    assert rule_of(actor) == rule_from(rule)
    assert actor.policy_loss.alpha == 0.2 and actor.policy_loss.log_ratio_clamp == 12.0
    assert NORMALIZERS[actor.loss_agg_mode] == "sequence"
