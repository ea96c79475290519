"""The stages that every experiment of the miniature starts from: world, base model, SFT
checkpoint; for code also the teacher; for the experiments on data the raw sources and three
teachers."""

from __future__ import annotations

from klearlib.miniature.teachers import TEACHERS
from klearlib.params import (
    CodeMiniatureParams,
    DataMiniatureParams,
    JointMiniatureParams,
    MiniatureParams,
)
from klearlib.run.stage import Stage


def start_stages(world: MiniatureParams, *, compute: dict) -> dict[str, Stage]:
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
    base = _base(world, data, compute, label="base model", seconds_per_step=0.25)
    sft = _sft(
        world,
        data,
        base,
        compute,
        num_steps=world.sft_steps,
        label="SFT checkpoint",
        seconds_per_step=0.3,
    )
    return {"world": data, "base": base, "sft": sft}


def code_start_stages(world: CodeMiniatureParams, *, compute: dict) -> dict[str, Stage]:
    """The stages ``world``, ``base``, ``sft`` and ``teacher`` of the code part, by name.

    The teacher is trained as the SFT checkpoint is, from the same base model, longer and on better
    responses.
    """
    data = Stage(
        "code_world",
        "klearlib.miniature.code_world:build",
        {
            "seed": world.seed,
            "max_difficulty": world.max_difficulty,
            "num_tests": world.num_tests,
            "slip_share": world.slip_share,
            "slip_rate": world.slip_rate,
            "step_noise": world.step_noise,
            "teacher_slip_share": world.teacher_slip_share,
            "flawed_share": world.flawed_share,
            "base_examples": world.base_examples,
            "sft_examples": world.sft_examples,
            "teacher_examples": world.teacher_examples,
            "num_train_problems": world.num_train_problems,
            "num_validation": world.num_validation,
        },
        label="code world: problems, tests, benchmark windows, responses",
        estimate_s=5.0,
    )
    base = _base(world, data, compute, label="code base model", seconds_per_step=0.08)
    sft = _sft(
        world,
        data,
        base,
        compute,
        num_steps=world.sft_steps,
        label="code SFT checkpoint",
        seconds_per_step=0.08,
    )
    teacher = _sft(
        world,
        data,
        base,
        compute,
        num_steps=world.teacher_steps,
        label="code teacher",
        seconds_per_step=0.08,
        examples="teacher.jsonl",
    )
    return {"world": data, "base": base, "sft": sft, "teacher": teacher}


def data_stages(
    maths: MiniatureParams,
    code: CodeMiniatureParams,
    data: DataMiniatureParams,
    *,
    compute: dict,
) -> dict[str, Stage]:
    """The stages of the experiments on data, by name.

    ``world``, ``base``, ``reference`` and ``code_world``, ``code_base``, ``code_reference``,
    ``code_teacher`` are those of `start_stages` and `code_start_stages`; the references, which
    difficulty is measured by, are their SFT checkpoints. ``sources`` holds the raw files;
    ``teacher_weak``, ``teacher_middle`` and ``teacher_strong`` are trained from the maths base
    model on ``teacher_examples``.
    """
    maths_stages = start_stages(maths, compute=compute)
    code_stages = code_start_stages(code, compute=compute)
    sources = Stage(
        "sources",
        "klearlib.miniature.sources:build",
        {
            "seed": data.seed,
            "modulus": maths.modulus,
            "max_difficulty": maths.max_difficulty,
            "code_max_difficulty": code.max_difficulty,
            "num_tests": code.num_tests,
            "slip_seed": maths.seed,
            "code_slip_seed": code.seed,
            "slip_rate": data.slip_rate,
            "num_maths": data.num_maths,
            "num_code": data.num_code,
            "num_pool": data.num_pool,
            "max_generations": data.max_generations,
            "num_contaminated": data.num_contaminated,
            "duplicate_share": data.duplicate_share,
            "broken_share": data.broken_share,
            "few_tests_share": data.few_tests_share,
        },
        {"math": maths_stages["world"], "code": code_stages["world"]},
        label="raw sources: ten of mathematics, six of code",
        estimate_s=5.0,
    )
    examples = Stage(
        "teacher_examples",
        "klearlib.miniature.teachers:build",
        {
            "seed": data.seed,
            "modulus": maths.modulus,
            "max_difficulty": maths.max_difficulty,
            "slip_seed": maths.seed,
            "slip_rate": data.slip_rate,
            "writers": {
                name: {
                    "slip_share": getattr(data, f"{name}_slip_share"),
                    "step_noise": getattr(data, f"{name}_step_noise"),
                    "num_examples": getattr(data, f"{name}_steps") * data.teacher_batch,
                }
                for name in TEACHERS
            },
        },
        {"sources": sources},
        label="what the teachers learn from",
        estimate_s=3.0,
    )
    base = maths_stages["base"]
    teachers = {
        f"teacher_{name}": _teacher(name, data, examples, base, compute) for name in TEACHERS
    }
    return {
        "world": maths_stages["world"],
        "base": base,
        "reference": maths_stages["sft"],
        "code_world": code_stages["world"],
        "code_base": code_stages["base"],
        "code_reference": code_stages["sft"],
        "code_teacher": code_stages["teacher"],
        "sources": sources,
        "teacher_examples": examples,
    } | teachers


def joint_stages(
    maths: MiniatureParams,
    code: CodeMiniatureParams,
    joint: JointMiniatureParams,
    *,
    selections: list[Stage],
    seed: int,
    num_epochs: int,
    batch_size: int,
    learning_rate: float,
    normalizer: str,
    compute: dict,
) -> dict[str, Stage]:
    """The stages of the model for mathematics and code, by name.

    ``world`` has the benchmarks of both worlds as they are there, math_a, math_b, code_a and
    code_b, the longer problems of math_c (`klearlib.miniature.joint.BENCHMARKS`, 30 problems each),
    and a validation set of `joint.num_validation` problems, half of each domain. ``base`` is
    pretrained on both; it has no seed but the world's. ``examples`` are the samples of all
    `selections` (stages of `klearlib.curation.select:select`, `joint.sft_maths` and
    `joint.sft_code` examples) and the world's `joint.sft_long_maths` long chains; ``sft`` is
    trained on them.

    Args:
        selections: the examples of each domain, in the order in which they are read.
        seed: of the SFT alone.
        num_epochs, batch_size, learning_rate, normalizer: of the SFT, whose learning rate falls to
            half. The paper: 4 epochs, 8e-5, Eq. 8 per sequence.
    """
    maths_world = start_stages(maths, compute=compute)["world"]
    code_world = code_start_stages(code, compute=compute)["world"]
    data = Stage(
        "joint_world",
        "klearlib.miniature.joint:build",
        {
            "seed": joint.seed,
            "modulus": maths.modulus,
            "max_difficulty": maths.max_difficulty,
            "long_max_difficulty": joint.long_max_difficulty,
            "code_max_difficulty": code.max_difficulty,
            "base_maths": joint.base_maths,
            "base_long_maths": joint.base_long_maths,
            "base_code": joint.base_code,
            "sft_long_maths": joint.sft_long_maths,
            "num_validation": joint.num_validation,
        },
        {"maths": maths_world, "code": code_world},
        label="joint world: both domains, longer problems",
        estimate_s=5.0,
    )
    base = _base(joint, data, compute, label="joint base model", seconds_per_step=0.075)
    examples = Stage(
        "combine",
        "klearlib.curation.combine:combine",
        {},
        {f"selection_{number}": stage for number, stage in enumerate(selections, start=1)}
        | {"world": data},
        label="examples of both domains",
        estimate_s=2.0,
    )
    sft = Stage(
        "sft",
        "klearlib.sft.train:train_sft",
        {
            "seed": seed,
            "num_epochs": num_epochs,
            "batch_size": batch_size,
            "learning_rate": learning_rate,
            # The paper's proportion: 8e-5 to 4e-5.
            "final_learning_rate": learning_rate / 2,
            "normalizer": normalizer,
            "compute": compute,
        },
        {"base": base, "examples": examples},
        label=f"joint SFT, seed {seed}",
        estimate_s=5 + (joint.sft_maths + joint.sft_long_maths + joint.sft_code) * num_epochs / 200,
    )
    return {"world": data, "base": base, "examples": examples, "sft": sft}


def _teacher(
    name: str, data: DataMiniatureParams, examples: Stage, base: Stage, compute: dict
) -> Stage:
    num_steps = getattr(data, f"{name}_steps")
    return Stage(
        "sft",
        "klearlib.sft.train:train_sft",
        {
            "seed": data.seed,
            "num_steps": num_steps,
            "batch_size": data.teacher_batch,
            "learning_rate": data.teacher_learning_rate,
            "final_learning_rate": data.teacher_learning_rate / 2,
            "normalizer": "token",
            "compute": compute,
            "examples": f"{name}.jsonl",
        },
        {"world": examples, "base": base},
        label=f"{name} teacher",
        estimate_s=5 + 0.14 * num_steps,
    )


def _base(
    world: MiniatureParams | CodeMiniatureParams | JointMiniatureParams,
    data: Stage,
    compute: dict,
    *,
    label: str,
    seconds_per_step: float,
) -> Stage:
    return Stage(
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
            "compute": compute,
        },
        {"world": data},
        label=label,
        estimate_s=5 + seconds_per_step * world.base_steps,
    )


def _sft(
    world: MiniatureParams | CodeMiniatureParams,
    data: Stage,
    base: Stage,
    compute: dict,
    *,
    num_steps: int,
    label: str,
    seconds_per_step: float,
    **examples: str,
) -> Stage:
    return Stage(
        "sft",
        "klearlib.sft.train:train_sft",
        {
            "seed": world.seed,
            "num_steps": num_steps,
            "batch_size": world.sft_batch,
            "learning_rate": world.sft_learning_rate,
            # The paper's proportion: 8e-5 to 4e-5.
            "final_learning_rate": world.sft_learning_rate / 2,
            "normalizer": "token",
            "compute": compute,
            **examples,
        },
        {"world": data, "base": base},
        label=label,
        estimate_s=5 + seconds_per_step * num_steps,
    )
