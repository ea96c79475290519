"""Which prompts count as contaminated: the edges of a 9-gram, and every way to write one text."""

import random
import re
import unicodedata

import numpy as np
import pytest
from shared_data import shared_rows

from klearlib.curation.overlap import OverlapIndex, contaminated

ITEM = "Eight identical coins lie on the table and every second one shows heads"
NINE = "identical coins lie on the table and every second"


def hit(prompt: str, item: str = ITEM) -> bool:
    return bool(contaminated([prompt], [item])[0])


def test_nine_shared_words_remove_and_eight_do_not():
    assert len(NINE.split()) == 9
    assert hit(f"We know that {NINE} day it rains") and hit(NINE, NINE)
    for eight in (NINE.split()[1:], NINE.split()[:-1], [*NINE.split()[:8], "other"]):
        assert not hit(f"We know that {' '.join(eight)} day it rains")


def test_fewer_than_nine_words_remove_only_when_all_are_equal():
    short = "find the final sum of $x$"
    for same in (short, "Find  the FINAL SUM of x!", "find the final\\quad sum of x"):
        assert hit(same, short)
    for other in (f"{short} now", "find the final sum of", "find the sum", "", "?!"):
        assert not hit(other, short) and not hit(other, "")
    assert not hit(ITEM, "lie on the table") and not hit("lie on the table")
    for result in (contaminated([], [ITEM]), contaminated([ITEM, ""], [])):
        assert result.dtype == bool and not result.any()


PLAIN = "let the fine angle of triangle ABC be Å and naïve x find it"
WORDS = PLAIN.split()
SPELLINGS = {
    "upper case": PLAIN.upper(),
    "no-break blanks": PLAIN.replace(" ", "\u00a0"),
    "narrow and ideographic blanks": PLAIN.replace(" ", "\u202f\u3000"),
    "line breaks and tabs": PLAIN.replace(" ", "\r\n\t"),
    "line separator": PLAIN.replace(" ", "\u2028"),
    "zero-width blanks beside blanks": PLAIN.replace(" ", " \u200b"),
    "zero-width blanks inside words": PLAIN.replace("n", "\u200bn"),
    "word joiners, byte order marks": "\ufeff" + PLAIN.replace("triangle", "tri\u2060an\ufeffgle"),
    "soft hyphens": PLAIN.replace("triangle", "tri\u00adangle").replace("naïve", "na\u00adïve"),
    "glued punctuation": ",".join(WORDS) + ".",
    "glued brackets and dashes": "(" + ")-[".join(WORDS) + "]",
    "em dashes and quotation marks": "“" + "”—“".join(WORDS) + "”",
    "dollars and LaTeX signs": "$" + "$ \\, $".join(WORDS) + "$",
    "LaTeX blanks": "\\quad ".join(f"{word}~\\; " for word in WORDS),
    "LaTeX hspace": PLAIN.replace(" ", " \\hspace{1em} ", 7),
    "full-width letters": "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in PLAIN),
    "ligatures": PLAIN.replace("fi", "\ufb01"),
    "NFC": unicodedata.normalize("NFC", PLAIN),
    "NFD": unicodedata.normalize("NFD", PLAIN),
    "mathematical letters": PLAIN.replace(" x ", " \U0001d465 "),
    "Angstrom sign": PLAIN.replace("Å", "\u212b"),
}  # fmt: skip


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
def test_one_text_in_all_spellings(spelling):
    for a, b in ((spelling, PLAIN), (PLAIN, spelling), (spelling, spelling)):
        assert hit(f"And so: {a} {'' if a.isascii() else '…'} please", b)
    other = PLAIN.replace("angle of", "side of").replace("be", "is")
    assert not hit(spelling, other)


def test_a_short_item_with_much_markup_is_found_without_it():
    marked = "find the sum of two and three".replace(" ", " \\hspace{1em} ")
    assert len(re.findall(r"\w+", marked)) >= 9
    for plain in ("Find the sum of two and three", "find the sum, of two and THREE"):
        assert hit(plain, marked) and hit(marked, plain) and hit(marked, marked)
    assert not hit("Find the sum of two and four", marked)
    # Its n-grams are shared with another item, and stopped or not it is found.
    for stop in (None, 1):
        index = OverlapIndex({"b": [("1", marked), ("2", f"{marked} now")]}, stop_more_than=stop)
        assert index.removals(["find the sum of two and three"])[0].item_id == "1"


def test_chinese_and_japanese_characters_are_words():
    item = "求所有满足条件的正整数的和是多少"
    assert hit(f"题目：{item}。请作答", item) and hit(item, item)
    assert hit("已知满足条件的正整数的积", item)  # nine characters in a row
    assert not hit("已知满足条件的正整数乘积", item)
    assert hit("次の条件を満たす整数をすべて求めよ", "条件を満たす整数をすべて答えよ")
    assert not hit("条件を満たす点を求めよ", "条件を満たす整数をすべて答えよ")
    assert hit("令x等于5的平方根加上七", "令 x 等于 5 的 平方根 加上 七")


def test_known_instructions_do_not_count():
    tail = "Please reason step by step, and put your final answer within \\boxed{}."
    assert not hit(f"Find the area of a disc. {tail}", f"Which primes are even? {tail}")
    assert hit(f"{ITEM} {tail}", f"{tail} {ITEM}")
    assert hit(f"Which primes are even? {tail.upper()}", "which primes are even")
    # No n-gram is made by the cut: its words do not stand together in the prompt.
    first, second = NINE.split()[:4], NINE.split()[4:]
    assert not hit(f"{' '.join(first)} {tail} {' '.join(second)}")


def plain_rule(prompts: list[str], items: list[str], n: int) -> list[bool]:
    """The rule as it is written down: NFKC, lower case, words, all n-grams in one set."""

    def words(text: str) -> list[str]:
        return re.findall(r"\w+", unicodedata.normalize("NFKC", text).lower())

    def ngrams(text: str) -> set[tuple[str, ...]]:
        found = words(text)
        return {tuple(found[i : i + n]) for i in range(len(found) - n + 1)}

    known = set().union(*map(ngrams, items))
    wholes = [words(item) for item in items]
    return [
        bool(ngrams(p) & known) or (words(p) != [] and words(p) in wholes) for p in prompts
    ]  # fmt: skip


def with_markup(text: str, draw: random.Random) -> str:
    """The same text to a reader: soft hyphens anywhere, LaTeX blanks beside blanks."""
    marked = "".join(c + draw.choice(["", "", "", "\u00ad"]) for c in text)
    return marked.replace(" ", draw.choice([" ", " \\quad "]))


@pytest.mark.parametrize("markup", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 9, 12])
def test_random_texts_against_the_plain_rule(n, markup):
    draw = random.Random(n)
    known, new = ["w0", "w1", "Ä", "2", "x_1"], ["w1", "v", "ß"]

    def text(words: list[str], low: int, high: int) -> list[str]:
        chosen = draw.choices(words, k=draw.randrange(low, high))
        return [w + draw.choice([" ", ", ", "\u00a0", "; ", "\n", "-"]) for w in chosen]

    items = [text(known, 1, 5 * n) for _ in range(5)]
    prompts = []
    for _ in range(600):
        item = draw.choice(items)
        start, length = draw.randrange(len(item)), draw.randrange(n + 3)
        shared = item[start : start + length] if draw.random() < 0.5 else item
        around = [text(new, 0, n + 2) if draw.random() < 0.8 else [] for _ in range(2)]
        prompts.append("".join(around[0] + shared + around[1]))
    items = ["".join(item) for item in items]
    expected = plain_rule(prompts, items, n)
    if markup:
        prompts, items = ([with_markup(text, draw) for text in each] for each in (prompts, items))
    assert contaminated(prompts, items, n=n).tolist() == expected
    assert 0.1 < np.mean(expected) < 0.95


def test_aime_in_new_wrapping_is_found_and_gsm8k_is_clean():
    items = [row["meta"]["problem"] for row in shared_rows("aime24.jsonl")]
    prompts = [row["question"] for row in shared_rows("gsm8k_train.jsonl")[:1500]]
    assert len(items) == 30
    wrapped = [f"{item.upper()} Explain.".replace(" ", "\u00a0\\;") for item in items]
    assert contaminated(wrapped, items).all()
    assert contaminated(prompts, items).tolist() == plain_rule(prompts, items, 9)
    assert not contaminated(prompts, items).any()


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: contaminated(ITEM, [ITEM]), "prompts must be a list"),
        (lambda: contaminated([ITEM], [None]), "must be a text"),
        (lambda: contaminated([ITEM], [ITEM], n=0), "n must"),
        (lambda: OverlapIndex({}, templates="Be brief."), "templates"),
        (lambda: OverlapIndex({"aime": []}), "'aime' has no items"),
    ],
)
def test_bad_arguments_are_refused_by_name(call, named):
    with pytest.raises(ValueError, match=named):
        call()
