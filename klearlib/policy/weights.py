"""Whether the weights of a loaded model are those that its folder holds, and are weights at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import safe_open

from klearlib.errors import DamagedEntry

_OF_WEIGHTS = {"F64", "F32", "F16", "BF16"} | {
    str(kind) for kind in (torch.float64, torch.float32, torch.float16, torch.bfloat16)
}
# Matrices that write to the residual stream: with zeros there, a layer adds nothing.
_ADDING = {"o_proj", "down_proj", "c_proj", "out_proj", "dense", "dense_4h_to_h", "fc2", "w2"}


def refuse_other_weights(path: str | Path, folder: Path | None, model, found: dict) -> None:
    """DamagedEntry where the files held other weights than the model has: transformers fills what
    is missing at random, drops what is left over and makes numbers of any type floating point.

    path: the model as the user calls it. folder: where its files are, if that is known. found: the
    loading info of transformers. A tied head may be missing, and what belongs to no part of the
    model, as a value head does, may be left over. Zeros may fill a matrix whose layer then adds
    nothing, no other and no norm.
    """
    parts = dict(model.named_children())
    shapes = (
        f"{name} ({list(here)}, not {list(there)})"
        for name, here, there in sorted(found["mismatched_keys"])
    )
    left = (name for name in sorted(found["unexpected_keys"]) if name.split(".")[0] in parts)
    quantized = getattr(model.config, "quantization_config", None) is not None
    kinds = _kinds(folder) if folder and not quantized else ()
    weights = {name for name, _ in model.named_parameters()}
    others = (
        f"{name} ({kind})"
        for name, kind in sorted(kinds)
        if kind not in _OF_WEIGHTS and _is_weight(name, weights)
    )
    faults = [
        f"{words} {', '.join(names[:3])}" + (f" and {len(names) - 3} more" if names[3:] else "")
        for words, names in (
            ("lacks", sorted(found["missing_keys"])),
            ("has another shape of", list(shapes)),
            ("has no place for", list(left)),
            ("has no floating point numbers in", list(others)),
            ("has nothing but zeros in", sorted(_zeros(model))),
        )
        if names
    ]
    if faults:
        raise DamagedEntry(
            f"{path} does not hold the model of its config.json: it {'; it '.join(faults)}; "
            "make or download it anew"
        )


def _is_weight(name: str, weights: set[str]) -> bool:
    """Whether a tensor of the files is a weight of the model, or a part of one: a causal mask or
    a table of positions, as older files hold, is none."""
    return name.endswith(".weight") or any(
        f".{one}".endswith(f".{other}")
        for each in weights
        for one, other in ((name, each), (each, name))
    )


def _kinds(folder: Path) -> Iterator[tuple[str, str]]:
    """Each tensor of the files that transformers reads, with the name of its type."""
    files = sorted(folder.glob("model*.safetensors"))
    for file in files:
        with safe_open(file, framework="pt") as stored:
            yield from ((name, stored.get_slice(name).get_dtype()) for name in stored.keys())  # noqa: SIM118
    for file in () if files else sorted(folder.glob("pytorch_model*.bin")):
        held = torch.load(file, map_location="meta", weights_only=True)
        yield from ((name, str(tensor.dtype)) for name, tensor in held.items())


def _zeros(model) -> Iterator[str]:
    """Names of the matrices and norms with which the model would say nothing, or not what it was
    trained to say."""
    for name, weight in model.named_parameters():
        matrix = weight.ndim > 1 and not name.endswith("bias")
        if matrix and not _ADDING & {*name.split(".")} and not weight.count_nonzero():
            yield name
    for name, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if "norm" in type(module).__name__.lower() and isinstance(weight, torch.Tensor):
            with torch.no_grad():  # some norms multiply by 1 + weight
                if not (weight.count_nonzero() or module(torch.arange(weight.numel()) + 1.0).any()):
                    yield f"{name}.weight"
