"""The method cells of notebooks 01 to 04: each rule on a case small enough to check by hand."""

from __future__ import annotations

from collections.abc import Iterator

from klearlib.curation.duplicates import Deduplicator
from klearlib.curation.overlap import OverlapIndex

_ITEM = "How many ways are there to seat ten guests around a round table if two must not be apart?"
_PHRASE = "where m and n are relatively prime positive integers. Find m+n."
_FIRST = f"The area is written as m/n, {_PHRASE}"
_SECOND = f"The chance of three heads is m/n, {_PHRASE}"
_OVERLAPS = (
    ("the item itself", _ITEM, True),
    ("in capitals, with other signs and blanks", _ITEM.upper().replace(" ", "  ") + "!!", True),
    ("inside another prompt", f"Read this. {_ITEM} Explain each step.", True),
    ("9 of its words in a row", "Say how many ways are there to seat ten guests.", True),
    ("only 8 of its words in a row", "Say how many ways are there to seat ten dogs.", False),
    (
        "its words in another order",
        "If two guests must not be apart, to seat ten around a round table there are how many?",
        False,
    ),
    ("a phrase that two items hold", f"Another sum equals m/n, {_PHRASE}", True),
)
_PROMPT = "Find f(3) modulo 7."
_DUPLICATES = (
    ("as it is", _PROMPT, True),
    ("in capitals", _PROMPT.upper(), True),
    ("with other blanks", "  Find  f(3)\nmodulo 7. ", True),
    ("with another number", "Find f(4) modulo 7.", False),
    ("with another sign", "Find f(-3) modulo 7.", False),
)


def rule_cases() -> Iterator[dict]:
    """The rules of overlap and of duplicates on edge cases: what they must do and what they do."""
    items = {"benchmark": [("a", _ITEM), ("b", _FIRST), ("c", _SECOND)]}
    strict = OverlapIndex(items, templates=())
    lenient = OverlapIndex(items, templates=(), stop_more_than=1)
    prompts = [prompt for _, prompt, _ in _OVERLAPS]
    found = zip(_OVERLAPS, strict.removals(prompts), lenient.removals(prompts), strict=True)
    for (what, _, expected), removal, stopped in found:
        yield {
            "rule": "overlap",
            "prompt": what,
            "must_go": expected,
            "goes": removal is not None,
            "shared_ngram": removal.ngram if removal else "",
            "is_boilerplate": bool(removal and removal.is_boilerplate),
            "goes_with_stop_list": stopped is not None,
        }
    for how, prompt, expected in _DUPLICATES:
        _, is_new = Deduplicator().is_new([_PROMPT, prompt])
        row = {"rule": "duplicate", "prompt": how, "must_go": expected, "goes": not is_new}
        yield row | dict.fromkeys(["shared_ngram", "is_boilerplate", "goes_with_stop_list"], "")
