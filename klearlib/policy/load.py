"""Loading and saving policies in the Hugging Face format."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedTokenizerFast,
)

from klearlib.errors import DamagedEntry, KlearError, MissingAsset, ParameterError, one_line
from klearlib.hub import model_folder

# Stands for a prompt in the chat template, to see what comes before and after it.
_STAND_IN = "stand-in of a prompt"


def load_policy(
    path: str | Path,
    *,
    device: str | None = None,
    precision: str = "fp32",
    yarn_factor: float | None = None,
    yarn_original: int | None = None,
    attention: str | None = None,
):
    """A causal language model and its tokenizer.

    Args:
        path: a local folder in the Hugging Face format, or a hub id.
        device: default: the GPU where there is one, else the CPU.
        precision: of the weights. Those that are trained are float32 (master weights), whatever
            the precision of the forward pass; see `autocast`.
        yarn_factor, yarn_original: stretch the rotary positions, see `with_yarn`; the paper: 2.5
            for its 64K budget. None leaves the model as it is.
        attention: ``"eager"``, ``"sdpa"``, or ``"flash_attention_2"`` where it is installed; None
            leaves what config.json says.

    Returns:
        (model in evaluation mode without dropout, tokenizer).

    Raises:
        MissingAsset: nothing there, the hub cannot be reached, or the attention is not installed.
        DamagedEntry: the files cannot be read, lack weights of the model that config.json names or
            hold some of another shape, or hold an adapter, or a tokenizer of more tokens than the
            model has.
        ParameterError: YaRN that this model cannot have.
    """
    folder = model_folder(path)
    if (folder / "adapter_config.json").exists():
        raise DamagedEntry(f"{path} contains an adapter: merge it into its model first")
    how = {} if attention is None else {"attn_implementation": attention}
    try:
        config, tokenizer = AutoConfig.from_pretrained(folder, **how), load_tokenizer(folder)
        if yarn_factor is not None:
            with_yarn(config, yarn_factor, original=yarn_original)
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        # Other shapes are refused below, by name.
        how = {"output_loading_info": True, "ignore_mismatched_sizes": True}
        model, loading = AutoModelForCausalLM.from_pretrained(
            folder, config=config, dtype=dtype, **how
        )
    except (ParameterError, DamagedEntry):
        raise
    except ImportError as error:
        if attention == "flash_attention_2":
            raise MissingAsset(
                f"attention {attention!r} is not installed ({one_line(error)}): "
                "install it, or use 'sdpa'"
            ) from error
        raise MissingAsset(
            f"{path} needs a package that is not installed: {one_line(error)}"
        ) from error
    except Exception as error:  # transformers and safetensors raise a dozen unrelated types here
        raise DamagedEntry(
            f"{path} cannot be loaded as a model ({type(error).__name__}: {one_line(error)}); "
            "make or download it again"
        ) from error
    shapes = [f"a different shape of {name}" for name, *_ in loading["mismatched_keys"]]
    if faults := sorted(f"no {name}" for name in loading["missing_keys"]) + sorted(shapes):
        raise DamagedEntry(  # transformers fills them at random
            f"{path} does not match its config.json: it has {', '.join(faults[:3])}; make or "
            "download it again"
        )
    rows, most = model.get_input_embeddings().weight.shape[0], max(tokenizer.get_vocab().values())
    if most >= rows:
        raise DamagedEntry(
            f"{path} has embeddings for {rows} tokens, but its tokenizer has token {most}: replace "
            "it with the model's own tokenizer"
        )
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return model.to(device).eval(), tokenizer


def load_tokenizer(path: str | Path):
    """The tokenizer of a local folder, by its tokenizer.json where there is one: the
    class that tokenizer_config.json names may build another from the same words. DamagedEntry where
    there is none."""
    is_fast = (Path(path) / "tokenizer.json").exists()
    tokenizer = (PreTrainedTokenizerFast if is_fast else AutoTokenizer).from_pretrained(path)
    # transformers makes up a tokenizer of special tokens where the files of one are missing.
    if not tokenizer.get_vocab().keys() - tokenizer.get_added_vocab().keys():
        raise DamagedEntry(f"{path} has no tokenizer: add the model's own")
    return tokenizer


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

    Raises ParameterError for another factor, or positions that are not rotary or scaled already.
    """
    if not 1 < factor < math.inf:
        raise ParameterError(f"yarn_factor must be above 1, got {factor}; leave it out for no YaRN")
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") != "default":
        raise ParameterError(
            f"yarn_factor needs plain rotary positions, but those of this "
            f"{config.model_type} are {rope.get('rope_type', 'of another kind')}: leave it out"
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


def autocast(device: torch.device | str, precision: str):
    """The context of a forward pass in `precision`: bf16 autocast, or nothing for ``"fp32"``."""
    kind = torch.device(device).type
    return torch.autocast(kind, dtype=torch.bfloat16, enabled=precision == "bf16")


def chat_prompt(tokenizer, prompt: str) -> tuple[str, list[int]]:
    """`prompt` as a user turn with the opening of the assistant's turn: its text and token ids.

    What looks like a control token in `prompt` is spelt out in ordinary tokens, so that no prompt
    can end its turn or open another. Raises KlearError for no chat template.
    """
    if tokenizer.chat_template is None:
        raise KlearError("the tokenizer has no chat template: add one to the model's folder")
    if control_ids(tokenizer).isdisjoint(tokenizer(prompt, add_special_tokens=False)["input_ids"]):
        text = _user_turn(tokenizer, prompt)
        return text, tokenizer(text, add_special_tokens=False)["input_ids"]
    head, _, tail = _user_turn(tokenizer, _STAND_IN).partition(_STAND_IN)
    encoded = [
        tokenizer(part, add_special_tokens=False, split_special_tokens=part is prompt)["input_ids"]
        for part in (head, prompt, tail)
    ]
    return head + prompt + tail, [token for ids in encoded for token in ids]


def control_ids(tokenizer) -> frozenset[int]:
    """Ids of the tokens that only the chat template and the end of a turn may write; the think tags
    are ordinary tokens."""
    added = tokenizer.added_tokens_decoder.items()
    return frozenset(index for index, token in added if token.special)


def _user_turn(tokenizer, prompt: str) -> str:
    turns = [{"role": "user", "content": prompt}]
    return tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
