"""The words of verdicts and the one form that all of them have."""

from __future__ import annotations

from collections.abc import Iterable

from klearlib.errors import KlearError
from klearlib.paper.schema import Claim

NOT_RUN = "not run"
# The words that a claim of each kind can get; anything else would be a wrong verdict.
_COMPARED = ("direction", "opposite", "reproduced", "not reproduced", "inconclusive", "no power")
WORDS_BY_KIND: dict[str, tuple[str, ...]] = {
    "mechanism": ("reproduced", "not reproduced", NOT_RUN),
    "direction": (*_COMPARED, NOT_RUN),
    "ordering": (*_COMPARED, NOT_RUN),
    "trend": ("direction", "opposite", "reproduced", "not reproduced", "inconclusive", NOT_RUN),
    "absolute": ("reproduced", "not reproduced", "inconclusive", NOT_RUN),
}
WORDS = (*_COMPARED, NOT_RUN)
VERDICT_KEYS = {"claim", "verdict", "reason", "settle", "comparisons", "measured"}
COMPARISON_KEYS = {"name", "difference", "low", "high", "num_seeds", "num_problems", "p_holm"}
PAPER_PROFILE = "paper"

# below paper scale -> at paper scale
AT_PAPER = {"direction": "reproduced", "opposite": "not reproduced"}


def is_paper_scale(profile: str) -> bool:
    """Whether runs of this profile are held against the paper's absolute numbers."""
    return profile == PAPER_PROFILE


def verdict(
    claim: Claim,
    word: str,
    reason: str,
    *,
    settle: str | None = None,
    comparisons: Iterable[dict] = (),
    measured: str = "",
) -> dict:
    """The verdict `word` on `claim` as the JSON-able dict that a section publishes."""
    return {
        "claim": claim.id,
        "verdict": word,
        "reason": reason,
        "settle": settle,
        "comparisons": list(comparisons),
        "measured": measured,
    }


def not_run(claim: Claim, reason: str, settle: str | None = None) -> dict:
    """The verdict "not run" with the reason, such as data that this profile does not have."""
    return verdict(claim, NOT_RUN, reason, settle=settle)


def expect_kind(claim: Claim, *kinds: str) -> None:
    """Raises ValueError for a claim that the calling rule is not made for."""
    if claim.kind not in kinds:
        raise KlearError(
            f"{claim.id} is a claim of kind {claim.kind}, expected {' or '.join(kinds)}"
        )
