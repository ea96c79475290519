r"""An answer without its presentation: one plain form for what is written in many ways.

Tables of macros, signs and words, read by one small TeX reader; `numbers` and `match` look at
nothing else.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache

MAX_DEPTH = 50  # of braces and brackets: nobody nests an answer deeper


def names(text: str) -> frozenset[str]:
    """The words of a table."""
    return frozenset(text.split())


def aliases(text: str) -> dict[str, str]:
    """The first word of each entry by every word of it; semicolons part entries."""
    entries = [entry.split() for entry in text.split(";")]
    return {word: entry[0] for entry in entries for word in entry}


def _pairs(text: str) -> dict[str, str]:
    """The second of each two words by the first."""
    words = text.split()
    return dict(zip(words[::2], words[1::2], strict=True))


# Signs

_MACROS = _pairs(
    """\u00d7 times \u00b7 cdot \u22c5 cdot \u00b1 pm \u221a sqrt \u221e infty \u2264 le \u2265 ge
    \u2260 ne \u2248 approx \u2261 equiv \u222a cup \u2229 cap \u2208 in \u2205 emptyset \u2192 to
    \u21d2 Rightarrow \u2234 therefore \u00b0 degree \u2220 angle \u03c0 pi \u03b8 theta
    \u03b1 alpha \u03b2 beta \u03a9 Omega \u00bd frac12 \u00bc frac14 \u00be frac34
    \u2153 frac13 \u2154 frac23 \u2155 frac15 \u2156 frac25 \u2157 frac35 \u2158 frac45
    \u2159 frac16 \u215a frac56 \u215b frac18 \u215c frac38 \u215d frac58 \u215e frac78
    \u25b3 triangle"""
)
_SIGNS = {
    **{sign: rf"\{macro} " for sign, macro in _MACROS.items()},
    **_pairs(
        """\u211d \\mathbb{R} \u2124 \\mathbb{Z} \u221b \\sqrt[3] \u548c \\text{and}
        \u6216 \\text{or} \u4e14 \\text{and} \u2032 ' \u3002 ."""
    ),
    **dict.fromkeys("\u2212\u2013\u2010\u2011\u2012\ufe63\uff0d", "-"),
    **dict.fromkeys("\u00f7\u2044\u2215", "/"),
    **{"\u2103": r"\degree C", "\u3001": ", "},
    **dict.fromkeys("\u2705\u2713\u2714\ufe0f\U0001f389", ""),
}
_RAISED = "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207b\u207a\u207f"
_LOWERED = "\u2080\u2081\u2082\u2083\u2084\u2085\u2086\u2087\u2088\u2089"
_CIRCLED = re.compile("[\u2460-\u2473](?:[\u3001,\uff0c\u548c ]*[\u2460-\u2473])+")
_RUNS = tuple(
    (re.compile(f"[{signs}]+"), str.maketrans(signs, plain), mark)
    for signs, plain, mark in ((_RAISED, "0123456789-+n", "^"), (_LOWERED, "0123456789", "_"))
)
# What is typed without LaTeX.
_TYPED = (
    (re.compile(r"<="), r"\\le "),
    (re.compile(r">="), r"\\ge "),
    (re.compile(r"(?<![\d)])!="), r"\\ne "),  # 3!=6 is a factorial
    (re.compile(r"(?<=\w)\*\*(?=[\w(])"), "^"),
    (re.compile(r"(?:(?<![\\A-Za-z])|\\)sqrt ?\(([^()]*)\)"), r"\\sqrt{\1}"),
    (re.compile(r"(?<![\\A-Za-z])sqrt(?=\{)"), r"\\sqrt"),
    (re.compile(r"\\! *"), ""),
)
_SIGN_TABLE = str.maketrans(_SIGNS)

# Macros

_SPACES = {"~", "\\ ", r"\,", r"\:", r"\;", r"\>"} | {
    f"\\{name}"
    for name in names("quad qquad enspace thinspace medspace thickspace space newline par")
}
_SWITCHES = names(
    """displaystyle textstyle scriptstyle scriptscriptstyle limits nolimits displaylimits large
    Large LARGE huge Huge small footnotesize scriptsize tiny normalsize bf it rm sf tt bfseries
    itshape rmfamily sffamily ttfamily boldmath unboldmath mathstrut strut noindent centering hfill
    nonumber notag null relax checkmark negthinspace allowbreak protect hline left right middle big
    Big bigg Bigg bigl bigr bigm Bigl Bigr Bigm biggl biggr biggm Biggl Biggr Biggm"""
)
# Dropped with so many arguments.
_DROPPED = {"tag": 1, "tag*": 1, "label": 1, "phantom": 1, "hphantom": 1, "vphantom": 1, "color": 1}
_DROPPED |= {"hspace": 1, "hspace*": 1, "vspace": 1, "vspace*": 1, "pagecolor": 1, "cancel": 1}
# The last of so many arguments stays, as it is or as a text.
_STYLES = {"textcolor": 2, "colorbox": 2, "fcolorbox": 3}
_STYLES |= dict.fromkeys(
    names(
        """bbox smash ensuremath mathbf boldsymbol bm pmb mathit mathsf mathtt underline vec hat
        uline boxed fbox framebox emph mathnormal mathop mathrel mathbin mathord bold"""
    ),
    1,
)
_TEXTS = {"text", "textrm", "textbf", "textit", "textsf", "texttt", "textnormal", "textup", "mbox"}
_TEXTS |= {"hbox", "mathrm", "operatorname", "operatorname*", "textmd", "textsl", "textsc"}
_WITH_ARGUMENTS = _STYLES.keys() | _TEXTS | {"sqrt", "frac"}
_RENAMED = aliases(
    """frac dfrac tfrac cfrac nicefrac sfrac; binom dbinom tbinom; sqrt surd; pi uppi;
    ge geq geqslant; le leq leqslant; ne neq; emptyset varnothing; cdot centerdot cdotp;
    ldots dots cdots; to rightarrow longrightarrow; Rightarrow implies Longrightarrow;
    Leftrightarrow iff; overline bar; phi varphi; epsilon varepsilon; approx doteq simeq;
    infty infin; vee lor; wedge land; log lg; tan tg; cot ctg cotg; arctan arctg"""
)
_WRITTEN = _pairs(
    r"""lt < gt > colon : lbrack [ rbrack ] ast * div / lbrace \{ rbrace \} lvert | rvert | vert |
    mid | degree ^{\circ} textdegree ^{\circ} R \mathbb{R} percent % slash / langle ( rangle )
    lparen ( rparen ) textdollar $ pounds £ euro €"""
)
_WRITTEN["backslash"] = "\\setminus "
_ESCAPED = {r"\%": "%", r"\$": "\0", r"\#": "", r"\_": "_", r"\&": "&", r"\!": "", r"\-": ""}
_ESCAPED |= {r"\(": "", r"\)": "", r"\[": "", r"\]": "", r"\/": "", r"\|": "|"}
_ARGUMENTS = {"frac": 2, "binom": 2, "pmod": 1, "overline": 1, "mathbb": 1, "dot": 1}
_ARGUMENTS |= {"overrightarrow": 1, "widehat": 1, "tilde": 1, "mathcal": 1, "underset": 2}
_LAYOUTS = re.compile(
    r"(?:aligned|alignedat|align|equation|gather|gathered|split|multline|math|displaymath|center"
    r"|flushleft|eqnarray)\*?"
)
_MATRICES = {"pmatrix", "bmatrix", "matrix", "Bmatrix", "smallmatrix", "array", "psmallmatrix"}
FUNCTIONS = names(
    """sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp gcd lcm max min det
    lim sup inf arg dim ker mod"""
)
_LETTERS = {"pi", "theta", "alpha", "beta", "gamma", "lambda", "phi", "omega", "infty"}

_TOKEN = re.compile(r"\\[A-Za-z]+\*?|\\.|\\\Z|[{}]|[^\\{}]", re.DOTALL)
_BOLD = re.compile(r"(?<![\w)}*\\])(\*\*|__)(?=[^\s*_])(.+?)(?<=[^\s\\])\1(?![\w(*])", re.DOTALL)
_ALL_MARKED = re.compile(r"(\*|_|`{1,3})(?=[^\s*_`])([^*`]+)(?<=\S)\1")
_BLANKS = re.compile(r"\s+")
# Between two characters of a name or number a blank may matter ("3 1/2", "\pi r"), nowhere else.
_NEEDLESS_BLANK = re.compile(r"(?<!\w) | (?!\w)")
_ONE_CELL = re.compile(r"\\begin\{pmatrix\}((?:(?!\\\\|\\begin)[^&])*)\\end\{pmatrix\}")
_CASES = re.compile(r"\\begin\{cases\}((?:(?!\\begin)[^&])*)\\end\{cases\}")  # a list of equations
_SYSTEM = re.compile(  # the same behind one brace
    r"\\\{(?:\\begin\{pmatrix\}((?:(?!\\begin).)*)\\end\{pmatrix\}|([^{}]*=[^{}]*))"
)
_RAISED_DEGREE = re.compile(r"\^ ?\{? ?\^\{\\circ\} ?\}?")
_TWO_NUMBERS = re.compile(r"(?<=\d), +(?=\d{3}(?!\d))")  # not 1,234
_PERCENT = re.compile(r" ?\\text\{ ?(?:percent|per cent|pct)\.?\}", re.IGNORECASE)
_POWER = re.compile(r"\^\s*(?:\(([+-]?\w+)\)|([+-]?\d+|-?[A-Za-z]|\\[A-Za-z]+))")
_INDEX = re.compile(r"_\s*(\d+|[A-Za-z]|\\[A-Za-z]+)")
_TEXT = re.compile(r"(\\text\{[^{}]*\}|\\(?:begin|end|mathbb)\{[^{}]*\})")
_NUMBER_FIRST = re.compile(r"([-+]?\d[\d.,]*(?: \d+/\d+)?)(?: (?=\D)|(?=[\u4e00-\u9fff]))(.*)")
TEXT_MACRO = re.compile(r"\\text\{([^{}]*)\}")
"""Words in a plain text."""
_TWO_TEXTS = re.compile(r"\\text\{([^{}]*)\}\s*\\text\{([^{}]*)\}")
_PER_UNIT = re.compile(r"(?<=\d) ?/ ?\\text\{(hour|minute|second|day|week|month|year)\}\Z")
_UNIT_AND = re.compile(r"(?<=\d) ?\\text\{(\w+) (and|or)\}(?= ?[-+]?\d)")  # 5 cm and 7 cm
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}(?:'[a-z]+)?(?![A-Za-z])")
_SHORT_WORDS = names(
    """is are was the of or and not no if to at by per in on an for so it all yes odd out any cm mm
    km kg ml mL dm hr hrs min sec deg mph ft lb lbs oz yd kJ kW Hz Pa GB MB mol USD pm am day
    days men cat cats dog dogs pen pens egg eggs car cars cup cups box bag bags bus ten one two six
    pct ways way pts"""
)
_QUANTITY = re.compile(  # 35 years old, 12 red balls
    r"((?:[^A-Za-z\\]*= ?)?[-+\0]*\d[\d.,]*%?(?: ?/ ?\d+)?) ((?:[A-Za-z-]+ )+[A-Za-z-]+\.?)",
    re.ASCII,
)
_ORDINAL = re.compile(  # 20th, 20^{th}
    r"(\A\d+(?=[a-z]{2}\Z)|\d(?=\^))(?:\^\{?(?:\\text\{)?)?(?:st|nd|rd|th)\}?\}?"
)
_HALF_DAY = re.compile(r"\b([ap])\. ?m\b\.?", re.IGNORECASE)
_A_TIME = re.compile(r"[\d.,]+ ?(?:min|sec)")  # 3 min, which is no minimum
_FULL_STOP = re.compile(r"(?<!\.)\.\Z")


@lru_cache(maxsize=65536)
def plain_text(text: str) -> str:
    r"""What an answer says, without what only styles it.

    Taken away: zero-width characters, dollars, markdown, macros that set type, size, colour, space
    or layout, tags, ``\left`` and ``\big``. Written in one way: signs of Unicode, upright letters,
    arguments without braces, exponents, names that mean the same; words stand in a ``\text{}``.
    Nothing is left of a text whose braces do not balance, or nest deeper than `MAX_DEPTH`.

    >>> plain_text(r"$\boldsymbol{\dfrac 34}$."), plain_text(r"\color{red} 2\mathrm{e}^2")
    ('\\frac{3}{4}', '2e^{2}')
    >>> plain_text("18 apples"), plain_text(r"\bigl[0,\,1\bigr)")
    ('18\\text{apples}', '[0,1)')
    """
    for run, digits, mark in _RUNS:
        text = run.sub(lambda m, d=digits, s=mark: s + "{" + m[0].translate(d) + "}", text)
    if _CIRCLED.fullmatch(text):  # statements 1 and 3, not 13
        text = ", ".join(re.findall("[\u2460-\u2473]", text))
    text = unicodedata.normalize("NFKC", text.translate(_SIGN_TABLE)).translate(_SIGN_TABLE)
    text = "".join(c for c in text if c.isprintable() or c.isspace())
    text = _BLANKS.sub(" ", text).strip()
    for typed, macro in _TYPED:
        text = typed.sub(macro, text)
    text = _HALF_DAY.sub(lambda m: f"{m[1].upper()}M", _BOLD.sub(r"\2", text))
    if match := _ALL_MARKED.fullmatch(text):
        text = match[2]
    tree = _parsed(text)  # None where braces do not balance
    if tree is None:
        return ""
    text = _BLANKS.sub(" ", _Writer().write(tree)).strip(" ,;")
    text = _ONE_CELL.sub(r"\1", text)  # a matrix of one cell is the cell
    text = _CASES.sub(lambda m: m[1].replace("\\\\", ", ").strip(" ,"), text)
    if match := _SYSTEM.fullmatch(text):
        text = (match[1] or match[2]).replace("&", "").replace("\\\\", ", ").strip(" ,")
    text = _RAISED_DEGREE.sub(r"^{\\circ}", _FULL_STOP.sub("", text).strip())
    text = _ORDINAL.sub(r"\1\\text{th}", text)
    if (match := _QUANTITY.fullmatch(text)) and _is_prose(match[2]):
        text = rf"{match[1]}\text{{{match[2]}}}"
    text = _outside_of_texts(
        text,
        lambda part: _WORD.sub(_as_text, _INDEX.sub(r"_{\1}", _POWER.sub(r"^{\1\2}", part))),
    )
    text = _TWO_NUMBERS.sub("; ", _BLANKS.sub(" ", _PERCENT.sub("%", _join_texts(text))))
    text = _outside_of_texts(text, lambda part: _NEEDLESS_BLANK.sub("", part)).strip()
    return text.replace("^{\\prime}", "'")


def _outside_of_texts(text: str, edit: Callable[[str], str]) -> str:
    parts = _TEXT.split(text)
    return "".join(part if place % 2 else edit(part) for place, part in enumerate(parts))


def _as_text(match: re.Match) -> str:
    """A bare word in a text; what may be a product of letters stays."""
    word = match[0]
    if word in {"min", "sec"} and _A_TIME.fullmatch(match.string):
        return rf"\text{{{word}}}"
    if word in FUNCTIONS or word == "pi":
        return f"\\{word} "
    return rf"\text{{{word}}}" if _is_word(word) else word


def _is_word(word: str) -> bool:
    is_known = word in _SHORT_WORDS or word.lower() in _SHORT_WORDS
    return len(word) > 3 or (len(word) == 3 and word.isupper()) or is_known


def _is_prose(text: str) -> bool:
    """Whether a word among these letters says that the others are words too."""
    words = text.rstrip(".").split()
    return any(map(_is_word, words)) and not FUNCTIONS.intersection(words)


def _join_texts(text: str) -> str:
    """Neighbouring texts as one, with one blank between their words."""
    joined = ""
    while joined != text:
        joined, text = (
            text,
            _TWO_TEXTS.sub(lambda m: rf"\text{{{m[1].strip()} {m[2].strip()}}}", text),
        )
    text = re.sub(r"\\text\{\s*([^{}]*?)\s*\}", r"\\text{\1}", text)
    text = _UNIT_AND.sub(r"\\text{\1}\\text{\2}", text)
    return _PER_UNIT.sub(r"\\text{/\1}", text)


def _parsed(text: str) -> list | None:
    """Tokens, each group a list of its own; None where braces do not balance."""
    stack: list[list] = [[]]
    depth = 0
    for token in _TOKEN.findall(text):
        if token in ("(", "["):
            depth += 1
        elif token in (")", "]"):
            depth -= 1
        if depth > MAX_DEPTH or len(stack) > MAX_DEPTH:
            return None
        if token == "{":
            stack.append([])
        elif token == "}":
            if len(stack) == 1:
                return None
            group = stack.pop()
            stack[-1].append(group)
        else:
            stack[-1].append(token)
    return stack[0] if len(stack) == 1 else None


class _Writer:
    """Writes tokens plainly; knows in which environment it is."""

    def __init__(self) -> None:
        self.environments: list[str] = []
        self.is_in_text = False

    def write(self, items: list) -> str:
        for place, item in enumerate(items):
            if item in ("\\over", "\\choose"):
                name = "frac" if item == "\\over" else "binom"
                top, bottom = self.write(items[:place]), self.write(items[place + 1 :])
                return rf"\{name}{{{top.strip()}}}{{{bottom.strip()}}}"
        written: list[str] = []
        rest = _Rest(items)
        while rest:
            item = rest.take()
            if isinstance(item, list):
                inner = self.write(item)
                # the braces of an exponent or index stay
                held = written and written[-1][-1:] in ("^", "_")
                written.append(f"{{{inner.strip()}}}" if held else inner)
            elif item.startswith("\\") and len(item) > 1:
                written.append(self._macro(item, rest))
            elif item in ("$", "\\"):  # only marks a formula
                continue
            elif item == "~":
                written.append(" ")
            elif item == "&" and self.environments[-1:] == ["layout"]:
                continue
            else:
                written.append(item)
        return "".join(written)

    def _macro(self, token: str, rest: _Rest) -> str:
        if token in _SPACES:
            return " "
        if token in _ESCAPED:
            return _ESCAPED[token]
        if token == "\\\\":
            rest.option()
            return "\\\\" if self.environments[-1:] == ["matrix"] else ", "
        name = token[1:]
        name = _RENAMED.get(name, name)
        if name in ("begin", "end"):
            return self._environment(name, rest)
        if name in _SWITCHES:
            if name in ("left", "right") and rest.peek() == ".":  # an invisible bracket
                rest.take()
            return " "
        if name in _DROPPED:
            rest.arguments(_DROPPED[name])
            return " "
        if name in _WRITTEN:
            return _WRITTEN[name]
        if name in _STYLES:
            rest.option()
            return self.write(rest.arguments(_STYLES[name])[-1:] or [])
        if name in _TEXTS:
            return self._text(name, rest)
        if name == "sqrt":
            degree = rest.option()
            index = f"[{self.write(degree).strip()}]" if degree and degree != ["2"] else ""
            return rf"\sqrt{index}{{{rest.digits() or self._argument(rest)}}}"
        if name in _ARGUMENTS:
            arguments = "".join(f"{{{self._argument(rest)}}}" for _ in range(_ARGUMENTS[name]))
            return rf"\{name}{arguments}"
        return f"\\{name} " if name.isalpha() else token

    def _argument(self, rest: _Rest) -> str:
        return self.write(rest.arguments(1)).strip()

    def _text(self, name: str, rest: _Rest) -> str:
        """A number, a constant or a variable that stands upright is what it would be without; a
        word stays a text."""
        outer, self.is_in_text = self.is_in_text, True
        inner = self.write(rest.arguments(1))
        self.is_in_text = outer
        if "\\" not in inner:  # a formula in a text keeps its braces
            inner = inner.replace("{", "").replace("}", "")
        if outer:  # the outermost text decides
            return inner
        word = inner.strip()
        is_unit = word in {"min", "sec"} and not rest.is_argument()  # and no minimum, no secant
        if (function := _RENAMED.get(word, word)) in FUNCTIONS and not is_unit:
            return f"\\{function} "
        if not word or "\\" in word or not any(c.isalpha() for c in word):
            return inner if "\\" in word or word[:1] not in ".,/:" else rf"\text{{{word}}}"
        if match := _NUMBER_FIRST.fullmatch(word):
            return rf"{match[1]}\text{{{match[2]}}}"
        is_unit = word in "msghL" or (inner != word and word not in "eixyznkt")
        if len(word) == 1 and not (is_unit and name != "textit"):
            return inner
        if word in _LETTERS:
            return f"\\{word} "
        return rf"\text{{{inner}}}"

    def _environment(self, edge: str, rest: _Rest) -> str:
        name = "".join(c for c in self.write(rest.arguments(1)) if c.isalpha() or c == "*")
        if edge == "end":
            kind = self.environments.pop() if self.environments else ""
            return "" if kind == "layout" else rf"\end{{{_matrix(name)}}}"
        if _LAYOUTS.fullmatch(name):
            self.environments.append("layout")
            return ""
        self.environments.append("matrix")
        if name == "array":  # its column types
            rest.arguments(1)
        return rf"\begin{{{_matrix(name)}}}"


def _matrix(name: str) -> str:
    return "pmatrix" if name in _MATRICES else name


class _Rest:
    """The tokens that are still to be written."""

    def __init__(self, items: list) -> None:
        self.items, self.place = items, 0

    def __bool__(self) -> bool:
        return self.place < len(self.items)

    def peek(self) -> str | list | None:
        return self.items[self.place] if self else None

    def take(self) -> str | list:
        self.place += 1
        return self.items[self.place - 1]

    def arguments(self, count: int) -> list:
        """The next arguments, as TeX takes them: groups, macros or single characters."""
        found = []
        while len(found) < count and self:
            item = self.take()
            if item != " ":
                found.append(item)
                if isinstance(item, str) and item[1:] in _WITH_ARGUMENTS:
                    # TeX would ask for braces here; people leave them out: `\frac\sqrt{3}2`.
                    count_of_its_own = 2 if item == "\\frac" else 1
                    found[-1] = [item, *(self.take() for _ in range(count_of_its_own) if self)]
        return found

    def digits(self) -> str:
        """The digits that come next: TeX takes the first one alone, and nobody means that."""
        start = self.place
        while self and isinstance(self.peek(), str) and self.peek().isdigit():
            self.place += 1
        return "".join(self.items[start : self.place])

    def is_argument(self) -> bool:
        """Whether what comes next is what a function is of, or its index."""
        for item in self.items[self.place :]:
            if item != " " and item not in _SPACES:
                return isinstance(item, list) or bool(re.match(r"\\?[A-Za-z0-9(\[_|^]", item))
        return False

    def option(self) -> list:
        """What stands in square brackets here, [] for nothing."""
        start = self.place
        while self.peek() == " ":
            self.place += 1
        if self.peek() == "[" and "]" in self.items[self.place :]:
            start, end = self.place + 1, self.items.index("]", self.place)
            self.place = end + 1
            return self.items[start:end]
        self.place = start
        return []
