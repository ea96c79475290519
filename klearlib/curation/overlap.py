"""Which prompts share an n-gram of words with a benchmark (section 3.1; the paper cites AceReason).

The paper says "9-gram overlap" and no more. Here words are those of `normalise`, instructions
around a problem are cut out of both sides, and any shared n-gram removes a prompt. So does being
equal to a benchmark item, which finds those of fewer than n words too; in these the signs count
(`signs`), so that "What is a - b?" is not "What is a + b?".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from klearlib.curation.chunks import chunks
from klearlib.curation.duplicates import deduplicate, texts_of
from klearlib.curation.overlap_words import Reader, Reading, known_templates
from klearlib.curation.overlap_worker import results_in_order
from klearlib.errors import KlearError

__all__ = ["OverlapIndex", "Removal", "contaminated", "deduplicate"]

_BATCH = 2048  # prompts that a process gets at a time


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
        mode: ``words`` is the rule of this module. ``whitespace`` is that of open-r1: lower case,
            words between blanks, no equality of short texts, no instructions cut out.
        templates: texts that are cut out of items and prompts before the search. None:
            `overlap_words.known_templates` of the mode.
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
        mode: str = "words",
        templates: Sequence[str] | None = None,
        stop_more_than: int | None = None,
    ) -> None:
        self._n = _count("n", n)
        templates = known_templates(mode) if templates is None else templates
        self._reader = Reader(mode=mode, templates=templates)
        self._signed_below = n if mode == "words" else 0
        self._items: list[tuple[str, str]] = []  # benchmark and id of each different item
        self._equal: dict[str, Removal] = {}
        numbers: dict[str, int] = {}  # of the items, by their words
        holders: dict[str, set[int]] = {}  # n-gram -> the items that hold it
        for name, text in _items_of(benchmarks):
            readings = self._reader.read(text)
            wholes = self._wholes(text, readings)
            number = numbers.setdefault(wholes[0] if wholes else "", len(self._items))
            if number == len(self._items):
                self._items.append(name)
            for ngram in chain.from_iterable(map(self._ngrams, chain.from_iterable(readings))):
                holders.setdefault(ngram, set()).add(number)
            for whole in wholes if mode == "words" else ():
                self._equal.setdefault(whole, Removal(*self._items[number], whole, 1, False))
        self._num_holders = {ngram: len(items) for ngram, items in holders.items()}
        self._first_holder = {ngram: min(items) for ngram, items in holders.items()}
        if stop_more_than is not None:
            for ngram, _ in self.common_ngrams(more_than=stop_more_than):
                del self._first_holder[ngram]
        self.num_items, self.num_ngrams = len(self._items), len(self._first_holder)
        self.num_stopped = len(holders) - self.num_ngrams
        # Longer pieces are rarer, shorter ones let more words be passed over: for n = 9 pieces of
        # 3, 4 and 5 words take the same time within a tenth.
        self._piece_size = size = max(1, n // 2)
        self._pieces = {
            " ".join(words[i : i + size])
            for words in map(str.split, self._first_holder)
            for i in range(n - size + 1)
        }

    def removals(self, prompts: Iterable[str], *, workers: int = 1) -> list[Removal | None]:
        """For each prompt why it is removed, None where it is kept. See `stream`."""
        return list(self.stream(prompts, workers=workers))

    def stream(self, prompts: Iterable[str], *, workers: int = 1) -> Iterator[Removal | None]:
        """The same, one at a time and in order, for prompts that need not fit into memory.

        Args:
            workers: processes; 1 is this one. They are started for this call, each with a copy of
                the index, and end with it, so give them many prompts. The removals are the same
                for any number. Where `prompts` fails or holds what is no text, several processes
                have read ahead, and fewer removals come before the error than of one.

        Raises:
            KlearError: a prompt that is no text, a bad `workers`, a process that was killed.
        """
        texts = texts_of(prompts, "prompts")
        if _count("workers", workers) == 1:
            return (self._removal(prompt) for prompt in texts)
        return results_in_order(self, chunks(texts, _BATCH), workers)

    def common_ngrams(self, *, more_than: int) -> list[tuple[str, int]]:
        """The n-grams that more than so many items hold, with their number; the commonest first.

        What a stop list (`stop_more_than`) would hold, stopped ones included.
        """
        _count("more_than", more_than)
        found = [pair for pair in self._num_holders.items() if pair[1] > more_than]
        return sorted(found, key=lambda pair: (-pair[1], pair[0]))

    def _wholes(self, text: str, readings: list[Reading]) -> list[str]:
        """What a text is compared by as a whole: the words of each reading, and for fewer than n
        words the signs as well. A text without words has nothing."""
        wholes = [list(chain.from_iterable(parts)) for parts in readings]
        found = [" ".join(words) for words in wholes if len(words) >= self._signed_below]
        if len(found) < len(wholes) and any(wholes):
            found += self._reader.read_whole(text)
        return list(filter(None, found))

    def _ngrams(self, words: list[str]) -> Iterator[str]:
        return (" ".join(words[i : i + self._n]) for i in range(len(words) - self._n + 1))

    def _shared_with(self, words: list[str]) -> list[str]:
        """The n-grams of `words` that a benchmark has, in order."""
        n, size, join = self._n, self._piece_size, " ".join
        place, shared = n - size, []  # of the piece at the end of an n-gram
        while place <= len(words) - size:
            end = place + size
            if join(words[place:end]) not in self._pieces:
                place += n - size + 1  # past all n-grams that hold it
                continue
            if (ngram := join(words[end - n : end])) in self._first_holder:
                shared.append(ngram)
            place += 1
        return shared

    def _removal(self, prompt: str) -> Removal | None:
        readings = self._reader.read(prompt)
        shared = [
            ngram for parts in readings for words in parts for ngram in self._shared_with(words)
        ]
        if shared:
            ngram = min(shared, key=self._num_holders.__getitem__)
            count = self._num_holders[ngram]
            return Removal(*self._items[self._first_holder[ngram]], ngram, count, count > 1)
        wholes = self._wholes(prompt, readings) if self._equal else ()
        return next((self._equal[whole] for whole in wholes if whole in self._equal), None)


def contaminated(prompts: Sequence[str], benchmarks: Sequence[str], *, n: int = 9) -> np.ndarray:
    """Whether each prompt shares an n-gram of words with any of the benchmark texts.

    A prompt that is equal to a benchmark text, word by word and however short, counts too; of fewer
    than n words its signs must be equal as well. `OverlapIndex` says with which item, and takes
    streams and several cores.

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
    return np.array([removal is not None for removal in index.stream(prompts)], dtype=bool)


def _count(name: str, value: int) -> int:
    if type(value) is not int or value < 1:
        raise KlearError(f"{name} must be a whole number from 1, got {value!r}")
    return value


def _items_of(benchmarks) -> Iterator[tuple[tuple[str, str], str]]:
    """Each item with its name, (benchmark, id)."""
    for benchmark, rows in benchmarks.items():
        if not (rows := list(rows)):
            raise KlearError(f"benchmark {benchmark!r} has no items: load it before the search")
        for item_id, text in rows:
            if not isinstance(text, str):
                raise KlearError(f"an item of {benchmark!r} must be a text, got {text!r}")
            yield (benchmark, item_id), text
