"""Exact duplicates among prompts, of which the first is kept."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from klearlib.curation.normalise import duplicate_key
from klearlib.errors import KlearError

_DIGEST_BYTES = 16  # two of 1.5 million prompts meet by chance once in 10**26 runs


def duplicate_digest(prompt: str) -> bytes:
    """16 bytes that two prompts share where `normalise.duplicate_key` says they are the same."""
    return blake2b(duplicate_key(prompt), digest_size=_DIGEST_BYTES).digest()


class Deduplicator:
    """Remembers the prompts that it has seen, 16 bytes of a hash for each, for streams of any
    length.

    >>> seen = Deduplicator()
    >>> seen.is_new(["Find x.", "find  X", "Find y."])
    [True, False, True]
    >>> seen.is_new(["Find y"]), len(seen)
    ([False], 2)
    """

    def __init__(self) -> None:
        self._digests: set[bytes] = set()

    def __len__(self) -> int:
        """Different prompts seen."""
        return len(self._digests)

    def is_new(self, prompts: Iterable[str]) -> list[bool]:
        """For each prompt, whether it is the first of its kind, in this call and all before.

        Raises KlearError for a prompt that is no text; those before it count as seen.
        """
        check_texts(prompts, "prompts")
        digests, flags = self._digests, []
        for prompt in prompts:
            if not isinstance(prompt, str):
                raise KlearError(f"a prompt must be a text, got {type(prompt).__name__}")
            num_before = len(digests)
            digests.add(duplicate_digest(prompt))
            flags.append(len(digests) > num_before)
        return flags


def check_texts(texts: object, name: str) -> None:
    """KlearError where `texts` cannot be many texts; the texts are looked at as they come."""
    if isinstance(texts, str):
        raise KlearError(f"{name} must be a list of texts, got one text: put it into a list")
    if not isinstance(texts, Iterable):
        raise KlearError(f"{name} must be a list of texts, got {type(texts).__name__}")


def deduplicate(prompts: Iterable[str]) -> list[int]:
    """The indices of the prompts that are kept, ascending: of equal prompts the first.

    Case, blanks, the Unicode form, markup, ``$`` and punctuation at the end make no difference;
    other signs, exponents and the blocks of a program do (see `normalise.duplicate_key`).

    Raises:
        KlearError: a prompt that is no text.

    >>> deduplicate(["What is 2 + 2?", "what is 2+2", "What is 2 - 2?", "What is 2 + 2?"])
    [0, 2]
    """
    return [index for index, new in enumerate(Deduplicator().is_new(prompts)) if new]
