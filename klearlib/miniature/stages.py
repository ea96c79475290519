"""The stages that every experiment of the miniature starts from: world, base model, SFT
checkpoint."""

from __future__ import annotations

from klearlib.params import MiniatureParams
from klearlib.run.stage import Stage


def start_stages(world: MiniatureParams) -> dict[str, Stage]:
    """The stages ``world``, ``base`` and ``sft`` of a profile's miniature, by name."""
    data = Stage(
        "world",
        "klearlib.miniature.world:build",
        {
            "seed": world.seed,
            "modulus": world.modulus,
            "max_difficulty": world.max_difficulty,
            "slip_share": world.slip_share,
            "slip_rate": world.slip_rate,
            "step_noise": world.step_noise,
            "base_examples": world.base_examples,
            "sft_examples": world.sft_examples,
            "num_train_problems": world.num_train_problems,
            "num_validation": world.num_validation,
        },
        label="world: problems, benchmarks, chains of thought",
        estimate_s=5.0,
    )
    base = Stage(
        "base",
        "klearlib.miniature.base:pretrain",
        {
            "seed": world.seed,
            "vocab_size": world.vocab_size,
            "hidden_size": world.hidden_size,
            "num_layers": world.num_layers,
            "num_heads": world.num_heads,
            "num_kv_heads": world.num_kv_heads,
            "head_dim": world.head_dim,
            "intermediate_size": world.intermediate_size,
            "max_positions": world.max_positions,
            "num_steps": world.base_steps,
            "batch_size": world.base_batch,
            "learning_rate": world.base_learning_rate,
        },
        {"world": data},
        label="base model",
        estimate_s=5 + 0.25 * world.base_steps,
    )
    sft = Stage(
        "sft",
        "klearlib.sft.train:train_sft",
        {
            "seed": world.seed,
            "num_steps": world.sft_steps,
            "batch_size": world.sft_batch,
            "learning_rate": world.sft_learning_rate,
            # The paper's proportion: 8e-5 to 4e-5.
            "final_learning_rate": world.sft_learning_rate / 2,
            "normalizer": "token",
        },
        {"world": data, "base": base},
        label="SFT checkpoint",
        estimate_s=5 + 0.3 * world.sft_steps,
    )
    return {"world": data, "base": base, "sft": sft}
