"""Whether the weights of a loaded model are those that its folder holds, and are weights at all."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import torch
import transformers
from safetensors import safe_open
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

from klearlib.errors import DamagedEntry
from klearlib.hub import indexed_files

_OF_WEIGHTS = {"F64", "F32", "F16", "BF16"} | {
    str(kind) for kind in (torch.float64, torch.float32, torch.float16, torch.bfloat16)
}
# Matrices that write to the residual stream: with zeros there, a layer adds nothing.
_ADDING = {
    *("o_proj", "down_proj", "c_proj", "out_proj", "dense", "dense_4h_to_h", "fc2", "fc_out", "w2"),
    *("Wo", "w_out", "attention_out", "linear_out", "output_linear", "o_b_proj"),
}
_CLASSES = frozenset(dir(transformers))
_HEAD = re.compile(r"(?:ForCausalLM|LMHeadModel|ForConditionalGeneration|Model)$")
# What older files hold beside the weights: masks and tables that follow from config.json.
_COMPUTED = (
    *(".attn.bias", ".attention.bias", ".masked_bias", ".causal_mask", ".inv_freq"),
    *(".position_ids", ".cos_cached", ".sin_cached", "decoder.version"),
)
_OF_ADAPTERS = ("lora_", "ia3_", "oft_", "hada_", "lokr_", "prompt_embeddings")


def refuse_other_weights(path: str | Path, folder: Path | None, model, found: dict) -> None:
    """DamagedEntry where the files held other weights than the model has: transformers fills what
    is missing at random, drops what is left over and makes numbers of any type floating point; and
    where they are no finite numbers.

    path: the model as the user calls it. folder: where its files are, if that is known. found: the
    loading info of transformers. A tied head may be missing, and what belongs to no part of the
    model, as a value head does, may be left over. Zeros may fill matrices whose layer then adds
    nothing, but not those of all layers, no other matrix and no norm.
    """
    shapes = (
        f"{name} ({list(here)}, not {list(there)})"
        for name, here, there in sorted(found["mismatched_keys"])
    )
    # Files may name the tensors of the base model without its own name before them.
    parts = {**dict(model.named_children()), **dict(model.base_model.named_children())}
    known = {name for name, buffer in model.named_buffers() if not buffer.is_floating_point()}

    def is_own(name: str) -> bool:
        return name.split(".")[0] in parts and name not in known and not name.endswith(_COMPUTED)

    left = (
        name
        for name in sorted(found["unexpected_keys"])
        if is_own(name) or any(mark in name for mark in _OF_ADAPTERS)
    )
    quantized = getattr(model, "hf_quantizer", None) is not None
    stored = [] if folder is None or quantized else sorted(_stored(folder, model.config))
    state = model.state_dict()
    target_of = _renamed(model, state)
    targets = {name: target_of(name) for name, _ in stored}
    others = (
        f"{name} ({kind})"
        for name, kind in stored
        if kind not in _OF_WEIGHTS
        and targets[name][0] in state
        and state[targets[name][0]].is_floating_point()
    )
    # Several tensors may be parts of one, each of which is there once, and none is the whole.
    whole = Counter(targets[name][0] for name, _ in stored if targets[name][1] is None)
    parts_of = {target for target, part in targets.values() if part is not None}
    again = Counter(name for name, _ in stored)
    twice = {name for name in whole if name in state and (whole[name] > 1 or name in parts_of)}
    twice |= {name for name in again if again[name] > 1 and targets[name][0] in state}
    faults = [
        f"{words} {', '.join(names[:3])}" + (f" and {len(names) - 3} more" if names[3:] else "")
        for words, names in (
            ("lacks", sorted(found["missing_keys"])),
            ("has another shape of", list(shapes)),
            ("has no place for", list(left)),
            ("has no floating point numbers in", list(others)),
            ("has twice", sorted(twice)),
            ("has NaN or infinity in", [n for n, w in _numbers(model, state) if not _finite(w)]),
            ("has nothing but zeros in", sorted(_zeros(model))),
        )
        if names
    ]
    if faults:
        raise DamagedEntry(
            f"{path} does not hold the model of its config.json: it {'; it '.join(faults)}; "
            "make or download it anew"
        )


def _renamed(model, state: Mapping) -> Callable[[str], tuple[str, str | None]]:
    """The name in the model that transformers gives to one of a file, and, where that is of several
    tensors that become one, by which pattern it is a part of it."""
    mapping = get_model_conversion_mapping(model)
    renamings = [each for each in mapping if isinstance(each, WeightRenaming)]
    converters = [each for each in mapping if isinstance(each, WeightConverter)]

    def rename(name: str) -> tuple[str, str | None]:
        for rules in ((renamings, converters), ([], [])):
            found = rename_source_key(name, *rules, model.base_model_prefix, state)
            if found[0] in state:
                break
        return found

    return rename


def _numbers(model, state: Mapping) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    for name, buffer in model.named_buffers():
        if name in state and buffer.is_floating_point():
            yield name, buffer


def refuse_other_class(path: str | Path, model) -> None:
    """DamagedEntry where config.json says that another class of transformers has been saved than
    has been loaded, such as one that classifies, which may have all that this one has."""
    stated = model.config.architectures
    stated = stated if isinstance(stated, list) else [stated]
    stated = [each for each in stated if isinstance(each, str) and each in _CLASSES]
    stems = {_HEAD.sub("", name).casefold() for name in stated}
    if stems and _HEAD.sub("", type(model).__name__).casefold() not in stems:
        raise DamagedEntry(
            f"{path} holds a {stated[0]}, by architectures in its config.json, and transformers "
            f"makes a {type(model).__name__} of it: mend architectures or model_type there, or "
            "name a model that writes text"
        )


def _stored(folder: Path, config) -> Iterator[tuple[str, str]]:
    """Each tensor of the files that transformers reads, with the name of its type."""
    for file in _files(folder, getattr(config, "transformers_weights", None)):
        if file.suffix == ".safetensors":
            with safe_open(file, framework="pt") as stored:
                names = stored.keys()
                yield from ((name, stored.get_slice(name).get_dtype()) for name in names)
        else:
            held = torch.load(file, map_location="meta", weights_only=True)
            tensors = (pair for pair in held.items() if isinstance(pair[1], torch.Tensor))
            yield from ((name, str(tensor.dtype)) for name, tensor in tensors)


def _files(folder: Path, named: str | None) -> list[Path]:
    """The files of weights, in the order in which transformers looks for them. DamagedEntry where
    it passes over what cannot be read and takes older ones."""
    if named is not None and named.endswith(".index.json"):
        return indexed_files(folder / named)
    for name in filter(None, (named, "model.safetensors", "pytorch_model.bin")):
        index = folder / f"{name}.index.json"
        passed = [each for each in (folder / name, index) if os.path.lexists(each)]
        passed = [each for each in passed if not each.is_file()]
        if name == "pytorch_model.bin":
            passed += folder.glob("model-*-of-*.safetensors")
        if passed:
            raise DamagedEntry(
                f"{passed[0]} is not read, as it is no file or has no index: remove it, or make or "
                "download it anew"
            )
        if (folder / name).is_file():
            return [folder / name]
        if index.is_file():
            return indexed_files(index)
    return []


def _finite(weight: torch.Tensor) -> bool:
    weight = weight.detach().float()  # of eight bits there is no sum
    return bool(weight.sum().isfinite() or weight.isfinite().all())  # the sum is quick


def _is_zero(weight: torch.Tensor) -> bool:
    """Whether a matrix holds zeros alone, or one of several in one tensor, as experts are."""
    if weight.ndim == 3 and weight.shape[1] > 1:
        some = weight[:, 0].any(dim=1)  # the start is quick
        return not weight[~some].flatten(1).any(dim=1).all()
    return not (weight.flatten()[:4096].any() or weight.count_nonzero())  # the start is quick


def _zeros(model) -> Iterator[str]:
    """Names of the matrices and norms without which the model is not the one that was trained."""
    matrices = {n: w for n, w in model.named_parameters() if w.ndim > 1 and not n.endswith("bias")}
    zeros = {name for name, weight in matrices.items() if _is_zero(weight)}
    adding = {name for name in matrices if _ADDING & {*name.split(".")}}
    yield from zeros if adding <= zeros else zeros - adding
    for name, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if "norm" in type(module).__name__.lower() and getattr(weight, "ndim", 0) == 1:
            # Some multiply by 1 + weight, some add a bias, some cannot be called alone.
            with torch.no_grad(), suppress(Exception):
                line = torch.arange(weight.numel(), dtype=weight.dtype, device=weight.device)
                if module(line).equal(module(-line)):
                    yield f"{name}.weight"
