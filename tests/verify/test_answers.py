"""Which answers are right: extraction, the exact fast path, math-verify behind it."""

import logging
import random
import re
from collections import Counter

import pytest
from shared_data import shared_rows

from klearlib.data.marks import last_boxed
from klearlib.verify.answers import MAX_ANSWER_CHARS, verify_answer, verify_answers
from klearlib.verify.numbers import read_number, same_number
from klearlib.verify.plain import plain_text


def boxed(answer: str) -> str:
    return f"<think>Let me see.</think> So the answer is \\boxed{{{answer}}}."


def reasons(pairs: list[tuple[str, str]]) -> list[str]:
    """The reasons for pairs of an answer, put into a box, and its gold."""
    verdicts = verify_answers([boxed(p) for p, _ in pairs], [g for _, g in pairs], workers=1)
    return [v.reason for v in verdicts]


# think tags


@pytest.mark.parametrize(
    ("response", "prompt", "reason", "tags"),
    [
        ("<think>a</think>\\boxed{5}", "", "correct", (True, True)),
        ("<think>a</think>5", "", "correct", (True, True)),
        ("<think>\\boxed{5}</think>\\boxed{6}", "", "wrong", (True, True)),
        ("<think>\\boxed{5}</think>", "", "no_answer", (True, True)),
        ("<think>\\boxed{5}</think> Done, as shown.", "", "no_answer", (True, True)),
        ("<think>\\boxed{5}</think> \\boxed{ }", "", "no_answer", (True, True)),
        ("<think>a</think>\\boxed{6}</think>\\boxed{5}", "", "correct", (True, True)),
        ("\\boxed{5}", "", "bad_format", (False, False)),
        ("a</think>\\boxed{5}", "", "bad_format", (False, True)),
        ("<think>\\boxed{5}", "", "bad_format", (True, False)),
        ("</think>\\boxed{5}<think>", "", "bad_format", (False, True)),
        ("a</think>\\boxed{5}", "<|assistant|><think>\n", "correct", (True, True)),
        ("a \\boxed{5}", "<|assistant|><think>\n", "bad_format", (True, False)),
        ("\\boxed{5}", "<|assistant|><think>\n\n</think>\n\n", "correct", (True, True)),
        ("a</think>\\boxed{5}", "Use <think> tags.<|assistant|>", "bad_format", (False, True)),
        ("", "", "bad_format", (False, False)),
        # Braces are a part of LaTeX's way to write a box; alone they are no answer.
        ("<think>a</think>\n{5}", "", "no_answer", (True, True)),
        ("<think>a</think>\n\\boxed{5ith\n</think>\n{5}", "", "no_answer", (True, True)),
        ("<think>a</think>\n\\boxed{{5}}", "", "correct", (True, True)),
    ],
)
def test_think_tags(response, prompt, reason, tags):
    verdict = verify_answer(response, "5", prompt=prompt)
    assert verdict.reason == reason
    assert verdict.correct == (reason == "correct")
    assert (verdict.has_think_open, verdict.has_think_close) == tags
    if reason in ("bad_format", "no_answer"):
        assert verdict.extracted is None


# extraction


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("\\boxed{1} and \\boxed{2}", "2"), ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed {7}", "7"), ("\\boxed{3} but \\boxed{4", "3"), ("{\\boxed{3}", "3"),
        ("}} \\boxed{3} }", "3"), ("\\boxed{\\boxed{3} + 1}", "3"),
        ("\\boxed{5} in \\boxed{}", "5"), ("\\boxed{\\{1, 2\\}}", "\\{1, 2\\}"),
        ("\\boxed{\\left\\{ x \\right.}", "\\left\\{ x \\right."),
        ("\\boxed{ {3 }", None),
        ("boxed{3}", None),
        ("", None),
    ],
)  # fmt: skip
def test_last_balanced_box(text, content):
    assert last_boxed(text) == content


def test_a_number_that_the_length_cap_cuts_is_no_answer():
    # Its last MAX_ANSWER_CHARS digits are 00...05.
    assert verify_answer("<think></think>1" + "0" * MAX_ANSWER_CHARS + "5", "5").correct is False
    long_text = "so " * MAX_ANSWER_CHARS + "it is 5"
    assert verify_answer("<think></think>" + long_text, "5").correct is True


# exact numbers


@pytest.mark.parametrize("number", ["385.", "-1,234.50", r"\\frac{2}{4}", "1e400", "3 1/2", "12,5"])
def test_numbers_are_decided_without_a_process(number, monkeypatch):
    monkeypatch.setattr("klearlib.verify.pool.shared_pool", None)
    for gold in ("385", "-1234.5", "1/2", f"1/{2**99}", "9" * 1000, "7/2"):
        assert verify_answer(boxed(number), gold).reason in ("correct", "wrong")


def random_plain(rng: random.Random) -> str:
    """A plain number in one of many spellings; small, so that pairs often are equal."""
    sign = rng.choice(["", "", "", "-"])
    n, d = rng.randint(0, 12), rng.randint(1, 12)
    kind = rng.randrange(8)
    if kind == 0:
        return f"{sign}{'0' * rng.randint(0, 2)}{n}"
    if kind == 1:
        return f"{sign}{n}/{d}"
    if kind == 2:
        return f"{sign}\\{rng.choice(['frac', 'dfrac', 'tfrac'])}{{{n}}}{{{d}}}"
    if kind == 3:
        return f"{sign}{n / d:.{rng.choice([1, 2, 6, 9])}f}"
    if kind == 4:
        return f"{sign}{n * 1000 + rng.randint(0, 3):,}"
    if kind == 5:
        return f"{n * 25}{rng.choice(['%', chr(92) + '%'])}"
    if kind == 6:
        return f"{sign}{n}.{rng.choice(['0', '5', '50', '25'])}"
    return f"{sign}{n * 1000 + rng.randint(0, 3)}"


def test_fast_path_agrees_with_math_verify():
    math_verify = pytest.importorskip("math_verify")
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    rng = random.Random(0)
    parsed, num_same = {}, 0

    def parse(text):
        if text not in parsed:
            parsed[text] = math_verify.parse(f"\\boxed{{{text}}}", parsing_timeout=None)
        return parsed[text]

    for _ in range(200):
        gold, prediction = random_plain(rng), random_plain(rng)
        if rng.random() < 0.3:  # the same value in another spelling
            number = read_number(plain_text(gold))
            prediction = str(number.value)
        expected = math_verify.verify(parse(gold), parse(prediction), timeout_seconds=None)
        found = same_number(*(read_number(plain_text(text)) for text in (gold, prediction)))
        assert found == expected, (gold, prediction)
        num_same += found
    assert 40 < num_same < 160


# several golds, golds that cannot be decided


def test_any_of_several_golds_matches_in_order_whether_fast_or_slow():
    golds = ["\\sqrt{2}", "7", "2^{3}", "\\boxed{11}", "$12$"]
    answers = {"7": True, "8": True, "\\frac{2}{\\sqrt{2}}": True, "9": False, "\\sqrt{3}": False,
               "11": True, "12": True, "nothing": False}  # fmt: skip
    verdicts = verify_answers([boxed(a) for a in answers], [golds] * len(answers), workers=1)
    assert [v.correct for v in verdicts] == list(answers.values())
    assert verify_answers([], []) == []


def test_a_gold_that_cannot_be_decided_is_never_a_silent_wrong():
    # Division by zero raises inside math-verify, whose own answer would be "wrong".
    assert reasons([("5", "\\frac{1}{0}"), ("5", "\\left\\{1,2\\right.")]) == ["judge_error"] * 2
    assert reasons([("\\frac{1}{0}", "\\frac{1}{0}")]) == ["correct"]
    long_gold = "1+" * MAX_ANSWER_CHARS + "1"
    assert reasons([("5", long_gold), (long_gold, "5"), (long_gold, long_gold)]) == [
        "judge_error",
        "judge_error",
        "correct",
    ]


def test_named_values_go_by_their_names_and_columns_by_their_place():
    column, square = (rf"\begin{{pmatrix}}{rows}\end{{pmatrix}}" for rows in (r"1\\2", r"1&2\\3&4"))
    right = {"y=5, x=2": ("(2,5)", "x=2, y=5"), "x=2, y=5": ("2, 5",), column: ("(1,2)",)}
    wrong = {"x=5, y=2": ("x=2, y=5",), "x=2, z=5": ("x=2, y=5",), "(1,3)": (column,)}
    wrong |= {"x=1, y=2": ("(1,2,3)",), "x=1, y=2, z=3": ("(1,2)",), "(1,2)": (square,)}
    wrong |= {"(1,2,3)": (column,)}
    for word, cases in (("correct", right), ("wrong", wrong)):
        pairs = [(answer, gold) for answer, golds in cases.items() for gold in golds]
        assert reasons(pairs) == [word] * len(pairs)


# the call


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((["a"], []), {}, "golds must have one item per response"),
        ((["a"], [""]), {}, r"golds\[0\]"),
        ((["a"], ["1"]), {"prompts": ["a", "b"]}, "prompts must have one item per response"),
        ((["a"], ["1"]), {"workers": 0}, "workers must be"),
        ((["a"], ["1"]), {"timeout_s": 0}, "timeout_s must be"),
    ],
)
def test_bad_arguments_name_what_is_expected(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        verify_answers(*arguments, **options)


# real golds


GSM8K_FORMS = (
    "{}", "{:,}", "{}.", "{}.0", "The answer is {}.", "The answer is ${}$.",
    "It costs \\${:,} now.", "#### {}", "\\boxed{{{}}}", "So it is $\\boxed{{{:,}}}$.",
    "\\boxed{{{}.}}", "\\boxed{{{:,}.00}}", "\\boxed{{\\${}}}", "\\[\\boxed{{{{{}}}}}\\]",
    "\\boxed{{\\frac{{{}}}{{1}}}}", "\\boxed{{{} \\text{{ dollars}}}}",
    "\\boxed{{\\text{{{} dollars}}}}", "\\boxed{{{:,}~\\text{{km}}}}", "\\boxed{{\\textbf{{{}}}}}",
)  # fmt: skip


@pytest.mark.parametrize("every", [40, pytest.param(1, marks=pytest.mark.slow)])
def test_gsm8k_golds_in_their_written_forms(every):
    rows = shared_rows("gsm8k_train.jsonl")
    assert len(rows) == 7473
    golds = [row["answer"].split("####")[1].strip() for row in rows[::every]]
    values = [int(gold.replace(",", "")) for gold in golds]
    shifted = [str(value + 1) for value in values]
    for form in GSM8K_FORMS:
        texts = ["<think>a</think>" + form.format(value) for value in values]
        assert all(v.correct for v in verify_answers(texts, golds, workers=2)), form
        assert {v.reason for v in verify_answers(texts, shifted, workers=2)} == {"wrong"}, form


# hostile answers; test_pool has those that hang


SALAD = r"""
0 1 2 7 10 385 0.5 1,000 -3 1e9 x y n \pi e i \infty + - * / ^ _ = < > \le \ge \ne ! | \| : ; , . '
\cdot \times \div \pm \mp \frac{1}{2} \frac12 \frac \dfrac \sqrt{2} \sqrt[3]{5} \sqrt \prod \int_0^1
\sum \sum_{k=1}^{9} \lim_{x\to0} \log \ln \sin \binom{5}{2} \overline{3} \bar ( ) [ ] { } \{ \} $ $$
\left( \right) \left[ \right. \$ \( \) \[ \] % \% & \\ # ~ \, \! \; \text{cm} \text{or} \text{and}
\text{ \mathrm{kg} ^\circ \begin{pmatrix} \end{pmatrix} \boxed{ \boxed{5} \boxed <think> </think>
\cup \in \emptyset \mid \ldots ... answer: is none True nan inf 9^9 9^{9^9} (10^6)!
2^{2024} \lfloor \rceil \mod \pmod{7} \gcd
"""
TOKENS = SALAD.split()
ODD = "\x00\x1b\ud800\udfff\u202e\u00a0\u2028\uff15\u0665\u00bd\u221e\u221a\ufe0f\U0001f600\u0301"


def hostile_answer(rng: random.Random) -> str:
    """What a broken or malicious policy might write: LaTeX salad, bytes, deep and long text."""
    kind = rng.randrange(100)
    if kind < 30:
        text = rng.choice(["", " "]).join(rng.choices(TOKENS, k=rng.randint(1, 7)))
    elif kind < 33:
        text = "".join(chr(rng.randrange(32, 127)) for _ in range(rng.randint(1, 60)))
    elif kind < 63:
        text = "".join(rng.choices(ODD + "0123456789\\{}$^_", k=rng.randint(1, 40)))
    elif kind < 85:
        text = "".join(chr(rng.randrange(0x110000)) for _ in range(rng.randint(1, 40)))
    elif kind < 86:
        text = rng.choice(TOKENS) * rng.choice([3, 3, 3, 30, 300])
    elif kind < 87:
        depth = rng.choice([3] * 9 + [500])
        opening, closing = rng.choice(
            [("(", ")"), ("{", "}"), ("\\sqrt{", "}"), ("\\frac{1}{", "}")]
        )
        text = opening * depth + "7" + closing * (depth - rng.choice([0, 0, 1]))
    else:
        text = "".join(rng.choices("0123456789", k=rng.choice([10, 10, 100, 1000, 10_000])))
    wrap = rng.choice(["\\boxed{%s}", "\\boxed{%s}", "%s", "The answer is $%s$.", "\\[%s\\]"])
    tags = rng.choice(["<think>a</think>"] * 9 + ["<think>", "</think>", ""])
    return tags + wrap.replace("%s", text)


@pytest.mark.parametrize("num", [200, pytest.param(10_000, marks=pytest.mark.slow)])
def test_thousands_of_hostile_answers(num):
    rng = random.Random(0)
    answers = [hostile_answer(rng) for _ in range(num)]
    golds = [
        rng.choice(["385", "\\sqrt{2}", "1, 2", "[0, 1)", "2^{25} \\cdot 26!"]) for _ in answers
    ]
    verdicts = verify_answers(answers, golds, workers=2, timeout_s=1.0)
    reasons = Counter(verdict.reason for verdict in verdicts)
    assert reasons["wrong"] > 0.4 * num
    assert reasons["timeout"] + reasons["judge_error"] < 0.05 * num
    paid = [(a, g) for a, g, v in zip(answers, golds, verdicts, strict=True) if v.correct]
    # The gold itself, or what it is made of, stands in the answer.
    assert [(a, g) for a, g in paid if not all(n in a for n in re.findall(r"\d+", g))] == []
