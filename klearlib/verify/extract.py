"""Where the answer stands in a response: think tags first, then the last box."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from klearlib.data.marks import THINK_CLOSE, THINK_OPEN, last_boxed
from klearlib.errors import KlearError

MAX_ANSWER_CHARS = 2000  # some ten times the longest gold answer of the benchmarks

_PREFILL = re.compile(r"<think>\s*(?P<closed></think>\s*)?\Z")
_WHOLE_BOX = re.compile(r"\\boxed\s*\{(.*)\}", re.DOTALL)
# Neither `\right.` nor an ellipsis ends a sentence: their point is part of the formula.
_FULL_STOP = re.compile(r"(?<![.\\])(?<!\\right)\.\Z")

_NUMBER_WITH_UNIT = re.compile(
    r"(?P<text>\\(?:text|textrm|mathrm|mbox)\{)\s*(?P<number>[+-]?[\d.,]*\d)(?P<unit>\s+(?!(?:or|and|not)\b)[A-Za-z][^{}\d]*\})",
    re.ASCII,
)
# One plain number and nothing else: a word beside it ("not 33") may turn its meaning.
_NUMBER_IN_TEXT = re.compile(
    r"\\(?:text(?:rm|bf|it|normal)?|math(?:rm|bf)|mbox)\s*\{\s*"
    r"(?P<number>[+-]?(?:\d+|\d{1,3}(?:,\d{3})+)?(?:\.\d+)?(?<=\d)(?:\s*\\?%|\s*/\s*\d+)?)\.?\s*\}",
    re.ASCII,
)

_DASH = re.compile(r"\A(?P<before>[\s$]*)[\u2013\u2212](?=[\d.\\])")
# "3 million", "3 tenths" and "3 squared" are other numbers, "3 or more" is none.
_NO_UNIT = (
    r"\w*illion(?:th)?|\w*(?:teen|ie|hundred|thousand)th|hundred|thousand|dozen|score|grand|half|halve"
    r"|quarter|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|percent\w*|pct"
    r"|one|two|three|four|five|six|seven|eight|nine|ten|or|and|not|to|by|from|more|less|over|plus|minus"
    r"|time|divided|mod|modulo|base|binary|octal|decimal|hex\w*|point|root|squared|cubed|power|raised"
    r"|factorial|choose|log|exp|sqrt|sinh?|cosh?|tanh?|cot|csc|arc\w*|infinity|alpha|beta|gamma|delta"
    r"|epsilon|zeta|eta|theta|kappa|lambda|rho|sigma|tau|phi|chi|psi|omega"
)
_BARE_UNIT = re.compile(
    rf"(?P<number>[+-]?[\d.,]*\d)\s+(?!.*\b(?:{_NO_UNIT})s?\b)[A-Za-z]{{3,}}(?:\s+[A-Za-z]+){{0,2}}",
    re.ASCII | re.IGNORECASE,
)
# math-verify 0.9.0 drops what stands in a `\text{}`, also where it makes another number.
_TEXT = r"\\(?:text(?:rm|bf|it|normal)?|math(?:rm|bf|it)|mbox)\s*\{(?P<words>[^{}]*)\}"
_TEXT_BEFORE = re.compile(_TEXT + r"\s*[\d\\.$(].*", re.DOTALL)
_TEXT_BEHIND = re.compile(r".*[\d})$]\s*" + _TEXT + r"[\s.$]*", re.DOTALL)
_SIGN = re.compile(r"\s*(?P<word>not|minus|negative|cos|sin|tan|log|ln)\b", re.IGNORECASE)
# Digits and operators; multiples; fractions and powers, where no noun follows ("third graders").
_FACTOR = re.compile(
    r"\s*(?P<word>[./]?\d[\d.,/]*(?![\w.,/])|(?:plus|minus|divided|if|is)\b.*|(?-i:k)\b"
    r"|(?:\w*illion|hundred|thousand|dozen|lakh|crore|gross)(?=s?\b)|e[-+]?\d+\b|(?:bn|pi)\b"
    r"|(?-i:i)(?=\W*$)"
    r"|(?:and (?:a|one) (?:half|third|quarter|fifth))\b"
    r"|(?:half|halve|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth"
    r"|\w*(?:teen|ie|hundred|thousand|illion)th|squared|cubed|factorial)(?=s?(?: of\b|\W*$)))",
    re.IGNORECASE | re.DOTALL,
)
_WORD = re.compile(
    r"(?:\\(?:text(?:rm|bf|it)?|mathrm|mbox)\s*\{\s*)?"
    r"(?P<word>[A-Z]{3,}|[A-Z][a-z]{3,}|[a-z]{4,})\s*\}?"
)
# It begins at a sign and never at a blank, of which a text may have a million.
_DEGREES = re.compile(r"(?:\^\s*)?(?:\{\s*\u00b0\s*\}|\u00b0)(?!\s*[A-Za-z])")

_SPACING = re.compile(r"\\left(?![A-Za-z])|\\right(?![A-Za-z])|\\[,;:!]")
_NEEDLESS_BLANK = re.compile(r"(?<!\w) | (?!\w)")
_FRACTIONS = re.compile(r"\\[dt](?=frac(?![A-Za-z]))")


class Reading(NamedTuple):
    """A response split by its think tags: `text` is what stands after the last closing tag, or all
    of it where there is none."""

    text: str
    has_think_open: bool
    has_think_close: bool


def read_response(response: str, prompt: str = "") -> Reading:
    """Find the think tags of a response and the text that follows them.

    The opening tag must stand before the last closing one. A prompt whose end is an opening tag, or
    the empty pair of templates without thinking, counts as if the response began with it.

    >>> read_response("<think>2 + 2</think>4")
    Reading(text='4', has_think_open=True, has_think_close=True)
    >>> read_response("2 + 2</think>4", prompt="<|assistant|><think>\\n").has_think_open
    True
    """
    prefill = _PREFILL.search(prompt[-200:])
    thought, close, text = response.rpartition(THINK_CLOSE)
    has_close = bool(close) or bool(prefill and prefill["closed"])
    has_open = prefill is not None or THINK_OPEN in (thought if close else response)
    return Reading(text=text, has_think_open=has_open, has_think_close=has_close)


def check_texts(num_responses: int, **columns: Sequence) -> None:
    """KlearError where one of `columns` is a text instead of a sequence, or has another length than
    the responses."""
    for name, values in columns.items():
        if isinstance(values, str):
            raise KlearError(f"{name} must be a sequence of texts, got one string")
        if len(values) != num_responses:
            raise KlearError(
                f"{name} must be as many as responses, {num_responses}, got {len(values)}"
            )


def trim(answer: str) -> str:
    r"""An answer without what carries no meaning: blanks, enclosing dollars, one full stop.

    A number that stands in a ``\text{}``, alone or with its unit, is taken out of it, ``~``
    becomes the blank that it is in LaTeX, and a degree sign and a dash before a number are written
    in LaTeX: math-verify 0.9.0 finds no number in any of them.

    >>> trim(" $385.$ "), trim(r"\text{18 dollars}"), trim(r"18~\text{m}")
    ('385', '18\\text{ dollars}', '18 \\text{m}')
    >>> trim(r"\text{033}"), trim(r"\text{not 33}")
    ('033', '\\text{not 33}')
    """
    answer = _DASH.sub(r"\g<before>-", _DEGREES.sub(r"^\\circ ", answer.replace("~", " ")))
    for _ in range(2):  # the full stop may stand inside or outside of the dollars
        answer = _FULL_STOP.sub("", answer.strip()).strip()
        inner = answer.strip("$")
        if not inner:
            return ""
        num_before = len(answer) - len(answer.lstrip("$"))
        num_after = len(answer) - len(answer.rstrip("$")) - inner.endswith("\\")
        num_pairs = min(num_before, num_after)
        answer = answer[num_pairs : len(answer) - num_pairs].strip()
    if match := _NUMBER_IN_TEXT.fullmatch(answer):
        return match["number"]
    if match := _NUMBER_WITH_UNIT.fullmatch(answer):
        return match["number"] + match["text"] + match["unit"]
    return answer


def without_unit(answer: str) -> str:
    """An answer without the plain words behind its number, for a gold answer that is a number:
    math-verify 0.9.0 takes the letters of most words for factors.

    >>> without_unit("18 eggs"), without_unit("3 million"), without_unit("2 x")
    ('18', '3 million', '2 x')
    """
    match = _BARE_UNIT.fullmatch(answer)
    return match["number"] if match else answer


def words_that_count(answer: str) -> list[str]:
    r"""What makes another number of the one beside which it stands in a ``\text{}``.

    >>> words_that_count(r"5\text{ million eggs}"), words_that_count(r"5\text{ eggs of 6}")
    (['million'], [])
    """
    before, behind = _TEXT_BEFORE.fullmatch(answer), _TEXT_BEHIND.fullmatch(answer)
    found = [before and _SIGN.match(before["words"]), behind and _FACTOR.match(behind["words"])]
    return [" ".join(match["word"].lower().split()) for match in found if match]


def word_of(answer: str) -> str | None:
    r"""The one word that an answer is, in small letters, or None: at least three capitals, or four
    letters, which may stand in a ``\text{}``. Fewer letters are a product.

    >>> word_of(r"\text{HTHT}"), word_of("Tuesday"), word_of("xy")
    ('htht', 'tuesday', None)
    """
    match = _WORD.fullmatch(answer)
    return match["word"].lower() if match else None


def same_text(answer: str, gold: str) -> bool:
    r"""Whether two answers differ at most in LaTeX's spaces, ``\left``, ``\right`` and ``\dfrac``.

    >>> same_text(r"\left[0, \dfrac{1}{2}\right)", r"[0,\frac{1}{2})"), same_text(r"1\,2", "12")
    (True, False)
    """

    def bare(text: str) -> str:
        text = " ".join(_SPACING.sub(" ", text).split())
        return _FRACTIONS.sub(r"\\", _NEEDLESS_BLANK.sub("", text))

    return answer == gold or bare(answer) == bare(gold)


def unboxed(gold: str) -> str:
    r"""A gold answer without the one ``\boxed{}`` that some data sets leave around it.

    >>> unboxed(r"\boxed{7}"), unboxed(r"\boxed{3}, \boxed{7}")
    ('7', '\\boxed{3}, \\boxed{7}')
    """
    box = _WHOLE_BOX.fullmatch(gold.strip())
    return box[1].strip() if box and last_boxed(gold) == box[1].strip() else gold
