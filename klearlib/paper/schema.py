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
PAIRED_OVER = ("problems", "steps")
UNITS = ("fraction", "reward", "norm", "share", "count", "coefficient")

# kind -> the numbers its rule must state
KINDS: dict[str, tuple[str, ...]] = {
    "mechanism": ("tolerance",),
    "direction": ("level",),
    "ordering": ("level",),
    "trend": (
        "median_factor",
        "min_share_below",
        "min_steps",
        "min_seeds",
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
    difference there, in the claim's unit, None where the paper does not show it. `over` says what
    the difference is paired by beside seeds: ``problems``, or the ``steps`` of training.
    """

    name: str
    a: tuple[str, ...]
    b: tuple[str, ...]
    benchmarks: tuple[str, ...]
    paper: float | None
    over: str = "problems"


@dataclass(frozen=True)
class Power:
    """Least mean share of tokens in the corners in which the two compared rules differ."""

    min_share: float
    corners: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Claim:
    """One claim of the paper, where it is made, what the paper shows for it, and its rule.

    `shown` names the table, figure or equation; `metric` says what is compared and `unit` in what;
    `arms` are the series that must be there; `notes` hold what the paper's numbers say against its
    text and the limits of the test.
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
    power: Power | None
    notes: tuple[str, ...]

    def paper_text(self) -> str:
        """The paper's own numbers in one line."""
        return "; ".join(number.text() for number in self.paper)


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
    entry = _fields(entry, where, {"name", "a", "b", "benchmarks", "paper"}, {"over"})
    a, b = _texts(entry["a"], where), _texts(entry["b"], where)
    if not a or not b or set(a) & set(b) or set(a + b) - set(arms):
        raise _fail(where, f"a {a} and b {b} must be disjoint arms out of {arms}")
    benchmarks = _texts(entry["benchmarks"], where)
    if not benchmarks:
        raise _fail(where, "expected the name of at least one benchmark")
    over = entry.get("over", "problems")
    if over not in PAIRED_OVER:
        raise _fail(where, f"over is one of {PAIRED_OVER}, got {over!r}")
    paper = None if entry["paper"] is None else _number(entry["paper"], where)
    return Comparison(_text(entry["name"], where), a, b, benchmarks, paper, over)


def _power(entry: object, where: str, names: set[str]) -> Power:
    entry = _fields(entry, where, {"min_share", "corners"})
    corners = _fields(entry["corners"], f"{where}, corners", names)
    read = {name: _texts(value, where) for name, value in corners.items()}
    if any(not value or set(value) - set(CORNERS) for value in read.values()):
        raise _fail(where, f"corners are out of {CORNERS}, got {corners}")
    min_share = _number(entry["min_share"], where)
    if not 0 < min_share < 1:
        raise _fail(where, f"min_share is a share in (0, 1), got {min_share}")
    return Power(min_share, read)


def _claim(entry: object, rules: dict[str, Rule]) -> Claim:
    where = f"claim {entry.get('id')!r}" if isinstance(entry, dict) else "claim"
    required = {"id", "title", "statement", "place", "notebook", "kind", "metric", "unit", "arms"}
    entry = _fields(entry, where, required | {"paper", "comparisons", "notes"}, {"power"})
    place = _fields(entry["place"], f"{where}, place", {"section", "shown"})
    if entry["kind"] not in KINDS or entry["unit"] not in UNITS:
        raise _fail(where, f"kind is one of {tuple(KINDS)} and unit one of {UNITS}")
    arms = _texts(entry["arms"], f"{where}, arms")
    for part in ("paper", "comparisons"):
        if not isinstance(entry[part], list):
            raise _fail(f"{where}, {part}", f"expected a list, got {entry[part]!r}")
    comparisons = tuple(_comparison(c, f"{where}, comparison", arms) for c in entry["comparisons"])
    names = {comparison.name for comparison in comparisons}
    if bool(names) != (entry["kind"] in ("direction", "ordering")) or len(names) < len(comparisons):
        raise _fail(where, "directions and orderings, and only they, have comparisons, named apart")
    paper = tuple(_paper_number(number, f"{where}, paper") for number in entry["paper"])
    if not paper:
        raise _fail(f"{where}, paper", "expected at least one number of the paper")
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
        power=_power(entry["power"], f"{where}, power", names) if "power" in entry else None,
        notes=_texts(entry["notes"], f"{where}, notes"),
    )


def parse_claims(document: object) -> tuple[Claim, ...]:
    """The parsed YAML document -> claims, checked field by field.

    Raises ValueError (one line: which claim, which field) on anything missing, unknown or
    ill-typed, and unless the ids are C1, C2, ... in order.
    """
    document = _fields(document, "top level", {"rules", "claims"})
    rules = _fields(document["rules"], "rules", set(KINDS))
    read = {kind: _rule(kind, entry) for kind, entry in rules.items()}
    if not isinstance(document["claims"], list):
        raise _fail("claims", "expected a list")
    claims = tuple(_claim(entry, read) for entry in document["claims"])
    ids = [claim.id for claim in claims]
    if ids != [f"C{i}" for i in range(1, len(ids) + 1)]:
        raise _fail("claims", f"ids must be C1, C2, ... in order, got {ids}")
    return claims


@functools.lru_cache(maxsize=1)
def load_claims() -> tuple[Claim, ...]:
    """The claims of ``claims.yaml``; raises as `parse_claims` does."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C it takes a tenth of the time
    return parse_claims(yaml.load(CLAIMS_FILE.read_text(encoding="utf-8"), Loader=loader))
