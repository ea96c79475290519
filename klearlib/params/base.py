"""What every notebook's parameters have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from klearlib.params.fields import Record, parameter
from klearlib.scale.ray_cluster import check_workers

WORKERS = {
    "check": check_workers,
    "keyed": False,
    "help": "processes at once, 0 is one per core or GPU; or ray, or ray://host:port",
}
"""The field `workers` of a notebook that runs stages."""


@dataclass(frozen=True)
class NotebookParams(Record):
    """The base of every notebook's record.

    worlds: the embedded worlds that it needs, by the names of `klearlib.params.load`.
    """

    worlds: ClassVar[tuple[str, ...]] = ()

    profile: str = parameter("smoke", help="folder in params/ and results/")
