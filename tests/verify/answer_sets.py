r"""The sets by which the judge of answers is held to its laws; `test_answer_laws` judges them.

`GOLDS` are golds of real kinds, no two of them the same answer. `CHANGES` are ways to write a
response whose answer is that gold: what a change does is style and no mathematics, so a gold is
right under each of them (`style_pairs`), and wrong for every other gold (`stranger_pairs`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

GOLDS = {
    "integer": [
        *("42", "0", "7", "-7", "73", "204", "1234", "100000", "-2500", "540", "9"),
        *("25", "999999", "2025"),
    ],
    "decimal": ["0.5", "-0.25", "3.14", "12.75", "0.001", "99.9", "1000.5"],
    "fraction": [
        *(r"\frac{3}{4}", r"-\frac{7}{12}", "1/3", r"\frac{22}{7}", r"\frac{1}{1024}", "-5/6"),
        r"\frac{100}{3}",
    ],
    "mixed": [r"3\frac{1}{2}", "2 2/3"],
    "scientific": [r"6.02\times10^{23}", r"1.6\times 10^{-19}", r"2.5\cdot 10^{6}"],
    "percent": [r"35\%", "12.5%"],
    "unit": ["18 dollars", r"60\text{ cm}", r"\$24", r"30^\circ", "45 m/s", r"13\text{ hours}"],
    "surd": [
        *(r"\sqrt{2}", r"2\sqrt{3}", r"\frac{\sqrt{5}}{2}", r"3+2\sqrt{2}", r"\sqrt[3]{7}"),
        *(r"\frac{1+\sqrt{17}}{2}", r"5-\sqrt{6}", r"-\sqrt{11}", r"\sqrt{10}+\sqrt{3}"),
    ],
    "constant": [
        *(r"\pi", r"12\pi", r"\frac{\pi}{6}", r"4\pi-8", "e", "e^2", r"\ln 2", r"\frac{e-1}{2}"),
        r"\log_2 3",
    ],
    "closed": ["2^{100}", "10!", r"\binom{12}{4}", r"2^{25}\cdot 26!", r"\frac{3^{50}-1}{2}"],
    "complex": ["3+4i", "-2i", r"\frac{1-i}{3}", "i"],
    "polynomial": [
        *("x^2+3x+2", r"\frac{x+1}{x-2}", "2n-1", "a^2b", r"\sin x", r"\frac{n(n+1)}{2}"),
        "x^3-x+4",
    ],
    "equation": ["y=2x+1", "x^2+y^2=25", "f(x)=3x^2"],
    "interval": [
        *("[0,1)", r"(-\infty,2]\cup[3,\infty)", r"(2,\infty)", r"[-1,4]", r"(-3,6]"),
        r"(-\infty,-8)",
    ],
    "relation": [r"x\ge 17", "0<x<6"],
    "tuple": ["(3,5)", "(1,-2,4)", r"(\frac{1}{2},\sqrt{7})", "(0,0)", "(5,3)"],
    "set": [r"\{1,2,3\}", r"\{-4,4\}", r"\{\sqrt{3},6\}"],
    "list": ["2, 11", r"1+\sqrt{5}, 1-\sqrt{5}", "-1, 8, 15"],
    "matrix": [r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix}5\\-6\end{pmatrix}"],
    "congruence": [r"n\equiv1\pmod{3}"],
    "symbol": [r"\infty", r"\mathbb{R}", r"\emptyset"],
    "letter": ["A", "C", "E"],
    "word": [r"\text{Tuesday}", r"\text{even}", "yes", r"\text{No}", r"\text{HTHT}", "isosceles"],
}
KIND = {gold: kind for kind, golds in GOLDS.items() for gold in golds}

NUMBERS = {"integer", "decimal", "fraction", "mixed", "scientific", "percent"}
PLAIN_DIGITS = {"integer", "decimal"}
WORDS = {"word", "letter"}
HELD = {"interval", "tuple", "set", "list", "relation", "equation", "congruence"}


def _in_math(gold: str) -> str:
    """As it stands in a formula: a word stands in a text there, a price has its sign escaped."""
    return rf"\text{{{gold}}}" if KIND[gold] in WORDS and "\\" not in gold else gold


def _style(form: str, *, but: frozenset | set = frozenset()) -> Callable[[str], str | None]:
    """G in `form` stands for the gold; None for kinds of gold that cannot be written so."""
    return lambda gold: None if KIND[gold] in but else form.replace("G", _in_math(gold))


def _edit(pattern: str, replacement: str) -> Callable[[str], str | None]:
    """In a box, with each match written in another way; None where there is none."""

    def change(gold: str) -> str | None:
        changed = re.sub(pattern, replacement, gold)
        return None if changed == gold else rf"\boxed{{{changed}}}"

    return change


def _digits(zero: str) -> Callable[[str], str | None]:
    def change(gold: str) -> str | None:
        if KIND[gold] not in PLAIN_DIGITS:
            return None
        return rf"\boxed{{{''.join(chr(ord(zero) + int(c)) if c.isdigit() else c for c in gold)}}}"

    return change


def _thousands(mark: str) -> Callable[[str], str | None]:
    def change(gold: str) -> str | None:
        if KIND[gold] != "integer" or abs(int(gold)) < 1000:
            return None
        return rf"\boxed{{{int(gold):,}}}".replace(",", mark)

    return change


CHANGES: dict[str, Callable[[str], str | None]] = {
    "box": _style(r"\boxed{G}"),
    "box in a formula": _style(r"Hence $$\boxed{G}.$$"),
    "box in a display": _style("So we get\n\\[\n\\boxed{ G }\n\\]\nas claimed."),
    "dollars in the box": _style(r"\boxed{$G$}"),
    "brackets in the box": _style(r"\boxed{\(G\)}"),
    "bold": _style(r"\boxed{\mathbf{G}}", but={"matrix"}),
    "bold symbol": _style(r"\boxed{\boldsymbol{G}}"),
    "bold text": _style(r"\boxed{\textbf{G}}", but={*GOLDS} - PLAIN_DIGITS - WORDS),
    "old bold": _style(r"\boxed{{\bf G}}", but={"matrix"}),
    "colour": _style(r"\boxed{\color{red}{G}}"),
    "colour switch": _style(r"\boxed{\color{blue}G}"),
    "text colour": _style(r"\boxed{\textcolor{blue}{G}}"),
    "colour box": _style(r"\boxed{\colorbox{yellow}{$G$}}"),
    "underlined": _style(r"\boxed{\underline{G}}"),
    "displaystyle": _style(r"\boxed{\displaystyle G}"),
    "large": _style(r"\boxed{\Large G}"),
    "aligned": _style(r"\boxed{\begin{aligned}G\end{aligned}}"),
    "align*": _style("\\boxed{\\begin{align*} & G \\end{align*}}"),
    "tag": _style(r"\boxed{G \tag{1}}"),
    "markdown": _style(r"\boxed{**G**}", but={"matrix"}),
    "markdown outside": _style(r"**Final Answer: \boxed{G}**"),
    "zero width": _style("\\boxed{\u200bG\ufeff}"),
    "no-break space": _style("\\boxed{\u00a0G\u202f}"),
    "thin spaces": _style(r"\boxed{\,G\;\!}"),
    "quad": _style(r"\boxed{\quad G\qquad}"),
    "tilde": _style(r"\boxed{~G~}"),
    "braces": _style(r"\boxed{{G}}"),
    "two boxes": _style(r"\boxed{\boxed{G}}"),
    "full stop": _style(r"\boxed{G.}"),
    "new lines": _style("\\boxed{\nG\n}"),
    "left side": _style(r"\boxed{x=G}", but=HELD | WORDS | {"symbol"}),
    "left side with a command": _style(
        r"\boxed{S_{\max} = G}", but=HELD | WORDS | {"symbol", "polynomial"}
    ),
    "words in the box": _style(r"\boxed{\text{The answer is } G}"),
    "spaced": _edit(r"(?<=[\d}xn])([-+=])(?=[\d\\x])", r" \1 "),
    "left and right": _edit(r"(?<!f)([(\[])([^()\[\]]*,[^()\[\]]*)([)\]])", r"\\left\1\2\\right\3"),
    "big": _edit(r"(?<!f)([(\[])([^()\[\]]*,[^()\[\]]*)([)\]])", r"\\bigl\1\2\\bigr\3"),
    "Bigg": _edit(r"(?<!f)([(\[])([^()\[\]]*,[^()\[\]]*)([)\]])", r"\\Bigg\1\2\\Bigg\3"),
    "dfrac": _edit(r"\\frac", r"\\dfrac"),
    "tfrac": _edit(r"\\frac", r"\\tfrac"),
    "no braces": _edit(r"\\frac\{(\w)\}\{(\w)\}", r"\\frac \1\2"),
    "root without braces": _edit(r"\\sqrt\{(\d)\}", r"\\sqrt\1"),
    "upright e": _edit(r"(?<![a-z\\])e(?![a-z])", r"\\mathrm{e}"),
    "upright i": _edit(r"(?<![a-z\\])i(?![a-z])", r"\\mathrm{i}"),
    "blank before i": _edit(r"(?<=\d)i\b", r" i"),
    "operator name": _edit(r"\\(sin|ln)", r"\\operatorname{\1}"),
    "minus sign": _edit(r"-(?=\d)", "\u2212"),
    "full width": _digits("\uff10"),
    "bold digits": _digits("\U0001d7ce"),
    "comma": _thousands(","),
    "comma in braces": _thousands("{,}"),
    "thin space": _thousands(r"\,"),
    "blank": _thousands(" "),
    "plus": lambda gold: rf"\boxed{{+{gold}}}" if gold.isdigit() and gold != "0" else None,
    "number in a text": _style(r"\boxed{\text{G}}", but={*GOLDS} - PLAIN_DIGITS),
    "upright number": _style(r"\boxed{\mathrm{G}}", but={*GOLDS} - PLAIN_DIGITS),
    "unit": _style(r"\boxed{G \text{ units}}", but={*GOLDS} - NUMBERS | {"percent"}),
    "currency": _style(r"\boxed{\$G}", but={*GOLDS} - PLAIN_DIGITS),
    "answer is": _style(r"The final answer is $G$."),
    "answer is, in brackets": _style(r"Therefore, the answer is \(G\)."),
    "answer colon": _style(r"**Answer:** $G$"),
    "bold answer": _style(r"Final Answer: **$G$**"),
    "answer tag": _style(r"<answer>$G$</answer>"),
    "answer tag alone": lambda gold: f"<answer> {gold} </answer>",
    "hashes": _style(r"#### $G$"),
    "Chinese": _style("\u6240\u4ee5\u7b54\u6848\u662f $G$\u3002"),
    "answer, no formula": _style("The answer is: G", but={*GOLDS} - PLAIN_DIGITS),
}


def style_pairs() -> Iterator[tuple[str, str, str]]:
    """Each gold under each change that fits it: the change, the gold, the response."""
    for name, change in CHANGES.items():
        for gold in KIND:
            response = change(gold)
            if response is not None:
                yield name, gold, response


def stranger_pairs() -> Iterator[tuple[str, str, str]]:
    """Each gold with the response of every other gold under each change."""
    for name, answer, response in style_pairs():
        for gold in KIND:
            if gold != answer:
                yield name, gold, response
