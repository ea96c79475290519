"""What a claim is, and the reading of ``claims.yaml``, which tests/paper holds complete: a rule for
a verdict is fixed before any run."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CLAIMS_FILE = Path(__file__).parent / "claims.yaml"
STATISTICS = ("last", "second_half", "curve")
"""The number of an arm in one replicate: its score at the last step, the mean over the evaluations
of the second half, or what the claim's metric takes from the whole run."""
TESTS = ("fair", "partly", "planted", "stand-in", "identity", "own", "no test")
"""How far the miniature tests a claim: its own mathematics and models decide, in part alone, the
outcome was set by hand, another quantity is measured, any model must pass, the paper does not make
it, it cannot be tested."""
COMPARED = ("direction", "ordering", "equivalence", "plateau", "exploration")
"""The kinds that are decided by comparisons over replicates."""


@dataclass(frozen=True)
class Rule:
    """How a claim is judged: in words at either scale, and the numbers that the words use."""

    below_paper: str
    at_paper: str
    numbers: Mapping[str, float]


@dataclass(frozen=True)
class PaperNumber:
    """A number of the paper that bears on a claim, printed or computed from its plotted points.

    `of` is the total of a count; `num_samples` (n of avg@n) and `num_problems` are given where the
    number is itself the claim, as in Table 1.
    """

    what: str
    value: float
    unit: str
    of: float | None = None
    num_samples: int | None = None
    num_problems: int | None = None

    def text(self) -> str:
        """The number for people: fractions and shares in percent, counts with their total."""
        if self.unit in ("fraction", "share"):
            return f"{self.what}: {100 * self.value:.2f} %"
        if self.unit == "count":
            return f"{self.what}: {self.value:g}" + (f" of {self.of:g}" if self.of else "")
        return f"{self.what}: {self.value:.3f}"


@dataclass(frozen=True)
class Comparison:
    """`a` minus `b`, positive where the claim is right; arms are averaged inside `a` and `b`.

    `benchmarks` are the paper's (their mean is taken) and `paper` is the paper's own
    difference there, in the claim's unit, None where the paper does not show it.
    """

    name: str
    a: tuple[str, ...]
    b: tuple[str, ...]
    benchmarks: tuple[str, ...]
    paper: float | None


@dataclass(frozen=True)
class Check:
    """A share that shows that the experiment did what the claim is about, and the least that it may
    be; of tokens in the `corners`, mean over `arms`, where these are given."""

    name: str
    at_least: float
    arms: tuple[str, ...] = ()
    corners: tuple[str, ...] = ()


@dataclass(frozen=True)
class Claim:
    """One claim of the paper, where it is made, what the paper shows for it, and its rule; or an
    exploration of what the paper leaves open, with its `expectation` in the place of numbers.

    `shown` names the table, figure or equation; `metric` says what is compared and `unit` in what;
    `arms` are the series that must be there; `notes` hold what the paper's numbers say against its
    text and the limits of the test. `statistic` is a word of `STATISTICS` (None where nothing is
    compared), `margin` the smallest difference that matters, None for that of the profile.
    `expectation` says what is expected and by whom, "" for a claim of the paper. `test` is a word
    of `TESTS`, with its reason in `why`. `exploratory_at`: profiles whose settings were changed
    after a first result was known. `unrunnable`: replicates in which it cannot be run, with the
    reason in `notes`; where they are registered, the others decide and the verdict is exploratory.
    """

    id: str
    title: str
    statement: str
    section: str
    shown: str
    notebook: str
    test: str
    why: str
    kind: str
    metric: str
    unit: str
    arms: tuple[str, ...]
    paper: tuple[PaperNumber, ...]
    comparisons: tuple[Comparison, ...]
    rule: Rule
    notes: tuple[str, ...]
    checks: tuple[Check, ...]
    statistic: str | None = None
    margin: float | None = None
    expectation: str = ""
    exploratory_at: tuple[str, ...] = ()
    unrunnable: tuple[int, ...] = ()

    def paper_text(self) -> str:
        """The paper's own numbers in one line; of an exploration, what is expected."""
        return "; ".join(number.text() for number in self.paper) or self.expectation


def parse_claims(document: dict) -> tuple[Claim, ...]:
    """The parsed YAML document -> its claims, in order. TypeError for a field that is missing or
    unknown."""
    rules = {kind: Rule(**entry) for kind, entry in document["rules"].items()}
    return tuple(_claim(entry, rules[entry["kind"]]) for entry in document["claims"])


def _claim(entry: dict, rule: Rule) -> Claim:
    parts = {"paper": PaperNumber, "comparisons": Comparison, "checks": Check}
    own = {name: value for name, value in entry.items() if name not in (*parts, "place")}
    records = {
        name: tuple(_record(kind, each) for each in entry.get(name, ()))
        for name, kind in parts.items()
    }
    return _record(Claim, own | entry["place"] | records, rule=rule)


def _record(kind: type, values: dict, **more):
    """A record with tuples in the place of lists."""
    tuples = {name: tuple(each) for name, each in values.items() if isinstance(each, list)}
    return kind(**values | tuples, **more)


@functools.lru_cache(maxsize=1)
def load_claims() -> tuple[Claim, ...]:
    """The claims of ``claims.yaml``."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C it takes a tenth of the time
    return parse_claims(yaml.load(CLAIMS_FILE.read_text(encoding="utf-8"), Loader=loader))
