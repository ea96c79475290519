"""The ledger: one entry for each claim of the paper, merged from what the notebooks published."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace

from klearlib.paper import claims
from klearlib.paper.schema import Claim
from klearlib.params.place import Place
from klearlib.report.section import AT_PAPER, NOT_RUN, Notebook, Section, Verdict


def ledger(
    sections: Iterable[Section], notebooks: Iterable[Notebook], *, place: Place
) -> list[dict]:
    """One entry per claim, C1 first, the explorations last: the claim, the paper's numbers or what
    is expected, the verdict of its notebook.

    sections: those of `place`, as `read_sections` gives them. notebooks: all that the suite has.
    An entry has the fields of a verdict and ``title``, ``statement``, ``section``, ``shown``,
    ``notebook``, ``kind``, ``paper`` (text), ``rule`` (text below and at paper scale),
    ``rule_digest`` (the verdict's ``rule``), ``notes``,
    ``interim``: True while the section is partial, when the reason also names what is missing;
    ``survives_holm``: whether its word would stay if all claims that were compared were corrected
    together, None where nothing was decided by comparisons.
    """
    in_suite = {notebook.name for notebook in notebooks}
    published = {section.notebook: section for section in sections}
    entries = []
    for claim in claims():
        section = published.get(claim.notebook)
        verdicts = {verdict.claim: verdict for verdict in section.verdicts} if section else {}
        verdict = verdicts.get(claim.id) or _not_run(claim, section, in_suite, place)
        interim = section is not None and not section.complete
        if interim and claim.kind != "mechanism" and verdict.verdict != NOT_RUN:
            reason = f"interim, {section.lacks} missing: {verdict.reason}"
            verdict = replace(verdict, reason=reason)
        same = ("title", "statement", "section", "shown", "notebook", "kind")
        rule = {"below_paper": claim.rule.below_paper, "at_paper": claim.rule.at_paper}
        more = {"paper": claim.paper_text(), "rule": rule, "notes": list(claim.notes)}
        more["rule_digest"] = verdict.rule
        facts = {name: getattr(claim, name) for name in same}
        entries.append({**asdict(verdict), **facts, **more, "interim": interim})
    return _corrected(entries)


def _corrected(entries: list[dict]) -> list[dict]:
    """The entries with ``survives_holm``: the p-value of a claim is the smaller of that for its
    sign (the largest of its comparisons) and that against it (the smallest, Holm inside the
    claim), one-sided both. The paper's claims are one family, the explorations another."""
    from klearlib.evaluate.statistics import ONE_SIDED, holm  # numpy, which a page does without

    p_values: dict[bool, dict[int, float]] = {False: {}, True: {}}
    for place, entry in enumerate(entries):
        found = entry["comparisons"]
        if found and entry["kind"] in ("direction", "ordering", "exploration"):
            greater = max(each["p_greater"] for each in found)
            less = min(holm([each["p_less"] for each in found]))
            p_values[entry["kind"] == "exploration"][place] = min(greater, less)
    families = [zip(each, holm([*each.values()]), strict=True) for each in p_values.values()]
    corrected = dict(pair for family in families for pair in family)
    signs = ("supported", "contradicted", *AT_PAPER.values())
    return [
        entry
        | {
            "survives_holm": corrected[place] <= ONE_SIDED
            if entry["verdict"] in signs and place in corrected
            else None
        }
        for place, entry in enumerate(entries)
    ]


def _not_run(claim: Claim, section: Section | None, in_suite: set[str], place: Place) -> Verdict:
    settle = None
    if claim.notebook not in in_suite:
        reason = f"notebook {claim.notebook} is not yet in the suite"
    elif section is None:
        here = "with these parameters" if place.changes else "at this profile"
        reason = f"notebook {claim.notebook} has not been run {here}"
        settle = f"{place.command} --only {claim.notebook.split('_')[0]}"
    else:
        reason = f"notebook {claim.notebook} has not reached a verdict on it"
        settle = "let the notebook finish"
    return Verdict(claim.id, (), "", reason, settle, NOT_RUN)
