"""What a claim is, and the strict reading of ``claims.yaml``.

A rule for a verdict is fixed before any run. So a missing, unknown or ill-typed field is an error,
never a claim that is judged by something nobody wrote down.
"""

from __future__ import annotations

import functools
import math
import re
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path

from klearlib.errors import KlearError

CLAIMS_FILE = Path(__file__).parent / "claims.yaml"
CORNERS = ("low_negative", "high_positive", "low_positive", "high_negative")
STATISTICS = ("last", "second_half", "curve")
"""The number of an arm in one replicate: its score at the last step, the mean over the evaluations
of the second half, or what the claim's metric takes from the whole run."""
TESTS = ("fair", "partly", "planted", "stand-in", "identity", "own", "no test")
"""How far the miniature tests a claim: its own mathematics and models decide, in part alone, the
outcome was set by hand, another quantity is measured, any model must pass, the paper does not make
it, it cannot be tested."""
UNITS = ("fraction", "reward", "norm", "share", "count", "coefficient")
COMPARED = ("direction", "ordering", "equivalence", "exploration")
"""The kinds that are decided by comparisons over replicates."""

# kind -> the numbers its rule must state
KINDS: dict[str, tuple[str, ...]] = {
    "mechanism": ("tolerance",),
    "direction": ("one_sided",),
    "ordering": ("one_sided",),
    "exploration": ("one_sided",),
    "equivalence": ("two_sided",),
    "trend": (
        "median_factor",
        "min_share_below",
        "min_steps",
        "min_seeds",
        "max_score_drop",
        "band_low",
        "band_high",
        "min_share_in_band",
    ),
    "absolute": ("level", "rounding"),
}


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
    of `TESTS`, with its reason in `why`.
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

    def paper_text(self) -> str:
        """The paper's own numbers in one line; of an exploration, what is expected."""
        return "; ".join(number.text() for number in self.paper) or self.expectation


def _require(holds: object, where: str, message: str) -> None:
    if not holds:
        raise KlearError(f"claims.yaml, {where}: {message}")


def _record(kind: type, entry: object, where: str, **read):
    """`entry` as a record, without a field missing or unknown; `read` has the fields that were read
    already. Fields of text are text, and numbers are finite numbers."""
    _require(isinstance(entry, dict), where, f"expected a mapping, got {entry!r:.50}")
    types, known = typing.get_type_hints(kind), {each.name: each for each in fields(kind)}
    needed = {name for name, each in known.items() if each.default is MISSING} - set(read)
    missing, unknown = needed - set(entry), set(entry) - set(known)
    _require(not missing | unknown, where, f"missing {sorted(missing)}, unknown {sorted(unknown)}")
    stated = entry.keys() - read.keys()
    values = {name: _typed(entry[name], types[name], where) for name in stated}
    return kind(**values | read)


def _typed(value: object, kind: object, where: str):
    """A value of YAML as the type of its field."""
    if kind == tuple[str, ...]:
        _require(isinstance(value, list), where, f"expected a list, got {value!r}")
        return tuple(_typed(each, str, where) for each in value)
    if kind is str:
        is_text = isinstance(value, str) and value.strip()
        _require(is_text, where, f"expected text, got {value!r}")
        return value.strip()
    options = typing.get_args(kind)
    if value is None and type(None) in options:
        return None
    if str in options:
        return _typed(value, str, where)
    is_number = type(value) in (int, float) and math.isfinite(value)
    _require(is_number, where, f"expected a finite number (write 1.0e-4, not 1e-4), got {value!r}")
    return value


def _records(kind: type, entries: object, where: str) -> tuple:
    _require(isinstance(entries, list), where, f"expected a list, got {entries!r}")
    return tuple(_record(kind, each, where) for each in entries)


def _rule(kind: str, entry: dict) -> Rule:
    where, numbers = f"rule {kind}", entry.get("numbers", {})
    _require(numbers.keys() == set(KINDS[kind]), where, f"numbers must be {KINDS[kind]}")
    numbers = {name: _typed(value, float, where) for name, value in numbers.items()}
    return _record(Rule, entry, where, numbers=numbers)


def _claim(entry: dict, rules: dict[str, Rule]) -> Claim:
    where = f"claim {entry.get('id')!r}"
    _require(entry.get("kind") in KINDS, where, f"kind is one of {tuple(KINDS)}")
    parts = {"paper": PaperNumber, "comparisons": Comparison, "checks": Check}
    read = {
        name: _records(kind, entry.get(name, []), f"{where}, {name}")
        for name, kind in parts.items()
    }
    stated = {name: value for name, value in entry.items() if name not in (*parts, "place")}
    claim = _record(
        Claim, stated | entry.get("place", {}), where, **read, rule=rules[entry["kind"]]
    )
    units = {claim.unit, *(number.unit for number in claim.paper)}
    _require(units <= set(UNITS), where, f"unit is one of {UNITS}")
    for each in claim.comparisons:
        arms = {*each.a, *each.b}
        apart = each.a and each.b and each.benchmarks and len(arms) == len(each.a + each.b)
        rule = f"{each.name}: a and b are disjoint arms out of {claim.arms}, on benchmarks"
        _require(apart and arms <= set(claim.arms), where, rule)
    for check in claim.checks:
        known = set(check.arms) <= set(claim.arms) and set(check.corners) <= set(CORNERS)
        rule = f"corners are out of {CORNERS}, of arms out of {claim.arms}, or neither"
        _require(known and bool(check.arms) == bool(check.corners), where, rule)
        _require(0 < check.at_least < 1, where, f"at_least is in (0, 1), got {check.at_least}")
    names, explores = {each.name for each in claim.comparisons}, claim.id.startswith("E")
    _require(claim.test in TESTS, where, f"test is one of {TESTS}")
    compared = bool(names) == (claim.kind in COMPARED) and len(names) == len(claim.comparisons)
    _require(compared, where, f"claims of kind {', '.join(COMPARED)} have comparisons, named apart")
    stated = (claim.statistic in STATISTICS) == bool(names)
    _require(stated, where, f"what is compared has a statistic out of {STATISTICS}")
    _require(claim.margin is None or claim.margin > 0, where, f"margin {claim.margin}: above 0")
    fix = "an expectation and no number of the paper" if explores else "numbers, none expected"
    told = bool(claim.expectation) == explores != bool(claim.paper)
    _require(told, where, f"it has {fix}")
    sampled = all(number.num_samples is not None for number in claim.paper)
    _require(claim.kind != "absolute" or sampled, where, "num_samples of every number is missing")
    return claim


def parse_claims(document: dict) -> tuple[Claim, ...]:
    """The parsed YAML document -> claims, checked field by field.

    Raises ValueError (one line: which claim, which field) on anything missing, unknown or
    ill-typed, and unless the ids are C1 and on, in order, then E1 and on of the explorations.
    """
    rules = {kind: _rule(kind, entry) for kind, entry in document["rules"].items()}
    _require(isinstance(document["claims"], list), "claims", "expected a list")
    claims = tuple(_claim(entry, rules) for entry in document["claims"])
    ids = [claim.id for claim in claims]
    in_order = sorted(ids, key=lambda each: (each[0], int(each[1:])))
    known = all(re.fullmatch(r"[CE]\d+", each) for each in ids) and len({*ids}) == len(ids)
    _require(known and ids == in_order, "claims", f"ids are C1 and on, then E1 and on, got {ids}")
    return claims


@functools.lru_cache(maxsize=1)
def load_claims() -> tuple[Claim, ...]:
    """The claims of ``claims.yaml``; raises as `parse_claims` does."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C it takes a tenth of the time
    return parse_claims(yaml.load(CLAIMS_FILE.read_text(encoding="utf-8"), Loader=loader))
