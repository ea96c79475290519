"""The ledger: one entry for each claim of the paper, merged from what the notebooks published."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from klearlib.errors import KlearError
from klearlib.paper import claims
from klearlib.paper.schema import Claim
from klearlib.report.verdicts import (
    COMPARISON_KEYS,
    NOT_RUN,
    VERDICT_KEYS,
    WORDS_BY_KIND,
    is_paper_scale,
)


def _check_verdict(verdict: Mapping, section: Mapping, known: Mapping[str, Claim]) -> None:
    notebook = section["notebook"]
    where = f"section of {notebook}"
    if not isinstance(verdict, Mapping) or set(verdict) != VERDICT_KEYS:
        raise KlearError(f"{where}: expected a verdict with keys {sorted(VERDICT_KEYS)}")
    claim = known.get(verdict["claim"])
    if claim is None:
        raise KlearError(
            f"{where}: unknown claim {verdict['claim']!r}, expected C1 to C{len(known)}"
        )
    word, where = verdict["verdict"], f"{where}, {claim.id}"
    if claim.notebook != notebook:
        raise KlearError(f"{where}: this claim is judged by {claim.notebook}, not by {notebook}")
    if word not in WORDS_BY_KIND[claim.kind]:
        words = ", ".join(WORDS_BY_KIND[claim.kind])
        raise KlearError(f"{where}: {word!r} is no verdict on a {claim.kind}, expected {words}")
    profile = section.get("parameters", {}).get("profile")
    at_paper = {"reproduced": True, "not reproduced": True, "direction": False, "opposite": False}
    scaled = profile is not None and claim.kind != "mechanism" and word in at_paper
    if scaled and at_paper[word] != is_paper_scale(profile):
        raise KlearError(f"{where}: {word!r} is no verdict at profile {profile}")
    for comparison in verdict["comparisons"]:
        if set(comparison) != COMPARISON_KEYS:
            raise KlearError(f"{where}: expected comparisons with keys {sorted(COMPARISON_KEYS)}")
        numbers = [
            value for key, value in comparison.items() if key != "name" and value is not None
        ]
        if not all(math.isfinite(number) for number in numbers):
            raise KlearError(f"{where}: comparisons hold finite numbers, or null for no bound")


def _not_run(
    claim: Claim, section: Mapping | None, in_suite: Collection[str], profile: str | None
) -> dict:
    if claim.notebook not in in_suite:
        reason, settle = f"notebook {claim.notebook} is not yet in the suite", None
    elif section is None:
        reason = f"notebook {claim.notebook} has not been run at this profile"
        chosen = f" --profile {profile}" if profile else ""
        settle = f"klear run{chosen} --only {claim.notebook.split('_')[0]}"
    else:
        reason = f"notebook {claim.notebook} has not reached a verdict on it"
        settle = "let the notebook finish"
    fields = {"reason": reason, "settle": settle, "comparisons": [], "measured": ""}
    return {"claim": claim.id, "verdict": NOT_RUN, **fields}


def ledger(
    sections: Iterable[dict],
    notebooks: Collection[str] | None = None,
    *,
    profile: str | None = None,
) -> list[dict]:
    """One entry per claim, C1 first: the claim, the paper's numbers, the verdict of its notebook.

    sections: the published ``section.json`` of *one* profile. notebooks: the notebooks that the
    suite has (default: those with parameters in `klearlib.params`). profile: for the command that
    would decide a claim without a section (default: that of the sections). An entry has the keys of
    a verdict and ``title``, ``statement``, ``section``, ``shown``, ``notebook``, ``kind``,
    ``paper`` (text), ``rule`` (text below and at paper scale), ``notes``, ``interim``: True while
    the section is partial, when the reason also names what is missing.

    Raises ValueError on sections of several profiles, on a verdict that is unknown, given twice, by
    the wrong notebook, of a word that its kind cannot get, or of the wrong scale: an entry is right
    or there is none.
    """
    if notebooks is None:
        from klearlib.params import NOTEBOOKS

        notebooks = NOTEBOOKS
    known = {claim.id: claim for claim in claims()}
    published: dict[str, dict] = {}
    verdicts: dict[str, dict] = {}
    for section in sections:
        notebook = section["notebook"]
        if notebook in published:
            raise KlearError(f"two sections of {notebook}: expected those of one profile")
        published[notebook] = section
        own = section.get("parameters", {}).get("profile")
        if own is not None and profile not in (None, own):
            raise KlearError(f"section of {notebook}: of profile {own!r}, expected {profile!r}")
        profile = profile or own
        for verdict in section["verdicts"]:
            _check_verdict(verdict, section, known)
            if verdict["claim"] in verdicts:
                raise KlearError(f"section of {notebook}: two verdicts on {verdict['claim']}")
            verdicts[verdict["claim"]] = verdict

    entries = []
    for claim in known.values():
        section = published.get(claim.notebook)
        verdict = dict(verdicts.get(claim.id) or _not_run(claim, section, notebooks, profile))
        interim = section is not None and section["status"] != "complete"
        if interim and claim.kind != "mechanism" and verdict["verdict"] != NOT_RUN:
            missing = ", ".join(section.get("missing", [])) or "some runs"
            verdict["reason"] = f"interim, {missing} missing: {verdict['reason']}"
        facts = {key: getattr(claim, key) for key in ("title", "statement", "section", "shown")}
        rule = {"below_paper": claim.rule.below_paper, "at_paper": claim.rule.at_paper}
        more = {"notebook": claim.notebook, "kind": claim.kind, "paper": claim.paper_text()}
        extra = {"rule": rule, "notes": list(claim.notes), "interim": interim}
        entries.append({**verdict, **facts, **more, **extra})
    return entries
