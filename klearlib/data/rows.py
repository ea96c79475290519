"""A raw row: its columns by type, JSON within text, its id, and why it cannot be used."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import pickle
import re
import zlib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from types import UnionType

from klearlib.errors import KlearError

_REASONS = """
    missing_column no_problem no_answer no_response no_think unclosed_think uneven_labels
    invalid_problem invalid_solution proof bad_json bad_packing bad_python bad_date
    unknown_format no_tests uneven_tests mixed_kinds no_entry_point undefined_names
    integer_keys needs_files needs_pytest needs_classes needs_checker needs_interaction
    not_executable outside_window duplicate_id sentence
"""
REASONS = tuple(_REASONS.split())
"""Why a row, or one response of it, is not used; docs/datasets.md explains each."""

_VERBS = {"is", "are", "was", "were", "has", "have", "had", "exist", "exists", "does", "do", "can"}
_VERBS |= {"cannot", "must", "will", "hold", "holds", "equals", "if"}


class UnusableRow(KlearError):
    """A row, or a response, that is not used: `reason` is a word of `REASONS`. `row_id` says where
    a row stands that has no columns; "" for the id that its `Row` has."""

    def __init__(self, reason: str, message: str, row_id: str = "") -> None:
        assert reason in REASONS, reason
        super().__init__(message)
        self.reason = reason
        self.row_id = row_id


class Row:
    """The columns of a row by type. `id` is the data set's name until a reader knows better.

    What Python itself raises over a value of another kind makes the row ``unknown_format``.
    """

    def __init__(self, columns: Mapping, name: str) -> None:
        self.columns = columns
        self.name = self.id = name

    def value(self, column: str, *, optional: bool = False) -> object:
        """The value of a column that the row must have, or an optional one's or None."""
        if column not in self.columns and not optional:
            raise UnusableRow("missing_column", f"has no column {column!r}")
        return self.columns.get(column)

    def text(self, column: str, *, optional: bool = False) -> str:
        r"""A column's text with ``\n`` as line end; "" for None, or an absent optional one."""
        value = self.value(column, optional=optional)
        return "" if is_null(value) else value.replace("\r\n", "\n")

    def items(
        self, column: str, kind: type | UnionType = object, *, optional: bool = False
    ) -> list:
        """A column's list, all of whose items are of a kind; [] for None, or an absent optional
        one."""
        value = self.value(column, optional=optional)
        items = [] if value is None else value
        if not isinstance(items, list) or not all(isinstance(item, kind) for item in items):
            wanted = getattr(kind, "__name__", str(kind))
            message = f"{column} must be a list of {wanted}, got {type(value).__name__}"
            raise UnusableRow("unknown_format", message)
        return items

    def question(self, column: str) -> str:
        """The text of a problem, without blanks around it; ``no_problem`` where it is empty."""
        text = self.text(column).strip()
        if not text:
            raise UnusableRow("no_problem", f"{column} is empty")
        return text

    def asked(self, column: str) -> str:
        """`question`, whose hash becomes the row's id."""
        question = self.question(column)
        self.hash_id(question)
        return question

    def user_prompt(self, column: str) -> str:
        """The prompt in a column of messages of a user, and of a system, in their order."""
        pairs = message_texts(self.value(column))
        if not {role for role, _ in pairs} <= {"user", "system"}:
            raise UnusableRow(
                "unknown_format", f"{column} must have messages of user and system only"
            )
        prompt = "\n\n".join(text.strip() for _, text in pairs).strip()
        if not prompt:
            raise UnusableRow("no_problem", f"{column} is empty")
        return prompt

    def answer(self, column: str) -> str:
        """The gold answer in a column, see `gold_text`."""
        return gold_text(self.value(column), column)

    def truth(self) -> object:
        """``reward_model.ground_truth``, None where there is none."""
        model = self.value("reward_model")
        return model.get("ground_truth") if isinstance(model, Mapping) else None

    def cases(self, question: str, value: object, column: str, *also: str) -> object:
        """The tests in a column, see `json_or_none`; the row's id becomes a hash of the question,
        of the tests, whether the column holds JSON or its value, and of what its prompt has
        `also`."""
        self.hash_id(question)
        cases = json_or_none(value, column)
        self.hash_id(question, json.dumps(cases), *filter(None, also))
        return cases

    def hash_id(self, *parts: str) -> None:
        """An id for a row that has none: equal rows have equal ids, whatever their order."""
        digest = hashlib.sha256("\x1f".join(parts).encode(errors="surrogatepass")).hexdigest()
        self.id = f"{self.name}-{digest[:16]}"

    def own_id(self, column: str) -> str:
        """The id that a data set gives to a row, as text: a whole number without a point. It
        becomes the row's, behind the data set's name. ``unknown_format`` for null, "" or a list."""
        value = self.value(column)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        text = str(value).strip() if type(value) in (int, str) else ""
        if not text:
            message = f"{column} must be an id, a text or a whole number, got {value!r}"
            raise UnusableRow("unknown_format", message)
        self.id = f"{self.name}-{text}"
        return text


def is_null(value: object) -> bool:
    """Whether a value is None, or the NaN that pandas writes in its place."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def gold_text(value: object, column: str) -> str:
    """A gold answer as text; numbers are written out, 73.0 as 73.

    Raises UnusableRow: ``no_answer`` where it is null, NaN or empty, ``unknown_format`` where it is
    neither text nor a finite number.
    """
    if is_null(value) or (isinstance(value, str) and not value.strip()):
        raise UnusableRow("no_answer", f"{column} is null or empty")
    if isinstance(value, str):
        return value.replace("\r\n", "\n").strip()
    if type(value) not in (int, float) or math.isinf(value):
        message = f"{column} must be text or a finite number, got {value!r}"
        raise UnusableRow("unknown_format", message)
    return str(value) if type(value) is int else format(Decimal(str(value)).normalize(), "f")


def is_sentence(answer: str) -> bool:
    r"""Whether a gold answer is a whole sentence, which no response can be compared with.

    >>> is_sentence("The function has no real roots."), is_sentence(r"\text{all real numbers}")
    (True, False)
    """
    words = re.findall(r"[A-Za-z]{2,}", re.sub(r"\\[A-Za-z]+", " ", answer))
    return len(words) >= 10 or (len(words) >= 4 and any(w.lower() in _VERBS for w in words))


def message_texts(
    value: Sequence[Mapping[str, str]], *, role: str = "role", text: str = "content"
) -> list[tuple[str, str]]:
    """The (role, text) pairs of a column of messages."""
    return [(message[role], message[text].replace("\r\n", "\n")) for message in value]


def parsed(value: object, column: str) -> object:
    """The value that JSON in `column` stands for; what is neither text nor bytes stays as it is."""
    if not isinstance(value, str | bytes):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise UnusableRow("bad_json", f"{column} is not valid JSON: {error}") from error


def json_or_none(value: object, column: str) -> object:
    """What `parsed` gives, and None for blank text too."""
    if isinstance(value, str) and not value.strip():
        return None
    return parsed(value, column)


class _TextUnpickler(pickle.Unpickler):
    """Looks up no class and no function, so that nothing of the pickle is run."""

    def find_class(self, module: str, name: str) -> object:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def unpacked(text: str, column: str) -> str:
    """The text in base64(zlib(pickle(text))), LiveCodeBench's packing of its private tests."""
    try:
        pickled = zlib.decompress(base64.b64decode(text, validate=True))
        found = _TextUnpickler(io.BytesIO(pickled)).load()
    except Exception as error:  # a broken pickle raises whatever it comes upon
        message = f"{column} is neither JSON nor base64 of zlib of a pickled text: {error}"
        raise UnusableRow("bad_packing", message) from error
    if not isinstance(found, str):
        raise UnusableRow("bad_packing", f"{column} packs a {type(found).__name__}, not a text")
    return found
