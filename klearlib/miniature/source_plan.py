"""The miniature's sources: which data set each has the schema of, and how well it is written.

The ranks are known because the writers are: from rank to rank more steps are wrong, left out or
needless, and the notation clashes more.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from klearlib.errors import KlearError
from klearlib.miniature.problems import Slips
from klearlib.miniature.source_writers import Writer


@dataclass(frozen=True)
class SourcePlan:
    """One source. `domain` is ``math`` or ``code``; `rank` is 1 for the best of its domain, 0 for
    a pool of problems without responses, which reinforcement learning draws from.

    `dataset` is the name under which `klearlib.data.sources.read_source` reads its schema.
    `slip_share` is the share of single steps with a habit of going wrong, the same habits for all
    writers of a domain, so that a lower rank has all those of the higher ones; `noise`, `gaps`,
    `repeats` and `notation` are those of `Slips` and `Writer`.
    """

    name: str
    dataset: str
    domain: str
    rank: int
    slip_share: float = 0.0
    noise: float = 0.0
    gaps: float = 0.0
    repeats: float = 0.0
    notation: str = "plain"

    @property
    def has_generations(self) -> bool:
        """Whether its schema holds several responses to a problem, each with a label."""
        return self.dataset == "openr1_math"

    @property
    def has_tests(self) -> bool:
        """Whether its schema holds tests."""
        return self.dataset == "klear_code"

    @property
    def file(self) -> str:
        """Its raw file in the folder of the stage ``sources``."""
        return f"{self.name}.jsonl"

    def writer(self, *, habits: int, slip_rate: float) -> Writer:
        """Who writes its responses. habits: the seed of the domain's slips. slip_rate: how often a
        habit shows."""
        slips = Slips(habits, self.slip_share, slip_rate, self.noise)
        return Writer(slips, gaps=self.gaps, repeats=self.repeats, notation=self.notation)

    def record(self) -> dict:
        """Its line in sources.json."""
        return asdict(self) | {"file": self.file}


MATHS_SOURCES = (
    SourcePlan("math_1", "openr1_math", "math", 1, 0.00, 0.010),
    SourcePlan("math_2", "acereason_sft", "math", 2, 0.01, 0.010, repeats=0.02),
    SourcePlan("math_3", "openthoughts3", "math", 3, 0.02, 0.015, repeats=0.03),
    SourcePlan("math_4", "openr1_math", "math", 4, 0.04, 0.020, gaps=0.02, repeats=0.04),
    SourcePlan("math_5", "numinamath_1_5", "math", 5, 0.06, 0.020, gaps=0.03, repeats=0.05),
    SourcePlan("math_6", "acereason_sft", "math", 6, 0.08, 0.025, gaps=0.04, repeats=0.08),
    SourcePlan("math_7", "deepscaler", "math", 7, 0.10, 0.030, gaps=0.05, repeats=0.10),
    SourcePlan("math_8", "openthoughts3", "math", 8, 0.13, 0.030, 0.06, 0.12, "spaced"),
    SourcePlan("math_9", "numinamath_cot", "math", 9, 0.16, 0.040, 0.08, 0.15, "spaced"),
    SourcePlan("math_10", "numinamath_1_5", "math", 10, 0.20, 0.050, 0.10, 0.20, "swapped"),
)
CODE_SOURCES = (
    SourcePlan("code_1", "opencodereasoning", "code", 1, 0.00, 0.010),
    SourcePlan("code_2", "acereason_sft", "code", 2, 0.02, 0.010, repeats=0.01),
    SourcePlan("code_3", "openthoughts3", "code", 3, 0.04, 0.015, gaps=0.01, repeats=0.01),
    SourcePlan("code_4", "opencodereasoning", "code", 4, 0.06, 0.020, gaps=0.02, repeats=0.02),
    SourcePlan("code_5", "acereason_sft", "code", 5, 0.09, 0.025, gaps=0.04, repeats=0.03),
    SourcePlan("code_6", "openthoughts3", "code", 6, 0.12, 0.030, 0.06, 0.04, "spaced"),
)
POOLS = (
    SourcePlan("math_pool", "skywork_or1_math", "math", 0),
    SourcePlan("code_pool", "klear_code", "code", 0),
)
SOURCES = (*MATHS_SOURCES, *CODE_SOURCES, *POOLS)
"""All of them, in the order in which curation reads them: of equal prompts the first stays, which
is the one of the better source."""


def curate_sources(domain: str, *, with_pool: bool) -> list[dict]:
    """The sources of a domain as `klearlib.curation.curate` takes them, from its input ``sources``.

    >>> curate_sources("code", with_pool=True)[-1]
    {'name': 'klear_code', 'alias': 'code_pool', 'location': 'code_pool.jsonl', 'input': 'sources'}
    """
    plans = [p for p in SOURCES if p.domain == domain and (p.rank or with_pool)]
    if not plans:
        raise KlearError(f"domain must be math or code, got {domain!r}")
    return [
        {"name": p.dataset, "alias": p.name, "location": p.file, "input": "sources"} for p in plans
    ]
