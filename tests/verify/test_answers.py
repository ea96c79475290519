"""Which answers are right: extraction, the exact fast path, math-verify behind it."""

import json
import logging
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from shared_data import shared_rows

import klearlib
from klearlib.verify.answers import (
    MAX_ANSWER_CHARS,
    verify_answer,
    verify_answers,
)
from klearlib.verify.extract import last_boxed, same_text, trim
from klearlib.verify.plain import read_number, same_number

ROOT = Path(klearlib.__file__).resolve().parents[1]


def boxed(answer: str) -> str:
    return f"<think>Let me see.</think> So the answer is \\boxed{{{answer}}}."


def reasons(pairs: list[tuple[str, str]]) -> list[str]:
    """The reasons for pairs of an answer, put into a box, and its gold."""
    verdicts = verify_answers([boxed(p) for p, _ in pairs], [g for _, g in pairs], workers=1)
    return [v.reason for v in verdicts]


@pytest.mark.parametrize(
    ("answer", "gold", "reason"),
    [
        (r"17 \equiv 7 \pmod{10}", "7", "correct"),  # \pmod is no \pm
        (r"n \equiv 8 \pmod{10}", r"x \equiv 7 \pmod{10}", "wrong"),
        (r"3 \pm 1", "2, 4", "correct"),
        ("CAB", "BAC", "wrong"),  # a word is no product of its letters
        ("TTHH", "HTHT", "wrong"),
        ("Monday", "Tuesday", "wrong"),
        (r"\text{tuesday}", "Tuesday", "correct"),
        ("yx", "xy", "correct"),
        ("18 eggs", "18", "correct"),
        ("19 eggs", "18", "wrong"),
        ("18 people per hour", "18", "correct"),
        ("18 million", "18", "wrong"),
        ("5 squared", "5", "wrong"),
        ("18 or more", "18", "wrong"),
        ("90\u00b0", "90", "correct"),
        ("90", "90\u00b0", "correct"),
        ("30^{\u00b0}", "30", "correct"),
        ("30^\u00b0", "30", "correct"),
        ("3 tenths", "3", "wrong"),
        ("2 millionths", "2", "wrong"),
        ("2 square roots of three", "2", "wrong"),
        ("2 divided by three", "2", "wrong"),
        ("20 pct", "0.2", "correct"),
        ("3 months", "3", "correct"),
        ("Nana", "Anna", "wrong"),
        ("Even", "even", "correct"),
        ("\u20133", "-3", "correct"),
        ("\u20133", "3", "wrong"),
    ],
)
def test_words_units_and_signs(answer, gold, reason):
    assert reasons([(answer, gold)]) == [reason]


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


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ("\\boxed{5}", "correct"),
        ("It is \\boxed{6}", "wrong"),
        ("\\boxed{5}</think>\\boxed{6}", "wrong"),
    ],
)
def test_other_formats_are_judged_without_tags_but_report_them(response, reason):
    verdict = verify_answer(response, "5", require_think=False)
    assert (verdict.reason, verdict.has_think_open) == (reason, False)
    assert verdict.has_think_close == ("</think>" in response)


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


@pytest.mark.parametrize(
    ("answer", "trimmed"),
    [
        (" 5 ", "5"), ("$5$.", "5"), ("$5.$", "5"), ("$$5$$", "5"), ("5\\$", "5\\$"),
        ("\\$5", "\\$5"), ("1, 2, ...", "1, 2, ..."),
        ("\\left\\{ x \\right.", "\\left\\{ x \\right."),
        ("$" * 5, ""),
        (".", ""),
        ("18~\\text{m}", "18 \\text{m}"),
        ("\\text{18 dollars}", "18\\text{ dollars}"),
        ("\\text{1,080.50 m}", "1,080.50\\text{ m}"),
        ("\\text{18}", "18"),
        ("\\text{18 of 20}", "\\text{18 of 20}"),
        ("\\text{no 18}", "\\text{no 18}"),
    ],
)  # fmt: skip
def test_trim(answer, trimmed):
    assert trim(answer) == trimmed


def test_text_without_a_box_is_searched_by_math_verify():
    cases = [
        ("The answer is 72.", "72", "correct", "72"),
        ("so $x = \\sqrt{8}$", "2\\sqrt{2}", "correct", "x = \\sqrt{8}"),
        ("It costs 71 or 72", "71", "wrong", "72"),
        ("so $x = \\pm 3$", "-3", "wrong", "x = \\pm 3"),
        ("It costs \\$72 now", "72", "correct", "72"),
        ("It costs \\$71 now", "72", "wrong", "71"),
        ("I give up on [it]", "72", "no_answer", None),
    ]
    texts, golds, expected, extracted = zip(*cases, strict=True)
    verdicts = verify_answers([f"<think></think>{t}" for t in texts], golds, workers=1)
    assert tuple(v.reason for v in verdicts) == expected
    assert tuple(v.extracted for v in verdicts) == extracted


def test_a_number_that_the_length_cap_cuts_is_no_answer():
    # Its last MAX_ANSWER_CHARS digits are 00...05.
    assert verify_answer("<think></think>1" + "0" * MAX_ANSWER_CHARS + "5", "5").correct is False
    long_text = "so " * MAX_ANSWER_CHARS + "it is 5"
    assert verify_answer("<think></think>" + long_text, "5").correct is True


@pytest.mark.parametrize(
    ("answer", "gold", "is_same"),
    [
        ("\\left( 3,\\, 5 \\right)", "(3,5)", True),
        ("\\dfrac{ \\pi }{2} x", "\\frac{\\pi}{2}x", True),
        ("\\pi r", "\\pi  r", True),
        ("\\pi r", "\\pir", False),
        ("1 2", "12", False),
        ("1\\;2", "12", False),
        ("\\leftarrow", "arrow", False),
        ("X", "x", False),
        ("(3,5)", "[3,5]", False),
    ],
)
def test_same_text(answer, gold, is_same):
    assert same_text(answer, gold) == is_same


# the exact fast path


@pytest.mark.parametrize(
    ("prediction", "gold", "is_same"),
    [
        ("385.", "385", True),  # rejected by math-verify 0.9.0
        ("-50\\%", "-50", True),  # rejected by math-verify 0.9.0
        ("0.0000001", "0.0000002", False),  # accepted by math-verify 0.9.0
        ("073", "73", True), ("73", "073", True), ("-0", "0", True), ("+5", "5", True),
        ("-5", "5", False), ("\u22125", "-5", True), ("1,234", "1234", True),
        ("1{,}234", "1234", True),
        ("1\\,234", "1234", True),  # 1 + 234 in math-verify 0.9.0
        ("1\\,234", "235", False),
        ("1\\ 234\\;567.5", "1234567.5", True),
        ("{18}", "18", True),
        ("{18}", "19", False),
        ("0.\\overline{3}", "1/3", True),  # no number in math-verify 0.9.0
        ("\\frac{1}{6}", "0.1\\overline{6}", True),
        ("-2.\\bar{09}", "-\\frac{23}{11}", True),
        ("0.\\overline{9}", "1", True),
        ("0.\\overline{3}", "0.\\overline{33}", True),
        ("0.\\overline{3}", "0.3", False), ("\\$1,234", "1234", True),
        ("1,234,567.50", "1234567.5", True), ("\\frac{2}{4}", "1/2", True),
        ("\\dfrac12", "0.5", True), ("-\\frac{3}{4}", "\\frac{3}{-4}", True),
        ("\\frac{3}{4}", "\\frac{4}{3}", False), ("0.333333", "1/3", True),
        ("0.33333", "1/3", False), ("1.0000001", "1", False), ("50%", "50", True),
        ("50\\%", "1/2", True), ("50\\%", "5", False), ("0.5%", "0.5", False),
        ("9" * 1000, "9" * 999 + "8", False), (f"1/{2**99}", f"1/{2**98}", False),
        (f"1/{2**99}", f"2/{2**100}", True),
    ],
)  # fmt: skip
def test_plain_numbers_are_decided_without_a_process(prediction, gold, is_same, monkeypatch):
    monkeypatch.setattr("klearlib.verify.answers.shared_pool", None)
    verdict = verify_answer(boxed(prediction), gold)
    assert verdict.correct == is_same
    assert verdict.reason == ("correct" if is_same else "wrong")


@pytest.mark.parametrize(
    "text",
    [
        "12,34", "12\\,34", "{1,234}", "0.\\overline{}", "0,500", "+1,234", "1 234", "1e5", "1/0",
        "1+1", "--5", "\u0661", "", "5 cm",
    ],
)  # fmt: skip
def test_what_is_no_plain_number_is_left_to_math_verify(text):
    assert read_number(text) is None


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
            number = read_number(gold)
            prediction = str(number.value)
        expected = math_verify.verify(parse(gold), parse(prediction), timeout_seconds=None)
        found = same_number(read_number(gold), read_number(prediction))
        assert found == expected, (gold, prediction)
        num_same += found
    assert 40 < num_same < 160


# math-verify behind its processes


def test_what_stands_beside_a_number_in_a_text_may_make_another_number():
    """math-verify 0.9.0 drops it."""
    behind = (
        *("{ million}", "{k}", "{ hundred}", "{ dozen eggs}", "{ squared}", "{ tenths}", "{/2}"),
        *(
            "{ and a half}",
            "{ minus 2}",
            "{.2}",
            "{2}",
            "{ is wrong, 8}",
            "{ if odd, 6}",
        ),
    )
    different = [(f"5\\text{text}", "5") for text in behind]
    different += [
        ("\\$5\\mathrm{ million}.", "5"),
        ("\\text{5 million}", "5"),
        ("x=5\\text{k}", "5"),
    ]
    different += [(f"5\\text{{{text}}}", "5") for text in ("E3", "e-3", " lakh", " bn", " pi", "i")]
    different += [
        ("\\text{cos }0", "0"),
        ("\\text{negative }5", "5"),
        ("\\text{not }5", "5"),
        ("2", "2\\text{ dozen}"),
    ]
    different += [
        ("=\n5\\text{ million}", "5"),
        ("3\\text{ thousand}", "3\\text{ million}"),
        ("3", "3\\text{ million}"),
    ]
    plain = (
        *("{ eggs}", "{ m/s}", "{ times}", "{ more apples}", "{ points}", "{ K}", "{ months}"),
        *("{ H2O}", "{ (since 2 + 3 = 5)}", "{ quarters}", "{ third graders}", "{ half-hours}"),
        *("{ 1st graders}", "{ out of 100}", "{, or 10/2}", "{ dollars and 0 cents}"),
    )
    same = [(f"5\\text{text}", "5") for text in plain]
    same += [("3\\text{ millions}", "3\\text{ million}"), ("3\\text{ Tenths}", "3\\text{ tenth}")]
    same += [("3\\text{ million eggs}", "3\\text{ million}"), ("5\\text{ and }6", "5, 6")]
    for pairs, reason in ((different, "wrong"), (same, "correct")):
        answers, golds = zip(*pairs, strict=True)
        verdicts = verify_answers([boxed(answer) for answer in answers], golds)
        found = {pair: verdict.reason for pair, verdict in zip(pairs, verdicts, strict=True)}
        assert found == dict.fromkeys(pairs, reason)


def test_symbolic_answers():
    root = "\\frac{-1%s\\sqrt{17}}{2}"
    matrix = "\\begin{%smatrix} %s \\\\ 3 & 4 \\end{%smatrix}"
    same = [
        ("\\sqrt{8}", "2\\sqrt{2}"),
        ("2^{25} \\cdot 26!", "2^{25}\\cdot 26!"),
        ("26! \\cdot 33554432", "2^{25}\\cdot 26!"),
        (f"{root % '-'}, {root % '+'}", f"{root % '+'}, {root % '-'}"),
        (root % "\\pm", f"{root % '+'}, {root % '-'}"),
        (f"{root % '+'}, {root % '-'}", root % "\\pm"),
        ("x=3 \\text{ or } x=5", "5, 3"), ("\\{2, 1\\}", "\\{1, 2\\}"),
        ("(-\\infty, 3]", "x \\le 3"), ("[1, 2)", "[1,2)"), ("5\\text{ cm}", "5"),
        ("90^\\circ", "90"), ("x = 385", "385"), ("\\sqrt{2}.", "\\sqrt{2}"), ("1024", "2^{10}"),
        ("\\frac{1}{1-\\frac{\\pi}{4}}", "\\frac{4}{4-\\pi}"),
        ("\\sin(\\pi)", "0"), ("+\\infty", "\\infty"), ("\\frac{1}{2^{99}}", "2^{-99}"),
        ("x^2 - 1", "(x-1)(x+1)"), ("\\text{(B)}", "(B)"),
        ("\\frac{3+\\sqrt{5}}{2}", "\\frac{3}{2}+\\frac{\\sqrt5}{2}"),
        ("\\frac{9\\sqrt{23}}{23}", "\\frac{9}{\\sqrt{23}}"),
        ("\\sqrt[3]{16}", "2\\sqrt[3]{2}"),
        ("2+\\sqrt3", "\\sqrt{7+4\\sqrt{3}}"),
        ("\\frac{448}{3}", "149\\frac{1}{3}"),
        ("1-\\frac{2}{\\pi}", "\\frac{\\pi-2}{\\pi}"),
        ("(3, 0.5)", "\\left(3, \\frac{1}{2}\\right)"),
        ("(2,3) \\cup (0,1)", "(0,1) \\cup (2,3)"),
        ("\\left\\{2, \\tfrac12\\right\\}", "\\{0.5, 2\\}"),
        ("\\{(3,4),(1,2)\\}", "\\{(1,2),(3,4)\\}"), ("-1 \\pm 2i", "-1+2i, -1-2i"),
        ("13 \\cdot 25!", "\\frac{26!}{2}"), ("2432902008176640000", "20!"),
        ("252", "\\binom{10}{5}"), ("\\frac{2^{2025}-2}{2}", "2^{2024}-1"),
        (matrix % ("p", "\\frac12 & 2", "p"), matrix % ("b", "0.5 & 2", "b")),
        ("18 \\text{ dollars}", "18"), ("\\text{18 dollars}", "18"), ("18~\\mathrm{cm}^2", "18"),
        ("2\\sqrt{3}\\text{ units}", "\\sqrt{12}"), ("n(n+1)/2", "\\frac{n^2+n}{2}"),
        ("\\log_2 8 + \\ln e", "4"), ("x > 3", "(3, \\infty)"), ("0 \\le x < 1", "[0, 1)"),
        ("\\varnothing", "\\emptyset"),
    ]  # fmt: skip
    different = [
        ("\\sqrt{8}", "2\\sqrt{3}"), ("2^{25} \\cdot 25!", "2^{25}\\cdot 26!"),
        (root % "-", f"{root % '+'}, {root % '-'}"), ("3", "3, 5"), ("3, 5, 7", "3, 5"),
        ("5 \\text{ or } 6", "5"), ("[1,2]", "(1,2)"), ("\\text{(B)}", "(C)"),
        ("\\frac{1}{2^{99}}", "\\frac{1}{2^{98}}"),  # accepted by math-verify 0.9.0
        ("e^{-50}", "e^{-51}"),  # accepted by math-verify 0.9.0
        ("x^2 + 1", "(x-1)(x+1)"),
        ("\\frac{3-\\sqrt{5}}{2}", "\\frac{3+\\sqrt{5}}{2}"),
        ("\\sqrt{16}", "\\sqrt[3]{16}"),
        ("(0.5, 3)", "\\left(3, \\frac{1}{2}\\right)"),
        ("(0,1) \\cup (2,4)", "(0,1) \\cup (2,3)"),
        ("\\{1, 2, 2.5\\}", "\\{1, 2\\}"),
        ("\\{(1,2),(3,5)\\}", "\\{(1,2),(3,4)\\}"),
        ("12 \\cdot 25!", "\\frac{26!}{2}"),
        ("2^{2024}", "2^{2024}-1"),
        (matrix % ("p", "1 & 2", "p"), matrix % ("p", "2 & 1", "p")),
        ("\\begin{pmatrix} 1 & 2 \\end{pmatrix}", "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}"),
        ("19 \\text{ dollars}", "18"), ("\\text{19 dollars}", "18"), ("\\text{18 or 19}", "18"),
        ("12\\pi", "12"), ("3-4i", "3+4i"), ("x \\ge 3", "(3, \\infty)"), ("\\infty", "-\\infty"),
    ]  # fmt: skip
    assert [p for p, r in zip(same, reasons(same), strict=True) if r != "correct"] == []
    assert [p for p, r in zip(different, reasons(different), strict=True) if r != "wrong"] == []


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        *((text, True) for text in (
            "\\text{033}", "\\textbf{ 33 }", "\\mathrm{033}", "\\mbox{33.}", "$\\text{33.0}$",
            "\\text{+33}", "\\text{66/2}", "\\text{3300\\%}",
        )),
        *((text, False) for text in (
            "\\text{not 33}", "\\text{33 or 34}", "\\text{33?}", "\\text{33!}", "\\text{-33}",
            "\\text{33,34}", "\\text{33}\\text{4}", "\\text{3.3}", "\\text{330}", "\\text{no, 33}",
        )),
    ],
)  # fmt: skip
def test_a_number_alone_in_text_is_that_number(answer, is_right):
    assert reasons([(answer, "33")]) == ["correct" if is_right else "wrong"]
    if is_right:
        assert verify_answer("<think></think>\\boxed{33}", answer).correct  # as a gold too


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


def test_missing_math_verify_names_the_install_command(tmp_path):
    (tmp_path / "math_verify.py").write_text("raise ImportError('not here')")
    code = (
        "from klearlib.verify.answers import verify_answer\n"
        "print(verify_answer('<think></think>\\\\boxed{5}', '5').reason)\n"
        "verify_answer('<think></think>\\\\boxed{x}', '5')"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=30
    )
    assert done.stdout == "correct\n"
    assert "MissingAsset" in done.stderr and 'pip install "math-verify' in done.stderr


# the call


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((["a"], []), {}, "golds must be as many"),
        (("a", ["a"]), {}, "responses must be a sequence"),
        ((["a"], [""]), {}, r"golds\[0\]"),
        ((["a"], [[]]), {}, r"golds\[0\]"),
        ((["a"], [None]), {}, r"golds\[0\]"),
        ((["a"], ["1"]), {"prompts": ["a", "b"]}, "prompts must be as many"),
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


@pytest.mark.parametrize("num", [200, pytest.param(10_000, marks=pytest.mark.slow)])
def test_thousands_of_hostile_answers(num):
    script = Path(__file__).with_name("hostile_answers.py")
    done = subprocess.run(
        [sys.executable, str(script), str(num), "0"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert sum(found["reasons"].values()) == num
    assert found["reasons"]["wrong"] > 0.4 * num
    assert found["reasons"]["timeout"] + found["reasons"]["judge_error"] < 0.05 * num
    assert [pair for pair in found["correct"] if not holds_gold(*pair)] == []
    assert found["peak_mb"] < 1000


def holds_gold(answer: str, gold: str) -> bool:
    """Whether the gold itself, or what it is made of, stands in the answer."""
    return all(part in answer for part in re.findall(r"\d+", gold))
