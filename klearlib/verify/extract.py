r"""Where the answer stands in a response: behind the think tags, in a box or behind a marker."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from klearlib.data.marks import THINK_CLOSE, THINK_OPEN, last_boxed, last_boxes
from klearlib.errors import KlearError
from klearlib.verify.plain import FUNCTIONS

MAX_ANSWER_CHARS = 2000  # some ten times the longest gold answer of the benchmarks

# templates open, or skip, thinking in the prompt
_PREFILL = re.compile(r"<think>\s*(?P<closed></think>\s*)?\Z")
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
_FORMULA = re.compile(  # $120 + $35 are two prices
    r"\$\$(?P<display>.+?)\$\$"
    r"|(?<!\\)\$(?=(?! )[^$\n]*(?<! )\$| )(?P<inline>[^$\n]+?)(?<!\\)\$(?!\d)"
    r"|\\\((?P<round>.+?)\\\)|\\\[(?P<square>.+?)\\\]",
    re.DOTALL,
)
# between parts of one answer
_JOINS = re.compile(r"\s*(?:,|and|or|,\s*(?:and|or)|\u548c|\u6216)\s*", re.IGNORECASE)
# A number, or numbers with operators between them.
_ATOM = (
    r"(?:\\\$ ?|[$\u20ac\u00a3\u00a5])?(?:\d{1,3}(?:,\d{3})+(?![\d,])|\d+)(?:\.\d+)?"
    r"(?:[eE][-+]?\d+)?(?:\\?%)?(?:\^\{?-?\d+\}?)?!?\u03c0?|\\(?:d|t|c)?frac\s*\{[^{}]*\}\s*\{[^{}]*\}"
    r"|\.\d+|\\sqrt\s*\{[^{}]*\}|\\pi\b"
)
_OPERATOR = (
    r"(?:\s*(?:[-+*/=:^\u00d7\u00b7\u00f7\u2212\u2013]|\\times|\\cdot|\\div|(?<=\d )x(?= [\d$]))\s*"
    r"|\s+(?=\d+/\d))"
)
_RUN = re.compile(
    rf"(?<![A-Za-z0-9_.^])[-+\u2212(]*\s?(?:{_ATOM})[)]*(?:{_OPERATOR}[-+\u2212(]*(?:{_ATOM})[)]*)*"
    r"(?:\s*=\s*\??(?=\s*\Z))?"
)
_QUOTED = re.compile(r"^> ", re.MULTILINE)
_DASH = re.compile(r"(?<![\w)$])[\u2013\u2014](?=\$?\d)")  # a minus sign
_SENTENCE_END = re.compile(r"(?<=[.!?\u3002])\s+(?=\S)(?![-+*/] )|\n\s*\n|\n")  # not 4! / 2
_ENDED = re.compile(r"[.!?\u3002)\]}$*_|>]\s*\Z")  # a last sentence that the budget did not end
_GOES_ON = re.compile(
    r"\b(?:is|are|was|were|a|an|the|of|and|or|but|because|since|so|which|that|then|when|if|to|in"
    r"|as|with|we|it|them|for|by)\b",
    re.IGNORECASE,
)
_ASIDE = re.compile(
    r",(?!\s?(?:\d|[A-J]\b|or\b|and\b))|;|\u2014"
    r"|\b(?:since|because|which|that|who|as|where|so|for|in total)\b",
    re.IGNORECASE,
)
_CUT = re.compile(
    r"[,;.!?)\uff0c\u3002]|\u4e0d\u540c|\u624d|\b(?:in|at|for|on|from|which|that|because"
    r"|since|when|with|after|before|as|so|who|he|she|it|they|we|and(?! (?:a|an|one)\b)"
    r"|(?:is|are|was|were)(?! (?:an?|too|also|even|odd|prime|divisible|larger|smaller|one)\b))\b",
    re.IGNORECASE,
)
_SUPERSCRIPTS = "\u00b2\u00b3\u2070-\u207f"
_PROSE = re.compile(
    rf"(?<![^\W\d_])(?!(?:and|or|{'|'.join(sorted(FUNCTIONS))})\b)[^\W\d_{_SUPERSCRIPTS}]{{2,}}"
)
_LINKS = re.compile(r"(?: (?:than|the|to|of|an?|per|if|is|are|was|were|be|must))+\Z")
_MACRO = re.compile(r"\\[A-Za-z]+|\\text\{[^{}]*\}")
_SYMBOLS = re.compile(r"[A-Za-z\u221a\u03c0\\(\[]")
_STATED = re.compile(r"\b(?:is|are|equals|gives|becomes|at)\b|:")
_MINUS = re.compile(r"(?:\b(?:minus|negative)\s+|(?<![\w)])-)\**\Z", re.IGNORECASE)
_SIGN_WORD = re.compile(r"\b(?:minus|negative)\s+\Z", re.IGNORECASE)
# What stands before a number and makes another of it, or names something by it.
_ANOTHER_OF = re.compile(
    r"(?:\b(?:twice|half(?: of)?|(?:root|square|cube|multiple|double|third|quarter|fifth|tenth"
    r"|factor|divisor|divisors|digits|reciprocal|inverse|negative|opposite|factorial|logarithm"
    r"|percent|each) of|of the|below|above|neither|nor|except|excluding|but|from|hardly|divides"
    r"|exceeds|coprime to|number after|to the|sides by|problem|example|exercise|question"
    r"|(?:divided|divisible|multiplied) by|under|over|up to|modulo|mod|base|case|theorem|lemma|step"
    r"|equation|choose|than|out of|plus|times|january|february|march|april|may|june|july"
    r"|august|september|october|november|december)|%\s*of|\d\$? (?:in|to|minus))\s+\Z",
    re.IGNORECASE,
)
_LEFT_SIDE = re.compile(r"(?:(?<![A-Za-z0-9])\d*[A-Za-z](?:\^\d+)?\s*[-+*/=]\s*)*\Z")
_FRAGMENT = re.compile(
    r"[\u221a\u221b\u221c^_([{*/<>\u2264\u2265\u2260\u2262\u2209]\s*\Z|!=\s*\Z|\\ne\s*\Z"
    r"|\b[A-Za-z]\s*[-+|\u2223]\s*\Z|\bsqrt\s*\Z"
)
# Sentences that ask, set a task, deny or bound: what stands in them is no answer.
_NO_CLAIM = re.compile(
    r"\?[\s*_\"')\]]*\Z|n't\b|\b(?:not|cannot|never|(?:greater|more|less|fewer|other) than|at least"
    r"|at most|between(?=\s+\$?-?\d)|unless|may be|might be|could be|maybe|perhaps|possibly"
    r"|alternatively|whether"
    r"|anything but|candidates?|wrong|incorrect|undefined|impossible|if the answer|asks?|depends on"
    r"|we are given|consider|must (?:find|compute|expand|solve)|rules? out|ruled out|doubt"
    r"|fails? for|it is false|none of (?:these|them) (?:is|are)|was\b.{1,30}\bbefore"
    r"|in the (?:question|problem)|(?:question|problem) says|for (?:example|instance))\b"
    r"|\u4e0d\u662f|\u4e0d\u7b49\u4e8e|\u5927\u4e8e|\u5c0f\u4e8e|\u81f3\u5c11|\u81f3\u591a|\u6700\u591a"
    r"|\u4e0d\u5bf9|\u9519|\u5417|\u53ef\u80fd(?!\u7684)|\u6216\u8005|\u9664\u4e86|\u4ee5\u5916|\u6392\u9664",
    re.IGNORECASE,
)
_TASK = re.compile(
    r"\W*(?:simplify|factor|find|compute|evaluate|solve|calculate|determine|expand|prove|show"
    r"|consider|suppose|assume|let|given|what|how|plug|substitute|take|try|check|set|put|if|when"
    r"|(?:we|you|i) (?:need|want|have|ask)\w*)\b"
    r"|\W*(?:(?:\u6c42|\u8ba1\u7b97)(?![\u5f97\u51fa])|\u5df2\u77e5|\u8bbe|\u82e5|\u5f53)",
    re.IGNORECASE,
)
# A condition in front of what is said: nothing in it is an answer.
_CONDITION = re.compile(
    r"\A\W*(?:(?:so|thus|then|but|and|now)\W+)?(?:(?:if|when|for)\b|\u82e5|\u5f53)"
    r"(?:[^,\uff0c]|,(?=\d))*[,\uff0c](?!\d)\s*",
    re.IGNORECASE,
)
_REASON = re.compile(r"(?<=[^\s,.:;])[,;]?\s+\(?(?:since|because)\b[^?]*\Z", re.IGNORECASE)
_ATTAINED = re.compile(
    r",?\s*\b(?:attained|achieved|reached|including)\b[^?]*\Z", re.IGNORECASE | re.DOTALL
)
_OPTION_WORDS = re.compile(r"(?:\u9009\u9879|\u662f?\u6b63\u786e\u7684?)\Z")
_OPTION_FIRST = re.compile(r"(?:option |choice )?(?:\([A-J]\)|[A-J][).:])(?= ?\S)", re.IGNORECASE)
# What takes an answer back behind it, what explains it, and what a further number may belong to.
_TAKEN_BACK = re.compile(
    r"(?<!with )\bno\b"
    r"|\b(?:wait|actually|correction|scratch|kidding|false|else|otherwise|if|both sides)\b"
    r"|\bor\b(?! (?:equivalently|about|approximately))",
    re.IGNORECASE,
)
_REVISED = re.compile(
    r"\W*(?:(?:no|not)(?=\s*[,.:;])|or\b|(?:wait|actually|correction|scratch|sorry|oops)\b)",
    re.IGNORECASE,
)
_WAIT = re.compile(r"\b(?:wait|oops|scratch that|kidding|correction)\b", re.IGNORECASE)
_EXPLAINED = re.compile(r"\b(?:since|because|as|where|so)\b", re.IGNORECASE)
_RELATED = re.compile(
    r"[=\u2248(]|\b(?:for|at|in|of|on|with|when|from|by|per|after|before|over|during|about"
    r"|approximately|equivalently|i\.e)\b",
    re.IGNORECASE,
)
_PARTS = re.compile(r"[,;\u2014]|\b(?:and|then|but)\b", re.IGNORECASE)
_NUMBER_SAID = re.compile(
    rf"[^.;]*?\b(?:is|are|equals)\s+(?:\*\*)?(?P<number>(?:{_ATOM})(?!.*\bmod)[^.,;*]{{0,20}}?)"
    r"(?:\*\*)?\.?\s*"
)
_BOLD = re.compile(r"\*\*(?!\d+[.)])([^*]+)\*\*(?! ?:)")
_TABLE_ROW = re.compile(r"\|(?: [^|]+ \|)+ ([^|]+) \|")
_MOST_WORDS, _MOST_UNIT_WORDS, _MOST_WORDS_ALONE = 8, 3, 2


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
    for marker in reversed(list(_MARKED.finditer(text))):  # the last marker that gives an answer
        segment = text[marker.end() :].strip()
        if _NO_MARKER.search(text[: marker.start()]):
            continue
        is_weak = marker[0].strip().lower() in ("therefore", "thus", "hence")
        first, *others = _sentences(_one_line(segment) if "\n" in marker[0] else segment)
        answer = _in_sentence(*first) if is_weak else _behind_marker(*first)
        if answer == "" or (answer and others and _REVISED.match(others[0][0])):
            return None
        if answer:
            return Answer(answer, "marked")
    said = [each for each in _sentences(text) if re.search(r"\w", each[0])]
    answer = _in_sentence(*said[-1]) if said else None
    return Answer(answer, "marked" if "=" in answer else "last") if answer else None


def _one_line(segment: str) -> str:
    """The items of a list as one line."""
    items = _BULLETS.match(segment)
    if not items:
        return segment
    lines = [line.strip(" -*\u2022") for line in items[0].splitlines() if line.strip()]
    return ", ".join(lines) + "\n" + segment[items.end() :]


def _sentences(text: str) -> list[tuple[str, bool]]:
    """The sentences and lines of a text, and whether each has ended."""
    inside = [match.span() for match in _FORMULA.finditer(text)]
    ends = [
        match.end()
        for match in _SENTENCE_END.finditer(text)
        if not any(start < match.start() < end for start, end in inside)
    ]
    pieces = [text[start:end].strip() for start, end in pairwise([0, *ends, len(text)])]
    return [
        (piece, place < len(ends) or bool(_ENDED.search(piece)))
        for place, piece in enumerate(pieces)
    ]


def _behind_marker(sentence: str, is_ended: bool) -> str | None:
    """The answer that follows "the answer is": None where it may stand elsewhere, "" where it is
    taken back or split."""
    if _WAIT.search(sentence):
        return ""
    claim = _REASON.sub("", sentence)
    if _NO_CLAIM.search(claim):  # hedged, denied or asked
        return None
    plain = re.sub(r"\*{2,}|__|\$", "", claim).strip()
    if _OPTION_FIRST.match(plain):  # A) 24 cm
        return plain.strip(" .")
    formula = _FORMULA.search(claim)
    if formula and not re.search(r"\w", claim[: formula.start()]):
        listed, end = _formulas(claim, [*_FORMULA.finditer(claim)])[0]
        return "" if _is_taken_back(listed, claim[end:]) else listed
    bare = re.sub(r"\*{2,}|__", "", claim).strip(" \n`\"'*")
    if formula is None and (not _RUN.search(bare) or _RUN.match(bare) or bare[:1] in "([{\\|"):
        clause = _ASIDE.split(bare, maxsplit=1)[0].strip()
        if len(clause.split()) <= _MOST_WORDS:
            answer = _OPTION_WORDS.sub("", re.sub(r"(?<!\.)[.!,;\u3002]+\Z", "", clause))
            return "" if _is_taken_back(answer, bare[len(clause) :]) else answer or None
    return _in_sentence(sentence, is_ended)


def _is_taken_back(answer: str, rest: str) -> bool:
    """Whether what follows an answer takes it back or states another: "wait, 43"."""
    rest = _EXPLAINED.split(rest, maxsplit=1)[0]
    if _TAKEN_BACK.search(rest) or re.match(r"[\s$]*in[\s$]*\d", rest):  # 1 in 5
        return True
    if re.fullmatch(r"\(?[A-J]\)?", answer) and re.search(r"\b[A-J]\b", rest):
        return True
    before = (_PARTS.split(rest[: number.start()])[-1] for number in re.finditer(r"\d+", rest))
    return not all(map(_RELATED.search, before))


def _in_sentence(sentence: str, is_ended: bool) -> str | None:
    """The last formula of a sentence, or its last number with the words behind it."""
    if _NO_CLAIM.search(sentence):
        return None
    sentence = _CONDITION.sub("", sentence)
    said = _ATTAINED.sub("", sentence)
    if re.search(r"\d", said):
        sentence = said
    if formulas := [*_FORMULA.finditer(sentence)]:
        before, rest = sentence[: formulas[-1].start()], sentence[formulas[-1].end() :]
        # it repeats the question, or names a part of it
        if _TASK.match(sentence) or _ANOTHER_OF.search(before) or _TAKEN_BACK.search(rest):
            return None
        said = _NUMBER_SAID.fullmatch(rest)  # the largest value of $a+b$ is 6
        return said["number"].strip() if said else _formulas(sentence, formulas)[-1][0]
    bold = [*_BOLD.finditer(sentence)]
    if len(bold) == 1 and not _TASK.match(sentence):
        inner, before, rest = bold[0][1], sentence[: bold[0].start()], sentence[bold[0].end() :]
        is_number = bool(_RUN.match(inner))
        if is_number or not re.search(r"\d", sentence):
            is_other = _ANOTHER_OF.search(before) or _FRAGMENT.search(before)
            if _TAKEN_BACK.search(rest) or (is_number and is_other):
                return None
            sign = "-" if is_number and _MINUS.search(before) else _LEFT_SIDE.search(before)[0]
            words = _words(rest) if _RUN.fullmatch(inner) and inner[-1] != "%" else ""
            return f"{sign}{inner} {words}".strip(" .:") or None
    bare = re.sub(r"\*{2,}|__|`", "", sentence).strip()
    if row := _TABLE_ROW.fullmatch(bare):
        bare = row[1]
    closed = re.sub(r"(?<!\.)[.?\u3002]+\Z", "", bare).strip()
    if closed and not _PROSE.search(_MACRO.sub(" ", closed)):
        return closed
    stated = _STATED.split(closed)[-1].strip()
    if stated and not _PROSE.search(_MACRO.sub(" ", stated)) and _SYMBOLS.search(stated):
        return None if _TASK.match(bare) else stated
    bare = bare.rstrip("!")  # no factorial in prose
    runs = [*_RUN.finditer(bare)]
    if not runs and len(closed.split()) <= _MOST_WORDS_ALONE:  # True
        return closed or None
    if not runs or (_TASK.match(bare) and "=" not in runs[-1][0]):
        return None
    start = runs[-1].start()
    for run in reversed(runs[:-1]):  # "1 and 2" is one answer, or a hedge
        if not _JOINS.fullmatch(bare[run.end() : start]):
            break
        start = run.start()
    run = runs[-1]
    rest = bare[run.end() :]
    start -= len(_LEFT_SIDE.search(bare[:start])[0])  # x = 5 stays whole
    sign = _SIGN_WORD.search(bare[:start])
    # "sums up to 12 + 6 = 18" is worked out
    is_part = _ANOTHER_OF.search(bare[:start]) and "=" not in run[0]
    if not sign and (is_part or _FRAGMENT.search(bare[:start])):
        return None
    if re.match(r"[\u221a\u03c0^_(\\]|[A-Za-z](?![A-Za-z])", rest) or _TAKEN_BACK.search(rest):
        return None
    if sign:
        return f"-{bare[start : run.end()].strip()}"
    if not is_ended and (_GOES_ON.search(rest) or len(rest.split()) > _MOST_UNIT_WORDS):
        return None
    return f"{bare[start : run.end()].strip()} {_words(rest)}".rstrip(" .,;!?")


def _words(rest: str) -> str:
    """The words behind a number that may be its unit, or make another number of it."""
    rest = re.sub(r"[*_`]+", "", rest)
    if rest[:1] in ".,;:!?\u3002\uff0c":  # or nothing
        return ""
    words = _CUT.split(rest, maxsplit=1)[0].split()[:_MOST_UNIT_WORDS]
    return _LINKS.sub("", " ".join(words))  # "33 more goats than pigs"


def _formulas(sentence: str, formulas: list[re.Match]) -> list[tuple[str, int]]:
    """The contents of formulas and where each ends; those that only "and" or a comma part are one
    list."""
    found: list[tuple[str, int]] = []
    for formula in formulas:
        content = next(group for group in formula.groups() if group is not None).strip()
        if _MINUS.search(sentence[: formula.start()]):
            content = f"-({content})"
        if found and _JOINS.fullmatch(sentence[found[-1][1] : formula.start()]):
            content = f"{found.pop()[0]}, {content}"
        # "$5$ million", "$3$ to $4$"
        elif _RUN.fullmatch(content) and (words := _words(sentence[formula.end() :])):
            content += rf"\text{{ {words}}}"
        found.append((content, formula.end()))
    return found


def unboxed(gold: str) -> str:
    r"""A gold answer without the one ``\boxed{}`` that some data sets leave around it.

    >>> unboxed(r"\boxed{7}"), unboxed(r"\boxed{3}, \boxed{7}")
    ('7', '\\boxed{3}, \\boxed{7}')
    """
    box = _WHOLE_BOX.fullmatch(gold.strip())
    return box[1].strip() if box and last_boxed(gold) == box[1].strip() else gold
