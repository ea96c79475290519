"""What the hub's cache on this machine holds, without the network and without torch."""

from __future__ import annotations

import json
from pathlib import Path

from klearlib.errors import MissingAsset, one_line

WEIGHTS = ".safetensors"
OF_A_MODEL = (WEIGHTS, ".json", ".txt", ".model", ".jinja")
"""What transformers and vLLM read of a model's folder; the weights in one format."""
HUB_TIMEOUT_S = 10.0


def hub_folder(kind: str, name: str) -> Path:
    """Where the hub's cache keeps a "model" or a "dataset", whether it is there or not."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE) / f"{kind}s--{name.replace('/', '--')}"


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


def model_folder(model: str | Path) -> Path:
    """The folder of a model's files: `model`, or that of the hub's cache, into which what it lacks
    is fetched. MissingAsset, which says what to do, where neither this machine nor the hub has it.
    """
    path, name = Path(model).expanduser(), str(model)
    if path.is_dir():
        return path
    if "/" in name and is_path(name):
        raise MissingAsset(f"no model folder at {model}: correct the path, or give a hub id")
    cached = cached_snapshot("model", name)
    if cached is not None and has_weights(cached):
        return cached
    import huggingface_hub

    patterns = [f"*{suffix}" for suffix in OF_A_MODEL]
    try:
        how = {"allow_patterns": patterns, "etag_timeout": HUB_TIMEOUT_S}
        return Path(huggingface_hub.snapshot_download(name, **how))
    except (OSError, ValueError) as error:  # all others of the hub's library are OSErrors too
        raise MissingAsset(
            f"model {name!r} was not found here and cannot be fetched ({one_line(error)}): correct "
            "the name, accept its licence on the model's page and `hf auth login`, or connect and "
            f"run `{fetch_command('model', name)}`"
        ) from error


def has_weights(folder: Path) -> bool:
    """Whether a folder holds a whole model: config.json and all of its weights in safetensors.

    A folder of which only the tokenizer was ever loaded, or of which a part of the weights is still
    to come, holds none.
    """
    if not (folder / "config.json").is_file():
        return False
    index = folder / f"model{WEIGHTS}.index.json"
    if not index.is_file():
        return any(map(_has_bytes, folder.glob(f"*{WEIGHTS}")))
    names = {*json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()}
    return bool(names) and all(_has_bytes(folder / name) for name in names)


def _has_bytes(file: Path) -> bool:
    return file.is_file() and file.stat().st_size > 0


def _has_files(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())
