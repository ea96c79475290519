"""Written numbers, read exactly, and the units that may stand beside them."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from klearlib.verify.plain import aliases, names

MAX_RELATIVE_ERROR = Fraction(1, 10**6)  # of a decimal against what it rounds
MAX_EXPONENT = 5000  # of ten

_DIGITS = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|[1-9]\d{0,2}(?: \d{3})+(?!\d)|\d+)"
_DECIMAL = rf"(?:{_DIGITS}(?:\.\d*)?|\.\d+)"  # 5. and .5 are numbers
_NUMBER = re.compile(rf"(?P<sign>[+-]?) ?(?P<digits>{_DECIMAL})", re.ASCII)
_FRACTION = re.compile(
    rf"(?P<sign>[+-]?) ?(?:(?P<whole>\d+)(?: (?=\d+/\d)| ?(?=\\frac)))?"
    rf"(?:(?P<top>[+-]?{_DIGITS})/(?P<bottom>[+-]?{_DIGITS})"
    rf"|\\frac\{{(?P<up>[+-]?{_DIGITS})\}}\{{(?P<down>[+-]?{_DIGITS})\}})",
    re.ASCII,
)
_SCIENTIFIC = re.compile(
    rf"(?P<sign>[+-]?) ?(?:(?:(?P<digits>{_DECIMAL})(?:\\times|\\cdot|\*|x) ?)?"
    r"(?P<base>10\^\{(?P<power>[+-]?\d+)\})"
    rf"|(?P<mantissa>{_DECIMAL})[eE](?P<exponent>[+-]?\d+))",
    re.ASCII,
)
_REPEATING = re.compile(  # 0.\overline{3}, 0.\dot{3}, 0.(3), 0.333...
    r"(?P<sign>[+-]?)(?P<whole>\d*)\.(?P<once>\d*?)"
    r"(?:\\overline\{(?P<again>\d+)\}|(?P<dotted>(?:\\dot\{\d\}\d*)?\\dot\{\d\})"
    r"|\((?P<held>\d+)\)|(?P<seen>\d+?)(?P=seen)+(?:\.{3}|\\ldots ?))",
    re.ASCII,
)
_HELD = re.compile(r"\(([^()]*)\)")  # (5), -(5)
_SIGN_WORD = re.compile(r"\\text\{(?:minus|negative) ?(?P<digits>[\d.,]*)\}", re.IGNORECASE)

# Units

_TIMES = {
    **{"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12},
    **{"dozen": 12, "lakh": 10**5, "crore": 10**7, "bn": 10**9},
    **{"\u5341": 10, "\u767e": 100, "\u5343": 1000, "\u4e07": 10**4, "\u4ebf": 10**8},
}
"""Words that make another number of the one before them."""

_NO_UNIT = re.compile(
    r"(?:\w*illion(?:th)?|\w*(?:teen|ie|hundred|thousand)th|half|halve|third|fourth|fifth|sixth"
    r"|seventh|eighth|ninth|tenth|eleventh|twelfth|k|m|gross|score|grand|squared|cubed|root"
    r"|factorial|choose|pi|e|i|x|power|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen"
    r"|(?:\w+ty|ten|hundred)-(?:second|third|\w+th)"
    r"|(?:twen|thir|for|fif|six|seven|eigh|nine)ty)s?",
    re.IGNORECASE | re.ASCII,
)
"""What no unit begins with, unless a noun follows ("third graders")."""
_NO_NOUN = re.compile(r"[a-z]|\w*ed")  # before which a noun changes nothing ("squared meters")
_NEVER_A_UNIT = names(
    """or and not no to by from than plus minus times divided multiplied mod modulo base if is are
    was were when where otherwise unless else out but because since which that for either between
    with wrong all both only some n x y z a an the squared cubed root one two three four five six
    seven eight nine ten about approximately am pm tens ones nines googol doubled tripled inverse
    reciprocal fewer below above too many negative sure maybe perhaps alternatively possibly
    repeating recurring extraneous rejected invalid incorrect false impossible excluded upwards
    onwards nope ppm mil mille mln"""
)
"""Words that make no plain quantity of a number, wherever they stand behind it."""
_POWERS = {"per", "square", "sq", "cubic", "cu"}
_MAY_BE_INSIDE = {"by", "from", "to", "for", "with", "the", "a", "an", "times"}

_CURRENCIES = "\0\u20ac\u00a3\u00a5\u20b9\u00a2"  # \0 stands for an escaped dollar
_CURRENCY = re.compile(
    rf"(?P<sign>[+-]?) ?(?:[{_CURRENCIES}]|Rs\.? ?|\\text\{{(?:Rs\.?|USD|US)\}}) ?"
)
_SYMBOLS = names(
    """cm mm km dm m ft in yd mi nm kg mg g lb lbs oz t s ms rad h hr hrs min sec l L ml mL mph kmh
    fps kJ J kW W V A N Pa kPa Hz mol C F USD"""
)
_SAME = aliases(
    """dollar \0 usd buck; euro \u20ac; pound \u00a3 lb lbs; cent \u00a2; yuan \u00a5 \u5143;
    \u89d2; \u5206; second s sec \u79d2; minute min \u5206\u949f; hour h hr \u5c0f\u65f6 \u65f6;
    day \u5929; week \u5468 \u661f\u671f; month \u6708; year \u5e74; decade;
    century centurie; millisecond ms msec; degree ^{\\circ}; radian rad; revolution;
    celsius celsiu C ^{\\circ}C; fahrenheit F ^{\\circ}F;
    meter m metre \u7c73; centimeter cm centimetre \u5398\u7c73; \u5206\u7c73 dm decimeter;
    millimeter mm millimetre \u6beb\u7c73; nanometer nm nanometre;
    kilometer km kilometre \u5343\u7c73 \u516c\u91cc;
    inch in inche; foot ft feet; yard yd; mile mi;
    gram g \u514b; milligram mg; kilogram kg \u5343\u514b \u516c\u65a4; ounce oz;
    ton t tonne \u5428;
    liter l litre \u5347; milliliter ml \u6beb\u5347; kilowatt kW \u5343\u74e6; watt W;
    quart; gallon; joule J; kilojoule kJ; newton N; kilonewton kN; pascal Pa; kilopascal kPa;
    mile/hour mph; kilometer/hour kmh kph; foot/second fps"""
)
"""One name for each unit that can be told from others: 5 hours are not 5 minutes."""
_SIDES = aliases(
    """profit gain; loss losse defeat; win; north; south; east; west; up upward; down downward;
    clockwise; counterclockwise anticlockwise"""
)
"""Words beside a unit that say which way: 5 miles north are not 5 miles south."""

_HAN = r"[\u4e00-\u9fff]{1,6}(?:/[\u4e00-\u9fff]{1,2})?"
# of a run of them: more than, or, a half, a part of, not, without
_NO_HAN_UNIT = re.compile(
    "^[\u7684\u6210\u591a\u51e0]|[\u4e8e\u5230\u6216\u81f3\u975e\u4e4b\u6298\u4ee5\u534a\u9664"
    "\u820d\u5417\u9519\u4f59\u767e\u5341\u4e07\u4ebf]|\u500d(?!\\Z)|\u4e0d(?!\u540c)|\u6b21?\u65b9(?![\u7c73\u5206"
    "\u5398\u6beb\u5343\u516c\u6cd5\u6848\u5f0f])|\u5343(?![\u7c73\u514b\u74e6\u5361])"
)
_HAN_ASIDE = re.compile(  # 42(\u5143), 42(apples)
    rf"(?<=[\d}}%])\((\\text\{{[^{{}}\d]*\}}|{_HAN})\)\Z"
)

_POWER_OF = r"(?:\^\{?-?\d\}?)?"
_SYMBOL = (
    r"(?:\\mu ?\\text\{m\}|\\Omega|"
    + "|".join(sorted(map(re.escape, _SYMBOLS), key=len, reverse=True))
    + ")"
)
_BEHIND = r"(?:(?<=[\d})\]!])|(?<=\\pi))"
_CIRCLE = r"(?:\\text\{\})?\^\{\\circ\}"
_DEGREE = rf"{_CIRCLE} ?(?:[CF](?![A-Za-z]))?"
_DEGREES = re.compile(rf"{_CIRCLE}\Z")
_ONE_UNIT = rf"(?:\\text\{{(?P<words>[^{{}}]*)\}}|(?P<symbol>{_SYMBOL})(?![A-Za-z]))"
_UNIT = re.compile(
    rf"(?:{_DEGREE}|{_BEHIND} ?{_ONE_UNIT}{_POWER_OF}"
    rf"(?P<more>(?:(?:/|\\cdot ?| ?)(?:\\text\{{[^{{}}]*\}}|{_SYMBOL}(?![A-Za-z])){_POWER_OF})*)"
    rf"|{_BEHIND} ?\\frac\{{\\text\{{(?P<above>[^{{}}]*)\}}\}}\{{\\text\{{[^{{}}]*\}}{_POWER_OF}\}}"
    rf"|{_BEHIND} ?(?P<noun>[A-Za-z]{{3}})"
    rf"|{_BEHIND} ?(?P<han>{_HAN})|[{_CURRENCIES}])\Z"
)
_UNIT_WORD = re.compile(r"\(?[A-Za-z][\w'.^-]*\)?[.,;]?|\d+(?:st|nd|rd|th)")
_NEEDED = re.compile(r" (?:is|are|were) (?:needed|required|left|remaining|possible)\Z")
_ASIDE = re.compile(r"\([^()]*\)")


_TRIGONOMETRIC = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc) ?")


class Quantity(NamedTuple):
    """A text without its unit. `unit` is the one name of a unit that is known (`_SAME`), with what
    it is per ("mile/hour", "/hour" for anything per hour), "" for none or another; `times` is what
    a word like "million" multiplies by, `side` one of `_SIDES`."""

    text: str
    unit: str = ""
    times: int = 1
    side: str = ""


def without_unit(text: str) -> Quantity:
    r"""A plain text without the unit or currency beside it.

    A word that makes another number of it (half, squared, or more, out of) is no unit: the text
    stays as it is, and is no number.

    >>> without_unit(r"18\text{apples}").text, without_unit(r"5\text{or more}").text
    ('18', '5\\text{or more}')
    >>> without_unit(r"3\text{million dollars}")
    Quantity(text='3', unit='dollar', times=1000000, side='')
    """
    match = _CURRENCY.match(text)
    currency = ""
    if match and match.end() < len(text):
        currency = _SAME.get(match[0].strip("+- "), "")  # $5 and 5 dollars have one unit
        text = match["sign"] + text[match.end() :]
    text = _HAN_ASIDE.sub(r"\1", text)
    match = _UNIT.search(text)
    # sin 30 degrees is a number without its unit, and not 30
    if match is None or match.start() == 0 or _TRIGONOMETRIC.search(text):
        return Quantity(text, currency)
    body = text[: match.start()].rstrip()
    words = match["words"] or match["above"] or match["symbol"] or match["noun"] or match["han"]
    if words is None:
        sign = re.sub(r"\\text\{\}| ", "", match[0])
        return Quantity(body, currency or _SAME.get(sign, ""))
    read = _unit_words(words, is_text=bool(match["words"] or match["above"]))
    unit_text = text[len(body) :]
    # "18 m" is a length and "18m" a product, "18 men" are people and "18men" is a product.
    is_product = len(match["noun"] or match["symbol"] or "long unit") in (1, 3)
    is_product |= match["symbol"] in {"ms", "mg", "nm"}
    is_apart = unit_text[0] == " " and not body.endswith("\\pi")  # the blank of the macro
    if read is None or (is_product and not is_apart and not match["more"]):
        return Quantity(text, currency)
    unit, times = read
    if degrees := _DEGREES.search(body):  # degrees Celsius, degrees per minute
        body, unit = body[: degrees.start()], "degree" + unit if unit[:1] == "/" else unit
    if match["above"] or (match["more"] and match["more"][0] != "/"):  # N m has no name to compare
        unit = ""
    elif match["more"]:
        unit = _ratio(unit, _name_of(re.sub(r"\\text|\^\{?-?\d\}?|[/{}]", "", match["more"])))
    elif unit_text.endswith("^{-1}"):
        unit = f"/{unit}" if unit else ""
    more = re.findall(r"[A-Za-z]+", (match["more"] or "").replace("\\text", ""))
    if any(word.lower() in _NEVER_A_UNIT - _MAY_BE_INSIDE for word in more):
        return Quantity(text, currency)
    unit = currency + unit if unit[:1] == "/" else currency or unit
    sides = filter(None, map(_side, re.findall("[A-Za-z]+", words)))
    return Quantity(body, unit, times, next(sides, ""))


def _unit_words(words: str, *, is_text: bool) -> tuple[str, int] | None:
    """The known unit and the factor that these words are, None where they are no unit."""
    for aside in _ASIDE.findall(words):
        inside = _unit_words(aside[1:-1], is_text=is_text)
        if inside is None or re.search(r"\d", aside) or any(word in aside for word in _TIMES):
            return None
    words = _ASIDE.sub("", words).strip()  # 5 meters (16 feet)
    if words.startswith("\\"):
        return "", 1
    if re.match(r"[\u4e00-\u9fff]", words):
        return _han_unit(words)
    words = _NEEDED.sub("", words)
    listed = [word for word in re.split(r"[\s/\u00b7]+", words) if word]
    if len(listed) == 2 and listed[0] in {"a", "an"} and _name_of(listed[1]):
        listed[0] = "per"  # $12 an hour
    times = 1
    # two hundred thousand
    while listed and (name := listed[0].lower().removesuffix("s")) in _TIMES:
        times *= _TIMES[name]
        listed = listed[1:]
    listed = [word for word in listed if word not in {"(s)", "^2", "^3"}]
    if not all(map(_UNIT_WORD.fullmatch, listed)):
        return None
    bare = [word.strip("().,;") for word in listed]
    bare = [word.lower() if len(word) > 1 else word for word in bare]
    if any(re.fullmatch(r"e-?\d+", word) for word in bare):  # 1e5, not a unit e5
        return None
    if any(word == "per" and behind in _TIMES for word, behind in pairwise(bare)):
        return None
    if bare and bare[0] in _NEVER_A_UNIT - {"times"}:
        return None
    if any(word in _NEVER_A_UNIT - _MAY_BE_INSIDE for word in bare[1:]):
        return None
    # so many words are a sentence
    if len(bare) > 6 or (bare and bare[0] == "times" and len(bare) > 1):
        return None
    is_other = bare and listed[0] not in _SYMBOLS and _NO_UNIT.fullmatch(bare[0])
    if is_other and (len(bare) == 1 or bare[1] in {"of", "in"} or _NO_NOUN.fullmatch(bare[0])):
        return None
    # powers of units are not compared
    parts = [word for word in listed if word not in _POWERS and not _side(word)]
    if len(parts) == 2 and parts[0] in {"degree", "degrees"} and "per" not in listed:
        parts = parts[1:]  # degrees Celsius
    is_per = "per" in listed or "/" in words
    if len(parts) == 1:
        return _ratio("", _name_of(parts[0])) if is_per else _name_of(parts[0]), times
    return _ratio(*map(_name_of, parts)) if len(parts) == 2 and is_per else "", times


def _han_unit(words: str) -> tuple[str, int] | None:
    """`_unit_words` of a run of Han."""
    times = 1
    while words[:1] in _TIMES and not re.match("\u5343[\u7c73\u514b\u74e6\u5361]", words):
        times *= _TIMES[words[0]]
        words = words[1:]
    if _NO_HAN_UNIT.search(words):
        return None
    above, _, below = (
        _SAME.get(re.sub("^(?:\u4e2a|[\u5e73\u7acb]\u65b9)", "", word), "")
        for word in re.sub("/|\u6bcf", "//", words, count=1).partition("//")
    )
    return _ratio(above, below) if re.search("/|\u6bcf", words) else above, times


def _side(word: str) -> str:
    return _SIDES.get(word.lower(), _SIDES.get(word.lower().removesuffix("s"), ""))


def _name_of(word: str) -> str:
    """The one name of a unit, "" where it has none."""
    plain = re.sub(r"\^.*", "", word.strip().strip("().,;"))
    return _SAME.get(plain, _SAME.get(plain.lower().removesuffix("s"), ""))


def _ratio(above: str, below: str) -> str:
    """The name of one unit by another, as km/h; /h where the first has none, "" where the other."""
    return f"{above}/{below}" if below else ""


class Number(NamedTuple):
    """A number that stands written. `value` is exact, a percentage counted as hundredths.

    kind: ``integer``, ``decimal``, ``fraction``, ``mixed`` or ``scientific``; `is_percent`: with a
    sign; `is_reduced`: False for a fraction that is an integer and was not written as one.
    """

    value: Fraction
    kind: str
    is_percent: bool = False
    is_reduced: bool = True


def read_number(text: str) -> Number | None:
    r"""The number that a plain text (`plain.plain_text`) is, None where it is none.

    Integers, thousands by comma or by blank, decimals, repeating decimals, percentages, fractions,
    mixed numbers and scientific notation; nothing that has to be worked out.

    >>> read_number("-1,234.50").value, read_number(r"3\frac{1}{2}").value
    (Fraction(-2469, 2), Fraction(7, 2))
    >>> read_number("6.02\\times 10^{3}").value, read_number("7+37")
    (Fraction(6020, 1), None)
    """
    if len(text) > 2000:  # int() of so many digits would take the time of thousands of answers
        return None
    if match := _SIGN_WORD.match(text):
        text = "-" + match["digits"] + text[match.end() :].lstrip()
    is_percent = text.endswith("%")
    text = re.sub(r" ?%\Z", "", text).removeprefix("=")
    while match := _HELD.fullmatch(text.lstrip("+-")):
        signs = text[: len(text) - len(match[0])]
        text = signs + match[1]
        # -(-5) has to be worked out
        if len(signs) + len(match[1]) - len(match[1].lstrip("+-")) > 1:
            return None
    found = _read(text)
    if found is None or not is_percent:
        return found
    return found._replace(value=found.value / 100, is_percent=True)


def _read(text: str) -> Number | None:
    if match := _NUMBER.fullmatch(text):
        digits = re.sub("[, ]", "", match["digits"])
        kind = "decimal" if "." in digits.rstrip(".") else "integer"
        return Number(Fraction(match["sign"] + (digits.rstrip(".") or "0")), kind)
    if match := _FRACTION.fullmatch(text):
        top, bottom = match["top"] or match["up"], match["bottom"] or match["down"]
        top, bottom = (int(re.sub("[, ]", "", part)) for part in (top, bottom))
        if bottom == 0:
            return None
        value, kind = Fraction(top, bottom), "fraction"
        is_reduced = value.denominator > 1 or abs(bottom) == 1
        if match["whole"]:
            if value < 0 or value >= 1:  # 1 7/2 is no mixed number
                return None
            value, kind = int(match["whole"]) + value, "mixed"
        return Number(-value if match["sign"] == "-" else value, kind, is_reduced=is_reduced)
    if match := _SCIENTIFIC.fullmatch(text):
        power = int(match["power"] or match["exponent"])
        if abs(power) > MAX_EXPONENT:  # a Fraction of 10^{9^9} would fill the memory
            return None
        digits = re.sub("[, ]", "", match["digits"] or match["mantissa"] or "1")
        value = Fraction(digits.rstrip(".")) * Fraction(10) ** power
        return Number(-value if match["sign"] == "-" else value, "scientific")
    if match := _REPEATING.fullmatch(text):
        again = match["again"] or match["dotted"] or match["held"] or match["seen"]
        again = re.sub(r"\D", "", again)
        shift = 10 ** len(match["once"])
        value = Fraction(int(match["whole"] + match["once"] or "0"), shift)
        value += Fraction(int(again), shift * (10 ** len(again) - 1))  # a geometric series
        return Number(-value if match["sign"] == "-" else value, "fraction")
    return None


def same_number(gold: Number, answer: Number) -> bool:
    """Whether two written numbers are the same answer.

    Equal values are. Where one is a decimal (or in scientific notation) and neither is written as
    an integer they may differ by `MAX_RELATIVE_ERROR`, so 0.333333 answers 1/3. The sign of a
    percentage may be left out: 35% and 35 are one answer, and so are 12.5% and 12.5, but not 0.5%
    and 0.5.

    >>> same_number(read_number("1/3"), read_number("0.333333"))
    True
    """
    if _same_value(gold, answer):
        return True
    if gold.is_percent != answer.is_percent:
        gold, answer = (
            each._replace(value=100 * each.value) if each.is_percent else each
            for each in (gold, answer)
        )
        if all(each.kind == "integer" or abs(each.value) >= 1 for each in (gold, answer)):
            return _same_value(gold, answer)
    return False


def _same_value(gold: Number, answer: Number) -> bool:
    a, b = gold.value, answer.value
    if a == b:
        return True
    kinds = {gold.kind, answer.kind}
    if not kinds & {"decimal", "scientific"} or "integer" in kinds:
        return False
    if any(n.kind == "decimal" and n.value.denominator == 1 for n in (gold, answer)):
        return False  # 1.0 rounds nothing
    return abs(a - b) <= MAX_RELATIVE_ERROR * max(abs(a), abs(b))
