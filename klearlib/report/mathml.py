"""LaTeX to MathML, which browsers draw without a script, a font or the network.

latex2mathml is strict about little and silent about much: an unknown command or a lost argument
comes out as text, not as an error. What it is known to get wrong is mended before and after it, and
what it did not understand is an error here.
"""

from __future__ import annotations

import re
from html import escape
from xml.etree import ElementTree

from klearlib.errors import KlearError

_NAMESPACE = "{http://www.w3.org/1998/Math/MathML}"
_ARITY = {"mfrac": 2, "msub": 2, "msup": 2, "mover": 2, "munder": 2, "mroot": 2} | {
    "msubsup": 3,
    "munderover": 3,
}
TAGS = """
    math mfrac mi mmultiscripts mn mo mover mpadded mphantom mprescripts mroot mrow ms mspace msqrt
    mstyle msub msubsup msup mtable mtd mtext mtr munder munderover semantics
"""
_ALPHABETS = re.compile(r"\\(mathbb|mathcal|mathbf|mathrm|mathscr|mathfrak)\s+([A-Za-z0-9])")
_RELATIONS = {"~": "∼"}
_WITH_LIMITS = {"msub": "munder", "msup": "mover", "msubsup": "munderover"}


def to_mathml(latex: str, *, display: bool = True) -> str:
    """One formula as a <math> element, for use inside HTML5.

    latex: without dollar signs. Besides what latex2mathml knows, `aligned` and unbraced alphabets
    (``\\mathbb E``) work. display: True for a formula on its own line, False inside a sentence.
    Raises KlearError for a formula that does not parse or holds a command that is not known.

    >>> to_mathml("x", display=False)
    '<math display="inline" alttext="x"><mrow><mi>x</mi></mrow></math>'
    """
    from latex2mathml.converter import convert

    prepared = _ALPHABETS.sub(r"\\\1{\2}", latex.strip())
    prepared = re.sub(r"\\begin\{(aligned|align\*?|split)\}", r"\\begin{array}{rl}", prepared)
    prepared = re.sub(r"\\end\{(aligned|align\*?|split)\}", r"\\end{array}", prepared)
    prepared = re.sub(r"\\(tag|label)\{[^}]*\}|\\nonumber", "", prepared)
    # latex2mathml writes texts into its XML as they are.
    prepared = re.sub(r"\\text\{[^{}]*\}", lambda found: escape(found[0], quote=False), prepared)
    braces = re.sub(r"\\\\|\\[{}]", "", prepared)
    if braces.count("{") != braces.count("}"):
        raise KlearError(f"the formula {latex!r} has a brace without its partner")
    try:
        tree = ElementTree.fromstring(convert(prepared, display="block" if display else "inline"))
    except Exception as error:  # latex2mathml raises errors of its own and IndexError alike
        name = type(error).__name__
        raise KlearError(
            f"the formula {latex!r} cannot be drawn ({name}): check its LaTeX"
        ) from error
    for node in tree.iter():
        node.tag = node.tag.removeprefix(_NAMESPACE)
        _check(node, latex)
        _mend(node)
    tree.set("alttext", latex.strip())
    return ElementTree.tostring(tree, encoding="unicode", short_empty_elements=False)


def _check(node: ElementTree.Element, latex: str) -> None:
    if node.tag not in TAGS.split() or {"href", "style", "class", "id"} & {*node.attrib}:
        raise KlearError(f"the formula {latex!r} holds more than a formula: write mathematics only")
    text = node.text or ""
    if "\\" in text or (text == "&" and node.tag == "mi"):
        raise KlearError(f"the formula {latex!r} holds {text!r}, which latex2mathml does not know")
    if node.tag in _ARITY and len(node) != _ARITY[node.tag]:
        raise KlearError(f"the formula {latex!r} lacks an argument of a fraction, index or accent")


def _mend(node: ElementTree.Element) -> None:
    # MathML Core dropped columnalign and most of mathvariant; CSS says the first.
    align = node.attrib.pop("columnalign", None)
    if align in ("left", "right") and node.tag == "mtd":
        node.set("style", f"text-align: {align}")
    for attribute in ("rowspacing", "columnspacing"):
        node.attrib.pop(attribute, None)
    if node.tag == "mi" and node.text in _RELATIONS:
        node.tag, node.text = "mo", _RELATIONS[node.text]
    letters = list(node)
    if node.tag in _WITH_LIMITS and letters[0].text in ("∑", "∏"):
        # Inside \left...\right limits come as indices; the browser itself moves them in running
        # text.
        node.tag = _WITH_LIMITS[node.tag]
    if (
        node.tag == "mrow"
        and len(letters) > 1
        and all(n.tag.endswith("mi") and n.get("mathvariant") == "normal" for n in letters)
    ):
        # \mathrm{clip} arrives as four identifiers, which would be set apart.
        word = "".join(n.text or "" for n in letters)
        for letter in letters:
            node.remove(letter)
        node.tag, node.text = "mi", word
