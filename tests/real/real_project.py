"""A project whose profile has a tiny Qwen3 and a few rows of each data set, in files of this
machine, in the schemas of the real ones."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

import yaml
from raw_rows import ROWS, livecodebench_row, messages
from small_models import small_model

from klearlib.experiments.experiment import runs_dir
from klearlib.policy.compute import local_compute
from klearlib.run.folder import RunFolder
from klearlib.run.stage import Stage, is_done

PROFILE = "tiny"
SHAPE = {
    "num_layers": 2,
    "hidden_size": 16,
    "num_heads": 2,
    "num_kv_heads": 1,
    "head_dim": 8,
    "intermediate_size": 32,
    "vocab_size": 300,
    "tie_word_embeddings": True,
}
_TEST_LINES = [str(n) for n in range(16)]
_BENCHMARK_SIZE = 2


def make(project: Path, **changes) -> Path:
    """Put models, data and the profile into a folder; `changes` of real.yaml."""
    (project / "notebooks").mkdir()
    write_model(project / "models" / "tiny")
    write_data(project / "data")
    listed = {
        "maths_sources": {"openr1_math": "openr1", "acereason_sft": "acereason"},
        "code_sources": {"opencodereasoning": "ocr", "acereason_sft": "acereason"},
        "maths_problems": {"klear_math": "klear_math"},
        "code_problems": {"klear_code": "klear_code"},
    }
    values = {
        "seed": 0,
        "model": "models/tiny",
        "chat_template": None,
        **SHAPE,
        "max_positions": 512,
        "sft_model": None,
        "reference": None,
        **dict.fromkeys(("teacher_weak", "teacher_middle", "teacher_strong"), "models/tiny"),
        "teacher_majority": None,
        "teacher_code": "models/tiny",
        "shapes": {},
        **{
            name: {source: {"location": f"data/{file}.jsonl"} for source, file in each.items()}
            for name, each in listed.items()
        },
        "benchmarks": {
            name: {"location": f"data/{name}.jsonl", "size": _BENCHMARK_SIZE}
            for name in (
                "aime_2024",
                "aime_2025",
                "hmmt_feb_2025",
                "livecodebench_v5",
                "livecodebench_v6",
            )
        },
        "num_train_problems": 12,
        "num_code_problems": 12,
        "num_validation": 4,
        "validation_responses": 1,
        "sft_maths": 6,
        "sft_code": 4,
        "sft_epochs": 1,
        "sft_batch": 4,
        "sft_learning_rate": 1.0e-3,
        "sft_normalizer": "sequence",
        "test_timeout_s": 2.0,
        "test_memory_mb": 256,
        "max_prompt_tokens": 256,
        "max_new_tokens": 6,
        "code_max_new_tokens": 5,
        "extended_max_new_tokens": 12,
    }
    write_yaml(project, "real", values | changes)
    compute = local_compute(batch_rows=64, micro_batch_tokens=4096)
    write_yaml(project, "compute", {"local": asdict(compute)})
    statistics = {each: [0, 1] for each in ("students", "maths_rl", "code_rl", "headline")}
    statistics |= {"tuning": [100], "decides": True, "design": "one_world", "margin": 0.05}
    write_yaml(project, "statistics", statistics)
    return project


def write_yaml(project: Path, name: str, values: dict) -> None:
    path = project / "params" / PROFILE / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(values, sort_keys=False))


def write_model(folder: Path, *, chat_template: bool = True, **shape) -> None:
    """A random Qwen3 with a tokenizer of bytes, in the Hugging Face format."""
    from klearlib.miniature.base import train_tokenizer

    tokenizer = train_tokenizer(["user\nWhat is 2 + 17?\nassistant\n"], vocab_size=300)
    if not chat_template:
        tokenizer.chat_template = None
    shape = SHAPE | shape
    model = small_model(
        vocab_size=shape["vocab_size"],
        hidden_size=shape["hidden_size"],
        num_hidden_layers=shape["num_layers"],
        num_attention_heads=shape["num_heads"],
        num_key_value_heads=shape["num_kv_heads"],
        head_dim=shape["head_dim"],
        intermediate_size=shape["intermediate_size"],
        max_position_embeddings=512,
        tie_word_embeddings=shape["tie_word_embeddings"],
        initializer_range=0.02,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_data(folder: Path) -> None:
    """Rows in the columns and types of the cards, see docs/datasets.md."""
    two = {
        "is_reasoning_complete": [True, True],
        "correctness_math_verify": [True, False],
        "correctness_llama": [None, None],
    }
    cases = json.dumps([{"input": "3\n", "output": "9\n", "testtype": "stdin"}])
    truth = json.dumps({"inputs": _TEST_LINES, "outputs": _TEST_LINES})
    mixed = ROWS["acereason_sft"]
    files = {
        "openr1": [
            ROWS["openr1_math"]
            | {"problem": f"What is 2 + {n}?", "answer": str(n + 2), "uuid": f"uuid-{n}"}
            | {"generations": [_thought(n + 2), _thought(n + 3)]}
            | two
            for n in range(8)
        ],
        "acereason": [
            *(mixed | {"input": f"What is 3 + {n}?", "output": _thought(n + 3)} for n in range(4)),
            *(
                mixed | {"category": "code", "input": f"Print {n}.", "output": _program(n)}
                for n in range(4)
            ),
        ],
        "ocr": [
            ROWS["opencodereasoning"]
            | {"id": f"ocr-{n}", "input": f"Print n plus {n}.", "output": _program(n)}
            for n in range(4)
        ],
        "klear_math": [
            ROWS["klear_math"] | _asked(f"What is 5 + {n}?", str(n + 5)) for n in range(20)
        ],
        "klear_code": [
            ROWS["klear_code"]
            | {"hash": f"hash-{n}"}
            | _asked(f"Repeat the line, task {n}.", truth)
            for n in range(20)
        ],
    }
    for place, name in enumerate(("aime_2024", "aime_2025", "hmmt_feb_2025")):
        files[name] = [
            {"id": n, "problem": f"Compute {place} times {n}.", "answer": str(place * n)}
            for n in range(_BENCHMARK_SIZE)
        ]
    for place, day in ((5, "2024-11-09T04:00:00"), (6, "2025-03-09T04:00:00")):
        files[f"livecodebench_v{place}"] = [
            livecodebench_row(10 * place + n, day) | {"private_test_cases": cases}
            for n in range(_BENCHMARK_SIZE)
        ]
    for name, rows in files.items():
        write_rows(folder / f"{name}.jsonl", rows)


def _asked(prompt: str, truth: str) -> dict:
    return {"prompt": messages(prompt), "reward_model": {"ground_truth": truth, "style": "rule"}}


def _thought(answer: int) -> str:
    return f"<think>Add.</think>\\boxed{{{answer}}}"


def _program(n: int) -> str:
    return f"<think>Easy.</think>```python\nprint(int(input()) + {n})\n```"


def write_rows(path: Path, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def rows_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def change(project: Path, **values) -> None:
    """Values of real.yaml otherwise."""
    path = project / "params" / PROFILE / "real.yaml"
    write_yaml(project, "real", yaml.safe_load(path.read_text()) | values)


def run_here(stage: Stage) -> Path:
    """The finished folder of a stage, which runs in this process after those that it needs."""
    folder = stage.folder(runs_dir())
    if not is_done(stage, runs_dir()):
        inputs = {name: run_here(upstream) for name, upstream in stage.inputs.items()}
        module, _, function = stage.target.partition(":")
        made = RunFolder(folder)
        getattr(import_module(module), function)(made, inputs, **stage.arguments)
        made.finish()
    return folder


def card_of(folder: Path) -> dict:
    return json.loads((folder / "card.json").read_text())
