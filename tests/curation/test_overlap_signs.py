"""Prompts of fewer than nine words: compared whole, with their signs."""

import random

import pytest

from klearlib.curation.overlap import OverlapIndex, Removal, contaminated

# Each line is one text in several spellings, and no two lines are the same text.
TEXTS = [
    ["What is a - b?", "what is a-b", "WHAT IS $a − b$!", "What is a\\quad − b?",
     "What is a – b?", "What is a ﹣ b ?"],
    ["What is a + b?", "what is a+b", "What is $a\\,+\\,b$.", "What is a ＋ b"],
    ["What is a * b?", "What is a × b?", "What is $a \\times b$?", "what is a\\cdot b",
     "What is a·b?", "what is a ⋅ b = ?"],
    ["What is a / b?", "What is a ÷ b?", "What is $a \\div b$?", "what is a∕b"],
    ["What is a ^ b?", "What is a**b?", "what is aᵇ", "what is a ** b"],
    ["What is a b?", "what is a, b", "What is (a) b?"],
    ["What is -a + b?", "what is −a + b"],
    ["What is -a - b?", "what is -a-b"],
    ["Is a < b?", "is $a \\lt b$"],
    ["Is a > b?", "is a>b"],
    ["Is a <= b?", "is a ≤ b", "is $a \\leq b$", "is $a \\le b$?"],
    ["Is a = b?", "is a=b"],
    ["Is a != b?", "is a ≠ b", "is $a \\neq b$"],
    ["Is a b?"],
    ["2 * (3 + 4)", "2*(3+4)", "2 × [3 + 4]", "$2 \\cdot {3 + 4}$", "2*(3+4) = ?"],
    ["2 * 3 + 4", "2*3+4", "2*(3)+4"],
    ["x^{n-1}", "x^(n - 1)", "xⁿ⁻¹"],
    ["x^n - 1", "$x^{n} - 1$", "xⁿ−1"],
    ["sqrt(9 + 16)", "\\sqrt{9+16}", "√(9 + 16)"],
    ["sqrt(9) + 16", "\\sqrt{9}+16", "√9 + 16"],
    ["9-sqrt(16)", "9 - √16"],
    ["9 sqrt(16)", "9 √16"],
    ["3.5 and 2", "3.5, and 2."],
    ["3, 5.2 and", "3, 5.2, and"],
    ["35 and 2"],
    ["3 5 and 2", "3, 5 and 2."],
    [".5 and 2"],
    ["5 and 2"],
    ["Find 3²", "find 3^2"],
    ["Find 32", "find 32!", "find 32 ="],
    ["5! + 3", "5!+3"],
    ["5 + 3", "5 + 3!"],
    ["50% of x", "50\\% of x"],
    ["50 of x"],
    ["a well-known 3-digit x-axis", "a well‑known 3-digit x–axis"],
    ["alpha - 1", "$\\alpha-1$"],
    ["求x-3的值", "求 x − 3 的值。"],
    ["求x+3的值", "求 x ＋ 3 的值"],
]  # fmt: skip


def test_the_same_signs_match_and_others_do_not():
    lines = [(number, text) for number, texts in enumerate(TEXTS) for text in texts]
    items = [(f"{number}", text) for number, text in lines]
    found = OverlapIndex({"b": items}).removals([text for _, text in lines])
    assert [(int(removal.item_id), text) for removal, (_, text) in zip(found, lines, strict=True)] \
        == lines  # fmt: skip
    for number, text in lines:
        found = contaminated([prompt for _, prompt in lines], [text])
        for (other, prompt), is_found in zip(lines, found, strict=True):
            assert is_found == (other == number), (text, prompt)


def test_of_nine_words_signs_do_not_count():
    eight, nine = "one two three four five six a {} b", "one two three four five six seven a {} b"
    for n, text, same in ((9, eight, False), (9, nine, True), (8, eight, True), (10, nine, False)):
        assert bool(contaminated([text.format("+")], [text.format("-")], n=n)[0]) is same
        assert contaminated([text.format("×")], [text.format("*")], n=n)[0]
    # What is cut out is none of its words, and no sign of it hides it.
    tail = "Please reason step by step, and put your *final* answer within \\boxed{}."
    asked = "one two three four a {} b = ? "
    assert contaminated([asked.format("+") + tail], [asked.format("+")])[0]
    assert not contaminated([asked.format("+") + tail], [asked.format("-") + tail])[0]
    items = {"b": [("1", "x = f(n-2). Find f(3)")]}
    index = OverlapIndex(items, templates=["f(n-2). Find f"])
    assert [r is None for r in index.removals(["x = 3", "x - 3", "x = f[n − 2], find F 3!"])] == [
        False, True, False,
    ]  # fmt: skip


def test_a_removal_names_the_item_of_its_signs():
    index = OverlapIndex({"b": [("1", "What is 2 + 3?"), ("2", "What is 2 - 3?")]})
    assert index.num_items == 2
    assert index.removals(["what is 2−3", "what is 2 * 3", "+", "what is 2, 3"]) == [
        Removal("b", "2", "what is 2 - 3", 1, False), None, None, None,
    ]  # fmt: skip
    wordless = OverlapIndex({"b": [("1", "+ -"), ("2", ""), ("3", "x")]})
    assert wordless.removals(["+ -", "", "\u00a0"]) == [None] * 3


SPELLINGS = {
    "+": [" + ", "+", "＋"],
    "-": [" - ", "−", " \u2013"],
    "*": ["*", " × ", "$\\times$ ", " \\cdot "],
    "<=": ["<=", "≤", "\\le "],
    "": [" ", ", ", "; ", "\u00a0"],
}


def drawn(draw: random.Random, num: int) -> tuple[list[str], list[str]]:
    """Words, and the signs between them."""
    return draw.choices(["a", "7", "x_1", "Ä"], k=num), draw.choices([*SPELLINGS], k=num - 1)


def spelt(draw: random.Random, words: list[str], signs: list[str]) -> str:
    parts = [w + draw.choice(SPELLINGS[s]) for w, s in zip(words, [*signs, ""], strict=True)]
    return "".join(parts) + draw.choice(["", "?", ".", " ="])


@pytest.mark.parametrize("n", [3, 5, 9])
def test_random_texts_against_the_rule_as_it_is_written_down(n):
    """Equal words and equal signs, in any spelling; others differ in one sign or in more."""
    draw, texts = random.Random(n), []
    for _ in range(150):
        words, signs = drawn(draw, draw.randrange(2, n))
        place = draw.randrange(len(signs))
        texts.append((words, signs))
        texts.append((words, [*signs[:place], draw.choice([*SPELLINGS]), *signs[place + 1 :]]))
    # Where words are counted, \times and \le are words too.
    texts = [(w, s) for w, s in texts if len(w) + s.count("*") + s.count("<=") < n]
    items = draw.sample(texts, len(texts) // 3)
    prompts = [spelt(draw, *text) for text in texts]
    found = contaminated(prompts, [spelt(draw, *item) for item in items], n=n)
    assert found.tolist() == [text in items for text in texts]
    assert 0.2 < found.mean() < 0.9


def test_all_ways_through_the_search_agree():
    draw = random.Random(0)
    texts = [spelt(draw, *drawn(draw, draw.randrange(1, 12))) for _ in range(5000)]
    items = [(str(number), texts[number]) for number in range(0, 5000, 50)]
    index = OverlapIndex({"b": items})
    alone = index.removals(texts)
    assert 500 < sum(removal is not None for removal in alone) < 4500
    assert [index.removals([text])[0] for text in texts[:500]] == alone[:500]
    flags = contaminated(texts, [text for _, text in items]).tolist()
    assert flags == [removal is not None for removal in alone]
