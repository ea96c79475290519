"""Stage ``model``: a model of this machine or of the hub, under the name that all stages know."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from klearlib.errors import KlearError, MissingAsset
from klearlib.hub import WEIGHTS, cached_snapshot, fetch_command, has_weights, is_path
from klearlib.policy.shape import shape_of
from klearlib.real.links import link_file
from klearlib.run.files import read_own_text, write_json, write_text

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder

OF_A_MODEL = (WEIGHTS, ".json", ".txt", ".model", ".jinja")
"""What transformers and vLLM read of a model's folder; the weights in one format."""
_CONFIG, _TEMPLATE = "config.json", "chat_template.jinja"


def link_model(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    model: str,
    content: str | None,
    chat_template: str | None,
    template_sha256: str | None,
    positions: int,
    shape: dict | None,
) -> None:
    """Stage ``model``: ``model/`` with links to the files of a model, and card.json.

    Its config.json alone is a copy, which allows at least `positions`.

    Args:
        inputs: none are read.
        model: a folder in the Hugging Face format, or a hub id, which is downloaded where the
            hub's cache has it not. content: of a folder, so that a changed one is another stage.
        chat_template: a file with the chat template, for a model without one; it also stands in
            the place of one that is there. template_sha256: of that file, so that an edited one is
            another stage.
        positions: tokens of the longest prompt and budget together. Rotary positions have no end,
            but engines refuse what a config does not allow: Qwen3-8B-Base says 32,768, and the
            paper's budget of so many tokens comes after a prompt.
        shape: what config.json must say, by the names of `klearlib.params.RealParams`; None for
            any.

    Raises:
        MissingAsset: no such model, a gated one, no network, or no weights in safetensors.
        KlearError: no chat template, or another shape.
    """
    source = folder_of(model)
    files = sorted(
        file for file in source.iterdir() if file.is_file() and file.name.endswith(OF_A_MODEL)
    )
    if not has_weights(source):
        raise MissingAsset(
            f"{source} holds no config.json with all weights in {WEIGHTS}: fetch all of the "
            "model's files, or name another folder"
        )
    config = json.loads((source / _CONFIG).read_text(encoding="utf-8"))
    if shape is not None:
        _check_shape(model, config, shape)
    folder.progress(0, len(files))
    for file in files:
        link_file(file, folder.path / "model" / file.name)
    allowed = config.get("max_position_embeddings", positions)
    config["max_position_embeddings"] = max(positions, allowed)
    _write_own(folder.path / "model" / _CONFIG, json.dumps(config, indent=2) + "\n")
    if chat_template is not None:
        _write_own(folder.path / "model" / _TEMPLATE, template_of(chat_template))
    _check_template(model, folder.path / "model")
    write_json(
        folder.path / "card.json",
        {
            "model": model,
            "snapshot": source.name,
            "num_files": len(files),
            "bytes": sum(file.stat().st_size for file in files),
            "chat_template": chat_template,
            "template_sha256": template_sha256,
            "max_positions": {"own": allowed, "allowed": config["max_position_embeddings"]},
        },
    )
    folder.progress(len(files), len(files))


def _write_own(path: Path, text: str) -> None:
    """Write a file in the place of a link, not through it into the model's own file."""
    path.unlink(missing_ok=True)
    write_text(path, text)


def folder_of(model: str) -> Path:
    """The folder of a model's files.

    Raises MissingAsset, which says what to do.
    """
    path = Path(model).expanduser()
    if path.is_dir():
        return path
    if is_path(model):
        raise MissingAsset(f"no model folder at {model}: mend the path, or give a hub id")
    found = cached_snapshot("model", model)
    return found if found is not None and has_weights(found) else _downloaded(model)


def _downloaded(model: str) -> Path:
    import huggingface_hub
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
    )

    fetch = f"`{fetch_command('model', model)}`"
    try:
        return Path(
            huggingface_hub.snapshot_download(
                model, allow_patterns=[f"*{suffix}" for suffix in OF_A_MODEL]
            )
        )
    except GatedRepoError as error:  # is a RepositoryNotFoundError too
        raise MissingAsset(
            f"model {model} is gated: accept its licence on the model's page, then "
            f"`hf auth login` and {fetch}"
        ) from error
    except RepositoryNotFoundError as error:
        raise MissingAsset(
            f"the hub has no model {model}, or it is private: mend the name, or `hf auth login`"
        ) from error
    except (OSError, LocalEntryNotFoundError, OfflineModeIsEnabled, HfHubHTTPError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise MissingAsset(
            f"model {model} is not on this machine and the hub is out of reach ({reason}): connect "
            f"and run {fetch}, or name a folder that holds it"
        ) from error


def _check_shape(model: str, config: dict, shape: dict) -> None:
    try:
        found = asdict(shape_of(SimpleNamespace(**config)))
    except (AttributeError, TypeError, ValueError) as error:
        raise KlearError(
            f"{model}: its config.json has no shape ({error}): name another model"
        ) from error
    wrong = [
        f"{name} is {found[name]}, real.yaml says {wanted}"
        for name, wanted in shape.items()
        if found[name] != wanted
    ]
    if wrong:
        raise KlearError(f"{model}: {'; '.join(wrong)}: mend real.yaml or name another model")


def template_of(path: str | Path) -> str:
    """The chat template in a file.

    Raises MissingAsset where there is no file, and KlearError where it is no text, or too long.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise MissingAsset(f"no file with a chat template at {path}: mend the path")
    try:
        return read_own_text(file)
    except ValueError as error:
        raise KlearError(f"the chat template {path} {error}") from error


def _check_template(model: str, folder: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    if tokenizer.chat_template is None:
        raise KlearError(
            f"{model} has no chat template, so nothing can be asked: name a file with one as "
            "chat_template in real.yaml"
        )
    if tokenizer.eos_token_id is None:
        raise KlearError(
            f"{model} has no end token (eos_token of its tokenizer), so no response could end: "
            "name another model"
        )
