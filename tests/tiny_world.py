"""Sizes of a world and of a model that take seconds to make."""

TINY_WORLD = {
    "seed": 0,
    "modulus": 5,
    "max_difficulty": 4,
    "slip_share": 0.2,
    "slip_rate": 0.5,
    "step_noise": 0.02,
    "base_examples": 200,
    "sft_examples": 600,
    "num_train_problems": 60,
    "num_deciding": 6,
    "num_validation": 6,
}
TINY_MODEL = {
    "vocab_size": 300,
    "hidden_size": 32,
    "num_layers": 2,
    "num_heads": 2,
    "num_kv_heads": 1,
    "head_dim": 16,
    "intermediate_size": 64,
    "max_positions": 256,
}
TINY_CODE_WORLD = {
    "seed": 0,
    "max_difficulty": 4,
    "num_tests": 16,
    "slip_share": 0.3,
    "slip_rate": 0.5,
    "step_noise": 0.0,
    "teacher_slip_share": 0.1,
    "flawed_share": 0.25,
    "base_examples": 40,
    "sft_examples": 120,
    "teacher_examples": 120,
    "num_train_problems": 80,
    "num_deciding": 9,
    "num_validation": 12,
}
