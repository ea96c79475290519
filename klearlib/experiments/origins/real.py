"""The stages of a profile with a real model and the paper's data sets: see `origins.Origin`."""

from __future__ import annotations

from dataclasses import asdict
from functools import cached_property

from klearlib.errors import ParameterError
from klearlib.experiments.origins.base import Joint, Start
from klearlib.experiments.origins.curation import DOMAIN_WORDS, curate_stage, selection_stage
from klearlib.experiments.origins.real_inputs import (
    benchmark_sizes,
    benchmark_stage,
    curate_item,
    data_input,
    data_stage,
    learnt_sets,
    mixed_sets,
    model_stage,
    problem_sets,
)
from klearlib.params import LOCAL, DataOptions, SFTPhase, load
from klearlib.params.real import BENCHMARKS, CODE_BENCHMARKS, MATHS_BENCHMARKS
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


class RealOrigin:
    """A real model, and worlds of the named data sets.

    options: of their curation; None for the defaults with the limits of real.yaml, which the SFT
    checkpoint of the RL notebooks is made by.
    """

    templates: tuple[str, ...] = ()
    curate_workers = 8
    # Real responses can be longer than a packed row or the model holds, and quote control tokens.
    sft_options = {"drop_longer": True, "drop_with_control": True}  # noqa: RUF012
    curation_s = 600.0

    def __init__(self, profile: str, options: DataOptions | None):
        self._profile, self._real = profile, load(profile, "real")
        real = self._real
        self._options = options or DataOptions(
            test_timeout_s=real.test_timeout_s, test_memory_mb=real.test_memory_mb
        )
        self.compute = asdict(load(profile, LOCAL))
        self.seed = self.code_seed = real.seed
        self.num_pool, self.num_code_problems = real.num_train_problems, real.num_code_problems
        self.max_new_tokens = {"math": real.max_new_tokens, "code": real.code_max_new_tokens}
        self.benchmarks = {
            "math": benchmark_sizes(real, MATHS_BENCHMARKS[:_ABLATIONS]),
            "code": benchmark_sizes(real, CODE_BENCHMARKS),
        }
        self._every = {
            "math": benchmark_sizes(real, MATHS_BENCHMARKS),
            "code": benchmark_sizes(real, CODE_BENCHMARKS),
        }
        # Equal stages as one object: each works its key out once.
        self._worlds: dict[str, Stage] = {}
        self._collected = benchmark_stage(real)
        self._base = model_stage(real, real.model, "base model")

    @cached_property
    def stages(self) -> dict[str, Stage]:
        sft, real = self._sft, self._real
        reference = real.reference and model_stage(real, real.reference, "reference")
        named = {
            "code_teacher": real.teacher_code,
            "teacher_weak": real.teacher_weak,
            "teacher_middle": real.teacher_middle,
            "teacher_strong": real.teacher_strong,
            "teacher_majority": real.teacher_majority,
        }
        teachers = {
            name: model_stage(real, model, name.replace("_", " "))
            for name, model in named.items()
            if model is not None
        }
        stages = {
            "world": self._world("math"),
            "code_world": self._world("code"),
            "base": self._base,
            "code_base": self._base,
            "reference": reference or sft,
            "code_reference": reference or sft,
        }
        return _Stages(self._profile, stages | teachers)

    @cached_property
    def joint(self) -> Joint:
        real = self._real
        return Joint(
            benchmarks=self._every,
            sft_sizes={"math": real.sft_maths, "code": real.sft_code},
            num_sources={name: len(self.ranked_sources(name)) for name in DOMAIN_WORDS},
            long_examples=0,
            num_validation=real.num_validation,
            validation_responses=real.validation_responses,
            max_new_tokens=real.max_new_tokens,
            extended_max_new_tokens=real.extended_max_new_tokens,
            max_positions=real.max_positions,
            longest_prompt=real.max_prompt_tokens,
            yarn_original=real.max_positions,
        )

    def start(self, domain: str) -> Start:
        real = self._real
        return Start(
            profile=self._profile,
            world=self._world(domain),
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
        listed = self._listed(domain, pool_only=pool_only)
        return [curate_item(name, how) for name, how in listed.items()]

    def curation_inputs(self, domain: str) -> dict[str, Stage]:
        return self._inputs(self._listed(domain, pool_only=False))

    def _inputs(self, listed: dict[str, dict]) -> dict[str, Stage]:
        """The inputs of a curation of data sets: these, and all benchmarks."""
        data = {data_input(name): data_stage(name, how) for name, how in listed.items()}
        return {"benchmarks": self._collected, **data}

    def _listed(self, domain: str, *, pool_only: bool) -> dict[str, dict]:
        learnt, pool = learnt_sets(self._real, domain), problem_sets(self._real, domain)
        listed = {} if pool_only else dict(learnt)
        # One that is in both lists is read once.
        return listed | {name: how for name, how in pool.items() if name not in listed}

    def benchmark_items(self, domain: str) -> list[dict]:
        del domain  # what is in a test set is trained on in no domain
        # The file's name: under the benchmark's own it would be read as the raw data set.
        return [
            {"name": f"{name}.jsonl", "location": f"{name}.jsonl", "input": "benchmarks"}
            for name in BENCHMARKS
        ]

    def learnable(self, domain: str, curated: Stage) -> Stage:
        return Stage(
            "learnable",
            "klearlib.real.learnable:keep_learnable",
            {
                "domain": domain,
                "mixed": mixed_sets(self._real, domain),
                "ngram_words": self._options.ngram_words,
                "ngram_mode": self._options.ngram_mode,
                "workers": self.curate_workers,
            },
            # One checkpoint learns both domains, so neither's validation problems may be in either.
            {"curated": curated} | {f"{name}_world": self._world(name) for name in DOMAIN_WORDS},
            label=f"{DOMAIN_WORDS[domain]} responses to no validation problem",
            estimate_s=60.0,
        )

    def pool(self, curated: Stage) -> tuple[Stage, str]:
        del curated  # teachers answer what is left when the validation problems are held out
        return self._world("math"), "train.jsonl"

    def joint_stages(self, selections: list[Stage], *, seed: int, sft: SFTPhase) -> dict:
        examples = self._combined(selections)
        return {
            "world": Stage(
                "joint_world",
                "klearlib.real.world:join",
                {
                    "num_validation": self._real.num_validation,
                    "benchmarks": {name: list(sizes) for name, sizes in self._every.items()},
                },
                {domain: self._world(domain) for domain in DOMAIN_WORDS},
                label="joint world: all benchmarks, validation problems of both domains",
                estimate_s=5.0,
            ),
            "base": self._base,
            "examples": examples,
            "sft": self._trained(examples, seed=seed, sft=sft),
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
            return model_stage(real, real.sft_model, "SFT checkpoint")
        selections = [self._selected(domain) for domain in DOMAIN_WORDS]
        phase = SFTPhase(
            num_epochs=real.sft_epochs,
            batch_size=real.sft_batch,
            learning_rate=real.sft_learning_rate,
            normalizer=real.sft_normalizer,
        )
        return self._trained(self._combined(selections), seed=real.seed, sft=phase)

    def _selected(self, domain: str) -> Stage:
        curated = self.learnable(domain, self._curated(domain, pool_only=False))
        most = self.joint.num_sources[domain]
        return selection_stage(
            {"responses": curated, "problems": curated},
            size=self.joint.sft_sizes[domain],
            label=f"examples: {DOMAIN_WORDS[domain]}, top {most}",
            options=self._options,
            sources=self.ranked_sources(domain),
        )

    def _combined(self, selections: list[Stage]) -> Stage:
        return Stage(
            "combine",
            "klearlib.curation.combine:combine",
            {},
            {f"selection_{number}": stage for number, stage in enumerate(selections, start=1)},
            label="examples of both domains",
            estimate_s=10.0,
        )

    def _trained(self, examples: Stage, *, seed: int, sft: SFTPhase) -> Stage:
        return Stage(
            "sft",
            "klearlib.sft.train:train_sft",
            {
                "seed": seed,
                **asdict(sft),
                # The paper's proportion: 8e-5 to 4e-5.
                "final_learning_rate": sft.learning_rate / 2,
                "compute": self.compute,
                **self.sft_options,
            },
            {"base": self._base, "examples": examples},
            label=f"SFT of both domains, seed {seed}",
            estimate_s=3600.0,
        )

    def _world(self, domain: str) -> Stage:
        if domain not in self._worlds:
            self._worlds[domain] = self._new_world(domain)
        return self._worlds[domain]

    def _new_world(self, domain: str) -> Stage:
        real = self._real
        count = real.num_train_problems if domain == "math" else real.num_code_problems
        return Stage(
            "real_world",
            "klearlib.real.world:build",
            {
                "seed": real.seed,
                "domain": domain,
                "num_train_problems": count,
                "num_validation": real.num_validation,
                "benchmarks": list(self._every[domain]),
                "ngram_words": self._options.ngram_words,
                "ngram_mode": self._options.ngram_mode,
                "workers": self.curate_workers,
            },
            {
                "problems": self._curated(domain, pool_only=True),
                "benchmarks": self._collected,
            },
            label=f"{DOMAIN_WORDS[domain]} problems for RL, validation, benchmarks",
            estimate_s=60.0,
        )

    def _curated(self, domain: str, *, pool_only: bool) -> Stage:
        listed = self._listed(domain, pool_only=pool_only)
        sources = self.sources(domain, pool_only=pool_only)
        what = "problems for RL" if pool_only else "sources"
        return curate_stage(
            domain,
            sources=sources,
            benchmarks=self.benchmark_items(domain),
            inputs=self._inputs(listed),
            options=self._options,
            templates=self.templates,
            stop_more_than=self._options.stop_more_than,
            workers=self.curate_workers,
            what=f"{DOMAIN_WORDS[domain]} {what}, curated",
            estimate_s=len(sources) * self.curation_s,
        )
