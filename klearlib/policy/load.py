"""Loading and saving policies in the Hugging Face format."""

from __future__ import annotations

import copy
import gc
import math
import os
import resource
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from weakref import WeakKeyDictionary

import torch
from huggingface_hub import HfApi
from tokenizers import Tokenizer
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PretrainedConfig,
)
from transformers.utils import logging

from klearlib.errors import DamagedEntry, KlearError, MissingAsset, ParameterError
from klearlib.hub import cached_snapshot, is_path
from klearlib.policy.weights import refuse_other_class, refuse_other_weights

HUB_TIMEOUT_S = 10.0
MAX_LAYERS = 10_000
TEMPLATE_CPU_S, TEMPLATE_BYTES, TEMPLATE_CHARS = 5.0, 2**30, 2**20
"""Limits of a chat template, which is a program of whoever made the model: CPU seconds and memory
when it is first used, and characters around a prompt."""

# What tokenizers read differently: words, digits, signs, lines, what is not ASCII.
_TEXT = (
    "What is 12 + 3456789?\n\nIt's 46, I'M: na\u00efve \u65e5\u672c\n\tdef f(x):\n"
    "    return \\boxed{x}"
)
# Stands for a prompt in the chat template, to see what comes before and after it.
_STAND_IN = "stand-in of a prompt"
_TRIED = "tried"
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers")
_tried: WeakKeyDictionary = WeakKeyDictionary()  # tokenizer -> its template that was tried


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
        attention: ``"eager"``, ``"sdpa"`` (a model that has it not is eager), or
            ``"flash_attention_2"`` where it is installed; None leaves what config.json says.

    Returns:
        (model in evaluation mode without dropout, tokenizer).

    Raises:
        MissingAsset: nothing there, the hub cannot be reached, or the attention is not installed.
        DamagedEntry: the files cannot be read, do not hold the weights that config.json names, or
            hold an adapter, no tokenizer or that of another model.
        ParameterError: YaRN or an attention that this model cannot have.
    """
    local = Path(path).is_dir()
    files = {each.name for each in Path(path).iterdir()} if local else _ask_hub_once(str(path))
    if "adapter_config.json" in files:
        raise DamagedEntry(f"{path} holds an adapter: merge it into its model first")
    try:
        config = _usable_config(path)
        tokenizer = AutoTokenizer.from_pretrained(path)
        if "generation_config.json" in files:  # else one at fault is passed over
            GenerationConfig.from_pretrained(path)
        if yarn_factor is not None:
            with_yarn(config, yarn_factor, original=yarn_original)
        if attention is not None:
            config._attn_implementation = "eager"  # until it is set: that of the file may be absent
        with _without_report():
            model, found = AutoModelForCausalLM.from_pretrained(
                path,
                config=config,
                dtype=torch.float32,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # refused below, by name
            )
    except ParameterError:
        raise
    except Exception as error:  # transformers and safetensors raise a dozen unrelated types here
        if local:
            raise DamagedEntry(
                f"{path} is no readable model folder ({type(error).__name__}: {_line(error)}); "
                "delete it and run again"
            ) from error
        raise missing_model(path, error) from error
    folder = Path(path) if local else cached_snapshot("model", str(path))
    refuse_other_class(path, model)
    refuse_other_weights(path, folder, model, found)
    rows = model.get_input_embeddings().weight.shape[0]
    refuse_other_tokenizer(path, folder, tokenizer, rows=rows)
    if attention is not None:
        _set_attention(model, attention)
    return model.to(device or default_device()).eval(), tokenizer


@contextmanager
def _without_report() -> Iterator[None]:
    """transformers says nothing of weights on the terminal: what is wrong with them is refused."""
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _usable_config(path: str | Path) -> PretrainedConfig:
    """The model's config; ValueError for one of which no model can be built, where transformers
    would try."""
    raw = PretrainedConfig.get_config_dict(path)[0]
    text = raw.get("text_config") or raw
    layers = max(text.get(name) or 0 for name in _LAYERS)
    if layers > MAX_LAYERS:
        raise ValueError(f"config.json has {layers} layers, of {MAX_LAYERS} at most")
    config = AutoConfig.from_pretrained(path)
    config.return_dict = True
    text_config = config.get_text_config()
    slides = "sliding_attention" in (getattr(text_config, "layer_types", None) or ())
    if slides and getattr(text_config, "sliding_window", None) is None:
        raise ValueError("config.json has layers of sliding attention and no sliding_window")
    return config


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


def refuse_other_tokenizer(path: str | Path, folder: Path | None, tokenizer, *, rows: int) -> None:
    """DamagedEntry for a tokenizer with tokens beyond the `rows` of the model's embedding, for one
    that has no token of a text beside those that tokenizer_config.json adds, or loses all of one
    (transformers makes it up where the files of one are missing), and for one that reads a text
    otherwise than the tokenizer.json of `folder`: the class that is named beside it may build its
    own."""
    ids = set(tokenizer.get_vocab().values())
    file = None if folder is None else folder / "tokenizer.json"
    own = ids - control_ids(tokenizer) - {*tokenizer.get_added_vocab().values()}
    if not own:
        fault = "holds no tokenizer"
    elif file is not None and file.is_file() and not _follows(tokenizer, file):
        raise DamagedEntry(
            f"{path} has a tokenizer_class that does not read as its tokenizer.json does: write "
            '"tokenizer_class": "PreTrainedTokenizerFast" into its tokenizer_config.json'
        )
    elif not _keeps(tokenizer):
        fault = "holds no tokenizer that keeps a text"
    elif max(ids) >= rows:
        fault = f"has an embedding of {rows} tokens and a tokenizer with the token {max(ids)}"
    else:
        return
    raise DamagedEntry(f"{path} {fault}: put the model's own tokenizer there")


def _follows(tokenizer, file: Path) -> bool:
    own = Tokenizer.from_file(str(file))
    own.no_padding()
    own.no_truncation()
    try:
        ids = own.encode(_TEXT, add_special_tokens=False).ids
    except Exception:  # as in `_ids`
        ids = None
    return _ids(tokenizer) == ids


def _keeps(tokenizer) -> bool:
    """Whether a letter or digit of a text comes back from its tokens."""
    ids = [each for each in _ids(tokenizer) or [] if each != tokenizer.unk_token_id]
    text = tokenizer.decode(ids, skip_special_tokens=True)
    return any(each.isalnum() and each in _TEXT.casefold() for each in text.casefold())


def _ids(tokenizer) -> list[int] | None:
    try:
        return tokenizer(_TEXT, add_special_tokens=False)["input_ids"]
    except Exception:  # the bare kind, where it lacks its token for what is unknown
        return None


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
        if name == "sdpa":  # the model has it not, and stays eager
            return
        raise ParameterError(f"no attention {name!r} ({_line(error)}): give 'sdpa'") from error


def chat_prompt(tokenizer, prompt: str) -> tuple[str, list[int]]:
    """`prompt` as a user turn with the opening of the assistant's turn: its text and token ids.

    What looks like a control token in `prompt` is spelt out in ordinary tokens, so that no prompt
    can end its turn or open another. Raises KlearError where a prompt that needs this is rewritten
    by the chat template, and for a template that fails, gives no text, leaves the prompt out, or
    passes one of its limits when it is first used.
    """
    if tokenizer not in _tried or _tried[tokenizer] != tokenizer.chat_template:
        _try_template(tokenizer, prompt)
        _tried[tokenizer] = tokenizer.chat_template
    text = _user_turn(tokenizer, prompt)
    if control_ids(tokenizer).isdisjoint(tokenizer(prompt, add_special_tokens=False)["input_ids"]):
        return text, tokenizer(text, add_special_tokens=False)["input_ids"]
    head, _, tail = _user_turn(tokenizer, _STAND_IN).partition(_STAND_IN)
    if text != head + prompt + tail:
        raise KlearError(
            "a prompt holds a control token and is rewritten by the chat template, so that its "
            "part of the text is unknown: remove the control token from the prompt"
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
    turns = [{"role": "user", "content": prompt}]
    try:
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        text.encode()  # half a surrogate pair, of which no tokens can be made
    except Exception as error:  # whatever the template's program does
        fault = f"{type(error).__name__}: {_line(error)}".removesuffix(": ")
    else:
        extent = len(text) - len(prompt)
        if text.strip() and extent <= TEMPLATE_CHARS:
            return text
        fault = f"{extent:,} characters around it" if text.strip() else "no text"
    raise KlearError(f"the chat template fails on a prompt ({fault}): mend it, or name another")


def _try_template(tokenizer, prompt: str) -> None:
    """KlearError for a chat template that fails on `prompt`, or does not write a long one whole.

    A process of its own tries it: no handler of a signal is called within one long call of C, and
    Jinja goes on behind an exception where it computes constants beforehand.
    """
    reader, writer = os.pipe()
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        child = os.fork()  # of a process with threads, none of which it needs
    if child == 0:
        try:
            os.write(writer, _tried_within_limits(tokenizer, prompt).encode(errors="replace"))
        finally:
            os._exit(0)
    os.close(writer)
    try:
        with open(reader, "rb") as pipe:
            said = pipe.read().decode()
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        with suppress(ChildProcessError):  # SIGCHLD is ignored, and nobody is waited for
            os.waitpid(child, 0)
    if said != _TRIED:
        raise KlearError(
            said
            or f"the chat template fails on a prompt (more than {TEMPLATE_CPU_S:g} seconds, or "
            f"{TEMPLATE_BYTES // 2**20} MiB): mend it, or name another"
        )


def _tried_within_limits(tokenizer, prompt: str) -> str:
    """`_TRIED`, or what is wrong with the chat template."""
    gc.disable()
    _set_limits()
    try:
        _user_turn(tokenizer, prompt)
        if _STAND_IN * 500 in _user_turn(tokenizer, _STAND_IN * 500).casefold():
            return _TRIED
    except KlearError as error:
        return str(error)
    return (
        "the chat template leaves out the prompt or a part of it: have it write the content of its "
        "messages, or name another"
    )


def _set_limits() -> None:
    """Have the system end this process behind `TEMPLATE_CPU_S`, and MemoryError be raised behind
    `TEMPLATE_BYTES` more memory, on Linux."""
    for number, timer, seconds in (
        (signal.SIGPROF, signal.ITIMER_PROF, TEMPLATE_CPU_S),
        # By the clock, where it waits for what another thread held when this process began.
        (signal.SIGALRM, signal.ITIMER_REAL, 20 * TEMPLATE_CPU_S),
    ):
        signal.signal(number, signal.SIG_DFL)
        signal.setitimer(timer, seconds)
    sizes = Path("/proc/self/statm")
    if sizes.exists():
        most = int(sizes.read_text().split()[0]) * resource.getpagesize() + TEMPLATE_BYTES
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
