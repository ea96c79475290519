"""What an experiment may ask of an origin, and the stages on data that all origins share: from raw
sources to a measured student. Equal stages of all notebooks have one key and run once."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from klearlib.errors import ParameterError
from klearlib.params import LOCAL, DataOptions, JointMiniatureParams, RealParams, load
from klearlib.params.data import SFTSchedule
from klearlib.run.stage import Stage

DOMAIN_WORDS = {"math": "maths", "code": "code"}


def wrong_words(share: float | None) -> str:
    """What share of the examples is wrong, in words.

    >>> wrong_words(0.15), wrong_words(0.0), wrong_words(None)
    ('15 % wrong', 'only correct', 'as they come')
    """
    if not share:
        return "as they come" if share is None else "only correct"
    return f"{100 * share:g} % wrong"


@dataclass(frozen=True)
class Start:
    """What an RL run starts from and what it is measured on.

    `world` holds the benchmarks and the training problems, `pool` (None for all of them) the
    problems that are left to train on; `benchmarks` maps names to sizes, `deciding` likewise for
    those that only decide claims, and `compute` says how its stages compute. `profile` names the
    profile that says how verl trains.
    """

    profile: str
    world: Stage
    sft: Stage
    benchmarks: dict[str, int | None]
    num_validation: int
    validation_responses: int
    max_new_tokens: int
    compute: dict
    pool: Stage | None = None
    deciding: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Joint:
    """The one model for mathematics and code that notebook 10 trains.

    `params` is what a profile's file says of it. `num_sources` is the number of best sources of
    each domain that its examples come from; `long_examples` are further ones that the suite writes
    itself. YaRN multiplies the positions `yarn_original`, whatever the model's config says; a
    prompt needs `longest_prompt` of them. `deciding` decides on the longer budget, by name and
    size; where it is empty, the benchmarks do.
    """

    params: JointMiniatureParams | RealParams
    benchmarks: dict[str, dict[str, int | None]]
    num_sources: dict[str, int]
    long_examples: int
    longest_prompt: int
    yarn_original: int
    deciding: dict[str, int] = field(default_factory=dict)


class Origin:
    """The worlds, models and data of a profile, as stages. A subclass has what is declared here,
    per domain if a function takes one."""

    rl_start: Callable[[str], tuple[Any, Stage, Stage]]  # parameters, world and SFT checkpoint
    ranked_sources: Callable[[str], list[str]]  # names, the best first
    # What `klearlib.curation.curate` takes, the pool last, and its inputs.
    sources: Callable[..., list[dict]]
    benchmark_items: Callable[[str], list[dict]]
    curation_inputs: Callable[..., dict[str, Stage]]
    learnable: Callable[[str], Stage]  # the part of the curated sources that may be learnt
    pool: Callable[[], tuple[Stage, str]]  # and file of the maths problems that teachers answer
    # Who decides which of them RL draws from, and which code problems have sound tests; None: all.
    majority_teacher: Callable[[], str | None]
    test_teacher: Callable[[], Stage | None]
    joint_stages: Callable[..., dict[str, Stage]]  # world, base, examples and sft
    joint: Joint
    # By the names of `klearlib.miniature.stages.data_stages`; a missing one says what to add.
    stages: dict[str, Stage]
    benchmarks: dict[str, dict[str, int | None]]  # name -> number of problems, None for any
    templates: tuple[str, ...]  # phrases that the search for overlap cuts out
    max_new_tokens: Callable[[str], int]  # budget of a response
    seed: int  # of all that teachers of mathematics sample; of code the next
    code_seed: int
    pool_words: dict[str, str]  # the problems of a pool in words
    # For estimates: how many problems teachers answer, seconds that curating one source takes.
    num_pool: int
    num_code_problems: int
    curation_s: float

    def __init__(self, profile: str, options: DataOptions):
        self.profile, self.options = profile, options
        self.compute = asdict(load(profile, LOCAL))
        # Equal stages as one object: each works its key out once.
        self._made: dict[str, Stage] = {}

    def deciding(self, domain: str) -> dict[str, int]:
        """The benchmarks of a domain that only verdicts use, by name and size; where there are
        none, the others decide."""
        return {}

    def start(self, domain: str) -> Start:
        """What RL on a domain starts from."""
        params, world, sft = self.rl_start(domain)
        return Start(
            profile=self.profile,
            world=world,
            sft=sft,
            benchmarks=self.benchmarks[domain],
            num_validation=params.num_validation,
            validation_responses=params.validation_responses,
            max_new_tokens=self.max_new_tokens(domain),
            compute=self.compute,
            deciding=self.deciding(domain),
        )

    def told(self, *names: str) -> dict:
        """Some of the options, for a stage that has them under the same names."""
        return {name: getattr(self.options, name) for name in names}

    def true_answers(self, domain: str) -> Stage:
        """The true answers to the problems of `learnable`."""
        raise ParameterError("the true answers to a data set's problems are not known")

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
        problems that teachers answer. `templates` and `stop_more_than` set the overlap rule; None
        means the origin's templates and the options' stop list; `words` goes into the label."""
        options, sources = self.options, self.sources(domain, pool_only=pool_only)
        what = self.pool_words[domain] if pool_only else f"{DOMAIN_WORDS[domain]} sources"
        stage = Stage(
            "curate",
            "klearlib.curation.curate:curate",
            {
                "sources": sources,
                "benchmarks": self.benchmark_items(domain),
                **self.told("ngram_words"),
                "templates": list(self.templates if templates is None else templates),
                "stop_more_than": stop_more_than or options.stop_more_than,
                "need_gold": False,
                "min_tests": options.min_tests if domain == "code" else 0,
            },
            self.curation_inputs(domain, pool_only=pool_only),
            label=f"{what}, curated{words and f' ({words})'}",
            estimate_s=4 + len(sources) * self.curation_s,
        )
        return self._once(stage)

    def responses(self, model: str, *, num_responses: int) -> Stage:
        """Judged responses to the maths pool of ``reference`` or a teacher, as ``middle``."""
        pool, file = self.pool()
        teacher = self.stages["reference" if model == "reference" else f"teacher_{model}"]
        stage = Stage(
            "responses",
            "klearlib.curation.responses:respond",
            {
                "seed": self.seed,
                "problems": file,
                "teacher": model,
                "num_responses": num_responses,
                **self.told("temperature", "top_p", "test_timeout_s", "test_memory_mb"),
                "max_new_tokens": self.max_new_tokens("math"),
                "compute": self.compute,
            },
            {"problems": pool, "model": teacher},
            label=f"responses, {model}" + ("" if model == "reference" else " teacher"),
            # Measured on one core: 1,000 problems x 4 responses in 15 s.
            estimate_s=5 + self.num_pool * num_responses / 250,
        )
        return self._once(stage)

    def chosen_responses(
        self,
        model: str,
        *,
        num_responses: int,
        size: int,
        wrong_share: float | None = None,
        difficulty: str = "overall",
        easy_from: float | None = None,
        reference_responses: int | None = None,
    ) -> Stage:
        """`size` of a teacher's responses by K-center, after the filters of Table 2, with this
        share wrong; None: as they come."""
        pool, file = self.pool()
        answers = self.responses(model, num_responses=num_responses)
        inputs = {"responses": answers, "problems": pool}
        if difficulty != "overall":
            inputs["reference"] = self.responses("reference", num_responses=reference_responses)
        return self._selection(
            inputs,
            size=size,
            label=f"examples: {model}, {difficulty}, {wrong_words(wrong_share)}",
            difficulty=difficulty,
            easy_from=None if difficulty == "overall" else easy_from,
            wrong_share=wrong_share,
            **({} if file == "problems.jsonl" else {"problems": file}),
        )

    def chosen_sources(
        self,
        domain: str,
        *,
        ranks: Sequence[int],
        size: int | None,
        words: str,
        wrong_share: float | None = None,
    ) -> Stage:
        """`size` examples (None: all) by K-center from the sources of these ranks of a domain, 1
        the best, as far as it has that many. words: the sources in words. wrong_share: of the
        examples; None: as they come."""
        curated, ranked = self._once(self.learnable(domain)), self.ranked_sources(domain)
        problems = curated if wrong_share is None else self._once(self.true_answers(domain))
        if not (there := [rank for rank in ranks if rank <= len(ranked)]):
            raise ParameterError(
                f"{words} in {DOMAIN_WORDS[domain]}: there are {len(ranked)} sources: "
                f"give ranks from 1 to {len(ranked)}"
            )
        return self._selection(
            {"responses": curated, "problems": problems},
            size=size,
            label=f"examples: {DOMAIN_WORDS[domain]}, {words}",
            sources=[ranked[rank - 1] for rank in there],
            wrong_share=wrong_share,
        )

    def joint_selections(self) -> dict[str, Stage]:
        """Domain -> the examples of its best sources, for the joint model."""
        params = self.joint.params
        sizes = {"math": params.sft_maths, "code": params.sft_code}  # None for all
        return {
            domain: self.chosen_sources(
                domain, ranks=range(1, most + 1), size=sizes[domain], words=f"top {most}"
            )
            for domain, most in self.joint.num_sources.items()
            if most
        }

    def _selection(
        self, inputs: dict[str, Stage], *, size: int | None, label: str, **filters
    ) -> Stage:
        """`klearlib.curation.select` with further `filters`."""
        embedding = {
            each: getattr(self.options, f"embedding_{each}") for each in ("text", "dim", "seed")
        }
        params = {
            "sources": None,
            "difficulty": "overall",
            "easy_from": None,
            "wrong_share": None,
            "size": size,
            "embedding": embedding if size is not None else None,
            **self.told("test_timeout_s", "test_memory_mb"),
        }
        target = "klearlib.curation.select:select"
        return Stage("select", target, params | filters, inputs, label=label, estimate_s=4.0)

    def student(
        self,
        domain: str,
        chosen: Stage,
        how: SFTSchedule,
        *,
        label: str,
        seed: int,
        num_responses: int,
    ) -> Stage:
        """Train the domain's base model on the examples, and measure it: the stage ``evaluate``,
        whose input ``model`` is the training."""
        training = self.trained(
            {"base": self.stages["base" if domain == "math" else "code_base"], "examples": chosen},
            how,
            label=f"SFT: {label}, seed {seed}",
            seed=seed,
            estimate_s=4 + chosen.params["size"] * how.num_epochs / 250,
        )
        return self.measured(
            domain,
            training,
            label=f"benchmarks: {label}, seed {seed}",
            seed=seed,
            num_responses=num_responses,
            **({"deciding": deciding} if (deciding := self.deciding(domain)) else {}),
        )

    def trained(
        self,
        inputs: dict[str, Stage],
        how: SFTSchedule,
        *,
        seed: int,
        label: str,
        estimate_s: float,
    ) -> Stage:
        """The stage ``base`` of the inputs, tuned on their ``examples``."""
        return Stage(
            "sft",
            "klearlib.sft.train:train_sft",
            {
                "seed": seed,
                "num_epochs": how.num_epochs,
                "batch_size": how.batch_size,
                "learning_rate": how.learning_rate,
                # The paper's proportion: 8e-5 to 4e-5.
                "final_learning_rate": how.learning_rate / 2,
                "normalizer": how.normalizer,
                "compute": self.compute,
            },
            inputs,
            label=label,
            estimate_s=estimate_s,
        )

    def measured(
        self,
        domain: str,
        model: Stage,
        *,
        label: str,
        seed: int,
        num_responses: int,
        world: Stage | None = None,
        estimate_s: float | None = None,
        **setting,
    ) -> Stage:
        """A model on the benchmarks of a domain. world: the stage that holds them, if not the
        domain's; setting: parameters of the stage that differ."""
        options = self.options
        return Stage(
            "evaluate",
            "klearlib.evaluate.harness:evaluate_benchmarks",
            {
                "seed": seed,
                "benchmarks": self.benchmarks[domain],
                "num_responses": num_responses,
                "temperature": options.eval_temperature,
                "top_p": options.eval_top_p,
                "max_new_tokens": self.max_new_tokens(domain),
                **self.told("test_timeout_s", "test_memory_mb"),
                "compute": self.compute,
            }
            | setting,
            {
                "world": world or self.stages["world" if domain == "math" else "code_world"],
                "model": model,
            },
            label=label,
            estimate_s=estimate_s or (4.0 if domain == "math" else 7.0),
        )

    def _once(self, stage: Stage) -> Stage:
        inputs = [id(each) for each in stage.inputs.values()]
        return self._made.setdefault(json.dumps([stage.name, stage.params, inputs]), stage)
