"""What the hub's cache on this machine holds, without the network and without torch."""

from __future__ import annotations

import json
import os
from pathlib import Path

from klearlib.errors import DamagedEntry

WEIGHTS = ".safetensors"


def hub_folder(kind: str, name: str) -> Path:
    """Where the hub's cache keeps a "model" or a "dataset", whether it is there or not."""
    return _cache() / f"{kind}s--{name.replace('/', '--')}"


def fetch_command(kind: str, name: str) -> str:
    """The command that fetches a "model" or a "dataset" from the hub."""
    return f"hf download {name}" + (" --repo-type dataset" if kind == "dataset" else "")


def cached_snapshot(kind: str, name: str) -> Path | None:
    """The folder of files of a "model" or a "dataset" in the hub's cache: the branch main where the
    cache knows it, else the only snapshot that there is; None if there is none.
    """
    folder = hub_folder(kind, name)
    main = folder / "refs" / "main"
    if main.is_file():
        found = folder / "snapshots" / main.read_text(encoding="utf-8").strip()
        return found if _has_files(found) else None
    snapshots = folder / "snapshots"
    found = [each for each in snapshots.iterdir() if _has_files(each)] if snapshots.is_dir() else []
    return found[0] if len(found) == 1 else None


def is_path(name: str) -> bool:
    """Whether the name of a model can only be a path, and no hub id.

    >>> is_path("models/tiny"), is_path("./models/tiny"), is_path("Qwen/Qwen3-8B-Base")
    (False, True, False)
    """
    return name.startswith(("/", ".", "~")) or name.count("/") != 1


def has_weights(folder: Path) -> bool:
    """Whether a folder holds a whole model: config.json and all of its weights in safetensors.

    A folder of which only the tokenizer was ever loaded, or of which a part of the weights is still
    to come, holds none. DamagedEntry for an index of the weights that cannot be read.
    """
    if not (folder / "config.json").is_file():
        return False
    index = folder / f"model{WEIGHTS}.index.json"
    if not index.is_file():
        return any(map(_has_bytes, folder.glob(f"*{WEIGHTS}")))
    try:
        names = {*json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()}
        files = [folder / name for name in names]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise DamagedEntry(f"{index} names no files: fetch the model again") from None
    return bool(files) and all(map(_has_bytes, files))


def _has_bytes(file: Path) -> bool:
    return file.is_file() and file.stat().st_size > 0


def _cache() -> Path:
    """The folder of `huggingface_hub.constants.HF_HUB_CACHE`, as the environment says now: that
    module reads it once, at its import."""
    home = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    home = _expanded(os.environ.get("HF_HOME", f"{home}/huggingface"))
    old = os.environ.get("HUGGINGFACE_HUB_CACHE", f"{home}/hub")
    return Path(_expanded(os.environ.get("HF_HUB_CACHE", old)))


def _expanded(path: str) -> str:
    return os.path.expandvars(os.path.expanduser(path))


def _has_files(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())
