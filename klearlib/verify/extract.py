r"""Where the answer stands in a response: behind the think tags, in a box or behind a marker."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from klearlib.data.marks import THINK_CLOSE, THINK_OPEN, last_boxed, last_boxes, prefilled
from klearlib.errors import KlearError
from klearlib.verify.prose import behind_marker, in_sentence, sentences

MAX_ANSWER_CHARS = 2000  # some ten times the longest gold answer of the benchmarks

_WHOLE_BOX = re.compile(r"\\boxed\s*\{(.*)\}", re.DOTALL)

# \boxed 5, which TeX accepts
_BOX_WITHOUT_BRACES = re.compile(r"\\boxed\s+([^\s{}$.,]+)\s*[$.]*\Z")
_TAGGED = re.compile(r"<answer>((?:(?!</?answer>).)*)</answer>", re.DOTALL | re.IGNORECASE)
# After these words an answer stands, up to the end of the line or sentence.
_MARKED = re.compile(
    r"(?:\banswers?\b(?: to [\w ,']{1,80}?)?\s*(?:\*\*|__)?\s*(?:(?:is|are)\b|[:=\uff1a]|\n)"
    r"|\b(?:option|choice)\b[^.\n]{0,20}?\bis\b|####"
    r"|\u7b54\u6848?\s*(?:\u662f|\u4e3a|[:\uff1a\u3011])"
    r"|\u9009(?:\u9879|\u62e9)?\s*(?:\u662f|\u4e3a|[:\uff1a]|(?=[(\uff08]?[A-J]))"
    r"|\b(?:therefore|thus|hence)\b)"
    r"[\s*_:\uff1a]*(?!\Z)",
    re.IGNORECASE,
)
# "Option A is the correct answer": the answer in front of the words that mark it
_OPTION_THEN_MARKER = re.compile(
    r"(?:^|(?<=[.!?] ))(?:(?:so|thus|hence|therefore)\b,? )?(?:option|choice) [*(]*([A-J])\b[*)]*"
    r" is (?:the )?(?:correct|right)(?: answer| option| choice)?(?=[.!]?\**\s*\Z)",
    re.IGNORECASE | re.MULTILINE,
)
_BULLETS = re.compile(r"(?:[-*\u2022] +\S[^\n]*(?:\n+|\Z))+")
_NO_MARKER = re.compile(
    r"\b(?:if|whether|suppose|assume|wrong)\s+(?:the\s+|an?\s+)?\Z|(?:\u4e0d|\u4e0d\u80fd|\u522b|\u6392\u9664)\Z",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"^> ", re.MULTILINE)
_BETWEEN_THOUSANDS = re.compile(  # 9{,}500, 9 500; "on day 3 100 people came" has two numbers
    r"(?P<label>(?:=|\b(?:day|week|group|case|step|class|grade|team|year|page|level|round)) ?)?"
    r"(?<![\d.,])[1-9]\d{0,2}(?:(?:\{,\}|\\[,; ]|[ \u00a0\u2009\u202f])\d{3})+(?![\d-])"
)
_DASH = re.compile(r"(?<![\w)$])[\u2013\u2014](?=\$?\d)")  # a minus sign
_REVISED = re.compile(
    r"\W*(?:(?:no|not)(?=\s*[,.:;])|or\b|(?:wait|actually|correction|scratch|sorry|oops)\b)",
    re.IGNORECASE,
)


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
    prefill = prefilled(prompt)
    thought, close, text = response.rpartition(THINK_CLOSE)
    has_close = bool(close) or bool(prefill and prefill["closed"])
    # an opening tag behind the closing one counts for nothing
    has_open = prefill is not None or THINK_OPEN in (thought if close else response)
    return Reading(text=text, has_think_open=has_open, has_think_close=has_close)


def read_responses(
    responses: Sequence[str],
    *,
    prompts: Sequence[str] | None,
    truncated: Sequence[bool] | None,
    require_think: bool,
    **columns: Sequence,
) -> list[tuple[Reading, str]]:
    """The reading of each response and why it is not judged: ``truncated``, ``bad_format``, or "".

    The arguments are those of `answers.verify_answers`; `columns` is what else there is for each
    response. KlearError where one of them is a text instead of a sequence, or has another length
    than the responses.
    """
    num = len(responses)
    prompts = [""] * num if prompts is None else prompts
    truncated = [False] * num if truncated is None else truncated
    columns = {"responses": responses, **columns, "prompts": prompts, "truncated": truncated}
    for name, values in columns.items():
        if isinstance(values, str):
            raise KlearError(f"{name} must be a sequence of texts, got one string")
        if len(values) != num:
            raise KlearError(f"{name} must have one item per response, {num}, got {len(values)}")
    found = []
    for response, prompt, cut in zip(responses, prompts, truncated, strict=True):
        reading = read_response(response, prompt)
        is_formed = reading.has_think_open and reading.has_think_close
        fault = "bad_format" if require_think and not is_formed else ""
        found.append((reading, "truncated" if cut else fault))
    return found


class Answer(NamedTuple):
    """What a response gives for an answer, and where it stood: a word of `records.FOUND`."""

    text: str
    found: str


def find_answer(text: str) -> Answer | None:
    r"""The answer in what stands behind the think tags, None where there is none.

    The last box; else the last ``<answer>``; else what follows the last marker ("answer is",
    "answer:", its Chinese, "####", "therefore"); else the last formula of the last sentence, or its
    last number with the expression that it is a part of. A sentence that goes on behind its number
    and never ends gives none. Without a box the last `MAX_ANSWER_CHARS` characters are looked at.

    >>> find_answer(r"First \boxed{3}, then \boxed{4}."), find_answer("9 + 42 = 51.")
    (Answer(text='4', found='boxed'), Answer(text='9 + 42 = 51', found='marked'))
    >>> find_answer("It must be 7 + 37.").text, find_answer("9 + 42 is a pleasure")
    ('7 + 37', None)
    """
    boxed = last_boxes(text)
    if boxed is not None:  # the last box, whatever follows it
        return Answer(boxed, "boxed")
    text = text.strip()
    if match := _BOX_WITHOUT_BRACES.search(text):
        return Answer(match[1], "boxed")
    if re.search(r"\\boxed|boxed\s*\{", text) or text.startswith("{"):
        return None  # a broken box
    if len(text) > MAX_ANSWER_CHARS:
        # The first word of the tail is dropped: it may be the end of a longer number.
        text = "".join(text[-MAX_ANSWER_CHARS:].split(maxsplit=1)[1:])
    if tagged := _TAGGED.findall(text):
        answer = tagged[-1].strip()
        return Answer(answer, "marked") if answer else None
    text = _OPTION_THEN_MARKER.sub(r"The answer is \1", _DASH.sub("-", _QUOTED.sub("", text)))
    text = _BETWEEN_THOUSANDS.sub(lambda m: m[0] if m["label"] else re.sub(r"\D+", ",", m[0]), text)
    for marker in reversed(list(_MARKED.finditer(text))):  # the last marker that gives an answer
        segment = text[marker.end() :].strip()
        if _NO_MARKER.search(text[: marker.start()]):
            continue
        is_weak = marker[0].strip().lower() in ("therefore", "thus", "hence")
        first, *others = sentences(_one_line(segment) if "\n" in marker[0] else segment)
        answer = in_sentence(*first) if is_weak else behind_marker(*first)
        if answer == "" or (answer and others and _REVISED.match(others[0][0])):
            return None
        if answer:
            return Answer(answer, "marked")
    said = [each for each in sentences(text) if re.search(r"\w", each[0])]
    answer = in_sentence(*said[-1]) if said else None
    return Answer(answer, "marked" if "=" in answer else "last") if answer else None


def _one_line(segment: str) -> str:
    """The items of a list as one line."""
    items = _BULLETS.match(segment)
    if not items:
        return segment
    lines = [line.strip(" -*\u2022") for line in items[0].splitlines() if line.strip()]
    return ", ".join(lines) + "\n" + segment[items.end() :]


def unboxed(gold: str) -> str:
    r"""A gold answer without the one ``\boxed{}`` that some data sets leave around it.

    >>> unboxed(r"\boxed{7}"), unboxed(r"\boxed{3}, \boxed{7}")
    ('7', '\\boxed{3}, \\boxed{7}')
    """
    box = _WHOLE_BOX.fullmatch(gold.strip())
    return box[1].strip() if box and last_boxed(gold) == box[1].strip() else gold
