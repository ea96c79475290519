"""The stages that every experiment of the miniature starts from: world, base model, SFT
checkpoint; for code also the teacher; for the experiments on data the raw sources and three
teachers."""

from __future__ import annotations

from dataclasses import fields

from klearlib.miniature.world import TEACHERS
from klearlib.params import (
    CodeMiniatureParams,
    DataMiniatureParams,
    JointMiniatureParams,
    MiniatureParams,
)
from klearlib.params.worlds import CodeText, JointText, MathsText, ModelShape, RawSources
from klearlib.run.stage import Stage


def part(world: object, kind: type) -> dict:
    """Those parameters of `world` that its part `kind` declares, by name."""
    return {field.name: getattr(world, field.name) for field in fields(kind)}


def start_stages(world: MiniatureParams, *, compute: dict) -> dict[str, Stage]:
    """The stages ``world``, ``base`` and ``sft`` of a profile's miniature, by name."""
    data = Stage(
        "world",
        "klearlib.miniature.world:build",
        part(world, MathsText),
        label="world: problems, benchmarks, chains of thought",
        estimate_s=5.0,
    )
    base = _base(world, data, compute, label="base model", seconds_per_step=0.25)
    how = _sft_of(world, label="SFT checkpoint", seconds_per_step=0.3)
    return {"world": data, "base": base, "sft": _sft(data, base, compute, **how)}


def code_start_stages(world: CodeMiniatureParams, *, compute: dict) -> dict[str, Stage]:
    """The stages ``world``, ``base``, ``sft`` and ``teacher`` of the code part, by name.

    The teacher is trained as the SFT checkpoint is, from the same base model, longer and on better
    responses.
    """
    data = Stage(
        "code_world",
        "klearlib.miniature.code_world:build",
        part(world, CodeText),
        label="code world: problems, tests, benchmark windows, responses",
        estimate_s=5.0,
    )
    base = _base(world, data, compute, label="code base model", seconds_per_step=0.08)
    sft = _sft_of(world, label="code SFT checkpoint", seconds_per_step=0.08)
    teacher = sft | {"label": "code teacher", "num_steps": world.teacher_steps}
    return {
        "world": data,
        "base": base,
        "sft": _sft(data, base, compute, **sft),
        "teacher": _sft(data, base, compute, **teacher, examples="teacher.jsonl"),
    }


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
    # Sources and teachers draw problems of the maths world, with its writers' habits.
    drawn = {
        "modulus": maths.modulus,
        "max_difficulty": maths.max_difficulty,
        "slip_seed": maths.seed,
    }
    sources = Stage(
        "sources",
        "klearlib.miniature.sources:build",
        part(data, RawSources)
        | drawn
        | {
            "code_max_difficulty": code.max_difficulty,
            "num_tests": code.num_tests,
            "code_slip_seed": code.seed,
        },
        {"math": maths_stages["world"], "code": code_stages["world"]},
        label="raw sources: ten of mathematics, six of code",
        estimate_s=5.0,
    )
    steps = {name: getattr(data, f"{name}_steps") for name in TEACHERS}
    writers = {
        name: {
            "slip_share": getattr(data, f"{name}_slip_share"),
            "step_noise": getattr(data, f"{name}_step_noise"),
            "num_examples": steps[name] * data.teacher_batch,
        }
        for name in TEACHERS
    }
    examples = Stage(
        "teacher_examples",
        "klearlib.miniature.world:build_teacher_examples",
        drawn | {"seed": data.seed, "slip_rate": data.slip_rate, "writers": writers},
        {"sources": sources},
        label="what the teachers learn from",
        estimate_s=3.0,
    )
    base = maths_stages["base"]
    teachers = {
        f"teacher_{name}": _sft(
            examples,
            base,
            compute,
            seed=data.seed,
            num_steps=steps[name],
            batch_size=data.teacher_batch,
            learning_rate=data.teacher_learning_rate,
            examples=f"{name}.jsonl",
            label=f"{name} teacher",
            seconds_per_step=0.14,
        )
        for name in TEACHERS
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
    compute: dict,
    seed: int,
    num_epochs: int,
    learning_rate: float,
    yarn_factor: float,
    **sft: object,
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
        num_epochs, learning_rate, sft (batch_size, normalizer): of the SFT, whose learning rate
            falls to half. The paper: 4 epochs, 8e-5.
        yarn_factor: `joint.yarn_share` of the batches of SFT are read under it.
    """
    data = Stage(
        "joint_world",
        "klearlib.miniature.joint:build",
        part(joint, JointText)
        | {
            "modulus": maths.modulus,
            "max_difficulty": maths.max_difficulty,
            "code_max_difficulty": code.max_difficulty,
        },
        {
            "maths": start_stages(maths, compute=compute)["world"],
            "code": code_start_stages(code, compute=compute)["world"],
        },
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
    num_examples = joint.sft_maths + joint.sft_long_maths + joint.sft_code
    yarn = {"factor": yarn_factor, "original": joint.yarn_original, "share": joint.yarn_share}
    params = {"seed": seed, "num_epochs": num_epochs, "compute": compute, "yarn": yarn, **sft}
    trained = Stage(
        "sft",
        "klearlib.sft.train:train_sft",
        params | _halving(learning_rate),
        {"base": base, "examples": examples},
        label=f"joint SFT, seed {seed}",
        estimate_s=5 + num_examples * num_epochs / 200,
    )
    return {"world": data, "base": base, "examples": examples, "sft": trained}


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
        part(world, ModelShape)
        | {
            "seed": world.seed,
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


def _sft_of(world: MiniatureParams | CodeMiniatureParams, **how: object) -> dict:
    """The schedule of a world's SFT checkpoint, as `_sft` takes it."""
    return {
        "seed": world.seed,
        "num_steps": world.sft_steps,
        "batch_size": world.sft_batch,
        "learning_rate": world.sft_learning_rate,
        **how,
    }


def _sft(
    data: Stage,
    base: Stage,
    compute: dict,
    *,
    learning_rate: float,
    num_steps: int,
    label: str,
    seconds_per_step: float,
    **params: object,
) -> Stage:
    how = {"num_steps": num_steps, "normalizer": "token", "compute": compute, **params}
    return Stage(
        "sft",
        "klearlib.sft.train:train_sft",
        how | _halving(learning_rate),
        {"world": data, "base": base},
        label=label,
        estimate_s=5 + seconds_per_step * num_steps,
    )


def _halving(learning_rate: float) -> dict:
    """The paper's proportion: 8e-5 to 4e-5."""
    return {"learning_rate": learning_rate, "final_learning_rate": learning_rate / 2}
