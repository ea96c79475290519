"""The options of ``klear evaluate``, their ranges and the presets; nothing heavy is imported."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from klearlib.errors import ParameterError

SETTINGS = "evaluation.json"
"""The file that says which model's evaluation a folder holds, and how it was asked."""


@dataclass(frozen=True)
class Option:
    """An option of the command: what argparse is told, and which values it may have.

    kind: a type, or the words to choose from. allowed: None for every value; `words` says the same
    to a user.
    """

    flag: str
    kind: type | tuple[str, ...]
    metavar: str | None
    help: str
    allowed: Callable[[float], bool] | None = None
    words: str = ""
    default: object = None

    @property
    def name(self) -> str:
        return self.flag.removeprefix("--").replace("-", "_")

    def add_to(self, group) -> None:
        how = {"choices" if isinstance(self.kind, tuple) else "type": self.kind}
        how |= {"metavar": self.metavar, "help": self.help, "default": self.default}
        group.add_argument(self.flag, **how)


_FROM_1 = (lambda n: 1 <= n < 2**31, "at least 1 and below 2**31")
_TAGS = "whether a response without both think tags is wrong (default: required, as in RL)"
_FORM = "what answers a written number: one that is written too (default), or all that equals it"
_TRUNCATED = "how responses that the budget ended are judged (default: wrong, as in RL)"
_PRESETS = (
    "paper (default): temperature 0.6, top_p 0.95; released: also top_k 20, repetition_penalty "
    "1.05, YaRN 2.5, and judged as published graders do: --answer-form equivalent, --truncated "
    "as_text"
)
_YARN_ORIGINAL = (
    "positions that --yarn multiplies, where the model's config names more than it was trained on "
    "(Qwen3-8B: 32768)"
)

# fmt: off
OF_ALL = (
    Option("--n", int, "N", "responses to each problem (needed with --model)",
           lambda n: 1 <= n <= 2**16, "at least 1 and at most 65536"),
    Option("--preset", ("paper", "released"), None, _PRESETS),
    Option("--think-tags", ("required", "optional"), None, _TAGS, default="required"),
    Option("--answer-form", ("written", "equivalent"), None, _FORM),
    Option("--truncated", ("wrong", "as_text"), None, _TRUNCATED),
    Option("--test-timeout-s", float, "S", "of a test",
           lambda s: 0 < s <= 3600, "above 0 and at most 3600", default=6.0),
    Option("--test-memory-mb", int, "MB", "of a test",
           lambda mb: 16 <= mb <= 2**20, "at least 16 and at most 2**20", default=1024),
)
OF_A_MODEL = (
    Option("--max-new-tokens", int, "N", "of a response, at most", *_FROM_1),
    Option("--temperature", float, "T", "0 is greedy",
           lambda t: t == 0 or 0.01 <= t <= 100, "0 (greedy) or at least 0.01 and at most 100"),
    Option("--top-p", float, "P", "1 keeps all tokens",
           lambda p: 0 < p <= 1, "above 0 and at most 1"),
    Option("--top-k", int, "K", "0 keeps all tokens",
           lambda k: 0 <= k < 2**31, "0 (none) or more, below 2**31"),
    Option("--repetition-penalty", float, "R", "1 is none",
           lambda r: 0.1 <= r <= 10, "from 0.1 to 10, 1 for none"),
    Option("--yarn", float, "F", "factor of the positions; 1 adds none to those of the config",
           lambda f: 1 <= f <= 1000, "above 1 and at most 1000, or 1 for none"),
    Option("--yarn-original", int, "N", _YARN_ORIGINAL, *_FROM_1),
    Option("--seed", int, "S", "of all draws (default: 0)",
           lambda s: 0 <= s < 2**63, "0 or more, below 2**63"),
    Option("--batch-rows", int, "N", "responses decoded together (default: 64)", *_FROM_1),
    Option("--engine", ("transformers", "vllm"), None, "who samples (default: transformers)"),
    Option("--precision", ("fp32", "bf16"), None, "of the forward pass (default: fp32)"),
    Option("--tensor-parallel", int, "N", "GPUs of one vLLM engine (default: 1)", *_FROM_1),
    Option("--gpu-memory-share", float, "S", "of each GPU's memory for vLLM (default: 0.9)",
           lambda share: 0 < share <= 0.95, "above 0 and at most 0.95"),
)
"""How a model is asked; none has a default here, so that what was given can be told."""
# fmt: on


def add_evaluate_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``klear evaluate`` takes."""
    scored = parser.add_mutually_exclusive_group(required=True)
    scored.add_argument("--model", metavar="PATH", help="a model's folder, or its id on the hub")
    scored.add_argument("--responses", metavar="FILE", help="responses that exist, as JSON lines")
    parser.add_argument(
        "--benchmark",
        required=True,
        metavar="NAME",
        help="aime24, aime25, hmmt25, lcb_v5, lcb_v6, or any name with --data",
    )
    parser.add_argument(
        "--data", metavar="PATH", help="the benchmark's file or folder (default: from the hub)"
    )
    parser.add_argument(
        "--out", metavar="DIR", help="folder of the results (default: evaluations/<benchmark>-...)"
    )
    asked = parser.add_argument_group("how a model is asked, for --model alone")
    for group, options in ((parser, OF_ALL), (asked, OF_A_MODEL)):
        for option in options:
            option.add_to(group)


def check_arguments(arguments: argparse.Namespace) -> None:
    """ParameterError where options are out of range or do not fit each other."""
    given = {
        option.flag: (option, value)
        for option in (*OF_ALL, *OF_A_MODEL)
        if (value := getattr(arguments, option.name)) is not None
    }
    for option in OF_A_MODEL:
        if arguments.responses and option.flag in given:
            raise ParameterError(
                f"{option.flag} says how a model is asked: leave it out with --responses"
            )
    if not (arguments.model or arguments.responses):
        raise ParameterError("--model and --responses name what is scored: got an empty text")
    if arguments.model and arguments.n is None:
        raise ParameterError("--model needs --n, the number of responses to each problem")
    for flag, (option, value) in given.items():
        if option.allowed is not None and not option.allowed(value):
            raise ParameterError(f"{flag} must be {option.words}, got {value}")
    for flag in ("--tensor-parallel", "--gpu-memory-share"):
        if flag in given and arguments.engine != "vllm":
            raise ParameterError(f"{flag} is for a vLLM engine: give --engine vllm too")
    chosen_preset(arguments)


@dataclass(frozen=True)
class Preset:
    """Values that options of the command replace one by one.

    yarn_factor: None leaves the model's positions as they are. yarn_original: the positions that it
    multiplies, None for those of the model's config. budget: tokens of a response where the model
    has the positions for so many. answer_form, truncated: as of
    `klearlib.verify.groups.judge_responses`.
    """

    temperature: float
    top_p: float
    top_k: int
    repetition_penalty: float
    yarn_factor: float | None
    budget: int
    answer_form: str = "written"
    truncated: str = "wrong"
    yarn_original: int | None = None


PRESETS = {
    "paper": Preset(0.6, 0.95, top_k=0, repetition_penalty=1.0, yarn_factor=None, budget=2**15),
    # docs/deviations.md, D12: the released code adds a penalty, top-k and a static YaRN.
    "released": Preset(
        *(0.6, 0.95),
        **{"top_k": 20, "repetition_penalty": 1.05, "yarn_factor": 2.5, "budget": 2**16},
        **{"answer_form": "equivalent", "truncated": "as_text"},
    ),
}


def chosen_preset(arguments: argparse.Namespace) -> Preset:
    """The preset with the values that are given in place of its own; a ``--yarn`` of 1 is none.
    Raises ParameterError for positions to multiply without a factor, or n greedy responses."""
    preset = PRESETS[arguments.preset or "paper"]
    given = {name: getattr(arguments, name, None) for name in vars(preset)}
    given["yarn_factor"] = arguments.yarn
    values = vars(preset) | {name: value for name, value in given.items() if value is not None}
    if values["yarn_factor"] == 1:
        values["yarn_factor"] = None
    if values["yarn_original"] is not None and values["yarn_factor"] is None:
        raise ParameterError("--yarn-original says what --yarn multiplies: give --yarn too")
    if values["temperature"] == 0 and arguments.n > 1:
        raise ParameterError(
            "--temperature 0 gives the same response each time: give --n 1, or a temperature "
            "above 0"
        )
    return Preset(**values)
