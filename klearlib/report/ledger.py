"""The ledger: one entry for each claim of the paper, merged from what the notebooks published."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace

from klearlib.paper import claims
from klearlib.paper.schema import Claim
from klearlib.params.place import CHANGES, Place, read_place
from klearlib.report.section import AT_PAPER, NOT_RUN, Notebook, Section, Verdict, read_sections


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
    ``elsewhere``: the neighbouring folder that its verdict is from, None for this one;
    ``survives_holm``: whether its word would stay if all claims that were compared were corrected
    together, None where nothing was decided by comparisons.
    """
    in_suite = {notebook.name for notebook in notebooks}
    published = {section.notebook: section for section in sections}
    judged = {
        verdict.claim: (section, verdict)
        for section in published.values()
        for verdict in section.verdicts
    }
    for section in _explored(place):
        for verdict in section.verdicts:
            _, own = judged.get(verdict.claim, (None, None))
            if verdict.verdict != NOT_RUN and (own is None or own.verdict == NOT_RUN):
                judged[verdict.claim] = section, verdict
    entries = []
    for claim in claims():
        section, verdict = judged.get(claim.id, (published.get(claim.notebook), None))
        verdict = verdict or _not_run(claim, section, in_suite, place)
        interim = section is not None and not section.complete
        if interim and claim.kind != "mechanism" and verdict.verdict != NOT_RUN:
            reason = f"interim, {section.lacks} missing: {verdict.reason}"
            verdict = replace(verdict, reason=reason)
        elsewhere = None
        if section is not None and section is not published.get(claim.notebook):
            results, elsewhere = section.folder.parts[-3:-1]
            verdict = replace(verdict, reason=f"{results}/{elsewhere}: {verdict.reason}")
        same = ("title", "statement", "section", "shown", "notebook", "kind")
        rule = {"below_paper": claim.rule.below_paper, "at_paper": claim.rule.at_paper}
        more = {"paper": claim.paper_text(), "rule": rule, "notes": list(claim.notes)}
        more |= {"rule_digest": verdict.rule, "elsewhere": elsewhere, "interim": interim}
        facts = {name: getattr(claim, name) for name in same}
        entries.append({**asdict(verdict), **facts, **more})
    return _corrected(entries)


def _explored(place: Place) -> list[Section]:
    """What was published beside a profile's own results with nothing changed but which explorations
    run: they may take a sitting each, and are judged and corrected together."""
    if place.changes:
        return []
    folders = sorted(path.parent for path in place.folder.parent.glob(f"*/{CHANGES}"))
    parts = [each for each in map(read_place, folders) if each.profile == place.profile]
    return [
        section
        for part in parts
        if part.changes.keys() == {"explorations"}
        for section in read_sections(part.folder)
    ]


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
