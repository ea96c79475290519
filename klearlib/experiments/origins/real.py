"""The stages of a profile with a real model and the paper's data sets: see `origins.Origin`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

from klearlib.data.benchmarks import SIZES, source_of
from klearlib.data.declaration import Source
from klearlib.data.sources import source_named
from klearlib.errors import ParameterError
from klearlib.experiments.benchmarks import named
from klearlib.experiments.origins.base import DOMAIN_WORDS, Joint, Origin
from klearlib.hub import OF_A_MODEL
from klearlib.params import DataOptions, RealParams, SFTPhase, load
from klearlib.params.real import benchmarks_of, shape_of_model
from klearlib.real.assets import content_of, located, model_path
from klearlib.real.data import FILES
from klearlib.run.stage import Stage

ASSUMED_PROBLEMS = 10_000  # for estimates, where all problems are taken


class _Stages(dict):
    """Stages by name; a name that real.yaml has nothing for is an error that says so. what: the
    names in words, and what to do."""

    def __init__(self, profile: str, stages: dict[str, Stage], what: str):
        super().__init__(stages)
        self._profile, self._what = profile, what

    def __missing__(self, name: str) -> Stage:
        what = self._what.format(name=name)
        raise ParameterError(f"profile {self._profile!r} has no {what} in real.yaml")


class RealOrigin(Origin):
    """A real model, and worlds of the named data sets.

    options: of their curation; None for the defaults with the limits of real.yaml, as for the SFT
    checkpoint of the RL notebooks.
    """

    templates: tuple[str, ...] = ()
    curation_s = 600.0
    pool_words = {d: f"{word} problems for RL" for d, word in DOMAIN_WORDS.items()}  # noqa: RUF012

    def __init__(self, profile: str, options: DataOptions | None):
        self._real = real = load(profile, "real")
        limits = {"test_timeout_s": real.test_timeout_s, "test_memory_mb": real.test_memory_mb}
        super().__init__(profile, options or DataOptions(**limits))
        self.seed = self.code_seed = real.seed
        self.num_pool = real.num_train_problems or ASSUMED_PROBLEMS
        self.num_code_problems = real.num_code_problems or ASSUMED_PROBLEMS
        self._every = {domain: self._sizes(benchmarks_of(real, domain)) for domain in DOMAIN_WORDS}
        late = {name for name, about in named(profile).items() if about.in_headline_only}
        self.benchmarks = {
            domain: {name: size for name, size in sizes.items() if name not in late}
            for domain, sizes in self._every.items()
        }
        self._base = self._model(real.model, "base model")

    @cached_property
    def stages(self) -> dict[str, Stage]:
        sft, real, worlds = self._sft, self._real, self._worlds
        reference = real.reference and self._model(real.reference, "reference")
        stages = {"base": self._base, "reference": reference or sft}
        stages |= {f"code_{name}": stage for name, stage in stages.items()}
        stages |= {"world" if name == "math" else "code_world": worlds[name] for name in worlds}
        for who in ("code", "weak", "middle", "strong", "majority"):
            model = getattr(real, f"teacher_{who}")
            if model is not None:
                name = "code_teacher" if who == "code" else f"teacher_{who}"
                stages[name] = self._model(model, name.replace("_", " "))
        return _Stages(self.profile, stages, "{name}: name a model or problems for it")

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

    def max_new_tokens(self, domain: str) -> int:
        real = self._real
        return (domain == "code" and real.code_max_new_tokens) or real.max_new_tokens

    def rl_start(self, domain: str) -> tuple:
        return self._real, self._worlds[domain], self._sft

    def ranked_sources(self, domain: str) -> list[str]:
        return list(learnt_sets(self._real, domain))

    def sources(self, domain: str, *, pool_only: bool) -> list[dict]:
        return [item for item, _ in self._data_sets(domain, pool_only=pool_only)]

    def curation_inputs(self, domain: str, *, pool_only: bool) -> dict[str, Stage]:
        found = self._data_sets(domain, pool_only=pool_only)
        return {"benchmarks": self._collected} | {item["input"]: stage for item, stage in found}

    def _data_sets(self, domain: str, *, pool_only: bool) -> Iterator[tuple[dict, Stage]]:
        """What a curation is told of each data set of real.yaml, and the stage with its files; a
        data set in both lists comes once."""
        real = self._real
        learnt = {} if pool_only else learnt_sets(real, domain)
        pool = real.maths_problems if domain == "math" else real.code_problems
        for name, how in {**learnt, **pool, **learnt}.items():
            source = source_in(name, how)
            stage, place = _linked(source, how)
            item = {"name": source.name, "alias": name, "input": f"data_{name}", "location": place}
            options = {key: how[key] for key in ("split", "config", "limit")}
            yield item | {key: it for key, it in options.items() if it is not None}, stage

    def benchmark_items(self, domain: str) -> list[dict]:
        del domain  # the problems of a test set are trained on in no domain
        # The file's name: under the benchmark's own it would be read as the raw data set.
        return [
            {"name": f"{name}.jsonl", "location": f"{name}.jsonl", "input": "benchmarks"}
            for name in self._real.benchmarks
        ]

    def learnable(self, domain: str) -> Stage:
        return Stage(
            "learnable",
            "klearlib.real.world:keep_learnable",
            {
                "domain": domain,
                "mixed": mixed_sets(self._real, domain),
                **self.told("ngram_words"),
            },
            # One checkpoint learns both domains, so neither's validation problems may be in either.
            {"curated": self.curated(domain)}
            | {f"{name}_world": world for name, world in self._worlds.items()},
            label=f"{DOMAIN_WORDS[domain]} responses to no validation problem",
            estimate_s=60.0,
        )

    def pool(self) -> tuple[Stage, str]:
        # Teachers answer what is left when the validation problems are held out.
        return self._worlds["math"], "train.jsonl"

    def joint_stages(
        self, selections: list[Stage], *, seed: int, sft: SFTPhase, yarn_factor: float
    ) -> dict:
        del yarn_factor  # as in the paper, which trains nothing under YaRN
        trained = self._trained(selections, seed=seed, sft=sft)
        return {
            "world": Stage(
                "joint_world",
                "klearlib.real.world:join",
                {
                    "num_validation": self._real.num_validation,
                    "benchmarks": {name: list(sizes) for name, sizes in self._every.items()},
                },
                {name: self._worlds[name] for name in DOMAIN_WORDS},
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
        """The SFT checkpoint of the RL notebooks, one for all domains; the base model if there are
        no sources."""
        real = self._real
        if real.sft_model is not None:
            return self._model(real.sft_model, "SFT checkpoint")
        if not (real.maths_sources or real.code_sources):
            return self._base
        selections = [*self.joint_selections().values()]
        phase = SFTPhase(
            num_epochs=real.sft_epochs,
            batch_size=real.sft_batch,
            learning_rate=real.sft_learning_rate,
            normalizer=real.sft_normalizer,
        )
        return self._trained(selections, seed=real.seed, sft=phase)

    def _trained(self, selections: list[Stage], *, seed: int, sft: SFTPhase) -> Stage:
        """The base model, tuned on the examples of all domains."""
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
        problems = {"math": real.maths_problems, "code": real.code_problems}
        found = {
            domain: Stage(
                "real_world",
                "klearlib.real.world:build",
                {
                    "seed": real.seed,
                    "domain": domain,
                    "num_train_problems": count,
                    "num_validation": real.num_validation,
                    "benchmarks": list(self._every[domain]),
                    **self.told("ngram_words"),
                },
                {"problems": self.curated(domain, pool_only=True), "benchmarks": self._collected},
                label=f"{DOMAIN_WORDS[domain]} problems for RL, validation, benchmarks",
                estimate_s=60.0,
            )
            for domain, count in counts.items()
            if problems[domain]
        }
        return _Stages(self.profile, found, "problems of {name}: name data sets with them")

    def _model(self, model: str, what: str) -> Stage:
        """A model by its name in real.yaml. what: the model in words.

        The stage's key names a model of the hub by its id and a local one by its content, wherever
        it is: so a clone can be moved, and the pieces of two machines can be joined.
        """
        place, real = model_path(model), self._real
        template = real.chat_template and located(real.chat_template)
        budget = max(map(self.max_new_tokens, DOMAIN_WORDS))
        content, named = content_of(place, OF_A_MODEL), model if place is None else str(place)
        return Stage(
            "model",
            "klearlib.real.model:link_model",
            {
                **({} if content else {"model": named}),
                "content": content,
                "template_content": content_of(template),
                "positions": real.max_prompt_tokens + budget,
                "shape": shape_of_model(real, model),
            },
            label=f"{what}: {model}",
            estimate_s=60.0,
            placing={"chat_template": template and str(template)}
            | ({"model": named} if content else {}),
        )

    @cached_property
    def _collected(self) -> Stage:
        """All benchmarks, as files of problems."""
        inputs, places, sources = {}, {}, {}
        for name, how in self._real.benchmarks.items():
            source = source_in(name, how)
            inputs[name], places[name] = _linked(source, how)
            if name not in SIZES:
                options = {key: how[key] for key in ("split", "config") if how[key] is not None}
                sources[name] = {"source": source.name, **options}
        return Stage(
            "benchmarks",
            "klearlib.real.data:collect_benchmarks",
            {
                "benchmarks": self._sizes(self._real.benchmarks),
                "places": places,
                **({"sources": sources} if sources else {}),
            },
            inputs,
            label="benchmarks",
            estimate_s=120.0,
        )

    def _sizes(self, names: Iterable[str]) -> dict[str, int | None]:
        """Benchmark -> how many problems it must have: as real.yaml says, else the known number;
        None for a window whose dates decide the number."""
        given = {name: self._real.benchmarks[name]["size"] for name in names}
        return {name: SIZES.get(name) if size is None else size for name, size in given.items()}


def learnt_sets(real: RealParams, domain: str) -> dict[str, dict]:
    """The data sets whose responses SFT learns, best first."""
    return real.maths_sources if domain == "math" else real.code_sources


def mixed_sets(real: RealParams, domain: str) -> list[str]:
    """The `learnt_sets` that hold both domains."""
    listed = learnt_sets(real, domain)
    return [name for name, how in listed.items() if source_in(name, how).domain == "both"]


def source_in(name: str, how: dict) -> Source:
    """The declaration of a data set, a benchmark or not, of real.yaml."""
    return source_named(source_of(name, how["name"]))


def _linked(source: Source, how: dict) -> tuple[Stage, str]:
    """The files of a data set, and where its file or folder is in that stage."""
    location, hub_id = how["location"], how["hub_id"] or source.hub_id
    # A file's suffix says how to read it.
    name = hub_id.rpartition("/")[2] if location is None else Path(location).name
    place = None if location is None else str(located(location))
    content = content_of(place and Path(place))
    stage = Stage(
        "data",
        "klearlib.real.data:link_data",
        {
            "hub_id": hub_id,
            "content": content,
            "name": name,
            **({} if content else {"location": place}),
        },
        label=f"data set {hub_id if location is None else name}",
        estimate_s=60.0,
        placing={"location": place} if content else {},
    )
    return stage, f"{FILES}/{name}"
