"""Stage ``model``: a model of this machine or of the hub, under the name that all stages know."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from klearlib.errors import KlearError, MissingAsset
from klearlib.hub import OF_A_MODEL, WEIGHTS, has_weights, model_folder
from klearlib.policy.shape import shape_of
from klearlib.run.files import write_json, write_text

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder

_CONFIG, _TEMPLATE = "config.json", "chat_template.jinja"


def link_model(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    model: str,
    content: str | None,
    chat_template: str | None,
    template_content: str | None,
    positions: int,
    shape: dict | None,
) -> None:
    """Stage ``model``: ``model/`` with links to the files of a model, and card.json.

    Its config.json alone is a copy, which allows at least `positions`.

    Args:
        inputs: none are read.
        model: a folder in the Hugging Face format, or a hub id, which is downloaded where the
            hub's cache lacks it. content: of a folder, so that a changed one is another stage.
        chat_template: a file with the chat template, for a model without one; it also stands in
            for one that is there. template_content: of that file, so that an edited one is
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
    from klearlib.policy.load import load_tokenizer  # loads torch

    source = model_folder(model)
    if not has_weights(source):
        raise MissingAsset(
            f"{source} has no config.json with all weights in {WEIGHTS}: fetch all of the model's "
            "files, or name another folder"
        )
    config = json.loads((source / _CONFIG).read_text(encoding="utf-8"))
    own_shape = asdict(shape_of(SimpleNamespace(**config))) if shape else {}
    wrong = [(k, own_shape[k], v) for k, v in (shape or {}).items() if own_shape[k] != v]
    if wrong:
        faults = "; ".join(f"{k} is {own}, real.yaml says {v}" for k, own, v in wrong)
        raise KlearError(f"{model}: {faults}: correct real.yaml or name another model")
    files = [f for f in sorted(source.iterdir()) if f.name.endswith(OF_A_MODEL) and f.is_file()]
    target = folder.path / "model"
    for file in files:
        link_file(file, target / file.name)
    allowed = config.get("max_position_embeddings", positions)
    config["max_position_embeddings"] = max(positions, allowed)
    own = {_CONFIG: json.dumps(config, indent=2) + "\n"}
    if chat_template is not None:
        own[_TEMPLATE] = template_of(chat_template)
    for name, text in own.items():
        (target / name).unlink(missing_ok=True)  # else it would be written through the link
        write_text(target / name, text)
    if load_tokenizer(target).chat_template is None:
        raise KlearError(
            f"{model} has no chat template: name a file with one as chat_template in real.yaml"
        )
    card = {
        "snapshot": source.name,
        "num_files": len(files),
        "bytes": sum(file.stat().st_size for file in files),
        "max_positions": {"own": allowed, "allowed": config["max_position_embeddings"]},
    }
    write_json(folder.path / "card.json", card)


def template_of(path: str | Path) -> str:
    """The chat template in a file; MissingAsset if there is none."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise MissingAsset(f"no file with a chat template at {path}: check the path")
    return file.read_text(encoding="utf-8")


def link_file(source: Path, target: Path) -> None:
    """Make `target` a symbolic link to the file `source`, in the place of what is there.

    A finished stage is verified through its links: the sizes and digests in its done.json are those
    of the files behind them, so one that was removed or changed shows as a damaged entry. A link
    to a file of the project is relative, so that it holds where the project is moved.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    found, here = source.resolve(), target.parent.resolve()
    project = next((each.parent for each in here.parents if each.name == "results"), None)
    inside = project is not None and found.is_relative_to(project)
    target.symlink_to(os.path.relpath(found, here) if inside else found)
