r"""The words of a text that overlap is searched in, without the instructions around a problem."""

from __future__ import annotations

import re
from collections.abc import Sequence

from klearlib.curation.normalise import readings
from klearlib.curation.signs import is_sign, signed_readings
from klearlib.data.code import REQUESTS
from klearlib.errors import KlearError

Reading = list[list[str]]
"""The words of a text, part by part: where an instruction was cut out, a new part begins."""

MODES = ("words", "whitespace")

INSTRUCTIONS = (
    r"Please reason step by step, and put your final answer within \boxed{}.",
    r"Let's think step by step and output the final answer within \boxed{}.",
    r"Let's think step by step, and put your final answer within \boxed{}.",
    r"Return your final response within \boxed{}.",
    r"Present the answer in LaTeX format: \boxed{Your answer}",
    "Solve the following math problem step by step. The last line of your response should be of "
    "the form Answer: $Answer (without quotes) where $Answer is the answer to the problem.",
    'Remember to put your answer on its own line after "Answer:".',
    "You will be given a question (problem specification) and will generate a correct Python "
    "program that matches the specification and passes all tests.",
    "You will use the following starter code to write the solution to the problem and enclose your "
    "code within delimiters.",
    "Read the inputs from stdin solve the problem and write the answer to stdout (do not directly "
    "test on the sample inputs). Enclose your code within delimiters as follows.",
    "Ensure that when the python program runs, it reads the inputs, runs the algorithm and writes "
    "output to STDOUT.",
    "Generate an executable Python function generated from the given prompt. The function should "
    "take stdin as input and print the output. Simply call the function after the definition.",
    "Generate an executable Python function generated from the given prompt. Return the function "
    "body without invoking it at the final solution.",
)
"""Instructions of Qwen, DAPO, DeepScaleR, LiveCodeBench and OpenThoughts."""


def known_templates(mode: str) -> tuple[str, ...]:
    """The texts around problems that no benchmark is recognised by: what the readers of code
    problems write under them (`data.code.REQUESTS`) and, in mode ``words``, `INSTRUCTIONS`."""
    return REQUESTS if mode == "whitespace" else REQUESTS + INSTRUCTIONS


class Reader:
    """Turns texts into words, as `mode` says, and cuts out `templates`: what stands before and
    behind one are two parts, across which there is no n-gram.

    Raises KlearError for an unknown mode, or templates that are no list of texts.

    >>> Reader(mode="words", templates=["Answer in a box."]).read("Find x. Answer in a box! Now.")
    [[['find', 'x'], ['now']]]
    """

    def __init__(self, *, mode: str, templates: Sequence[str]) -> None:
        if mode not in MODES:
            raise KlearError(f"mode must be {' or '.join(MODES)}, got {mode!r}")
        is_list = isinstance(templates, Sequence) and not isinstance(templates, str)
        if not is_list or not all(isinstance(text, str) for text in templates):
            raise KlearError("templates must be a list of texts: put a single one into a list")
        self._by_blanks = mode == "whitespace"
        cut = {tuple(self._readings(template)[0]) for template in templates} - {()}
        self._template = _pattern(cut, between=" ")
        # A text without any of these words holds no template: most need no search.
        self._longest_words = {max(words, key=len) for words in cut}
        # The same in texts with signs, some of which may stand inside.
        cut = {tuple(_words(signed_readings(template)[0])) for template in templates} - {()}
        self._signed_template = _pattern(cut, between=r" (?:[^\w\s] )*")

    def read(self, text: str) -> list[Reading]:
        """The words of each reading of `text` (`normalise.readings`), part by part."""
        return [self._parts(words) for words in self._readings(text)]

    def read_whole(self, text: str) -> list[str]:
        """The words and signs of each reading of a short `text` (`signs.signed_readings`) in one
        line, without what is cut out and without ``=`` at the end, which asks as "?" does. In mode
        ``words`` alone.

        >>> reader = Reader(mode="words", templates=["Answer in a box."])
        >>> reader.read_whole("2 - x = ? Answer in a box!")
        ['2 - x']
        """
        cut = (self._signed_template.sub(" ", reading) for reading in signed_readings(text))
        return [" ".join(reading.split()).rstrip(" =") for reading in cut]

    def _readings(self, text: str) -> list[list[str]]:
        return [text.lower().split()] if self._by_blanks else readings(text)

    def _parts(self, words: list[str]) -> Reading:
        if self._longest_words.isdisjoint(words):
            return [words]
        # A line break stands for what is cut: no word holds one.
        return [part.split() for part in self._template.sub("\n", " ".join(words)).split("\n")]


def _words(reading: str) -> list[str]:
    return [token for token in reading.split() if not is_sign(token) and token not in "()"]


def _pattern(templates: set[tuple[str, ...]], *, between: str) -> re.Pattern:
    longest_first = sorted(templates, key=lambda words: (-len(words), words))
    alternatives = "|".join(between.join(map(re.escape, words)) for words in longest_first)
    return re.compile(rf"(?<!\S)(?:{alternatives})(?!\S)")
