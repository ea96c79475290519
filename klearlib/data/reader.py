"""One pass over a data set: usable rows out, an account of every row kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from klearlib.data.declaration import Source
from klearlib.data.files import Table
from klearlib.data.rows import Row, UnusableRow, is_sentence
from klearlib.errors import KlearError
from klearlib.records import SourceRow


@dataclass(frozen=True)
class Reject:
    """A row that is not used: `row` is its index in its source from 0, `reason` a word of
    `REASONS`, `detail` one line; `id` and `detail` have at most 300 characters."""

    source: str
    row: int
    id: str
    reason: str
    detail: str


class SourceReader:
    """The usable rows of a data set, one at a time, and an account of the others.

    Every pass (``for row in reader``) starts anew and resets the account. At any moment ``num_kept
    + num_rejected.total() == num_read``.

    Attributes:
        source: the `Source`. name: its name, or the alias that it is read under.
        num_kept: rows so far. num_rejected: rows by reason.
        rejects: the rejected rows so far, where the reader itself is iterated over.
        num_dropped: responses by reason, of rows that were kept with their other responses.
    """

    def __init__(
        self,
        source: Source,
        tables: list[Table],
        read: Callable[[Row], SourceRow],
        *,
        limit: int | None,
        alias: str | None,
    ) -> None:
        self.source = source
        self.name = alias or source.name
        self._tables = tables
        self._read = read
        self._limit = limit
        self._start()

    def _start(self) -> None:
        self.num_kept = 0
        self.num_rejected: Counter[str] = Counter()
        self.num_dropped: Counter[str] = Counter()
        self.rejects: list[Reject] = []
        self._seen: dict[str, int] = {}

    @property
    def num_read(self) -> int:
        """Rows so far."""
        return self.num_kept + self.num_rejected.total()

    def __iter__(self) -> Iterator[SourceRow]:
        for row in self.account():
            if isinstance(row, Reject):
                self.rejects.append(row)
            else:
                yield row

    def account(self) -> Iterator[SourceRow | Reject]:
        """All rows in order, usable or rejected; `rejects` then stays empty."""
        self._start()
        for table in self._tables:
            for columns in table.rows():
                number = self.num_read
                if self._limit is not None and number >= self._limit:
                    return
                try:
                    usable = self._usable(columns, number)
                except UnusableRow as error:
                    self.num_rejected[error.reason] += 1
                    detail = _short(f"{error.row_id}: {error} ({error.reason})")
                    yield Reject(self.name, number, _short(error.row_id), error.reason, detail)
                else:
                    self.num_kept += 1
                    yield usable
        if not self.num_read:
            raise KlearError(f"{self.source.name} has no rows: name other files, or another split")

    def _usable(self, columns: Mapping | UnusableRow, number: int) -> SourceRow:
        if isinstance(columns, UnusableRow):
            raise columns
        row = Row(columns, self.source.name)
        try:
            found = self._read(row)
            _check(found)
        except UnusableRow as error:
            error.row_id = error.row_id or row.id
            raise
        except Exception as error:  # what Python raises over a value of another kind
            message = f"{type(error).__name__}: {error}"
            raise UnusableRow("unknown_format", message, self.name) from error
        alias = f"{self.name}-" if self.name != self.source.name else ""
        problem = replace(found.problem, source=self.name, id=alias + found.problem.id)
        if self.source.has_ids:
            first = self._seen.setdefault(problem.id, number)
            if first != number:
                raise UnusableRow("duplicate_id", f"has the id of row {first}", problem.id)
        self.num_dropped.update(found.dropped)
        return replace(found, problem=problem, licence=found.licence or self.source.licence)


def _short(text: str) -> str:
    """One line of at most 300 characters that UTF-8 can hold."""
    return " ".join(text.split()).encode(errors="backslashreplace").decode()[:300]


def _check(found: SourceRow) -> None:
    """Refuse an answer that is a sentence, and what no table can hold: it would end the run that
    writes it, hours later."""
    problem = found.problem
    texts = [problem.id, problem.prompt, problem.entry_point, problem.family, problem.date]
    texts += [*problem.golds, found.licence, *(response.text for response in found.responses)]
    # One by one: tests may have hundreds of megabytes.
    texts += (text for test in problem.tests for text in vars(test).values())
    for text in filter(None, texts):
        text.encode()  # raises over half a surrogate pair, which JSON may hold
    for gold in problem.golds:
        if is_sentence(gold):
            raise UnusableRow("sentence", f"the answer is a whole sentence: {gold!r}")
