"""``klear new``: the files of a profile for a user's own model and problems.

Every number follows from the model's config.json and from the rows, and is in the file with its
reason, so that it can be changed there.
"""

from __future__ import annotations

import importlib.util
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace

from klearlib.curation.overlap import contaminated
from klearlib.data.problems import refuse_doubled
from klearlib.data.sources import SOURCES, read_source, source_named
from klearlib.errors import KlearError, ParameterError
from klearlib.hub import is_path, model_folder
from klearlib.params import root
from klearlib.params.own_files import read_reward
from klearlib.params.place import in_yaml
from klearlib.params.real import RESERVED
from klearlib.policy.shape import ModelShape, shape_of
from klearlib.real.assets import located
from klearlib.real.model import template_of
from klearlib.records import Problem
from klearlib.run.files import one_line_failures, read_json, write_text
from klearlib.suite.checks import short

NOTEBOOKS = ("05_clipping", "06_alpha_sweep")
_FEWEST, _MOST_VALIDATION, _BUDGET = 16, 64, 512


@dataclass(frozen=True)
class DataSet:
    """Problems and how a profile names them: `entry` is for real.yaml. rejected: how many rows
    could not be used; num_responses: how many responses the others have."""

    name: str
    entry: dict
    problems: list[Problem]
    rejected: int
    num_responses: int


def new_profile(
    name: str,
    *,
    model: str,
    problems: str,
    benchmarks: Sequence[str],
    max_new_tokens: int | None = None,
    chat_template: str | None = None,
    examples: str | None = None,
    reward: str | None = None,
    probed: bool = False,
) -> Path:
    """Write ``params/<name>/`` for RL on mathematics: notebooks 05 and 06. Names and rows are
    checked before the model is read.

    Args:
        model: a folder in the Hugging Face format, or a hub id, which is downloaded if it is not in
            the hub's cache. It starts as it comes, or after SFT on the examples.
        problems: what RL draws from: a file of rows with problem (or question, or prompt) and
            answer, ``SOURCE=FILE`` in the schema of a data set of docs/datasets.md, or a hub id.
        benchmarks: one to three, in the same way. max_new_tokens: of a response, by default 512 or
            what the model's positions leave. chat_template: a file, for a model that has none.
        examples: a file of rows with response as well as problem and answer, or another data set
            with responses, which SFT learns first.
        reward: FILE.py:FUNCTION, which judges and pays in place of the built-in judge.
        probed: take the learning rate that `klearlib.suite.probe` finds, not a guess.

    Raises:
        ParameterError: a name that is taken or malformed, or a budget above the model's positions.
        KlearError: rows, a model or a benchmark that cannot be used, or a probe that trained
            nothing, so that the profile keeps the guess.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,40}", name) or name == "runs":
        raise ParameterError(
            f"a profile's name has lower-case letters, digits and _, and is not runs; got {name!r}"
        )
    target = root() / "params" / name
    if target.exists():
        raise ParameterError(f"{target} exists already: give another name, or delete it")
    if not 1 <= len({*benchmarks}) == len(benchmarks) <= 3:
        raise ParameterError(
            f"give one to three different --benchmark, got {', '.join(benchmarks) or 'none'}"
        )
    read_reward(reward)
    facts = _facts(model, chat_template, problems, benchmarks, max_new_tokens, examples)
    texts = _texts(name, facts, reward)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=target.parent) as beside:
        made = Path(beside, name)  # whole or absent, because a part of it would be a profile too
        made.mkdir()
        for file, text in texts.items():
            write_text(made / f"{file}.yaml", text)
        with one_line_failures(target):
            os.rename(made, target)
    if probed:
        from klearlib.suite.probe import probe

        rate, why = probe(name, facts["rate"])
        print(f"learning rate {rate:.1e}, {why}")
        texts = _texts(name, facts | {"rate": rate, "rate_from": why}, reward)
        for file in NOTEBOOKS:
            write_text(target / f"{file}.yaml", texts[file])
    return target


def _facts(model, chat_template, problems, benchmarks, max_new_tokens, examples) -> dict:
    """What the files follow from, by the names in the templates. shared: different problems that
    are too similar to a benchmark. left: the others. longest, budget: tokens of the longest prompt
    and of a response. rate, rate_from: the learning rate and where it comes from. learnt: the SFT
    examples, or None."""
    train, tests, learnt = _data_set(problems), [], None
    if examples is not None:
        learnt = _data_set(examples)
        if not learnt.num_responses:
            raise KlearError(f"{examples}: no row has a response: add them, or drop --examples")
        if learnt.name == train.name:
            learnt = replace(learnt, name=f"{learnt.name}_examples")
    names = {train.name, *([learnt.name] if learnt else []), *SOURCES, *RESERVED}  # all are taken
    for test in (_data_set(each, whole=True) for each in benchmarks):
        name = test.name
        while name in names:
            name += "_test"
        tests.append(replace(test, name=name))
        names.add(name)
    prompts = list(dict.fromkeys(problem.prompt for problem in train.problems))
    others = [problem.prompt for each in tests for problem in each.problems]
    shared = int(contaminated(prompts, others).sum())
    if (left := len(prompts) - shared) < _FEWEST:
        raise KlearError(
            f"{problems}: {left} of {_FEWEST} needed problems are left: {train.rejected} rows "
            f"could not be read, {len(train.problems) - len(prompts)} repeat another's question, "
            f"{shared} share 9 words in a row with a benchmark"
        )
    local = is_path(model) or located(model).is_dir()
    place = model_folder(located(model) if local else model)
    from klearlib.policy.load import chat_prompt  # loads torch

    shape, positions, tokenizer = _model(model, place, chat_template)
    longest = max(len(chat_prompt(tokenizer, prompt)[1]) for prompt in (*prompts, *others))
    room = positions - longest
    budget = min(_BUDGET, room) if max_new_tokens is None else max_new_tokens
    if not 1 <= budget <= room:
        raise ParameterError(
            f"the longest prompt has {longest} tokens and the model {positions} positions, which "
            f"leaves {max(0, room)} for a response: give a --max-new-tokens from 1 to that, or "
            "leave out the longest problems"
        )
    millions = shape.num_parameters / 1e6
    facts = {"model": model, "chat_template": chat_template, "shape": shape, "train": train}
    facts |= {"positions": positions, "tests": tests, "learnt": learnt, "shared": shared}
    facts |= {"left": left, "longest": longest, "budget": budget}
    facts["rate"] = 1e-6 if millions > 3000 else 3e-6 if millions > 300 else 1e-5
    return facts | {"rate_from": f"a guess for {short(millions)} M parameters"}


def _model(model: str, place: Path, chat_template: str | None) -> tuple[ModelShape, int, object]:
    from klearlib.policy.load import load_tokenizer

    try:
        config = read_json(place / "config.json")
        shape = shape_of(SimpleNamespace(**config))
        positions = int(config["max_position_embeddings"])
        tokenizer = load_tokenizer(place)
    except Exception as error:  # transformers raises a dozen unrelated types here
        fault = " ".join(f"{type(error).__name__}: {error}".split())
        raise KlearError(
            f"{model} cannot be loaded as a dense model ({fault}): check its config.json and "
            "tokenizer"
        ) from error
    if chat_template is not None:
        tokenizer.chat_template = template_of(located(chat_template))
    if tokenizer.chat_template is None:
        raise KlearError(f"{model} has no chat template: give --chat-template FILE")
    return shape, positions, tokenizer


def _data_set(given: str, *, whole: bool = False) -> DataSet:
    """Read what `given` names. whole: every row must be usable, as for a benchmark."""
    schema, equals, place = given.partition("=")
    if not equals or located(given).exists():  # a file may have an = in its name
        schema, place = "", given
    source = source_named(schema or "rows")
    entry, where = {"name": source.name}, None
    if located(place).exists():
        entry["location"], where = place, located(place)
    elif is_path(place):
        raise KlearError(f"no file or folder at {place}: check the path")
    else:
        known = [s for s in SOURCES.values() if place.lower() == s.hub_id.lower()]
        source = known[0] if known and not schema else source
        entry = {"name": source.name} | ({} if known else {"hub_id": place})
    if source.domain == "code":
        raise ParameterError(f"{given} holds programs: klear new is for mathematics")
    reader = read_source(source.name, where, hub_id=entry.get("hub_id"))
    name = re.sub(r"\W+", "_", Path(place).stem.lower()).strip("_") or "data"
    read = [*reader]
    problems = [row.problem for row in read]
    rejected = sum(reader.num_rejected.values())
    if not problems or (whole and rejected):
        reasons = ", ".join(f"{reason} {n}" for reason, n in reader.num_rejected.items())
        raise KlearError(
            f"{given}: {rejected} of {reader.num_read} rows could not be read ({reasons}): correct "
            "them"
        )
    if whole:
        refuse_doubled(given, problems)
    return DataSet(name, entry, problems, rejected, sum(len(row.responses) for row in read))


def _texts(profile: str, facts: dict, reward: str | None) -> dict[str, str]:
    """File of the profile -> its text, from the templates next to this module."""
    import jinja2
    import torch

    gpu, left = torch.cuda.is_available(), facts["left"]
    options = {"think_tags": "optional", "truncated": "wrong"}
    values = facts | {
        "shape": asdict(facts["shape"]),
        "num_validation": 2 * max(1, min(_MOST_VALIDATION, left // 5) // 2),
        "benchmarks": {
            test.name: {"domain": "math", **test.entry, "size": len(test.problems)}
            for test in facts["tests"]
        },
        "gpu": gpu,
        "vllm": gpu and importlib.util.find_spec("vllm") is not None,
        "profile": profile,
        "batch": 8 * min(4, left // _FEWEST),
        "options": options | ({"reward_function": reward} if reward else {}),
    }
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("klearlib.suite", "new_profile"),
        undefined=jinja2.StrictUndefined,
        finalize=in_yaml,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    templates = {name: name for name in ("real", "statistics", "compute")}
    templates |= dict.fromkeys(NOTEBOOKS, "notebook")
    return {
        file: environment.get_template(f"{template}.yaml.j2").render(values, notebook=file)
        for file, template in templates.items()
    }
