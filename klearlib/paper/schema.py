"""What a claim is, and the strict reading of ``claims.yaml``.

A rule for a verdict is fixed before any run. So nothing here has a default: a missing, unknown or
ill-typed field is an error, never a claim that is judged by something nobody wrote down.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from klearlib.errors import KlearError

CLAIMS_FILE = Path(__file__).parent / "claims.yaml"
CORNERS = ("low_negative", "high_positive", "low_positive", "high_negative")
STATISTICS = ("last", "second_half", "curve")
"""The number of an arm in one replicate: its score at the last step, the mean over the evaluations
of the second half, or what the claim's metric takes from the whole run."""
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
    `expectation` says what is expected and by whom, "" for a claim of the paper.
    """

    id: str
    title: str
    statement: str
    section: str
    shown: str
    notebook: str
    kind: str
    metric: str
    unit: str
    arms: tuple[str, ...]
    paper: tuple[PaperNumber, ...]
    comparisons: tuple[Comparison, ...]
    rule: Rule
    statistic: str | None
    margin: float | None
    checks: tuple[Check, ...]
    notes: tuple[str, ...]
    expectation: str

    def paper_text(self) -> str:
        """The paper's own numbers in one line; of an exploration, what is expected."""
        return "; ".join(number.text() for number in self.paper) or self.expectation


def _fail(where: str, message: str) -> KlearError:
    return KlearError(f"claims.yaml, {where}: {message}")


def _fields(
    entry: object, where: str, required: set[str], optional: set[str] = frozenset()
) -> dict:
    if not isinstance(entry, dict):
        raise _fail(where, f"expected a mapping, got {type(entry).__name__}")
    missing, unknown = required - set(entry), set(entry) - required - optional
    if missing or unknown:
        raise _fail(where, f"missing {sorted(missing)}, unknown {sorted(map(str, unknown))}")
    return entry


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _fail(where, f"expected text, got {value!r}")
    return value.strip()


def _number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise _fail(where, f"expected a finite number (write 1.0e-4, not 1e-4), got {value!r}")
    return value


def _texts(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise _fail(where, f"expected a list, got {value!r}")
    return tuple(_text(item, where) for item in value)


def _rule(kind: str, entry: object) -> Rule:
    where = f"rule {kind}"
    entry = _fields(entry, where, {"below_paper", "at_paper", "numbers"})
    numbers = _fields(entry["numbers"], f"{where}, numbers", set(KINDS[kind]))
    return Rule(
        below_paper=_text(entry["below_paper"], where),
        at_paper=_text(entry["at_paper"], where),
        numbers={key: _number(value, f"{where}, {key}") for key, value in numbers.items()},
    )


def _paper_number(entry: object, where: str) -> PaperNumber:
    counts = {"of", "num_samples", "num_problems"}
    entry = _fields(entry, where, {"what", "value", "unit"}, counts)
    if entry["unit"] not in UNITS:
        raise _fail(where, f"unit is one of {UNITS}, got {entry['unit']!r}")
    numbers = {
        key: _number(entry[key], f"{where}, {key}") for key in {"value", *counts} & set(entry)
    }
    return PaperNumber(what=_text(entry["what"], where), unit=entry["unit"], **numbers)


def _comparison(entry: object, where: str, arms: tuple[str, ...]) -> Comparison:
    entry = _fields(entry, where, {"name", "a", "b", "benchmarks", "paper"})
    a, b = _texts(entry["a"], where), _texts(entry["b"], where)
    if not a or not b or set(a) & set(b) or set(a + b) - set(arms):
        raise _fail(where, f"a {a} and b {b} must be disjoint arms out of {arms}")
    benchmarks = _texts(entry["benchmarks"], where)
    if not benchmarks:
        raise _fail(where, "expected the name of at least one benchmark")
    paper = None if entry["paper"] is None else _number(entry["paper"], where)
    return Comparison(_text(entry["name"], where), a, b, benchmarks, paper)


def _check(entry: object, where: str, arms: tuple[str, ...]) -> Check:
    entry = _fields(entry, where, {"name", "at_least"}, {"arms", "corners"})
    mine, corners = (_texts(entry.get(key, []), where) for key in ("arms", "corners"))
    if set(mine) - set(arms) or set(corners) - set(CORNERS) or bool(mine) != bool(corners):
        raise _fail(where, f"corners are out of {CORNERS}, of arms out of {arms}, or neither")
    at_least = _number(entry["at_least"], where)
    if not 0 < at_least < 1:
        raise _fail(where, f"at_least is a share in (0, 1), got {at_least}")
    return Check(_text(entry["name"], where), at_least, mine, corners)


def _claim(entry: object, rules: dict[str, Rule]) -> Claim:
    where = f"claim {entry.get('id')!r}" if isinstance(entry, dict) else "claim"
    required = {"id", "title", "statement", "place", "notebook", "kind", "metric", "unit", "arms"}
    optional = {"statistic", "margin", "checks", "expectation"}
    entry = _fields(entry, where, required | {"paper", "comparisons", "notes"}, optional)
    place = _fields(entry["place"], f"{where}, place", {"section", "shown"})
    if entry["kind"] not in KINDS or entry["unit"] not in UNITS:
        raise _fail(where, f"kind is one of {tuple(KINDS)} and unit one of {UNITS}")
    arms = _texts(entry["arms"], f"{where}, arms")
    for part in ("paper", "comparisons", "checks"):
        if not isinstance(entry.get(part, []), list):
            raise _fail(f"{where}, {part}", f"expected a list, got {entry[part]!r}")
    comparisons = tuple(_comparison(c, f"{where}, comparison", arms) for c in entry["comparisons"])
    names = {comparison.name for comparison in comparisons}
    if bool(names) != (entry["kind"] in COMPARED) or len(names) < len(comparisons):
        raise _fail(where, f"claims of kind {', '.join(COMPARED)} have comparisons, named apart")
    if (entry.get("statistic") in STATISTICS) != bool(names):
        raise _fail(where, f"what is compared has a statistic out of {STATISTICS}")
    margin = entry.get("margin")
    if margin is not None and _number(margin, f"{where}, margin") <= 0:
        raise _fail(where, f"margin is above 0, got {margin}")
    paper = tuple(_paper_number(number, f"{where}, paper") for number in entry["paper"])
    explores = entry["kind"] == "exploration"
    if bool(paper) == explores or ("expectation" in entry) != explores:
        fix = "an expectation and no number of the paper" if explores else "numbers, none expected"
        raise _fail(f"{where}, paper", f"a claim of kind {entry['kind']} has {fix}")
    if entry["kind"] == "absolute" and any(number.num_samples is None for number in paper):
        raise _fail(f"{where}, paper", "an absolute claim needs num_samples of every number")
    texts = {key: _text(entry[key], f"{where}, {key}") for key in ("id", "title", "statement")}
    return Claim(
        **texts,
        section=_text(place["section"], f"{where}, section"),
        shown=_text(place["shown"], f"{where}, shown"),
        notebook=_text(entry["notebook"], f"{where}, notebook"),
        kind=entry["kind"],
        metric=_text(entry["metric"], f"{where}, metric"),
        unit=entry["unit"],
        arms=arms,
        paper=paper,
        comparisons=comparisons,
        rule=rules[entry["kind"]],
        statistic=entry.get("statistic"),
        margin=margin,
        checks=tuple(_check(each, f"{where}, check", arms) for each in entry.get("checks", [])),
        notes=_texts(entry["notes"], f"{where}, notes"),
        expectation=_text(entry["expectation"], f"{where}, expectation") if explores else "",
    )


def parse_claims(document: object) -> tuple[Claim, ...]:
    """The parsed YAML document -> claims, checked field by field.

    Raises ValueError (one line: which claim, which field) on anything missing, unknown or
    ill-typed, and unless the ids are C1, C2, ... in order, then E1, E2, ... of the explorations.
    """
    document = _fields(document, "top level", {"rules", "claims"})
    rules = _fields(document["rules"], "rules", set(KINDS))
    read = {kind: _rule(kind, entry) for kind, entry in rules.items()}
    if not isinstance(document["claims"], list):
        raise _fail("claims", "expected a list")
    claims = tuple(_claim(entry, read) for entry in document["claims"])
    letters = ["E" if claim.kind == "exploration" else "C" for claim in claims]
    ids = [claim.id for claim in claims]
    numbered = [f"{each}{letters[: i + 1].count(each)}" for i, each in enumerate(letters)]
    if letters != sorted(letters) or ids != numbered:
        raise _fail("claims", f"ids must be C1, C2, ..., then E1, E2, ... in order, got {ids}")
    return claims


@functools.lru_cache(maxsize=1)
def load_claims() -> tuple[Claim, ...]:
    """The claims of ``claims.yaml``; raises as `parse_claims` does."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C it takes a tenth of the time
    return parse_claims(yaml.load(CLAIMS_FILE.read_text(encoding="utf-8"), Loader=loader))
