r"""An answer in a sentence, where there is no box: what is claimed, and with which unit."""

from __future__ import annotations

import re
from itertools import pairwise

from klearlib.verify.plain import FUNCTIONS

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
    r"\d*[\u00bc-\u00be\u2153-\u215e]"
    r"|(?:\\\$ ?|[$\u20ac\u00a3\u00a5])?(?:\d{1,3}(?:,\d{3})+(?![\d,])|\d+)(?:\.\d+)?"
    r"(?:[eE][-+]?\d+)?(?:\\?%)?(?:\^\{?-?\d+\}?)?!?\u03c0?|\\(?:d|t|c)?frac\s*\{[^{}]*\}\s*\{[^{}]*\}"
    r"|\.\d+|\\sqrt\s*\{[^{}]*\}|\\pi\b"
)
_OPERATOR = (
    r"(?:\s*(?:[-+*/=:^\u00d7\u00b7\u00f7\u2212\u2013]|\\times|\\cdot|\\div|(?<=\d )x(?= [\d$]))\s*"
    r"|\s+(?=\d+/\d))"
)
_RUN = re.compile(
    rf"(?<![A-Za-z0-9_.^])(?:[-+\u2212\u00b1(]|\\pm ?)*\s?(?:{_ATOM})[)]*"
    rf"(?:{_OPERATOR}[-+\u2212(]*(?:{_ATOM})[)]*)*"
    r"(?:\s*=\s*\??(?=\s*\Z))?"
)
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
    r"[,;.!?)\uff0c\u3002]|\u4e0d\u540c|\u624d|\bof (?=\d)|\b(?:in|at|for|on|from|which|that"
    r"|because|since|when|with|after|before|as|so|who|he|she|it|they|we|and(?! (?:a|an|one)\b)"
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
    r",?\s*\b(?:(?:attained|achieved|reached|including)\b[^?]*"
    r"|(?:when|at|for)\s+\$?[A-Za-z]\$?\s*=\s*[^\s,?]+?(?:\s+and\s+\$?[A-Za-z]\$?\s*=\s*\S+)?[.$\s]*)\Z",
    re.IGNORECASE | re.DOTALL,
)
# $20 + $5 = $25 for selling 14 peaches: a statement, and one detail of it
_CLAIMS = re.compile(
    r"(?!\W*(?:at|with|after|before|by|when|since|if|\w+ing)\b).*\b(?:is|are|was|were|will|can|could"
    r"|would|has|have|had|spends?|spent|gets?|got|makes?|made|takes?|took|needs?|earns?|saves?|pays?"
    r"|paid|eats?|ate|sells?|sold|buys?|bought|reads?|drives?|drove|runs?|ran|\w+ed)\b",
    re.IGNORECASE | re.DOTALL,
)
_DETAIL = re.compile(
    r"(?: [A-Za-z'.-]+){0,5}? (?:(?:for|after)(?: \w+ing)?|in|over|during|on|of|to|from|per|than)"
    r"(?: (?!\w*(?:ing|s) \d)[\w'$%.-]+){1,8}",
    re.IGNORECASE,
)
_NO_DETAIL = re.compile(
    r"\b(?:is|are|was|were|has|have|had|gives?|gets?|makes?|leav\w+|yields?|equals?|results?"
    r"|remains?|keeps?|needs?|holds?|earned|totals?|find|obtain)\b|\band\b.*\d",
    re.IGNORECASE,
)
_NUMERAL = r"(?:\d|\b(?:an?|one|two|three|four|five|six))"
_TWO_UNITS = re.compile(  # 1 hour and 30 minutes: neither number is the answer
    rf"{_NUMERAL} ?(?:full )?(?:weeks?|days?|hours?|hrs?|h|minutes?|mins?|dollars?|euros?|pounds?"
    r"|feet|foot|ft|yards?|years?|(?:kilo)?met(?:er|re)s?|km|m|kilograms?|kg|liters?"
    r"|miles?|tons?|gallons?|quarts?|dozen|degrees?)"
    r",? (?:and |\+ )?\d+ ?(?:months?|days?|hours?|minutes?|mins?|seconds?|secs?|cents?|pence"
    r"|inch(?:es)?|in|feet|ounces?|(?:centi)?met(?:er|re)s?|cm|m|grams?|g|milliliters?"
    r"|yards?|pints?|cups?|pounds?|kilograms?|eggs|more)\b[^\d=]*\Z",
    re.IGNORECASE,
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


def sentences(text: str) -> list[tuple[str, bool]]:
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


def behind_marker(sentence: str, is_ended: bool) -> str | None:
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
    return in_sentence(sentence, is_ended)


def _is_taken_back(answer: str, rest: str) -> bool:
    """Whether what follows an answer takes it back or states another: "wait, 43"."""
    rest = _EXPLAINED.split(rest, maxsplit=1)[0]
    if _TAKEN_BACK.search(rest) or re.match(r"[\s$]*in[\s$]*\d", rest):  # 1 in 5
        return True
    if re.fullmatch(r"\(?[A-J]\)?", answer) and re.search(r"\b[A-J]\b", rest):
        return True
    before = (_PARTS.split(rest[: number.start()])[-1] for number in re.finditer(r"\d+", rest))
    return not all(map(_RELATED.search, before))


def in_sentence(sentence: str, is_ended: bool) -> str | None:
    """The last formula of a sentence, or its last number with the words behind it."""
    if _NO_CLAIM.search(sentence):
        return None
    sentence = _CONDITION.sub("", sentence)
    if _TWO_UNITS.search(sentence.replace("$", "")):
        return None
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
    runs = _without_detail(bare, runs)
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


def _without_detail(sentence: str, runs: list[re.Match]) -> list[re.Match]:
    """The runs up to the last with an equals sign, where those behind it are a detail of it."""
    end = max((place for place, run in enumerate(runs, 1) if "=" in run[0]), default=len(runs))
    before, rest = sentence[: runs[end - 1].start()], sentence[runs[end - 1].end() :]
    is_claimed = _CLAIMS.match(before) and not _NO_DETAIL.search(rest)
    return runs[:end] if is_claimed and _DETAIL.fullmatch(rest.rstrip(". ")) else runs


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
