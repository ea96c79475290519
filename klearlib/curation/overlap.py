"""Which prompts share an n-gram of words with a benchmark (section 3.1; the paper cites AceReason).

The paper says "9-gram overlap" and no more. Here words are those of `normalise`, instructions
around a problem are cut out of both sides, and any shared n-gram removes a prompt. So does being
equal to a benchmark item, which finds those of fewer than n words too; in these the signs count
(`normalise.signed`), so that "What is a - b?" is not "What is a + b?".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from klearlib.curation.normalise import deduplicate, is_word, printed, signed, texts_of, words
from klearlib.data.code import REQUESTS
from klearlib.errors import KlearError

__all__ = ["OverlapIndex", "Removal", "contaminated", "deduplicate"]


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

KNOWN_TEMPLATES = REQUESTS + INSTRUCTIONS
"""The texts around problems that no benchmark is recognised by: `INSTRUCTIONS` and what the readers
of code problems write under them."""


@dataclass(frozen=True)
class Removal:
    """Why a prompt is not trained on: the n-gram that it shares with a benchmark item.

    `ngram`: of those that it shares, the first that the fewest items hold; for a prompt that equals
    an item that n-grams do not find, the whole text, with its signs where it is short.
    `num_items`: benchmark items that hold it, equal ones counted once; `item_id` is the first of
    them. `is_boilerplate`: every n-gram that the prompt shares is held by several items, so it may
    be a phrase ("where m and n are relatively prime positive integers") and no problem.
    """

    benchmark: str
    item_id: str
    ngram: str
    num_items: int
    is_boilerplate: bool


class OverlapIndex:
    """The n-grams of benchmarks, and the search for them in prompts.

    Args:
        benchmarks: by name, the (id, text) of its items.
        n: words of an n-gram, at least 1.
        templates: texts that are cut out of items and prompts before the search: what stands before
            and behind one are two parts, across which there is no n-gram. None: `KNOWN_TEMPLATES`.
        stop_more_than: n-grams that more than so many items hold remove nothing; None stops none.
            An item of which no n-gram is left still removes a prompt of equal words.

    Attributes: `num_items` (different ones), `num_ngrams` (searched for), `num_stopped`.

    The search is exact and looks at few n-grams: where the last words of one are in no n-gram of a
    benchmark, all that hold these words are passed over.

    Raises:
        KlearError: a bad parameter, or a benchmark without items.

    >>> items = [("7", "How many ways are there to seat ten guests around a round table?")]
    >>> index = OverlapIndex({"aime": items})
    >>> found = index.removals([
    ...     "Compute: how many ways are there to seat TEN guests, given that two are twins?",
    ...     "In how many ways can ten guests sit around a round table?",
    ... ])
    >>> found[0].item_id, found[0].ngram, found[1]
    ('7', 'how many ways are there to seat ten guests', None)
    """

    def __init__(
        self,
        benchmarks: Mapping[str, Iterable[tuple[str, str]]],
        *,
        n: int = 9,
        templates: Sequence[str] | None = None,
        stop_more_than: int | None = None,
    ) -> None:
        if type(n) is not int or n < 1:
            raise KlearError(f"n must be a positive whole number, got {n!r}")
        self._n = n
        templates = KNOWN_TEMPLATES if templates is None else [*texts_of(templates, "templates")]
        cut = {tuple(words(printed(template))) for template in templates} - {()}
        self._template = _pattern(cut, between=" ")
        # A text without any of these words holds no template: most need no search.
        self._longest_words = {max(found, key=len) for found in cut}
        # The same in texts with signs, some of which may stand inside.
        cut = {tuple(filter(is_word, signed(template).split())) for template in templates} - {()}
        self._signed_template = _pattern(cut, between=r" (?:[^\w\s] )*")

        self._items: list[tuple[str, str]] = []  # benchmark and id of each different item
        self._equal: dict[str, Removal] = {}
        numbers: dict[str, int] = {}  # of the items, by their words
        holders: dict[str, set[int]] = {}  # n-gram -> the items that hold it
        for benchmark, items in benchmarks.items():
            if not (items := list(items)):
                raise KlearError(f"benchmark {benchmark!r} has no items: load it before the search")
            for item_id, text in items:
                parts = self._parts(text)
                whole = self._whole(text, parts)
                number = numbers.setdefault(whole, len(self._items))
                if number == len(self._items):
                    self._items.append((benchmark, item_id))
                for found in parts:
                    for start in range(len(found) - n + 1):
                        holders.setdefault(" ".join(found[start : start + n]), set()).add(number)
                if whole:
                    removal = Removal(*self._items[number], whole, 1, False)
                    self._equal.setdefault(whole, removal)
        # n-gram -> the first item that holds it, and how many do
        self._ngrams = {
            ngram: (min(numbers), len(numbers))
            for ngram, numbers in holders.items()
            if stop_more_than is None or len(numbers) <= stop_more_than
        }
        self.num_items, self.num_ngrams = len(self._items), len(self._ngrams)
        self.num_stopped = len(holders) - self.num_ngrams
        # Longer pieces are rarer, shorter ones let more words be passed over: for n = 9 pieces of
        # 3, 4 and 5 words take the same time within a tenth.
        self._piece_size = size = max(1, n // 2)
        self._pieces = {
            " ".join(found[i : i + size])
            for found in map(str.split, self._ngrams)
            for i in range(n - size + 1)
        }

    def removals(self, prompts: Iterable[str]) -> list[Removal | None]:
        """For each prompt why it is removed, None where it is kept."""
        return [*map(self.removal, texts_of(prompts, "prompts"))]

    def removal(self, prompt: str) -> Removal | None:
        """Why this prompt is removed, None where it is kept."""
        parts = self._parts(prompt)
        shared = chain.from_iterable(map(self._shared_with, parts))
        ngram = min(shared, key=lambda ngram: self._ngrams[ngram][1], default=None)
        if ngram is not None:
            first, count = self._ngrams[ngram]
            return Removal(*self._items[first], ngram, count, count > 1)
        return self._equal.get(self._whole(prompt, parts))

    def _parts(self, text: str) -> list[list[str]]:
        """The words of `text`, part by part: where a template was cut out, a new part begins."""
        found = words(printed(text))
        if self._longest_words.isdisjoint(found):
            return [found]
        # A line break stands for what is cut: no word holds one.
        return [part.split() for part in self._template.sub("\n", " ".join(found)).split("\n")]

    def _whole(self, text: str, parts: list[list[str]]) -> str:
        """What a text is compared by as a whole: its words, and for fewer than n words the signs as
        well; "" for a text without words."""
        found = " ".join(chain.from_iterable(parts))
        if found and sum(map(len, parts)) < self._n:
            return " ".join(self._signed_template.sub(" ", signed(text)).split()).rstrip(" =")
        return found

    def _shared_with(self, words: list[str]) -> Iterator[str]:
        """The n-grams of `words` that a benchmark has, in order."""
        n, size, join = self._n, self._piece_size, " ".join
        place = n - size  # of the piece at the end of an n-gram
        while place <= len(words) - size:
            end = place + size
            if join(words[place:end]) not in self._pieces:
                place += n - size + 1  # past all n-grams that hold it
                continue
            if (ngram := join(words[end - n : end])) in self._ngrams:
                yield ngram
            place += 1


def contaminated(prompts: Sequence[str], benchmarks: Sequence[str], *, n: int = 9) -> np.ndarray:
    """Whether each prompt shares an n-gram of words with any of the benchmark texts.

    A prompt that is equal to a benchmark text, word by word and however short, counts too; of fewer
    than n words its signs must be equal as well. `OverlapIndex` says with which item.

    Args:
        prompts: N texts.
        benchmarks: texts, in any number.
        n: words of an n-gram, 9 in the paper.

    Returns:
        bool [N], True where the prompt must not be trained on.

    Raises:
        KlearError: n below 1, or something that is no list of texts.

    >>> contaminated(["FIND $a-b$.", "Find a + b."], ["Find a − b!"]).tolist()
    [True, False]
    """
    items = [(str(number), text) for number, text in enumerate(texts_of(benchmarks, "benchmarks"))]
    index = OverlapIndex({"benchmarks": items} if items else {}, n=n)
    return np.array([removal is not None for removal in index.removals(prompts)], dtype=bool)


def _pattern(templates: set[tuple[str, ...]], *, between: str) -> re.Pattern:
    longest_first = sorted(templates, key=lambda words: (-len(words), words))
    alternatives = "|".join(between.join(map(re.escape, words)) for words in longest_first)
    return re.compile(rf"(?<!\S)(?:{alternatives})(?!\S)")
