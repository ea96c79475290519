"""The options of ``klear evaluate``, their ranges and the presets; nothing heavy is imported."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from types import SimpleNamespace

from klearlib.errors import ParameterError


def _number(kind: type, low: float, high: float) -> Callable:
    """A type of argparse: a number from `low` to `high`."""

    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = float("nan")
        if low <= value <= high:
            return value
        raise argparse.ArgumentTypeError(f"must be a number from {low} to {high}, got {text:.40}")

    return parse


_COUNT = _number(int, 1, 2**31 - 1)
_PRESETS = (
    "paper (default): temperature 0.6, top_p 0.95; released: also top_k 20, repetition_penalty "
    "1.05, YaRN 2.5, and judged as published graders do: --answer-form equivalent, --truncated "
    "as_text"
)
_ORIGINAL = (
    "positions that --yarn multiplies, if the model's config names more than it was trained on "
    "(Qwen3-8B: 32768)"
)
_FORM = "what answers a written number: one that is written too (default), or all that equals it"

# Each option: what it takes (a type of argparse, or the words to choose from), its name in the
# help, and the help.
# fmt: off
OF_ALL: dict[str, tuple] = {
    "--n": (_number(int, 1, 2**16), "N", "responses to each problem (needed with --model)"),
    "--preset": (("paper", "released"), None, _PRESETS),
    "--think-tags": (("required", "optional"), None,
                     "whether a response needs both think tags (default: required, as in RL)"),
    "--answer-form": (("written", "equivalent"), None, _FORM),
    "--truncated": (("wrong", "as_text"), None,
                    "how responses that the budget ended are judged (default: wrong, as in RL)"),
    "--test-timeout-s": (_number(float, 0.001, 3600), "S", "of a test (default: 6)"),
    "--test-memory-mb": (_number(int, 16, 2**20), "MB", "of a test (default: 1024)"),
}
OF_A_MODEL: dict[str, tuple] = {
    "--max-new-tokens": (_COUNT, "N", "of a response, at most"),
    "--temperature": (_number(float, 0, 100), "T", "0 is greedy"),
    "--top-p": (_number(float, 1e-6, 1), "P", "1 keeps all tokens"),
    "--top-k": (_number(int, 0, 2**31 - 1), "K", "0 keeps all tokens"),
    "--repetition-penalty": (_number(float, 0.1, 10), "R", "1 is none"),
    "--yarn": (_number(float, 1, 1000), "F",
               "factor of the positions; 1 adds none to those of the config"),
    "--yarn-original": (_COUNT, "N", _ORIGINAL),
    "--seed": (_number(int, 0, 2**63 - 1), "S", "of all draws (default: 0)"),
    "--batch-rows": (_COUNT, "N", "responses decoded together (default: 64)"),
    "--engine": (("transformers", "vllm"), None, "who samples (default: transformers)"),
    "--precision": (("fp32", "bf16"), None, "of the forward pass (default: fp32)"),
    "--tensor-parallel": (_COUNT, "N", "GPUs of one vLLM engine (default: 1)"),
    "--gpu-memory-share": (_number(float, 0.01, 0.95), "S",
                           "of each GPU's memory for vLLM (default: 0.9)"),
}
"""How a model is asked; none has a default here, so that one that is given can be told."""
# fmt: on


def add_evaluate_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``klear evaluate`` takes."""
    scored = parser.add_mutually_exclusive_group(required=True)
    scored.add_argument("--model", metavar="PATH", help="a model's folder, or its id on the hub")
    scored.add_argument("--responses", metavar="FILE", help="responses that exist, as JSON lines")
    names = "aime24, aime25, hmmt25, lcb_v5, lcb_v6, or any name with --data"
    parser.add_argument("--benchmark", required=True, metavar="NAME", help=names)
    file = "the benchmark's file or folder (default: from the hub)"
    parser.add_argument("--data", metavar="PATH", help=file)
    out = "folder of the results (default: evaluations/<benchmark>-...)"
    parser.add_argument("--out", metavar="DIR", help=out)
    asked = parser.add_argument_group("how a model is asked, for --model alone")
    for group, options in ((parser, OF_ALL), (asked, OF_A_MODEL)):
        for flag, (kind, metavar, words) in options.items():
            how = {"choices" if isinstance(kind, tuple) else "type": kind}
            group.add_argument(flag, metavar=metavar, help=words, **how)
    parser.set_defaults(think_tags="required", test_timeout_s=6.0, test_memory_mb=1024)


def check_arguments(arguments: argparse.Namespace) -> None:
    """ParameterError for options that do not fit each other."""
    values = vars(arguments)
    given = [f for f in OF_A_MODEL if values[f[2:].replace("-", "_")] is not None]
    if arguments.responses and given:
        raise ParameterError(f"{given[0]} says how a model is asked: leave it out with --responses")
    if arguments.model and arguments.n is None:
        raise ParameterError("--model needs --n, the number of responses to each problem")


_PAPER = {
    "temperature": 0.6,
    "top_p": 0.95,
    "top_k": 0,
    "repetition_penalty": 1.0,
    "yarn_factor": None,  # the model's positions as they are
    "yarn_original": None,  # those of its config
    "budget": 2**15,  # tokens of a response if the model has the positions for so many
    "answer_form": "written",  # these two as of `klearlib.verify.groups.judge_responses`
    "truncated": "wrong",
}
# docs/deviations.md, D12: the released code adds a penalty, top-k and a static YaRN.
_RELEASED = {"top_k": 20, "repetition_penalty": 1.05, "yarn_factor": 2.5, "budget": 2**16}
_RELEASED |= {"answer_form": "equivalent", "truncated": "as_text"}


def chosen_preset(arguments: argparse.Namespace) -> SimpleNamespace:
    """The preset with the values that are given in place of its own; a ``--yarn`` of 1 is none.
    Raises ParameterError for positions to multiply without a factor, or n greedy responses."""
    values = _PAPER | (_RELEASED if arguments.preset == "released" else {})
    given = {name: getattr(arguments, name, None) for name in values}
    preset = SimpleNamespace(**{k: v if given[k] is None else given[k] for k, v in values.items()})
    factor = arguments.yarn or preset.yarn_factor
    preset.yarn_factor = None if factor == 1 else factor
    if preset.yarn_original is not None and preset.yarn_factor is None:
        raise ParameterError("--yarn-original says what --yarn multiplies: give --yarn too")
    if preset.temperature == 0 and arguments.n > 1:
        raise ParameterError("--temperature 0 gives the same response each time: give --n 1")
    return preset
