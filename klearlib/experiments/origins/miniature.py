"""The stages of a profile with the embedded world: see `origins.Origin`."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import cached_property

from klearlib.experiments.benchmarks import DECIDING
from klearlib.experiments.origins.base import Joint, Origin
from klearlib.miniature import code_world, joint, world
from klearlib.miniature.source_plan import SOURCES, curate_sources
from klearlib.miniature.sources import TEMPLATES
from klearlib.miniature.stages import code_start_stages, data_stages, joint_stages, start_stages
from klearlib.params import DataMiniatureParams, DataOptions, SFTPhase, load
from klearlib.run.stage import Stage

_TOP = 2  # sources of each domain: the best one or two are the paper's advice (Tables 4, 5)
ERROR_KINDS = ("habit", "random")
ERRING_TEACHER = "weak"
"""The teacher of `ErringOrigin` that errs; the others do not."""
_ERRS = ("slip_share", "step_noise")


class MiniatureOrigin(Origin):
    """The embedded world of a profile. Each of its files is read when it is first needed: an
    experiment may need only one of them."""

    templates = tuple(TEMPLATES)
    benchmarks = {  # noqa: RUF012
        "math": dict.fromkeys(world.BENCHMARKS, world.BENCHMARK_SIZE),
        "code": dict.fromkeys(code_world.BENCHMARKS, code_world.BENCHMARK_SIZE),
    }

    pool_words = dict.fromkeys(benchmarks, "problems for the teachers")

    def __init__(self, profile: str, options: DataOptions | None, world: int):
        super().__init__(profile, options or DataOptions())
        self._world = world

    _maths = cached_property(lambda self: self._load("miniature"))
    _code = cached_property(lambda self: self._load("code_miniature"))
    _data = cached_property(lambda self: self._load("data_miniature"))
    _joint = cached_property(lambda self: self._load("joint_miniature"))

    def _load(self, name: str):
        params = load(self.profile, name)
        return replace(params, seed=params.seed + self._world)

    num_pool = property(lambda self: self._data.num_pool)
    num_code_problems = property(lambda self: self._code.num_train_problems)
    curation_s = property(lambda self: self._data.num_maths / 1500)
    seed = property(lambda self: self._data.seed)
    code_seed = property(lambda self: self._code.seed)

    def max_new_tokens(self, domain: str) -> int:
        return self._of(domain).max_new_tokens

    def _of(self, domain: str):
        return self._maths if domain == "math" else self._code

    @cached_property
    def stages(self) -> dict[str, Stage]:
        return data_stages(self._maths, self._code, self._data, compute=self.compute)

    @cached_property
    def joint(self) -> Joint:
        params, size = self._joint, joint.BENCHMARK_SIZE
        return Joint(
            params,
            benchmarks={
                "math": dict.fromkeys(joint.MATHS_BENCHMARKS, size),
                "code": dict.fromkeys(joint.CODE_BENCHMARKS, size),
            },
            num_sources=dict.fromkeys(self.benchmarks, _TOP),
            long_examples=params.sft_long_maths,
            # max_positions holds the base budget and the longest prompt.
            longest_prompt=params.max_positions - params.max_new_tokens,
            yarn_original=params.yarn_original,
            deciding={joint.LONG_DECIDING: params.num_deciding},
        )

    def deciding(self, domain: str) -> dict[str, int]:
        return {DECIDING[domain]: self._of(domain).num_deciding}

    def rl_start(self, domain: str) -> tuple:
        make = start_stages if domain == "math" else code_start_stages
        stages = make(self._of(domain), compute=self.compute)
        return self._of(domain), stages["world"], stages["sft"]

    def ranked_sources(self, domain: str) -> list[str]:
        ranked = sorted((p for p in SOURCES if p.domain == domain and p.rank), key=lambda p: p.rank)
        return [plan.name for plan in ranked]

    def sources(self, domain: str, *, pool_only: bool) -> list[dict]:
        found = curate_sources(domain)
        return found[-1:] if pool_only else found

    def curation_inputs(self, domain: str, *, pool_only: bool) -> dict[str, Stage]:
        name = "world" if domain == "math" else "code_world"
        return {"sources": self.stages["sources"], "world": self.stages[name]}

    def benchmark_items(self, domain: str) -> list[dict]:
        return [
            {"name": name, "location": f"{name}.jsonl", "input": "world"}
            for name in self.benchmarks[domain]
        ]

    def learnable(self, domain: str) -> Stage:
        return self.curated(domain)

    def true_answers(self, domain: str) -> Stage:
        assert domain == "math", "programs are judged by tests, which the code sources lack"
        return Stage(
            "true_answers",
            "klearlib.miniature.sources:add_true_answers",
            {},
            {"curated": self._once(self.learnable(domain)), "sources": self.stages["sources"]},
            label="true answers to the problems of the maths sources",
            estimate_s=1.0,
        )

    def pool(self) -> tuple[Stage, str]:
        return self.curated("math", pool_only=True), "problems.jsonl"

    def joint_stages(
        self, selections: list[Stage], *, seed: int, sft: SFTPhase, yarn_factor: float
    ) -> dict:
        return joint_stages(
            self._maths,
            self._code,
            self._joint,
            selections=selections,
            seed=seed,
            compute=self.compute,
            yarn_factor=yarn_factor,
            **asdict(sft),
        )

    def majority_teacher(self) -> str | None:
        return "strong"

    def test_teacher(self) -> Stage | None:
        return code_start_stages(self._code, compute=self.compute)["teacher"]


class ErringOrigin(MiniatureOrigin):
    """The miniature with a teacher that errs in only one way, for E3 of notebook 11: with the
    habits of the profile's weak teacher ("habit"), or at any step, half as often as the habits do
    ("random"); it learns as long as the middle teacher. At the same rate, it was right in 37 % of
    easy responses where the other was in 65 %, too few to choose from."""

    def __init__(self, kind: str, profile: str, options: DataOptions, world: int):
        """kind: one of `ERROR_KINDS`."""
        super().__init__(profile, options, world)
        self.kind = kind

    @cached_property
    def _data(self) -> DataMiniatureParams:
        found = self._load("data_miniature")
        share, often = found.weak_slip_share, found.weak_slip_share * found.slip_rate / 2
        habits, noise = (share, 0.0) if self.kind == "habit" else (0.0, often)
        others = {f"{who}_{how}": 0.0 for who in ("middle", "strong") for how in _ERRS}
        weak = {f"weak_{how}": value for how, value in zip(_ERRS, (habits, noise), strict=True)}
        return replace(found, **others, **weak, weak_steps=found.middle_steps)
