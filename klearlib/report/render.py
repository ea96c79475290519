"""The templates of the report, and how values are escaped in them.

In a page the line breaks and indents of a template are left out: they are for its readers.
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

from klearlib.params.place import in_brief
from klearlib.report.section import NOT_RUN
from klearlib.report.tables import MISSING, plain

_WORDS = {
    "reproduced": ("✓", "holds here as the paper says"),
    "not reproduced": ("✗", "does not hold here"),
    "supported": ("▲", "every difference has the claim's sign, one-sided p at most 0.025"),
    "contradicted": ("▼", "a difference has the other sign, one-sided p at most 0.025 (Holm)"),
    "no difference": ("=", "every 90 % interval lies inside the margin"),
    "mixed": ("◐", "every difference is either supported or inside the margin"),
    "undecided": ("◆", "neither a sign nor a difference inside the margin is established yet"),
    "not tested": ("○", "the experiment did not do what the claim is about"),
    NOT_RUN: ("–", "nothing was measured that decides it"),
}
VERDICT_SHAPES = {word: shape for word, (shape, _) in _WORDS.items()}
"""Every verdict word with the shape that stands beside its colour, in reading order."""

VERDICT_MEANINGS = {word: meaning for word, (_, meaning) in _WORDS.items()}
"""What each verdict word means, in one line."""

KINDS = {
    "fair": "nothing was set for or against the claim",
    "partly": "some of what decides the claim was made by hand",
    "own": "a question of the suite's own",
    "stand-in": "another quantity stands in for the paper's",
    "planted": "the outcome was set by hand: it tests the machinery",
    "identity": "holds for any model: it tests the code",
    "no test": "needs the paper's model",
}
"""What each kind of test means, the most informative first."""

_CELL = 76
"""The most characters of differences in a cell of the front page."""
_FOLDER = Path(__file__).parent


def render(template: str, **values) -> str:
    """The text of templates/<template>; in html and svg every value is escaped."""
    return _environment().get_template(template).render(values)


def verdict_counts(entries: list[dict]) -> dict[str, int]:
    """How many claims have each verdict, in the order of `VERDICT_SHAPES`, without the zeros."""
    words = [entry["verdict"] for entry in entries]
    return {word: words.count(word) for word in VERDICT_SHAPES if word in words}


def counts_text(entries: list[dict]) -> str:
    """How many claims have each verdict, those with a fair test apart.

    >>> counts_text([{"verdict": "supported", "test": "fair"}, {"verdict": NOT_RUN, "test": "own"}])
    'Fair tests: 1 supported. All: 1 supported, 1 not run.'
    """
    texts = []
    fair = [entry for entry in entries if entry["test"] == "fair"]
    for name, mine in (("Fair tests", fair), ("All", entries)):
        counts = ", ".join(f"{count} {word}" for word, count in verdict_counts(mine).items())
        texts += [f"{name}: {counts}."] if counts else []
    return " ".join(texts)


def families(entries: list[dict]) -> list[tuple[str, str, list[dict]]]:
    """The claims of the paper, then the explorations: what they are, the heading of what the paper
    says or of what is expected, and their entries; a family without entries is left out."""
    explored = [entry for entry in entries if entry["claim"].startswith("E")]
    claimed = [entry for entry in entries if entry not in explored]
    both = ("Claim", "Paper", claimed), ("Exploration", "Expected", explored)
    return [family for family in both if family[-1]]


def lines_of(text: str) -> list[str]:
    return [line for line in text.split("; ") if line]


def in_short(entry: dict) -> str:
    """As many of a claim's differences as fit in a cell of the front page, and how many more there
    are; where one contradicts the claim, the clearest first.

    >>> texts = "; ".join(f"{letter} - b: +1.9 points [-0.7, +4.4]" for letter in "acde")
    >>> in_short({"measured": texts, "verdict": "undecided", "comparisons": []})
    'a - b: +1.9 points [-0.7, +4.4]; c - b: +1.9 points [-0.7, +4.4]; and 2 more'
    """
    found = lines_of(without_counts(entry["measured"]))
    tried = entry["comparisons"]  # none: a trend, whose lines are of arms
    if entry["verdict"] == "contradicted" and tried:
        signs = ("p_less", "p_greater") if entry["kind"] == "equivalence" else ("p_less",)
        clearest = [min(comparison[sign] for sign in signs) for comparison in tried]
        found = [found[i] for i in sorted(range(len(tried)), key=clearest.__getitem__)]
    count = next((n for n in range(len(found), 1, -1) if len("; ".join(found[:n])) <= _CELL), 1)
    return "; ".join(found[:count] + [f"and {len(found) - count} more"] * (count < len(found)))


def holm_word(entry: dict) -> str:
    """What a correction over all claims does to a claim's verdict; a claim of no difference is
    corrected only over its own comparisons."""
    if entry["survives_holm"] is not None:
        return "stays" if entry["survives_holm"] else "falls"
    signed = entry["verdict"] in ("supported", "contradicted")
    return "within claim" if entry["kind"] == "equivalence" and signed else ""


def without_counts(measured: str) -> str:
    """What was measured, without the numbers of replicates, which the report has.

    >>> without_counts("a - b: +1.5 points [-2.0, +5.0] (5 replicates)")
    'a - b: +1.5 points [-2.0, +5.0]'
    """
    return re.sub(r" \(\d+ replicates\)", "", measured)


def duration_text(seconds: float) -> str:
    """A duration for people.

    >>> duration_text(42.4), duration_text(600), duration_text(7300)
    ('42 s', '10 min', '2.0 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _place(entry: dict) -> str:
    """Where the paper makes the claim, such as "Section 5.2.1, Figure 2a"."""
    section = entry["section"]
    return f"{'Section ' if section[:1].isdigit() else ''}{section}, {entry['shown']}"


def _anchor(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text)


def _heading_anchor(title: str) -> str:
    """The anchor that a code host gives a heading.

    >>> _heading_anchor("Few sources, or many? Top-K")
    'few-sources-or-many-top-k'
    """
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _first_sentence(text: str) -> str:
    """What a caption says first, up to a colon, a semicolon or the end of the sentence.

    >>> _first_sentence("Eq. 4, mean of 2.5 runs; in points: best first. And more.")
    'Eq. 4, mean of 2.5 runs'
    """
    return re.split(r"(?<!\bEq)(?<!\bFig)[.:;](?:\s|$)", text, maxsplit=1)[0]


def _value_text(value) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(in_brief(value), ensure_ascii=False)


def _source(name: str) -> str:
    text = (_FOLDER / "templates" / name).read_text(encoding="utf-8")
    return text if name.endswith(".md.j2") else re.sub(r"\n\s*", "", text)


@functools.cache
def _environment():
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_source),
        autoescape=lambda name: not name.endswith(".md.j2"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "anchor": _anchor,
        "duration": duration_text,
        "first_sentence": _first_sentence,
        "counts_text": counts_text,
        "families": families,
        "heading_anchor": _heading_anchor,
        "holm": holm_word,
        "in_short": in_short,
        "lines": lines_of,
        "place": _place,
        "plain": plain,
        "value_text": _value_text,
        "verdict_counts": verdict_counts,
        "without_counts": without_counts,
    }
    environment.globals |= {
        "KINDS": KINDS,
        "MISSING": MISSING,
        "NOT_RUN": NOT_RUN,
        "meanings": VERDICT_MEANINGS,
        "shapes": VERDICT_SHAPES,
    }
    return environment
