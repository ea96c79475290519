"""Which prompts are duplicates, and that the first of them is kept."""

import random
import unicodedata

import pytest

from klearlib.curation.normalise import duplicate_key
from klearlib.curation.overlap import deduplicate

TEXT = "Find the fine value of f(2, x) = 3.5x - 1 for “all” x"
SAME = {
    "case": TEXT.upper(),
    "blanks": TEXT.replace(" ", "  \t\n"),
    "no blanks beside signs": TEXT.replace(" - ", "-").replace(", ", ",").replace(" = ", "="),
    "no-break blanks": TEXT.replace(" ", "\u00a0"),
    "zero-width characters": TEXT.replace("value", "va\u200blue") + "\ufeff",
    "end": f"  {TEXT} ?",
    "full stop of Chinese": f"{TEXT}。",
    "dollars": TEXT.replace("f(2, x)", "$f(2, x)$"),
    "ligature": TEXT.replace("fi", "\ufb01"),
    "full width": TEXT.replace("x", "\uff58"),
    "NFD": unicodedata.normalize("NFD", TEXT),
    "plain quotation marks, all ASCII": TEXT.replace("“", '"').replace("”", '"'),
    "minus sign": TEXT.replace("-", "\u2212"),
    "LaTeX blanks": TEXT.replace(" - ", "\\,-\\quad "),
}


@pytest.mark.parametrize("spelling", SAME.values(), ids=SAME)
def test_spellings_of_one_prompt_are_duplicates(spelling):
    assert deduplicate([spelling, "other", TEXT, spelling]) == [0, 1]


OTHER = [
    ("What is 2 + 2?", "What is 2 - 2?"), ("What is 2 * 3?", "What is 2 3?"),
    ("Coefficients 1 2 3", "Coefficients 12 3"), ("Coefficients 1 2 3", "Coefficients 1 23"),
    ("(2 + 3) * 4", "2 + (3 * 4)"), ("Find 3.5 x", "Find 35 x"), ("Find 3.5 x", "Find 3,5 x"),
    ("Compute 5!", "Compute 5"), ("a < b", "a > b"), ("x^2", "x_2"), ("求 1 和", "求 2 和"),
    ("naïve", "naive"), ("f(x) = x'", "f(x) = x"), ("", "x"), ("+", "-"), ("3² + 1", "32 + 1"),
    ("Solve x² = 2", "Solve x₂ = 2"), ("Solve x² = 2", "Solve x 2 = 2"), ("3²5", "3²⁵"),
    ("Sort a vector<p> by key", "Sort a vector<i> by key"),
    ("<b>Find</b> x", "Find x"),
    ("1\\\\2", "1\\2"),
    ("1\\\\ 2", "1\\2"),
]  # fmt: skip


SAME_PAIRS = [
    ("3² + x₁", "3^2 + x_1"),
    ("x⁻¹", "x^{-1}"),
    ("\\begin{pmatrix}1\\\\ 2\\end{pmatrix}", "\\begin{pmatrix}1\\\\2\\end{pmatrix}"),
    ("1\\\\\\, 2", "1\\\\ 2"),
    ("Find x\n  where y: both", "Find x where\ny: both"),
]


@pytest.mark.parametrize(
    ("pair", "kept"), [*((pair, [0, 1]) for pair in OTHER), *((pair, [0]) for pair in SAME_PAIRS)]
)
def test_different_prompts_are_both_kept_and_ways_to_write_one_are_not(pair, kept):
    assert deduplicate(pair) == kept


def test_the_key_of_ascii_is_that_of_the_general_way():
    draw = random.Random(0)
    signs = [chr(c) for c in range(128)] + [" ", " ", "\\,", "\\quad"] * 5
    for _ in range(3000):
        text = "".join(draw.choices(signs, k=draw.randrange(1, 12)))
        # The mark has no width, so the text is the same but no longer ASCII.
        assert duplicate_key(text) == duplicate_key(f"\u2060{text}"), repr(text)


def test_the_first_wins_and_the_order_of_input_changes_nothing_else():
    draw = random.Random(3)
    prompts = [
        draw.choice(["Find ", "find  ", "FIND "]) + str(draw.randrange(40)) for _ in range(300)
    ]
    kept = deduplicate(prompts)
    assert kept == sorted(kept) and len(kept) == 40
    firsts = {}
    for index, prompt in enumerate(prompts):
        firsts.setdefault(prompt.split()[1], index)
    assert kept == sorted(firsts.values())
    mixed = draw.sample(prompts, len(prompts))
    assert {mixed[i].split()[1] for i in deduplicate(mixed)} == set(firsts)


def test_empty_texts_and_lone_surrogates_are_prompts_and_what_is_no_text_is_refused():
    assert deduplicate([]) == []
    assert deduplicate(["", " \n", "x", "\u200b", "?"]) == [0, 2]
    assert deduplicate(["\ud800 x", "\ud801 x", "\ud800  X"]) == [0, 1]
    for given in (["a", None], "Find x."):
        with pytest.raises(ValueError, match="prompt"):
            deduplicate(given)
