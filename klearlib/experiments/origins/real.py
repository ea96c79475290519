"""The stages of a profile with a real model and the paper's data sets: see `origins.Origin`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from klearlib.data.benchmarks import SIZES
from klearlib.data.declaration import Source
from klearlib.data.sources import source_named
from klearlib.errors import ParameterError
from klearlib.experiments.origins.base import DOMAIN_WORDS, Joint, Origin, Start
from klearlib.params import DataOptions, RealParams, SFTPhase, load
from klearlib.params.real import BENCHMARKS, CODE_BENCHMARKS, MATHS_BENCHMARKS, shape_of_model
from klearlib.real.assets import located, model_path
from klearlib.real.data import FILES
from klearlib.run.stage import Stage

_ABLATIONS = 2  # maths benchmarks outside of notebook 10: AIME 2024 and 2025


class _Stages(dict):
    """Stages by name; one that real.yaml names no model for is an error that says so."""

    def __init__(self, profile: str, stages: dict[str, Stage]):
        super().__init__(stages)
        self._profile = profile

    def __missing__(self, name: str) -> Stage:
        raise ParameterError(
            f"profile {self._profile!r} has no {name}: name a model for it in real.yaml"
        )


class RealOrigin(Origin):
    """A real model, and worlds of the named data sets.

    options: of their curation; None for the defaults with the limits of real.yaml, which the SFT
    checkpoint of the RL notebooks is made by.
    """

    templates: tuple[str, ...] = ()
    curate_workers = 8
    # Real responses can be longer than a packed row or the model holds, and quote control tokens.
    sft_options = {"drop_longer": True, "drop_with_control": True}  # noqa: RUF012
    curation_s = 600.0
    pool_words = {d: f"{word} problems for RL" for d, word in DOMAIN_WORDS.items()}  # noqa: RUF012

    def __init__(self, profile: str, options: DataOptions | None):
        self._real = real = load(profile, "real")
        limits = {"test_timeout_s": real.test_timeout_s, "test_memory_mb": real.test_memory_mb}
        super().__init__(profile, options or DataOptions(**limits))
        self.seed = self.code_seed = real.seed
        self.num_pool, self.num_code_problems = real.num_train_problems, real.num_code_problems
        self.max_new_tokens = {"math": real.max_new_tokens, "code": real.code_max_new_tokens}
        code = self._sizes(CODE_BENCHMARKS)
        self._every = {"math": self._sizes(MATHS_BENCHMARKS), "code": code}
        self.benchmarks = {"math": self._sizes(MATHS_BENCHMARKS[:_ABLATIONS]), "code": code}
        self._base = self._model(real.model, "base model")

    @cached_property
    def stages(self) -> dict[str, Stage]:
        sft, real, worlds = self._sft, self._real, self._worlds
        reference = real.reference and self._model(real.reference, "reference")
        stages = {"world": worlds["math"], "base": self._base, "reference": reference or sft}
        stages |= {f"code_{name}": stage for name, stage in stages.items()}
        stages["code_world"] = worlds["code"]
        for who in ("code", "weak", "middle", "strong", "majority"):
            model = getattr(real, f"teacher_{who}")
            if model is not None:
                name = "code_teacher" if who == "code" else f"teacher_{who}"
                stages[name] = self._model(model, name.replace("_", " "))
        return _Stages(self.profile, stages)

    @cached_property
    def joint(self) -> Joint:
        real = self._real
        return Joint(
            real,
            benchmarks=self._every,
            num_sources={name: len(self.ranked_sources(name)) for name in DOMAIN_WORDS},
            long_examples=0,
            longest_prompt=real.max_prompt_tokens,
            yarn_original=real.max_positions,
        )

    def start(self, domain: str) -> Start:
        real = self._real
        return Start(
            profile=self.profile,
            world=self._worlds[domain],
            sft=self._sft,
            benchmarks=self.benchmarks[domain],
            num_validation=real.num_validation,
            validation_responses=real.validation_responses,
            max_new_tokens=self.max_new_tokens[domain],
            compute=self.compute,
        )

    def ranked_sources(self, domain: str) -> list[str]:
        return list(learnt_sets(self._real, domain))

    def sources(self, domain: str, *, pool_only: bool) -> list[dict]:
        found = []
        for name, how in self._listed(domain, pool_only=pool_only).items():
            source = _source(name, how)
            _, place = _linked(source, how["location"])
            item = {"name": source.name, "alias": name, "input": f"data_{name}", "location": place}
            options = {key: how[key] for key in ("split", "config", "limit")}
            found.append(item | {key: it for key, it in options.items() if it is not None})
        return found

    def curation_inputs(self, domain: str, *, pool_only: bool) -> dict[str, Stage]:
        data = {}
        for name, how in self._listed(domain, pool_only=pool_only).items():
            data[f"data_{name}"], _ = _linked(_source(name, how), how["location"])
        return {"benchmarks": self._collected, **data}

    def _listed(self, domain: str, *, pool_only: bool) -> dict[str, dict]:
        """The data sets of real.yaml that a curation reads; one that is in both lists once."""
        real = self._real
        learnt = {} if pool_only else learnt_sets(real, domain)
        pool = real.maths_problems if domain == "math" else real.code_problems
        return learnt | {name: how for name, how in pool.items() if name not in learnt}

    def benchmark_items(self, domain: str) -> list[dict]:
        del domain  # what is in a test set is trained on in no domain
        # The file's name: under the benchmark's own it would be read as the raw data set.
        return [
            {"name": f"{name}.jsonl", "location": f"{name}.jsonl", "input": "benchmarks"}
            for name in BENCHMARKS
        ]

    def learnable(self, domain: str) -> Stage:
        return Stage(
            "learnable",
            "klearlib.real.world:keep_learnable",
            {"domain": domain, "mixed": mixed_sets(self._real, domain), **self._overlap},
            # One checkpoint learns both domains, so neither's validation problems may be in either.
            {"curated": self.curated(domain)}
            | {f"{name}_world": self._worlds[name] for name in DOMAIN_WORDS},
            label=f"{DOMAIN_WORDS[domain]} responses to no validation problem",
            estimate_s=60.0,
        )

    def true_answers(self, domain: str) -> Stage:
        del domain
        raise ParameterError("the true answers to the problems of data sets are not known")

    def pool(self) -> tuple[Stage, str]:
        # Teachers answer what is left when the validation problems are held out.
        return self._worlds["math"], "train.jsonl"

    def joint_stages(self, selections: list[Stage], *, seed: int, sft: SFTPhase) -> dict:
        trained = self._trained(selections, seed=seed, sft=sft)
        return {
            "world": Stage(
                "joint_world",
                "klearlib.real.world:join",
                {
                    "num_validation": self._real.num_validation,
                    "benchmarks": {name: list(sizes) for name, sizes in self._every.items()},
                },
                self._worlds,
                label="joint world: all benchmarks, validation problems of both domains",
                estimate_s=5.0,
            ),
            "base": self._base,
            "examples": trained.inputs["examples"],
            "sft": trained,
        }

    def majority_teacher(self) -> str | None:
        return None if self._real.teacher_majority is None else "majority"

    def test_teacher(self) -> Stage | None:
        return None if self._real.teacher_code is None else self.stages["code_teacher"]

    @cached_property
    def _sft(self) -> Stage:
        """The SFT checkpoint of the RL notebooks: one for both domains."""
        real = self._real
        if real.sft_model is not None:
            return self._model(real.sft_model, "SFT checkpoint")
        selections = [*self.joint_selections().values()]
        phase = SFTPhase(
            num_epochs=real.sft_epochs,
            batch_size=real.sft_batch,
            learning_rate=real.sft_learning_rate,
            normalizer=real.sft_normalizer,
        )
        return self._trained(selections, seed=real.seed, sft=phase)

    def _trained(self, selections: list[Stage], *, seed: int, sft: SFTPhase) -> Stage:
        """The base model, tuned on the examples of both domains."""
        examples = Stage(
            "combine",
            "klearlib.curation.combine:combine",
            {},
            {f"selection_{number}": stage for number, stage in enumerate(selections, start=1)},
            label="examples of both domains",
            estimate_s=10.0,
        )
        return self.trained(
            {"base": self._base, "examples": examples},
            sft,
            seed=seed,
            label=f"SFT of both domains, seed {seed}",
            estimate_s=3600.0,
        )

    @cached_property
    def _worlds(self) -> dict[str, Stage]:
        real = self._real
        counts = {"math": real.num_train_problems, "code": real.num_code_problems}
        return {
            domain: Stage(
                "real_world",
                "klearlib.real.world:build",
                {
                    "seed": real.seed,
                    "domain": domain,
                    "num_train_problems": count,
                    "num_validation": real.num_validation,
                    "benchmarks": list(self._every[domain]),
                    **self._overlap,
                },
                {"problems": self.curated(domain, pool_only=True), "benchmarks": self._collected},
                label=f"{DOMAIN_WORDS[domain]} problems for RL, validation, benchmarks",
                estimate_s=60.0,
            )
            for domain, count in counts.items()
        }

    def _model(self, model: str, what: str) -> Stage:
        """A model by its name in real.yaml. what: it in words.

        A model of the hub is named by its id in the stage's key, wherever the cache is.
        """
        place, real = model_path(model), self._real
        budget = max(real.max_new_tokens, real.code_max_new_tokens)
        return Stage(
            "model",
            "klearlib.real.model:link_model",
            {
                "model": model if place is None else str(place),
                "chat_template": real.chat_template and str(located(real.chat_template)),
                "positions": real.max_prompt_tokens + budget,
                "shape": shape_of_model(real, model),
            },
            label=f"{what}: {model}",
            estimate_s=60.0,
        )

    @cached_property
    def _collected(self) -> Stage:
        """All benchmarks, as files of problems."""
        inputs, places = {}, {}
        for name in BENCHMARKS:
            # Both windows are of one data set.
            source = source_named("livecodebench" if name in CODE_BENCHMARKS else name)
            location = self._real.benchmarks[name]["location"]
            inputs[name], places[name] = _linked(source, location)
        return Stage(
            "benchmarks",
            "klearlib.real.data:collect_benchmarks",
            {"benchmarks": self._sizes(BENCHMARKS), "places": places},
            inputs,
            label="the paper's benchmarks",
            estimate_s=120.0,
        )

    def _sizes(self, names: Iterable[str]) -> dict[str, int | None]:
        """Benchmark -> the problems that it must have: as real.yaml says, else the known number;
        None for a window whose number the dates decide."""
        given = {name: self._real.benchmarks[name]["size"] for name in names}
        return {name: SIZES[name] if size is None else size for name, size in given.items()}

    @property
    def _overlap(self) -> dict:
        """How stages look for validation problems and benchmarks in other problems."""
        return {
            "ngram_words": self.options.ngram_words,
            "ngram_mode": self.options.ngram_mode,
            "workers": self.curate_workers,
        }


def learnt_sets(real: RealParams, domain: str) -> dict[str, dict]:
    """The data sets whose responses SFT learns, best first."""
    return real.maths_sources if domain == "math" else real.code_sources


def mixed_sets(real: RealParams, domain: str) -> list[str]:
    """Those of `learnt_sets` that hold both domains."""
    listed = learnt_sets(real, domain)
    return [name for name, how in listed.items() if _source(name, how).domain == "both"]


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
