"""Every verdict, from the evidence to the ledger. A claim gets its word only in this module:

1. evidence: what a notebook has measured for a claim, or a sentence on what it lacks
2. comparisons: a paired t-test for each comparison of claims.yaml, `statistics.compare`
3. Holm inside the claim, the word and its reason: `decide_order` by `statistics.decide`; for claims
   that compare no arms the rule of their kind in `klearlib.report.decide`
4. what withdraws a word: a profile that decides nothing, an arm in which no step trained
5. `ledger`: all claims of a profile, with Holm over all that were compared

In what is published None stands for a bound that does not exist.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from klearlib.evaluate import statistics
from klearlib.paper import claim, claims
from klearlib.paper.schema import COMPARED, Claim
from klearlib.params import is_real
from klearlib.params.place import Place, own_places
from klearlib.report.decide import RULES
from klearlib.report.section import (
    AT_PAPER,
    NOT_RUN,
    NOT_TESTED,
    Comparison,
    Notebook,
    Section,
    Verdict,
    read_sections,
)

if TYPE_CHECKING:
    from klearlib.params.statistics import StatisticsParams

SCALE = {"fraction": 100.0}
"""Unit of a claim -> the factor that its numbers are multiplied by for people."""
_SIGNS = ("supported", "contradicted", *AT_PAPER.values())


@dataclass(frozen=True)
class Evidence:
    """What a claim is decided by.

    values: for a claim that compares arms, comparison -> (a, b), float [replicates] in the claim's
    unit; else what the rule of its kind in `klearlib.report.decide` takes. replicates: seeds.
    words: sentences that end the reason, "" for none. checked: check -> the share that was found.
    paper_scale: if it is not the notebook's. otherwise: fields of a verdict that is "not run".
    """

    values: Any
    replicates: Sequence[int] = ()
    words: Sequence[str] = ()
    checked: Mapping[str, float] = field(default_factory=dict)
    paper_scale: bool | None = None
    otherwise: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Judging:
    """What verdicts follow from besides the evidence.

    replicates: claim -> those that decide it, as the profile registered. rule: claim -> the
    digest of its rule, and whether the rule is younger than a run of the claim. idle: claim ->
    sentences on its arms in which no step trained.
    """

    profile: str
    statistics: StatisticsParams
    paper_scale: bool
    replicates: Callable[[str], Sequence[int]]
    rule: Callable[[Claim], tuple[str, bool]]
    idle: Callable[[Claim], Sequence[str]]


def verdicts(evidence: Mapping[str, Evidence | str], by: Judging) -> list[Verdict]:
    """The verdict on each claim of `evidence`, in its order; a text is why there is none.

    How many replicates an undecided claim needs follows from the spread of all its scores together.
    """
    of_scores = [
        each
        for name, found in compared(evidence).items()
        if len(found.replicates) > 1 and not claim(name).margin
        for each in comparisons(claim(name), found.values, margin=by.statistics.margin)
    ]
    spread = statistics.pooled_spread(of_scores) if of_scores else 0.0
    known = spread if 0 < spread < math.inf else None
    return [_trained(claim(n), _verdict(claim(n), f, known, by), by) for n, f in evidence.items()]


def compared(evidence: Mapping[str, Evidence | str]) -> dict[str, Evidence]:
    """The evidence for the claims that compare arms."""
    return {
        name: found
        for name, found in evidence.items()
        if isinstance(found, Evidence) and claim(name).kind in COMPARED
    }


def _verdict(about: Claim, found: Evidence | str, spread: float | None, by: Judging) -> Verdict:
    if isinstance(found, str):
        return Verdict.not_run(about.id, found)
    paper_scale = by.paper_scale if found.paper_scale is None else found.paper_scale
    if about.kind not in COMPARED:
        verdict = RULES[about.kind](about, found.values, paper_scale=paper_scale)
    elif len(found.replicates) < 2:
        reason = "one replicate has no spread"
        return Verdict.not_run(about.id, reason, "at least 2 replicates")
    else:
        margin, checked = about.margin or by.statistics.margin, found.checked
        how = {"margin": margin, "spread": None if about.margin else spread}
        verdict = decide_order(about, found.values, checked=checked, paper_scale=paper_scale, **how)
    if about.kind in (*COMPARED, "trend"):  # which rest on replicates
        return _registered(about, verdict, found, by)
    changed = found.otherwise if verdict.verdict == NOT_RUN else {}
    return with_words(replace(verdict, **changed), found.words)


def comparisons(
    about: Claim, values: Mapping[str, tuple[np.ndarray, np.ndarray]], *, margin: float
) -> list[statistics.Comparison]:
    """`compare` for each comparison of a claim, in its unit times `SCALE`. values, margin: in the
    claim's own unit."""
    assert [*values] == [each.name for each in about.comparisons], about.id
    scale = SCALE.get(about.unit, 1.0)
    scaled = [[scale * np.asarray(arm, dtype=float) for arm in pair] for pair in values.values()]
    return [statistics.compare(a, b, margin=scale * margin) for a, b in scaled]


def decide_order(
    about: Claim,
    values: Mapping[str, tuple[np.ndarray, np.ndarray]],
    *,
    margin: float,
    checked: Mapping[str, float],
    spread: float | None = None,
    paper_scale: bool,
) -> Verdict:
    """The verdict on a claim that compares arms.

    values: comparison -> (a, b), float [replicates], and `margin`: in the claim's unit. checked:
    each check of the claim -> the share that was found; one below its least is "not tested".
    spread: see `statistics.decide`, times `SCALE`.
    """
    assert about.kind in COMPARED, about.id
    found, settle = comparisons(about, values, margin=margin), None
    if failed := _failed(about, checked):
        word, reason, settle = NOT_TESTED, failed, "arms in which the checks hold"
    else:
        judge = _JUDGES.get(about.kind, statistics.decide)
        unit = "points" if about.unit == "fraction" else ""
        scaled = SCALE.get(about.unit, 1.0) * margin
        decision = judge(found, margin=scaled, spread=spread, unit=unit)
        word, reason = decision.verdict, decision.reason
        if word == statistics.UNDECIDED:
            settle = f"{decision.replicates_needed or 'more than 10,000'} replicates"
    shown = [
        _published(about, name, pair, each, margin)
        for (name, pair), each in zip(values.items(), found, strict=True)
    ]
    texts = "; ".join(_in_words(about, *each) for each in zip(values, found, strict=True))
    word = AT_PAPER.get(word, word) if paper_scale else word
    return Verdict(about.id, tuple(shown), texts, reason, settle, word)


def answer(a: np.ndarray, b: np.ndarray, by: Judging) -> tuple[float, float, float, str, str]:
    """How a user's own arm compares with another one, by the test of the claims: (a - b, low, high,
    word, reason), in points, infinite ends for no interval.

    a, b: float [replicates], scores as fractions, 2 replicates or more.
    """
    margin = 100 * by.statistics.margin
    found = statistics.compare(100 * np.asarray(a), 100 * np.asarray(b), margin=margin)
    decision = statistics.decide([found], margin=margin, unit="points")
    words = {statistics.SUPPORTED: "higher", statistics.CONTRADICTED: "lower"}
    word, reason = words.get(decision.verdict, decision.verdict), decision.reason
    if not by.statistics.decides:
        word, reason = "not decided", f"profile {by.profile} is a smoke test, which decides nothing"
    elif decision.replicates_needed:
        reason += f"; it takes {decision.replicates_needed} replicates"
    return found.value, found.low, found.high, word, reason


def _failed(about: Claim, checked: Mapping[str, float]) -> str:
    """The checks that did not hold, with their numbers; "" for none."""
    shares = [(each, checked[each.name]) for each in about.checks]
    assert all(0 <= share <= 1 for _, share in shares), (about.id, checked)
    return "; ".join(
        f"{each.name}: {100 * share:.2g} %, needs at least {100 * each.at_least:g} %"
        for each, share in shares
        if share < each.at_least
    )


def _equivalence(
    found: Sequence[statistics.Comparison], *, margin: float, spread: float | None, unit: str
) -> statistics.Decision:
    """Decide a claim that there is no difference."""
    if all(each.equivalent for each in found):
        width = max(each.smallest_margin for each in found)
        reason = f"inside +-{margin:.3g} {unit}, and would be inside +-{width:.3g}"
        return statistics.Decision(statistics.SUPPORTED, reason)
    two_sided = [min(1.0, 2 * min(each.p_greater, each.p_less)) for each in found]
    if min(statistics.holm(two_sided)) <= 2 * statistics.ONE_SIDED:
        return statistics.Decision(statistics.CONTRADICTED, "there is a difference")
    needed = statistics.replicates_needed(found, margin=margin, spread=spread)
    reason = f"neither a difference nor its absence, inside +-{margin:.3g} {unit}, is established"
    return statistics.Decision(statistics.UNDECIDED, reason, needed)


def _plateau(
    found: Sequence[statistics.Comparison], *, margin: float, spread: float | None, unit: str
) -> statistics.Decision:
    """Decide a claim that its first comparison has its sign, and that no other one is below."""
    least, (first, *others) = statistics.ONE_SIDED, found
    less = statistics.holm([each.p_less for each in found])
    if any(p <= least and not each.equivalent for p, each in zip(less, found, strict=True)):
        return statistics.Decision(statistics.CONTRADICTED, "a difference has the other sign")
    if first.p_greater <= least and all(e.equivalent or e.p_greater <= least for e in others):
        reason = f"the first has its sign, no other one is below by {margin:.3g} {unit}"
        return statistics.Decision(statistics.SUPPORTED, reason)
    if all(each.equivalent for each in found):
        reason = f"inside +-{margin:.3g} {unit}"
        return statistics.Decision(statistics.NO_DIFFERENCE, reason)
    needed = statistics.replicates_needed(found, margin=margin, spread=spread)
    reason = "the first sign, or that no other one is below, is not established"
    return statistics.Decision(statistics.UNDECIDED, reason, needed)


_SIGNED = {"plateau": 1}
"""Kind of claim -> how many of its comparisons, the first ones, must have its sign; else all."""
_JUDGES = {"equivalence": _equivalence, "plateau": _plateau}
"""Kind of claim -> what decides it, where it is not `statistics.decide`."""


def _published(
    about: Claim, name: str, pair: tuple, found: statistics.Comparison, margin: float
) -> Comparison:
    scale, enough = SCALE.get(about.unit, 1.0), found.num_replicates >= statistics.SIGN_FLIPS_FROM
    low, high = (end / scale if math.isfinite(end) else None for end in (found.low, found.high))
    return Comparison(
        difference=found.value / scale,
        high=high,
        low=low,
        margin=margin,
        name=name,
        num_replicates=found.num_replicates,
        p_flip=statistics.sign_flip_p(*(scale * arm for arm in pair)) if enough else None,
        p_greater=found.p_greater,
        p_less=found.p_less,
    )


def _in_words(about: Claim, name: str, found: statistics.Comparison) -> str:
    digits, unit = (1, " points") if about.unit == "fraction" else (3, "")
    unit = " log10" if about.metric.startswith("log10") else unit
    value, low, high = (f"{each:+.{digits}f}" for each in (found.value, found.low, found.high))
    interval = f"[{low}, {high}]" if math.isfinite(found.low) else "no interval"
    return f"{name}: {value}{unit} {interval} ({found.num_replicates} replicates)"


def _registered(about: Claim, verdict: Verdict, found: Evidence, by: Judging) -> Verdict:
    """A verdict with its rule: undecided while replicates to compare are missing, because their
    number is fixed before the runs, and none where nothing is decided."""
    if not by.statistics.decides:
        reason = f"profile {by.profile} is a smoke test; no claim is decided"
        return replace(verdict, verdict=NOT_RUN, reason=reason, settle=None)
    registered = by.replicates(about.id)
    lost = (set(registered) & set(about.unrunnable)) - set(found.replicates)
    num, wanted = len(found.replicates), len(registered) - len(lost)
    part = f"{num} of {wanted} replicates so far" if num < wanted else ""
    named = verdict.verdict not in (NOT_RUN, NOT_TESTED, statistics.UNDECIDED)
    if part and named and about.kind in COMPARED:
        settle = f"all {wanted} replicates"
        verdict = replace(verdict, verdict=statistics.UNDECIDED, reason="", settle=settle)
    rule, is_young = by.rule(about)
    explores = is_young or bool(lost) or by.profile in about.exploratory_at
    out = f"It cannot be run in replicate {', '.join(map(str, sorted(lost)))}, which is registered"
    words = [*found.words, part, out if lost else ""]
    return with_words(replace(verdict, exploratory=explores, rule=rule), words)


def _trained(about: Claim, verdict: Verdict, by: Judging) -> Verdict:
    """A verdict, or "not run" where no step trained in an arm that it needs: the scores of that arm
    are those of the model that it started from."""
    # Runs without any finite gradient are what C3 is about.
    broken = about.kind == "trend" and verdict.verdict == "contradicted"
    idle = () if about.kind == "mechanism" or broken else by.idle(about)
    if idle and verdict.verdict != NOT_RUN:
        verdict = Verdict.not_run(about.id, "")
    return with_words(verdict, idle)


def with_words(verdict: Verdict, words: Iterable[str]) -> Verdict:
    """A verdict with the sentences `words`, "" for none, added to its reason."""
    return replace(verdict, reason=". ".join(filter(None, [verdict.reason, *words])))


def ledger(
    sections: Iterable[Section], notebooks: Iterable[Notebook], *, place: Place
) -> list[dict]:
    """One entry for each claim, C1 first, the explorations last: its verdict and what claims.yaml
    says of it.

    sections: those of `place`, as `read_sections` gives them. notebooks: all that the suite has.
    Beside these an entry has ``rule_digest`` (the verdict's ``rule``);
    ``interim``: True while runs that may count for it are missing, which the reason then names;
    ``elsewhere``: the neighbouring folder that its verdict is from, None for this one;
    ``survives_holm``: whether its word would stay if all claims that were compared were corrected
    together, None where nothing was decided by comparisons.
    """
    in_suite = {each.name for each in notebooks}
    published = {section.notebook: section for section in sections}
    judged = {each.claim: (of, each) for of in published.values() for each in of.verdicts}
    for section in _explored(place):
        for verdict in section.verdicts:
            _, own = judged.get(verdict.claim, (None, None))
            if verdict.verdict != NOT_RUN and (own is None or own.verdict == NOT_RUN):
                judged[verdict.claim] = section, verdict
    entries = []
    for about in claims():
        here = published.get(about.notebook)
        section, verdict = judged.get(about.id, (here, None))
        verdict = _by_its_rule(about, verdict or _without(about, section, in_suite, place))
        interim, elsewhere = bool(section) and not _is_whole(about, verdict, section), None
        if interim and about.kind != "mechanism" and verdict.verdict != NOT_RUN:
            reason = f"interim, {section.lacks} missing: {verdict.reason}"
            verdict = replace(verdict, reason=reason)
        if section is not here:
            results, elsewhere = section.folder.parts[-3:-1]
            verdict = replace(verdict, reason=f"{results}/{elsewhere}: {verdict.reason}")
        same = ("title", "statement", "section", "shown", "notebook", "kind")
        entries.append(
            asdict(verdict)
            | {name: getattr(about, name) for name in same}
            | _kind_of_test(about, place.profile)
            | {
                "paper": about.paper_text(),
                "rule": {"below_paper": about.rule.below_paper, "at_paper": about.rule.at_paper},
                "notes": list(about.notes),
                "rule_digest": verdict.rule,
                "elsewhere": elsewhere,
                "interim": interim,
            }
        )
    return _corrected(entries)


def _is_whole(about: Claim, verdict: Verdict, section: Section) -> bool:
    """Whether nothing is missing that may count for it: all comparisons have all replicates, or the
    whole notebook is done."""
    wanted = len({*section.parameters.get("seeds", ())} - {*about.unrunnable})
    found = verdict.comparisons
    is_each = 0 < len(found) == len(about.comparisons)
    return section.complete or (is_each and all(c.num_replicates == wanted for c in found))


def _by_its_rule(about: Claim, verdict: Verdict) -> Verdict:
    """A published verdict, or none where the claim has had other comparisons since."""
    named = {each.name for each in about.comparisons}
    if not named or {each.name for each in verdict.comparisons} <= named:
        return verdict
    reason = f"published as {verdict.verdict!r} by an earlier rule, which compared something else"
    return replace(verdict, verdict=NOT_RUN, comparisons=(), reason=reason, settle=None)


def _kind_of_test(about: Claim, profile: str) -> dict[str, str]:
    """`test` and `why` of an entry. What claims.yaml says of the miniature does not hold for a real
    model: there nothing is planted, and everything that can be compared is tested."""
    if is_real(profile) and about.test in ("planted", "partly", "no test"):
        return {"test": "fair", "why": "A real model, and the paper's own kind of data."}
    return {"test": about.test, "why": about.why}


def _without(about: Claim, section: Section | None, in_suite: set[str], place: Place) -> Verdict:
    """The ledger's verdict on a claim on which nothing is published."""
    name, settle = about.notebook, None
    if name not in in_suite:
        reason = "is not yet in the suite"
    elif section is None:
        here = "with these parameters" if place.changes else "at this profile"
        reason, settle = f"has not been run {here}", f"{place.command} --only {name[:2]}"
    else:
        reason, settle = "has not reached a verdict on it", "let the notebook finish"
    return Verdict.not_run(about.id, f"notebook {name} {reason}", settle)


def _explored(place: Place) -> list[Section]:
    """Results published next to a profile's own that differ only in which explorations ran: these
    may each take a run of their own, and are judged and corrected together."""
    if place.changes:
        return []
    alike = [p.folder for p in own_places(place) if p.changes.keys() == {"explorations"}]
    return [section for folder in alike for section in read_sections(folder)]


def _corrected(entries: list[dict]) -> list[dict]:
    """The entries with ``survives_holm``: the p-value of a claim is the smaller of that for its
    sign (the largest of its comparisons) and that against it (the smallest, Holm inside the
    claim), one-sided both. The paper's claims are one family, the explorations another."""
    corrected: dict[str, float] = {}
    for letter in "CE":
        family = {
            entry["claim"]: min(
                max(each["p_greater"] for each in found[: _SIGNED.get(entry["kind"])]),
                min(statistics.holm([each["p_less"] for each in found])),
            )
            for entry in entries
            if (found := entry["comparisons"])
            and entry["claim"].startswith(letter)
            and entry["kind"] != "equivalence"
        }
        corrected |= zip(family, statistics.holm([*family.values()]), strict=True)
    for entry in entries:
        p = corrected.get(entry["claim"]) if entry["verdict"] in _SIGNS else None
        entry["survives_holm"] = None if p is None else p <= statistics.ONE_SIDED
    return entries
