"""Where stages run: on this machine, so many at once, or on a Ray cluster."""

from __future__ import annotations

import os
import re

from klearlib.errors import ParameterError

RAY, CLIENT, LOCAL = "ray", "ray://", "local"
ADDRESS = "RAY_ADDRESS"
"""The standard variable that names a Ray cluster: "host:port" of its head, or "ray://host:port"."""
_CLIENT_ADDRESS = re.compile(rf"{CLIENT}[^\s/]+:\d{{1,5}}")


def check_workers(workers: object) -> int | str:
    """`workers` if it is a whole number from 0, "ray" or "ray://host:port".

    A number counts stages at once on this machine, 0 for one per GPU, or per core without. "ray" is
    the cluster that `RAY_ADDRESS` names, or a Ray of this machine for the time of the run where
    there is no such variable.

    Raises ParameterError for anything else.

    >>> check_workers(4), check_workers("ray"), check_workers("ray://head:10001")
    (4, 'ray', 'ray://head:10001')
    """
    if type(workers) is int and workers >= 0:
        return workers
    if isinstance(workers, str) and (workers == RAY or _CLIENT_ADDRESS.fullmatch(workers)):
        return workers
    raise ParameterError(
        f"workers is {workers!r}: give a whole number, 0 for one per core or GPU, or ray, or "
        "ray://host:port for a Ray cluster"
    )


def address_of(workers: str) -> str:
    """What `workers` that are on Ray connect to: the address of a cluster, or "local".

    >>> address_of("ray://head:10001")
    'ray://head:10001'
    """
    return workers if workers != RAY else os.environ.get(ADDRESS) or LOCAL


def runs_here(workers: int | str) -> bool:
    """Whether the stages run on this machine, by Ray or without it.

    >>> runs_here(0), runs_here("ray://head:10001")
    (True, False)
    """
    return isinstance(workers, int) or address_of(workers) == LOCAL


def in_words(workers: str) -> str:
    """The cluster of `workers` for people.

    >>> in_words("ray://head:10001")
    'the Ray cluster at ray://head:10001'
    """
    address = address_of(workers)
    return "a Ray of this machine" if address == LOCAL else f"the Ray cluster at {address}"
