"""The tokenizer writes any text, keeps digits single and the think tags whole."""

from random import Random

import pytest

from klearlib.miniature.base import train_tokenizer

CORPUS = [
    "Start with 3 and apply +4 -12 *7 in turn. Result modulo 100?\n3+4=7\nThe answer is 7.",
    "user\nf(0)=12, f(1)=34\nassistant\n<think>\n12*34=8\n</think>\n\\boxed{8}",
] * 20


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(CORPUS, vocab_size=340)


def ids_of(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


TEXTS = [
    "",
    " ",
    "  leading, trailing  ",
    "a , b . c ! d ? don 't i 'm",
    "tabs\tand\r\nlines\n\n\n",
    "ümläut, Ελληνικά, русский, 中文, العربية, ٣٤",
    "𝔸 😀 👩‍👩‍👧 e\u0301 \u00a0\u2028\u2029\u0085 \ufeff",
    "\x00\x01\x7f",
    "<think>\n1+1=2\n</think>\n\\boxed{2}",
    "<think> x </think> y <think></think>",
    "1234567890",
    "3.14159 -2e10 1,000",
]


@pytest.mark.parametrize("text", TEXTS)
def test_round_trip(tokenizer, text):
    assert tokenizer.decode(ids_of(tokenizer, text)) == text
    assert tokenizer.decode(ids_of(tokenizer, text), skip_special_tokens=True) == text


def test_round_trip_of_random_unicode(tokenizer):
    random = Random(0)
    for _ in range(300):
        points = [random.choice([range(32, 127), range(0x110000)]) for _ in range(30)]
        letters = [chr(random.choice(span)) for span in points]
        text = "".join(letter for letter in letters if not 0xD800 <= ord(letter) < 0xE000)
        assert tokenizer.decode(ids_of(tokenizer, text)) == text


def test_digits_stay_single(tokenizer):
    assert len(ids_of(tokenizer, "1234567890")) == 10
    words = [tokenizer.decode([index]) for index in range(len(tokenizer))]
    assert all(len(word) == 1 for word in words if any(c.isdigit() for c in word))
    # Yet other words were learnt.
    assert any(len(word) > 4 and word.strip().isalpha() for word in words)


def test_tags_and_control_tokens_are_single_and_tags_alone_are_kept_in_texts(tokenizer):
    for tag in ("<think>", "</think>"):
        (token,) = ids_of(tokenizer, tag)
        assert token not in tokenizer.all_special_ids
    whole = ids_of(tokenizer, "x<think>\n1</think>y")
    assert tokenizer.decode(whole, skip_special_tokens=True) == "x<think>\n1</think>y"
    for name in ("<|endoftext|>", "<|im_start|>", "<|im_end|>"):
        (token,) = ids_of(tokenizer, name)
        assert token == tokenizer.convert_tokens_to_ids(name)
        assert tokenizer.decode([token], skip_special_tokens=True) == ""
    assert tokenizer.eos_token == "<|im_end|>" and tokenizer.pad_token == "<|endoftext|>"
