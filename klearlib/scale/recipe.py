"""A run in verl's schema: which of its keys hold the rule, the settings and the cluster."""

from __future__ import annotations

import json
from pathlib import Path

from klearlib.rl.coefficients import rule_from
from klearlib.rl.schedule import judging
from klearlib.rl.settings import RLSettings
from klearlib.scale.cluster import PACKED, Cluster
from klearlib.scale.policy_losses import NORMALIZERS, PREFIX, KlearPolicyLossConfig
from klearlib.scale.problems import AGENT, SOURCE
from klearlib.scale.rewards import compute_score

_DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
_ENTROPY_ROWS = 2048  # tokens whose logits are turned into entropies at once
_KEPT_CHECKPOINTS = 2  # the older one goes when the newer one is complete


def require_possible(settings: RLSettings, cluster: Cluster, model: Path) -> None:
    """Refuse rollouts for which the model has no positions, before anything is started.

    Raises:
        ParameterError: they are longer than the positions of the model in the folder `model`.
    """
    held = json.loads((model / "config.json").read_text(encoding="utf-8"))
    positions = held.get("text_config", held).get("max_position_embeddings")
    cluster.require_positions(positions, max_new_tokens=settings.max_new_tokens)


def data(settings: RLSettings, cluster: Cluster, parquet: Path) -> dict:
    """The problems, in the order of their file."""
    file = str(parquet.absolute())
    return {
        "data.train_files": file,
        "data.val_files": file,  # verl wants some; the evaluations are our own
        "data.val_max_samples": 1,
        "data.train_batch_size": settings.num_problems,
        "data.max_prompt_length": cluster.prompt_tokens,
        "data.max_response_length": settings.max_new_tokens,
        "data.shuffle": False,
        "data.filter_overlong_prompts": False,
        "data.truncation": "error",
        "data.dataloader_num_workers": 0,
    }


def objective(spec: dict, settings: RLSettings) -> dict:
    """Clipping rule, LM loss, normaliser and mini-batches; nothing that the paper does not have."""
    rule = rule_from(spec)
    actor, loss = "actor_rollout_ref.actor", "actor_rollout_ref.actor.policy_loss"
    words = {ours: theirs for theirs, ours in NORMALIZERS.items()}
    return {
        f"{loss}._target_": f"{KlearPolicyLossConfig.__module__}.{KlearPolicyLossConfig.__name__}",
        f"{loss}.loss_mode": PREFIX + spec["name"],
        f"+{loss}.alpha": settings.alpha,
        f"+{loss}.beta_low": spec.get("beta_low", 1.0),
        f"+{loss}.beta_high": spec.get("beta_high", 1.0),
        f"+{loss}.dual_clip": rule.dual_clip,
        f"+{loss}.log_ratio_clamp": settings.log_ratio_clamp,
        f"{actor}.clip_ratio_low": rule.eps_low,
        f"{actor}.clip_ratio_high": rule.eps_high,
        f"{actor}.loss_agg_mode": words[settings.normalizer],
        f"{actor}.entropy_coeff": 0,
        f"{actor}.calculate_entropy": True,
        f"{actor}.use_kl_loss": False,
        f"{actor}.ppo_mini_batch_size": settings.mini_batch_problems,
        f"{actor}.ppo_epochs": 1,
        f"{actor}.shuffle": False,
        "algorithm.adv_estimator": "grpo",
        "algorithm.norm_adv_by_std_in_grpo": True,
        "algorithm.use_kl_in_reward": False,
        "algorithm.filter_groups.enable": False,
        "algorithm.rollout_correction.rollout_is": None,
        "algorithm.rollout_correction.rollout_rs": None,
        "algorithm.rollout_correction.bypass_mode": False,
        "critic.enable": False,
    }


def optimiser(settings: RLSettings) -> dict:
    """AdamW with the learning rate of `klearlib.rl.schedule.learning_rate`."""
    optim = "actor_rollout_ref.actor.optim"
    return {
        f"{optim}.optimizer_impl": "torch.optim",
        f"{optim}.optimizer": "AdamW",
        f"{optim}.lr": settings.learning_rate,
        f"{optim}.betas": [settings.adam_beta1, settings.adam_beta2],
        f"{optim}.weight_decay": settings.weight_decay,
        f"{optim}.clip_grad": settings.max_grad_norm,
        "actor_rollout_ref.actor.grad_clip": settings.max_grad_norm,
        # A cosine from 1 to 1: verl's "constant" would make the first of the steps with 0.
        f"{optim}.lr_scheduler_type": "cosine",
        f"{optim}.min_lr_ratio": 1.0,
        f"{optim}.lr_warmup_steps": settings.warmup_steps + 1,
        f"{optim}.zero_indexed_step": False,
    }


def training(settings: RLSettings, cluster: Cluster, model: Path) -> dict:
    """FSDP2 with weights, gradients and AdamW in float32, whatever the precision of a pass."""
    actor, engine = "actor_rollout_ref.actor", "actor_rollout_ref.actor.fsdp_config"
    precision = {"param_dtype": cluster.precision, "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
    return {
        "actor_rollout_ref.model.path": str(model.absolute()),
        "actor_rollout_ref.model.trust_remote_code": False,
        "actor_rollout_ref.model.use_remove_padding": cluster.attention == PACKED,
        "actor_rollout_ref.model.use_fused_kernels": False,
        "actor_rollout_ref.model.lora_rank": 0,
        "actor_rollout_ref.model.enable_gradient_checkpointing": cluster.gradient_checkpointing,
        "+actor_rollout_ref.model.override_config.attn_implementation": cluster.attention,
        f"{actor}.strategy": "fsdp2",
        # It would be compiled anew for each number of chunks, for what has no gradient.
        f"{actor}.use_torch_compile": False,
        f"{engine}.use_torch_compile": False,
        f"{actor}.use_dynamic_bsz": True,
        f"{actor}.ppo_max_token_len_per_gpu": cluster.max_tokens_per_gpu,
        f"{actor}.ulysses_sequence_parallel_size": cluster.sequence_parallel,
        f"{actor}.entropy_from_logits_with_chunking": True,
        f"{actor}.entropy_from_logits_chunk_size": _ENTROPY_ROWS,
        # No gradient goes through it, so that nothing is computed twice.
        f"{actor}.entropy_checkpointing": True,
        f"{actor}.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
        f"{engine}.model_dtype": "fp32",
        f"+{engine}.mixed_precision": precision,
        f"{engine}.fsdp_size": -1,
        f"{engine}.reshard_after_forward": True,
        f"{engine}.param_offload": cluster.offload,
        f"{engine}.optimizer_offload": cluster.offload,
        f"{engine}.offload_policy": False,
        f"{engine}.ulysses_sequence_parallel_size": cluster.sequence_parallel,
    }


def rollouts(settings: RLSettings, cluster: Cluster) -> dict:
    """The servers that sample, and our agent loop in front of them."""
    values = {
        "name": cluster.rollout,
        "mode": "async",
        "n": settings.group_size,
        "temperature": settings.temperature,
        "top_p": 1.0,
        "top_k": -1,
        "do_sample": True,
        "calculate_log_probs": True,
        "logprobs_mode": "processed_logprobs",  # log pi at the temperature
        "prompt_length": cluster.prompt_tokens,
        "response_length": settings.max_new_tokens,
        "max_model_len": cluster.positions(max_new_tokens=settings.max_new_tokens),
        "dtype": _DTYPES[cluster.precision],
        "gpu_memory_utilization": cluster.gpu_memory_share,
        "tensor_model_parallel_size": cluster.tensor_parallel,
        "load_format": "dummy",  # the trainer's weights come before the first request
        "free_cache_engine": True,
        "enable_prefix_caching": True,
        "log_prob_use_dynamic_bsz": True,
        "log_prob_max_token_len_per_gpu": cluster.max_tokens_per_gpu,
        "agent.num_workers": cluster.agent_workers,
        "agent.default_agent_loop": AGENT,
    }
    return {f"actor_rollout_ref.rollout.{name}": value for name, value in values.items()}


def rewards(settings: RLSettings, cluster: Cluster, *, seed: int) -> dict:
    """Our reward function in verl's plain reward manager."""
    function = "reward.custom_reward_function"
    return {
        "reward.num_workers": cluster.reward_workers,
        "reward.reward_manager.source": "register",
        "reward.reward_manager.name": "naive",
        "reward.reward_model.enable": False,
        f"{function}.path": f"pkg://{compute_score.__module__}",
        f"{function}.name": compute_score.__name__,
        f"+{function}.reward_kwargs": judging(settings, seed=seed),
    }


def trainer(
    settings: RLSettings, cluster: Cluster, checkpoints: Path, resumed: Path | None
) -> dict:
    """Our trainer, which saves and measures by itself."""
    values = {
        "v1.trainer_mode": "klear",
        "use_v1": True,
        "nnodes": cluster.nodes,
        "n_gpus_per_node": cluster.gpus_per_node,
        "total_training_steps": settings.num_steps,
        "total_epochs": settings.num_steps + 1,  # never what ends the run
        "balance_batch": False,
        "logger": ["console"],
        "project_name": SOURCE,
        "experiment_name": SOURCE,
        "save_freq": -1,
        "test_freq": -1,
        "val_before_train": False,
        "max_actor_ckpt_to_keep": _KEPT_CHECKPOINTS,
        "default_local_dir": str(checkpoints.absolute()),
        "resume_mode": "disable" if resumed is None else "resume_path",
        "resume_from_path": None if resumed is None else str(resumed.absolute()),
    }
    return {f"trainer.{name}": value for name, value in values.items()}
