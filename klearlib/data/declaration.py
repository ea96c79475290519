"""How a data set is declared: where it is, what its rows must have, and how one is read.

@data_set("nvidia/AceReason-Math", domain="math", licence="cc-by-4.0", columns="problem answer")
def acereason_math(row):
    question = row.asked("problem")
    return SourceRow(Problem(row.id, question, row.answer("answer")))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from klearlib.errors import KlearError
from klearlib.records import SourceRow


@dataclass(frozen=True)
class Source:
    """A data set: where it is, what its rows must have, how one is read, under which licence.

    `name` is what `read_source` takes and `Problem.source` says; `domain` is ``math``, ``code`` or
    ``both``; `licence` is ``unknown`` where nobody has read the card. Of `columns` (``a|b`` means
    either) every row must have each; `optional` ones are read where they are there. `config`,
    `split` and `hub_file` are for the hub, see `files.open_hub`. With `has_ids`, ids are the data
    set's own and must differ; without, an id is a hash of the question (of some data sets with its
    tests).
    """

    name: str
    hub_id: str
    domain: str
    licence: str
    columns: tuple[str, ...]
    read: Callable[..., SourceRow]
    optional: tuple[str, ...] = ()
    config: str | None = None
    split: str = "train"
    hub_file: str | None = None
    has_ids: bool = False

    @property
    def wanted(self) -> tuple[str, ...]:
        """All columns that `read` looks at."""
        return (*(name for c in self.columns for name in c.split("|")), *self.optional)

    def check_columns(self, columns: tuple[str, ...]) -> None:
        """Raises KlearError for a table without a column that every row must have."""
        missing = [c for c in self.columns if not set(c.split("|")) & set(columns)]
        if missing:
            words = ", ".join(c.replace("|", " or ") for c in missing)
            raise KlearError(
                f"{self.name} ({self.hub_id}) needs the column {words}; "
                f"found: {', '.join(sorted(columns)) or 'none'}"
            )


def data_set(
    hub_id: str, domain: str, licence: str, columns: str, *, optional: str = "", **declared: object
) -> Callable[..., Source]:
    """Declare a function of a `Row` as the `Source` of its name, or of another one; columns are
    words of a text."""

    def declare(read: Callable[..., SourceRow], name: str = "") -> Source:
        name, needed, more = name or read.__name__, tuple(columns.split()), tuple(optional.split())
        return Source(name, hub_id, domain, licence, needed, read, more, **declared)

    return declare
