"""A stage: one cached computation, named by everything that its result depends on."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from klearlib.run.entry import CHECKPOINT, DONE, LOCK, verify_entry
from klearlib.run.fingerprint import code_fingerprint
from klearlib.run.provenance import computing_versions

_code = functools.cache(code_fingerprint)


@dataclass(frozen=True)
class Stage:
    """What to compute: ``target(folder, inputs, **params)``, run once in a process of its own.

    name: kind of stage and name of its folder ("base", "sft", "rl").
    target: "package.module:function", imported in the worker. It gets `folder`, a `RunFolder`, and
        `inputs`, a dict of the finished folders (Path) of the upstream stages.
    params: its keyword arguments, JSON values only (lists, not tuples; no NaN); copied.
    inputs: upstream stages by the name under which the target knows them.
    label: for people ("GPPO, seed 0"); estimate_s: rough seconds for the first ETA; placing:
        further keyword arguments, JSON values, that say where and in what parts the target
        computes, not what. None of these is part of the key.

    Raises ValueError or TypeError for a value that JSON cannot hold.

    >>> base = Stage("base", "klearlib.errors:KlearError", {"seed": 0})
    >>> Stage("rl", "klearlib.errors:KlearError", {"rule": "gppo"}, {"base": base}).key == base.key
    False
    """

    name: str
    target: str
    params: dict
    inputs: dict[str, Stage] = field(default_factory=dict)
    label: str = ""
    estimate_s: float = 0.0
    placing: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("params", "placing"):
            text = json.dumps(getattr(self, name), allow_nan=False)
            object.__setattr__(self, name, json.loads(text))
        object.__setattr__(self, "inputs", dict(self.inputs))

    @cached_property
    def key(self) -> str:
        """16 hexadecimal digits: the sha256 of name, target, params, upstream keys, code, and the
        versions of the libraries that compute and judge. Equal across processes and orders of the
        dicts.
        """
        content = {
            "name": self.name,
            "target": self.target,
            "params": self.params,
            "inputs": {name: stage.key for name, stage in self.inputs.items()},
            "code": self.code,
            "libraries": computing_versions(self.engine),
        }
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def engine(self) -> str | None:
        """Who samples, in a stage that has `compute`: "transformers" or "vllm"."""
        return (self.params.get("compute") or {}).get("engine")

    @cached_property
    def code(self) -> str:
        """The fingerprint of the target's module and of all that it imports, as this process first
        read them: later edits need a new process."""
        return _code(self.target.partition(":")[0])

    @property
    def arguments(self) -> dict:
        """All keyword arguments of the target."""
        return self.params | self.placing

    @property
    def title(self) -> str:
        """The label, or the name where there is no label."""
        return self.label or self.name

    def folder(self, runs_dir: Path | str) -> Path:
        """Where the stage's files are: ``runs_dir / name / key``."""
        return Path(runs_dir) / self.name / self.key


def wanted(stages: Iterable[Stage], runs_dir: Path | str) -> list[Stage]:
    """`stages`, and before them the inputs of every finished stage: reading a result also reads the
    folders of its inputs, which somebody may have removed since."""
    asked = list(stages)
    everything = with_inputs(asked)
    done = [stage for stage in everything.values() if (stage.folder(runs_dir) / DONE).exists()]
    keys = {stage.key for each in (asked, *(d.inputs.values() for d in done)) for stage in each}
    return [stage for key, stage in everything.items() if key in keys]


def is_done(stage: Stage, runs_dir: Path | str) -> bool:
    """Whether the stage's result exists and its files have the sizes they were written with.

    Raises DamagedEntry where a file is missing or has another size.
    """
    folder = stage.folder(runs_dir)
    if not (folder / DONE).exists():
        return False
    verify_entry(folder, hash_below=0)
    return True


def folder_state(folder: Path) -> str:
    """One word for a stage's folder, from its files alone.

    "done": finished; "running": a worker holds its lock; "partial": a checkpoint to resume from;
    "absent": nothing of use.
    """
    if (folder / DONE).exists():
        return "done"
    if is_locked(folder / LOCK):
        return "running"
    return "partial" if (folder / CHECKPOINT).exists() else "absent"


def is_locked(lock: Path) -> bool:
    """Whether another process, or another open file of this one, holds `lock`."""
    try:
        with open(lock, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:  # or no lock, or not ours to read: no run to wait for
        return isinstance(error, BlockingIOError)
    return False


def with_inputs(stages: Iterable[Stage]) -> dict[str, Stage]:
    """`stages` and all that they need, each once, upstream first, under their keys."""
    found: dict[str, Stage] = {}

    def visit(stage: Stage) -> None:
        if stage.key not in found:
            for upstream in stage.inputs.values():
                visit(upstream)
            found[stage.key] = stage

    for stage in stages:
        visit(stage)
    return found
