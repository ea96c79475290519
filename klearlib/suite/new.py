"""``klear new``: the files of a profile for a model and problems of one's own.

Every number follows from the model's config.json and from the rows, and stands in the file with its
reason, so that it can be changed there.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace

import yaml

from klearlib.curation.overlap import contaminated
from klearlib.data.benchmarks import refuse_doubled
from klearlib.data.reader import Reject
from klearlib.data.sources import SOURCES, read_source, source_named
from klearlib.errors import KlearError, ParameterError
from klearlib.hub import is_path
from klearlib.params import root
from klearlib.params.own_files import read_reward
from klearlib.params.real import RESERVED
from klearlib.policy.load import chat_prompt, load_tokenizer
from klearlib.policy.shape import ModelShape, shape_of
from klearlib.real.assets import located
from klearlib.real.model import folder_of, template_of
from klearlib.records import Problem
from klearlib.run.files import read_json, write_failure, write_text

ROWS = "rows"
NOTEBOOKS = ("05_clipping", "06_alpha_sweep")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
_FEWEST, _MOST_VALIDATION, _BUDGET = 16, 64, 512


@dataclass(frozen=True)
class DataSet:
    """Problems and how a profile names them: `entry` is that of real.yaml."""

    name: str
    entry: dict
    problems: list[Problem]
    num_rejected: int


@dataclass(frozen=True)
class Facts:
    """What the files follow from. shared: problems that are too like a benchmark. longest: tokens
    of the longest prompt. budget: tokens of a response."""

    model: str
    chat_template: str | None
    shape: ModelShape
    positions: int
    train: DataSet
    tests: list[DataSet]
    shared: int
    longest: int
    budget: int

    @property
    def left(self) -> int:
        return len({problem.prompt for problem in self.train.problems}) - self.shared


def new_profile(
    name: str,
    *,
    model: str,
    problems: str,
    benchmarks: Sequence[str],
    max_new_tokens: int | None = None,
    chat_template: str | None = None,
    reward: str | None = None,
) -> Path:
    """Write ``params/<name>/`` for RL on mathematics: notebooks 05 and 06.

    Args:
        model: a folder in the Hugging Face format, or a hub id, which is downloaded where it is not
            in the hub's cache. It starts as it comes.
        problems: what RL draws from: a file of rows with problem (or question, or prompt) and
            answer, ``SOURCE=FILE`` in the schema of a data set of docs/datasets.md, or a hub id.
        benchmarks: one to three, in the same way. max_new_tokens: of a response, by default 512 or
            what the model's positions leave. chat_template: a file, for a model that has none.
        reward: FILE.py:FUNCTION, which judges and pays in the place of the built-in judge.

    Returns:
        the folder.

    Raises:
        ParameterError: a name that is taken or no name, or a budget above the model's positions.
        KlearError: a file without usable rows, a model without chat template, or a benchmark that
            shares its words with every problem. MissingAsset: nothing there.
    """
    if not _NAME.fullmatch(name):
        raise ParameterError(f"a profile is named by small letters, digits and _, got {name!r}")
    target = root() / "params" / name
    if name == "runs":
        raise ParameterError(f"results/{name} is where stages are kept: give another name")
    there = ParameterError(f"{target} is there already: give another name, or delete it")
    if target.exists():
        raise there
    if not 1 <= len(benchmarks) <= 3:
        raise ParameterError(f"give one to three --benchmark, got {len(benchmarks)}")
    if any(benchmarks.count(each) > 1 for each in benchmarks):
        raise ParameterError("--benchmark names a file twice: leave one out")
    read_reward(reward)
    found = _facts(model, chat_template, problems, benchmarks, max_new_tokens)
    files = {
        "real": _real(found),
        "statistics": _yaml("How claims are decided; fix it before a run.", _DECIDED),
        "compute": _compute(),
        **{notebook: _notebook(name, notebook, found, reward) for notebook in NOTEBOOKS},
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=target.parent) as beside:
        made = Path(beside, name)  # whole or absent, as a part of it would be a profile too
        made.mkdir()
        for file, text in files.items():
            write_text(made / f"{file}.yaml", text)
        try:
            os.rename(made, target)
        except OSError as error:
            raise (there if target.exists() else write_failure(error, target)) from error
    return target


def _facts(model, chat_template, problems, benchmarks, max_new_tokens) -> Facts:
    shape, positions, tokenizer = _model(model, chat_template)
    train = _data_set(problems, whole=False)
    tests = _named_apart([_data_set(each, whole=True) for each in benchmarks], train.name)
    prompts = list(dict.fromkeys(problem.prompt for problem in train.problems))
    others = [problem.prompt for each in tests for problem in each.problems]
    shared = int(contaminated(prompts, others).sum())
    if len(prompts) - shared < _FEWEST:
        raise KlearError(
            f"{shared} of {len(prompts)} different problems share 9 words in a row with a "
            f"benchmark, and {len(prompts) - shared} are left, of {_FEWEST} that are needed: give "
            "other problems, or another benchmark"
        )
    longest = max(len(chat_prompt(tokenizer, prompt)[1]) for prompt in (*prompts, *others))
    budget = min(_BUDGET, positions - longest) if max_new_tokens is None else max_new_tokens
    if longest + budget > positions or budget < 1:
        raise ParameterError(
            f"the longest prompt has {longest} tokens and the model {positions} positions, which "
            f"leaves {max(0, positions - longest)} for a response: give a --max-new-tokens from 1 "
            "to that, or leave out the longest problems"
        )
    return Facts(model, chat_template, shape, positions, train, tests, shared, longest, budget)


def _model(model: str, chat_template: str | None) -> tuple[ModelShape, int, object]:
    place = folder_of(str(located(model)) if is_path(model) or located(model).is_dir() else model)
    try:
        config = read_json(place / "config.json")
        shape = shape_of(SimpleNamespace(**config))
        positions = int(config["max_position_embeddings"])
        tokenizer = load_tokenizer(place)
    except Exception as error:  # transformers raises a dozen unrelated types here
        fault = " ".join(f"{type(error).__name__}: {error}".split())
        raise KlearError(f"{model} is no folder of a dense model ({fault}): mend it") from error
    if chat_template is not None:
        tokenizer.chat_template = template_of(located(chat_template))
    if tokenizer.chat_template is None:
        raise KlearError(
            f"{model} has no chat template, so nothing can be asked: give --chat-template FILE"
        )
    if tokenizer.eos_token_id is None:
        raise KlearError(f"{model} has no end token, so no response could end: name another model")
    return shape, positions, tokenizer


def _data_set(given: str, *, whole: bool) -> DataSet:
    """What `given` names, read. whole: every row must be usable, as of a benchmark."""
    schema, equals, place = given.partition("=")
    if not equals or located(given).exists():  # a file may have an = in its name
        schema, place = "", given
    source = source_named(schema) if schema else SOURCES[ROWS]
    entry, where = {"name": source.name}, None
    if is_path(place) or located(place).exists():
        if not located(place).exists():
            raise KlearError(f"no file or folder at {place}: mend the path")
        entry["location"], where = place, located(place)
    else:
        known = [s for s in SOURCES.values() if place.lower() == s.hub_id.lower()]
        source = known[0] if known and not schema else source
        entry = {"name": source.name} | ({} if known else {"hub_id": place})
    if source.domain == "code":
        raise ParameterError(f"{given} holds programs: klear new is for mathematics")
    reader = read_source(source.name, where, hub_id=entry.get("hub_id"))
    found = [row.problem for row in reader.account() if not isinstance(row, Reject)]
    rejects = dict(reader.num_rejected)
    told = ", ".join(f"{reason} {count}" for reason, count in rejects.items())
    if not found or (whole and rejects):
        raise KlearError(f"{given}: {len(found)} usable rows, and others not ({told}): mend them")
    if whole:
        refuse_doubled(given, found)
    name = re.sub(r"\W+", "_", Path(place).stem.lower()).strip("_") or "data"
    return DataSet(name, entry, found, sum(rejects.values()))


def _named_apart(tests: list[DataSet], taken: str) -> list[DataSet]:
    """The benchmarks under names of their own."""
    found: list[DataSet] = []
    for each in tests:
        names = {taken, *SOURCES, *RESERVED, *(other.name for other in found)}
        name = each.name if each.name not in names else f"{each.name}_test"
        number = 2
        while name in names:
            name, number = f"{each.name}_test_{number}", number + 1
        found.append(DataSet(name, each.entry, each.problems, each.num_rejected))
    return found


def _real(found: Facts) -> str:
    train, held_out = found.train, 2 * max(1, min(_MOST_VALIDATION, found.left // 5) // 2)
    shape = asdict(found.shape) | {"max_positions": (found.positions, "all of its config.json")}
    lines = [
        "# A path that is not absolute starts at the project's folder.",
        *_lines({"seed": 0, "model": (found.model, "RL starts from it as it comes")}),
        *_lines({"chat_template": found.chat_template} if found.chat_template else {}),
        *_lines(shape),
        f"# {len(train.problems)} problems; {train.num_rejected} other rows cannot be used, and",
        f"# {found.shared} problems are too like a benchmark, which leaves them out; different",
        f"# ones that are left: {found.left}.",
        *("maths_problems:", f"  {json.dumps(train.name)}: {_flow(train.entry)}", "benchmarks:"),
    ]
    for each in found.tests:
        entry = {"domain": "math", **each.entry, "size": len(each.problems)}
        lines.append(f"  {json.dumps(each.name)}: {_flow(entry)}")
    lines += _lines(
        {
            "num_validation": (held_out, "held out of the problems, for the curves"),
            "validation_responses": 2,
            "max_prompt_tokens": (found.longest, "the longest prompt here"),
            "max_new_tokens": (found.budget, "what is longer is cut off, and wrong to the judge"),
        }
    )
    return "\n".join(lines) + "\n"


_DECIDED = {
    "decides": True,
    "design": "one_world",
    "margin": (0.05, "smallest difference of scores that matters, as a fraction"),
    "students": 3,
    "maths_rl": (3, "replicates, the seeds 0 and on; more decide more"),
    "code_rl": 3,
    "headline": 3,
    "tuning": ([100, 101, 102, 103], "seeds that tune and never decide"),
}


def _compute() -> str:
    """What computes: the GPU of this machine where there is one."""
    import torch

    gpu = torch.cuda.is_available()
    vllm = gpu and importlib.util.find_spec("vllm") is not None
    values = {
        "engine": ("vllm" if vllm else "transformers", "who samples: transformers or vllm"),
        "precision": "bf16" if gpu else "fp32",
        "attention": "sdpa",
        "batch_rows": (256 if gpu else 64, "responses that are decoded together"),
        "micro_batch_tokens": (0, "as many as the memory holds"),
        "pack_tokens": None,
        "gradient_checkpointing": gpu,
        "tensor_parallel": 1,
        "gpu_memory_share": 0.45,
    }
    lines = ("  " + line for line in _lines(values))
    head = f"# How stages compute: written on a machine with{'' if gpu else 'out'} a GPU."
    return "\n".join([head, "local:", *lines]) + "\n"


def _notebook(profile: str, notebook: str, found: Facts, reward: str | None) -> str:
    millions = found.shape.num_parameters / 1e6
    rate = 1e-6 if millions > 3000 else 3e-6 if millions > 300 else 1e-5
    why = f"a guess for {millions:,.3g} M parameters; paper: 1e-6 at 8B"
    batch = 8 * min(4, found.left // _FEWEST)
    if notebook == NOTEBOOKS[0]:
        arms = {"rules": ["clip_higher", "gppo", "cispo"]}
        more = {"learning_rates": ([rate], why), "alpha": 0.0, "joint": None}
    else:
        arms, more = {"alphas": [0.0, 0.1]}, {"learning_rate": (rate, why)}
    values = {
        "profile": profile,
        **arms,
        "seeds": ([0, 1, 2], "statistics.yaml counts them"),
        "num_steps": (20, "klear plan says how long they take"),
        "num_problems": (batch, "of a rollout batch"),
        "group_size": (8, "paper: 8"),
        "mini_batch_problems": (batch // 8, "8 updates per rollout batch, as in the paper"),
        **more,
        "eps_low": 0.2,
        "eps_high": (0.28, "paper: 0.28"),
        "eval_every": 5,
        "eval_responses": 4,
        "engine": "local",
        "workers": 0,
        "options": (
            {"think_tags": "optional", "truncated": "wrong"}
            | ({"reward_function": reward} if reward else {}),
            "tags may be missing; what is cut off is wrong to the judge",
        ),
    }
    return _yaml(f"{notebook}: for the size of this model and of its data.", values)


def _yaml(head: str, values: Mapping[str, object]) -> str:
    return "\n".join([f"# {head}", *_lines(values)]) + "\n"


def _lines(values: Mapping[str, object]) -> Iterator[str]:
    """A line for each; values: what they are, or (what they are, the reason)."""
    for name, value in values.items():
        value, why = value if isinstance(value, tuple) else (value, "")
        text = f"{name}: {_flow(value)}"
        yield f"{text:<39} # {why}" if why else text


def _flow(value: object) -> str:
    """A value in one line of YAML."""
    if isinstance(value, float):  # with a point: YAML reads 1e-05 as text
        return f"{value:.1e}" if value < 1e-3 and value else repr(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000)
    return text.strip().removesuffix("...").strip()
