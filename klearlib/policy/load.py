"""Loading and saving policies in the Hugging Face format."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch
from huggingface_hub import HfApi
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedTokenizerFast,
)
from transformers.utils import cached_file

from klearlib.errors import DamagedEntry, KlearError, MissingAsset, ParameterError
from klearlib.hub import cached_snapshot, is_path

HUB_TIMEOUT_S = 10.0
# Stands for a prompt in the chat template, to see what comes before and after it.
_STAND_IN = "stand-in of a prompt"


def load_policy(
    path: str | Path,
    *,
    device: str | None = None,
    yarn_factor: float | None = None,
    yarn_original: int | None = None,
    attention: str | None = None,
):
    """A causal language model and its tokenizer.

    Args:
        path: a local folder in the Hugging Face format, or a hub id.
        device: default: the GPU where there is one, else the CPU. Weights are float32 (master
            weights); see `autocast` for the precision of the forward pass.
        yarn_factor, yarn_original: stretch the rotary positions, see `with_yarn`; the paper: 2.5
            for its 64K budget. None leaves the model as it is.
        attention: ``"eager"``, ``"sdpa"`` (a model without it is read by eager attention), or
            ``"flash_attention_2"`` where it is installed; None leaves what config.json says.

    Returns:
        (model in evaluation mode without dropout, tokenizer).

    Raises:
        MissingAsset: nothing there, the hub cannot be reached, or the attention is not installed.
        DamagedEntry: the files cannot be read, lack weights of the model that config.json names or
            hold some of another shape, or hold an adapter, or a tokenizer of more tokens than the
            model has.
        ParameterError: YaRN or an attention that this model cannot have.
    """
    local = Path(path).is_dir()
    files = {each.name for each in Path(path).iterdir()} if local else _ask_hub_once(str(path))
    if "adapter_config.json" in files:
        raise DamagedEntry(f"{path} holds an adapter: merge it into its model first")
    try:
        config = AutoConfig.from_pretrained(path)
        tokenizer = load_tokenizer(path)
        if yarn_factor is not None:
            with_yarn(config, yarn_factor, original=yarn_original)
        if attention is not None:
            config._attn_implementation = "eager"  # until it is set: that of the file may be absent
        model, loading = AutoModelForCausalLM.from_pretrained(
            path,
            config=config,
            dtype=torch.float32,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # refused below, by name
        )
    except (ParameterError, DamagedEntry):
        raise
    except Exception as error:  # transformers and safetensors raise a dozen unrelated types here
        if local:
            raise DamagedEntry(
                f"{path} cannot be loaded as a model ({type(error).__name__}: {_line(error)}); "
                "delete it and run again"
            ) from error
        raise missing_model(path, error) from error
    _refuse_other_weights(path, loading)
    rows, most = model.get_input_embeddings().weight.shape[0], max(tokenizer.get_vocab().values())
    if most >= rows:
        raise DamagedEntry(
            f"{path} has an embedding of {rows} tokens and a tokenizer with the token {most}: put "
            "the model's own tokenizer there"
        )
    if attention is not None:
        _set_attention(model, attention)
    return model.to(device or default_device()).eval(), tokenizer


def load_tokenizer(path: str | Path):
    """The tokenizer of a local folder or a hub id, by its tokenizer.json where there is one: the
    class that tokenizer_config.json names may build another from the same words. DamagedEntry where
    there is none."""
    file = cached_file(path, "tokenizer.json", _raise_exceptions_for_missing_entries=False)
    kind = AutoTokenizer if file is None else PreTrainedTokenizerFast
    tokenizer = kind.from_pretrained(path)
    # transformers makes up a tokenizer of special tokens where the files of one are missing.
    if not tokenizer.get_vocab().keys() - tokenizer.get_added_vocab().keys():
        raise DamagedEntry(f"{path} holds no tokenizer: put the model's own there")
    return tokenizer


def _refuse_other_weights(path: str | Path, loading: dict) -> None:
    """DamagedEntry for weights that transformers did not find and filled at random."""
    shapes = (f"{name} ({[*a]}, not {[*b]})" for name, a, b in loading["mismatched_keys"])
    faults = [
        f"{words} {', '.join(names[:3])}" + (f" and {len(names) - 3} more" if names[3:] else "")
        for words, names in (
            ("lacks", sorted(loading["missing_keys"])),
            ("has another shape of", sorted(shapes)),
        )
        if names
    ]
    if faults:
        raise DamagedEntry(
            f"{path} does not hold the model of its config.json: it {'; it '.join(faults)}; "
            "make or download it again"
        )


def missing_model(path: str | Path, error: Exception) -> MissingAsset:
    """For what transformers said where it found no model at `path`."""
    return MissingAsset(
        f"model {str(path)!r} was not found here ({type(error).__name__}: {_line(error)}); "
        "give a local folder, or download it first with `hf download`"
    )


def _ask_hub_once(name: str) -> set[str]:
    """The names of the model's files. MissingAsset where neither the hub's cache nor the hub has
    it: transformers would ask for each file, and six times for each."""
    try:
        if "/" in name and is_path(name):
            raise FileNotFoundError("no such folder")
        if (folder := cached_snapshot("model", name)) is not None:
            return {each.name for each in folder.iterdir()}
        info = HfApi().model_info(name, timeout=HUB_TIMEOUT_S)
        return {each.rfilename for each in info.siblings or ()}
    except Exception as error:  # of the hub's library, and of the one below it
        raise missing_model(name, error) from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def with_yarn(
    config: PretrainedConfig, factor: float, *, original: int | None = None
) -> PretrainedConfig:
    """`config` with positions up to `factor` times its own by YaRN (Peng et al., 2023), changed in
    place.

    A rotary dimension that turns r times over the original positions keeps its frequency where r is
    at least 32 and has it divided by `factor` where r is at most 1; the frequencies between are
    mixed linearly in the dimension's number, as in the authors' code, and not in r, as their paper
    has it. Cosines and sines are multiplied by 0.1 ln(factor) + 1. It is static: short sequences
    change too, so scores with and without it are different settings.

    Args:
        factor: above 1. The released model card and the paper's 64K budget: 2.5 on 32,768.
        original: the positions that the model was trained on, where its config names more, as that
            of Qwen3-8B does (40,960 for 32,768); default: the config's.

    Raises:
        ParameterError: a factor that is not above 1, positions that are not rotary or scaled
            already.
    """
    if original is not None and original < 1:
        raise ParameterError(f"the original positions must be at least 1, got {original}")
    if not 1 < factor < math.inf:
        raise ParameterError(f"yarn_factor must be above 1, got {factor}; leave it out for no YaRN")
    rope = getattr(config, "rope_parameters", None)
    if not rope or "rope_theta" not in rope:
        raise ParameterError(
            f"yarn_factor needs a model whose layers share one kind of rotary positions, "
            f"{config.model_type} has none: leave it out"
        )
    if rope.get("rope_type", "default") != "default":
        raise ParameterError(
            f"the model has rope scaling {rope['rope_type']!r} already, factor "
            f"{rope.get('factor')}: leave yarn_factor out, or take the scaling out of its config"
        )
    original = original or config.max_position_embeddings
    config.rope_parameters = rope | {
        "rope_type": "yarn",
        "factor": float(factor),
        "original_max_position_embeddings": original,
    }
    config.max_position_embeddings = int(original * factor)
    return config


@contextmanager
def stretched(model, factor: float, *, original: int | None = None) -> Iterator[None]:
    """`model` reads its positions under YaRN within the context, as one that was loaded with it
    does; see `with_yarn`."""
    rotary = model.model.rotary_emb
    before = rotary.inv_freq, rotary.attention_scaling
    scaled = type(rotary)(with_yarn(copy.deepcopy(model.config), factor, original=original))
    rotary.inv_freq = scaled.inv_freq.to(before[0].device)
    rotary.attention_scaling = scaled.attention_scaling
    try:
        yield
    finally:
        rotary.inv_freq, rotary.attention_scaling = before


def save_policy(model, tokenizer, path: str | Path) -> None:
    """Write model and tokenizer in the Hugging Face format, readable by transformers and vLLM."""
    os.makedirs(path, exist_ok=True)
    model.save_pretrained(path)
    tokenizer.init_kwargs.pop("local_files_only", None)  # how it was found, not what it is
    tokenizer.save_pretrained(path)


def default_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def autocast(device: torch.device | str, precision: str):
    """The context of a forward pass in `precision`: bf16 autocast, or nothing for ``"fp32"``."""
    if precision == "bf16":
        return torch.autocast(torch.device(device).type, dtype=torch.bfloat16)
    if precision != "fp32":
        raise ParameterError(f"precision must be 'fp32' or 'bf16', got {precision!r}")
    return nullcontext()


def _set_attention(model, name: str) -> None:
    try:
        model.set_attn_implementation(name)
    except ImportError as error:
        raise MissingAsset(
            f"attention {name!r} is not installed ({_line(error)}): install it, or give 'sdpa'"
        ) from error
    except ValueError as error:
        if name == "sdpa":  # the model does not have it, and stays eager
            return
        raise ParameterError(f"no attention {name!r} ({_line(error)}): give 'sdpa'") from error


def chat_prompt(tokenizer, prompt: str) -> tuple[str, list[int]]:
    """`prompt` as a user turn with the opening of the assistant's turn: its text and token ids.

    What looks like a control token in `prompt` is spelt out in ordinary tokens, so that no prompt
    can end its turn or open another. Raises KlearError where a prompt that needs this is rewritten
    by the chat template, for a template that fails, and where there is none.
    """
    text = _user_turn(tokenizer, prompt)
    if control_ids(tokenizer).isdisjoint(tokenizer(prompt, add_special_tokens=False)["input_ids"]):
        return text, tokenizer(text, add_special_tokens=False)["input_ids"]
    head, _, tail = _user_turn(tokenizer, _STAND_IN).partition(_STAND_IN)
    if text != head + prompt + tail:
        raise KlearError(
            "a prompt holds a control token and is rewritten by the chat template, so its place in "
            "the text is unknown: remove the control token from the prompt"
        )
    parts = ((head, False), (prompt, True), (tail, False))
    encoded = (
        tokenizer(part, add_special_tokens=False, split_special_tokens=split)["input_ids"]
        for part, split in parts
    )
    return text, [token for ids in encoded for token in ids]


def control_ids(tokenizer) -> frozenset[int]:
    """Ids of the tokens that only the chat template and the end of a turn may write; the think tags
    are ordinary tokens."""
    added = tokenizer.added_tokens_decoder.items()
    return frozenset(index for index, token in added if token.special)


def _user_turn(tokenizer, prompt: str) -> str:
    if tokenizer.chat_template is None:
        raise KlearError("the tokenizer has no chat template: add one to the model's folder")
    turns = [{"role": "user", "content": prompt}]
    try:
        return tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # whatever the template's program raises
        fault = f"{type(error).__name__}: {_line(error)}"
        raise KlearError(
            f"the chat template fails on a prompt ({fault}): correct it, or give another"
        ) from error
