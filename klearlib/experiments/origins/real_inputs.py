"""The models, data sets and benchmarks that a real.yaml names, as the inputs of stages."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from klearlib.curation.source_benchmarks import SIZES
from klearlib.curation.sources import Source, source_named
from klearlib.params import RealParams
from klearlib.params.real import BENCHMARKS, CODE_BENCHMARKS, shape_of_model
from klearlib.real.data import FILES
from klearlib.real.paths import located, model_path
from klearlib.run.stage import Stage


def model_stage(real: RealParams, model: str, what: str) -> Stage:
    """A model by its name in `real`. what: it in words.

    A model of the hub is named by its id in the stage's key, wherever the cache is.
    """
    place = model_path(model)
    return Stage(
        "model",
        "klearlib.real.model:link_model",
        {
            "model": model if place is None else str(place),
            "chat_template": real.chat_template and str(located(real.chat_template)),
            "positions": real.max_prompt_tokens
            + max(real.max_new_tokens, real.code_max_new_tokens),
            "shape": shape_of_model(real, model),
        },
        label=f"{what}: {model}",
        estimate_s=60.0,
    )


def benchmark_stage(real: RealParams) -> Stage:
    """All benchmarks, as files of problems."""
    inputs, places = {}, {}
    for name in BENCHMARKS:
        # Both windows are of one data set.
        source = source_named("livecodebench" if name in CODE_BENCHMARKS else name)
        inputs[name], places[name] = _linked(source, real.benchmarks[name]["location"])
    return Stage(
        "benchmarks",
        "klearlib.real.data:collect_benchmarks",
        {"benchmarks": benchmark_sizes(real, BENCHMARKS), "places": places},
        inputs,
        label="the paper's benchmarks",
        estimate_s=120.0,
    )


def benchmark_sizes(real: RealParams, names: Iterable[str]) -> dict[str, int | None]:
    """Benchmark -> the problems that it must have: as `real` says, else the known number; None for
    a window whose number the dates decide."""
    given = {name: real.benchmarks[name]["size"] for name in names}
    return {name: SIZES[name] if size is None else size for name, size in given.items()}


def learnt_sets(real: RealParams, domain: str) -> dict[str, dict]:
    """The data sets whose responses SFT learns, best first."""
    return real.maths_sources if domain == "math" else real.code_sources


def problem_sets(real: RealParams, domain: str) -> dict[str, dict]:
    """The data sets that RL draws from."""
    return real.maths_problems if domain == "math" else real.code_problems


def mixed_sets(real: RealParams, domain: str) -> list[str]:
    """Those of `learnt_sets` that hold both domains."""
    listed = learnt_sets(real, domain)
    return [name for name, how in listed.items() if _source(name, how).domain == "both"]


def curate_item(name: str, how: dict) -> dict:
    """A data set of `real` as `klearlib.curation.curate` takes it, out of its `data_input`."""
    source = _source(name, how)
    _, place = _linked(source, how["location"])
    item = {"name": source.name, "alias": name, "input": data_input(name), "location": place}
    return item | {key: how[key] for key in ("split", "config", "limit") if how[key] is not None}


def data_input(name: str) -> str:
    """The name under which a curation has a data set of real.yaml among its inputs."""
    return f"data_{name}"


def data_stage(name: str, how: dict) -> Stage:
    """The files of a data set of `real`."""
    stage, _ = _linked(_source(name, how), how["location"])
    return stage


def _source(name: str, how: dict) -> Source:
    return source_named(how["name"] or name)


def _linked(source: Source, location: str | None) -> tuple[Stage, str]:
    """The files of a data set, and where its file or folder is in that stage."""
    # Of a file, the ending says how to read it.
    name = source.hub_id.rpartition("/")[2] if location is None else Path(location).name
    place = None if location is None else str(located(location))
    stage = Stage(
        "data",
        "klearlib.real.data:link_data",
        {"hub_id": source.hub_id, "location": place, "name": name},
        label=f"data set {source.hub_id}",
        estimate_s=60.0,
    )
    return stage, f"{FILES}/{name}"
