"""The ledger: one entry for each claim of the paper, merged from what the notebooks published."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace

from klearlib.errors import KlearError
from klearlib.paper import claims
from klearlib.paper.schema import Claim
from klearlib.report.section import NOT_RUN, Notebook, Section, Verdict


def ledger(
    sections: Iterable[Section], notebooks: Iterable[Notebook], *, profile: str | None = None
) -> list[dict]:
    """One entry per claim, C1 first: the claim, the paper's numbers, the verdict of its notebook.

    sections: those of *one* profile. notebooks: all that the suite has. profile: for the command
    that would decide a claim without a section (default: that of the sections). An entry has the
    fields of a verdict and ``title``, ``statement``, ``section``, ``shown``, ``notebook``,
    ``kind``, ``paper`` (text), ``rule`` (text below and at paper scale), ``notes``, ``interim``:
    True while the section is partial, when the reason also names what is missing.

    Raises ValueError on sections of several profiles, or two of one notebook.
    """
    in_suite = {notebook.name for notebook in notebooks}
    published: dict[str, Section] = {}
    for section in sections:
        where = f"section of {section.notebook}"
        if section.notebook in published:
            raise KlearError(f"two sections of {section.notebook}: expected those of one profile")
        if profile not in (None, section.profile):
            raise KlearError(f"{where}: of profile {section.profile!r}, expected {profile!r}")
        published[section.notebook], profile = section, section.profile

    entries = []
    for claim in claims():
        section = published.get(claim.notebook)
        verdicts = {verdict.claim: verdict for verdict in section.verdicts} if section else {}
        verdict = verdicts.get(claim.id) or _not_run(claim, section, in_suite, profile)
        interim = section is not None and not section.complete
        if interim and claim.kind != "mechanism" and verdict.verdict != NOT_RUN:
            reason = f"interim, {section.lacks} missing: {verdict.reason}"
            verdict = replace(verdict, reason=reason)
        facts = {key: getattr(claim, key) for key in ("title", "statement", "section", "shown")}
        rule = {"below_paper": claim.rule.below_paper, "at_paper": claim.rule.at_paper}
        more = {"notebook": claim.notebook, "kind": claim.kind, "paper": claim.paper_text()}
        extra = {"rule": rule, "notes": list(claim.notes), "interim": interim}
        entries.append({**asdict(verdict), **facts, **more, **extra})
    return entries


def _not_run(
    claim: Claim, section: Section | None, in_suite: set[str], profile: str | None
) -> Verdict:
    settle = None
    if claim.notebook not in in_suite:
        reason = f"notebook {claim.notebook} is not yet in the suite"
    elif section is None:
        reason = f"notebook {claim.notebook} has not been run at this profile"
        chosen = f" --profile {profile}" if profile else ""
        settle = f"klear run{chosen} --only {claim.notebook.split('_')[0]}"
    else:
        reason = f"notebook {claim.notebook} has not reached a verdict on it"
        settle = "let the notebook finish"
    return Verdict(claim.id, (), "", reason, settle, NOT_RUN)
