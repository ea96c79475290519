"""The arms of the experiments on data: from raw sources to a measured student, stage by stage.

Arms that coincide, inside a notebook or between notebooks, have the same keys and run once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from klearlib.experiments.origins import origin
from klearlib.experiments.origins.curation import DOMAIN_WORDS, curate_stage, selection_stage
from klearlib.params import DataOptions
from klearlib.run.stage import Stage


@dataclass(frozen=True)
class Recipe:
    """How a student is trained and measured; equal for all arms of a comparison."""

    num_epochs: int
    batch_size: int
    learning_rate: float
    normalizer: str
    eval_responses: int

    @classmethod
    def of(cls, params, domain: str = "math") -> Recipe:
        """That of a notebook's parameters, whose ``code_`` fields are those of students of code."""
        own = "code_" if domain == "code" else ""
        return cls(
            num_epochs=params.num_epochs,
            batch_size=getattr(params, f"{own}batch_size"),
            learning_rate=getattr(params, f"{own}learning_rate"),
            normalizer=params.normalizer,
            eval_responses=getattr(params, f"{own}eval_responses"),
        )


class DataArms:
    """The stages of a profile's experiments on data.

    Each method gives a `Stage`; `origin` is what they start from, and `stages` are its.
    """

    def __init__(self, profile: str, options: DataOptions):
        self.origin, self._options = origin(profile, options), options
        self.stages = self.origin.stages
        # Equal stages as one object: each works its key out once.
        self._made: dict[str, Stage] = {}

    def curated(
        self,
        domain: str,
        *,
        pool_only: bool = False,
        templates: Sequence[str] | None = None,
        stop_more_than: int | None = None,
        words: str = "",
    ) -> Stage:
        """The sources of a domain after deduplication, overlap and tests; with `pool_only` the
        problems that teachers answer. `templates` and `stop_more_than` are those of the overlap;
        where they are None, the origin's templates and the options' stop list; `words` goes into
        the label."""
        sources = self.origin.sources(domain, pool_only=pool_only)
        what = "problems for the teachers" if pool_only else f"{DOMAIN_WORDS[domain]} sources"
        stage = curate_stage(
            domain,
            sources=sources,
            benchmarks=self.origin.benchmark_items(domain),
            inputs=self.origin.curation_inputs(domain),
            options=self._options,
            templates=self.origin.templates if templates is None else templates,
            stop_more_than=stop_more_than or self._options.stop_more_than,
            workers=self.origin.curate_workers,
            what=f"{what}, curated{words and f' ({words})'}",
            estimate_s=4 + len(sources) * self.origin.curation_s,
        )
        return self._once(stage)

    def responses(self, model: str, *, num_responses: int) -> Stage:
        """Judged responses to the maths pool of ``reference`` or a teacher, as ``middle``."""
        options, (pool, file) = self._options, self.pool()
        teacher = self.stages["reference" if model == "reference" else f"teacher_{model}"]
        stage = Stage(
            "responses",
            "klearlib.curation.responses:respond",
            {
                "seed": self.origin.seed,
                "problems": file,
                "teacher": model,
                "num_responses": num_responses,
                "temperature": options.temperature,
                "top_p": options.top_p,
                "max_new_tokens": self.origin.max_new_tokens["math"],
                "test_timeout_s": options.test_timeout_s,
                "test_memory_mb": options.test_memory_mb,
                "compute": self.origin.compute,
            },
            {"problems": pool, "model": teacher},
            label=f"responses, {model}" + ("" if model == "reference" else " teacher"),
            # Measured on one core: 1,000 problems x 4 responses in 15 s.
            estimate_s=5 + self.origin.num_pool * num_responses / 250,
        )
        return self._once(stage)

    def pool(self) -> tuple[Stage, str]:
        """The maths problems that teachers answer: their stage, and its file."""
        return self.origin.pool(self.curated("math", pool_only=True))

    def chosen_responses(
        self,
        model: str,
        *,
        num_responses: int,
        size: int,
        correctness: str = "mixed",
        difficulty: str = "overall",
        easy_from: float | None = None,
        reference_responses: int | None = None,
    ) -> Stage:
        """`size` of a teacher's responses by K-center, after the filters of Table 2."""
        pool, file = self.pool()
        inputs = {
            "responses": self.responses(model, num_responses=num_responses),
            "problems": pool,
        }
        if difficulty != "overall":
            inputs["reference"] = self.responses("reference", num_responses=reference_responses)
        return selection_stage(
            inputs,
            size=size,
            label=f"examples: {model}, {difficulty}, {correctness}",
            options=self._options,
            difficulty=difficulty,
            easy_from=None if difficulty == "overall" else easy_from,
            correctness=correctness,
            **({} if file == "problems.parquet" else {"problems": file}),
        )

    def chosen_sources(self, domain: str, *, most: int, size: int | None) -> Stage:
        """`size` examples by K-center of the `most` best sources of a domain; None: all."""
        curated = self._once(self.origin.learnable(domain, self.curated(domain)))
        return selection_stage(
            {"responses": curated, "problems": curated},
            size=size,
            label=f"examples: {DOMAIN_WORDS[domain]}, top {most}",
            options=self._options,
            sources=self.origin.ranked_sources(domain)[:most],
        )

    def student(
        self, domain: str, chosen: Stage, recipe: Recipe, *, label: str, seed: int
    ) -> Stage:
        """Train the domain's base model on the examples, and measure it: the stage ``evaluate``,
        whose input ``model`` is the training."""
        base = self.stages["base" if domain == "math" else "code_base"]
        training = Stage(
            "sft",
            "klearlib.sft.train:train_sft",
            {
                "seed": seed,
                "num_epochs": recipe.num_epochs,
                "batch_size": recipe.batch_size,
                "learning_rate": recipe.learning_rate,
                # The paper's proportion: 8e-5 to 4e-5.
                "final_learning_rate": recipe.learning_rate / 2,
                "normalizer": recipe.normalizer,
                "compute": self.origin.compute,
                **self.origin.sft_options,
            },
            {"base": base, "examples": chosen},
            label=f"SFT: {label}, seed {seed}",
            estimate_s=4 + chosen.params["size"] * recipe.num_epochs / 250,
        )
        return self.measured(
            domain,
            training,
            label=f"benchmarks: {label}, seed {seed}",
            seed=seed,
            num_responses=recipe.eval_responses,
        )

    def measured(
        self, domain: str, model: Stage, *, label: str, seed: int, num_responses: int
    ) -> Stage:
        """A model on the benchmarks of a domain."""
        options = self._options
        return Stage(
            "evaluate",
            "klearlib.evaluate.stage:evaluate_benchmarks",
            {
                "seed": seed,
                "benchmarks": self.origin.benchmarks[domain],
                "num_responses": num_responses,
                "temperature": options.eval_temperature,
                "top_p": options.eval_top_p,
                "max_new_tokens": self.origin.max_new_tokens[domain],
                "test_timeout_s": options.test_timeout_s,
                "test_memory_mb": options.test_memory_mb,
                "compute": self.origin.compute,
            },
            {"world": self._world(domain), "model": model},
            label=label,
            estimate_s=4.0 if domain == "math" else 7.0,
        )

    def _once(self, stage: Stage) -> Stage:
        inputs = [id(each) for each in stage.inputs.values()]
        return self._made.setdefault(json.dumps([stage.name, stage.params, inputs]), stage)

    def _world(self, domain: str) -> Stage:
        return self.stages["world" if domain == "math" else "code_world"]
