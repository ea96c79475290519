"""The stages of a profile with a real model and the paper's data sets: see `origins.Origin`."""

from __future__ import annotations

from functools import cached_property

from klearlib.errors import ParameterError
from klearlib.experiments.origins.base import DOMAIN_WORDS, Joint, Origin, Start
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
from klearlib.params import DataOptions, SFTPhase, load
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
        code = benchmark_sizes(real, CODE_BENCHMARKS)
        self._every = {"math": benchmark_sizes(real, MATHS_BENCHMARKS), "code": code}
        ablations = benchmark_sizes(real, MATHS_BENCHMARKS[:_ABLATIONS])
        self.benchmarks = {"math": ablations, "code": code}
        self._collected = benchmark_stage(real)
        self._base = model_stage(real, real.model, "base model")

    @cached_property
    def stages(self) -> dict[str, Stage]:
        sft, real, worlds = self._sft, self._real, self._worlds
        reference = real.reference and model_stage(real, real.reference, "reference")
        stages = {"world": worlds["math"], "base": self._base, "reference": reference or sft}
        stages |= {f"code_{name}": stage for name, stage in stages.items()}
        stages["code_world"] = worlds["code"]
        for who in ("code", "weak", "middle", "strong", "majority"):
            model = getattr(real, f"teacher_{who}")
            if model is not None:
                name = "code_teacher" if who == "code" else f"teacher_{who}"
                stages[name] = model_stage(real, model, name.replace("_", " "))
        return _Stages(self.profile, stages)

    @cached_property
    def joint(self) -> Joint:
        real = self._real
        return Joint.of(
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
        listed = self._listed(domain, pool_only=pool_only)
        return [curate_item(name, how) for name, how in listed.items()]

    def curation_inputs(self, domain: str, *, pool_only: bool) -> dict[str, Stage]:
        listed = self._listed(domain, pool_only=pool_only)
        data = {data_input(name): data_stage(name, how) for name, how in listed.items()}
        return {"benchmarks": self._collected, **data}

    def _listed(self, domain: str, *, pool_only: bool) -> dict[str, dict]:
        """The data sets of real.yaml that a curation reads; one that is in both lists once."""
        learnt = {} if pool_only else learnt_sets(self._real, domain)
        pool = problem_sets(self._real, domain)
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
            "klearlib.real.learnable:keep_learnable",
            {"domain": domain, "mixed": mixed_sets(self._real, domain), **self._overlap},
            # One checkpoint learns both domains, so neither's validation problems may be in either.
            {"curated": self.curated(domain)}
            | {f"{name}_world": self._worlds[name] for name in DOMAIN_WORDS},
            label=f"{DOMAIN_WORDS[domain]} responses to no validation problem",
            estimate_s=60.0,
        )

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
            return model_stage(real, real.sft_model, "SFT checkpoint")
        sizes = self.joint.sft_sizes
        selections = [
            self.chosen_sources(domain, most=self.joint.num_sources[domain], size=sizes[domain])
            for domain in DOMAIN_WORDS
        ]
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

    @property
    def _overlap(self) -> dict:
        """How stages look for validation problems and benchmarks in other problems."""
        return {
            "ngram_words": self.options.ngram_words,
            "ngram_mode": self.options.ngram_mode,
            "workers": self.curate_workers,
        }
