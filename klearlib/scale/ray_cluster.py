"""The Ray cluster that stages may run on: where it is, and the connection to it."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator

from klearlib.errors import KlearError, ParameterError
from klearlib.run.devices import gpus
from klearlib.run.provenance import num_cores
from klearlib.scale.require import require_ray

RAY, CLIENT, LOCAL = "ray", "ray://", "local"
ADDRESS = "RAY_ADDRESS"
"""The standard variable that names a Ray cluster: "host:port" of its head, or "ray://host:port"."""
_CLIENT_ADDRESS = re.compile(rf"{CLIENT}[^\s/]+:\d{{1,5}}")
ANSWER_S = 10.0
"""Seconds that a cluster has to take a connection."""


def check_workers(workers: object) -> int | str:
    """`workers` if it is a whole number from 0, "ray" or "ray://host:port"; ParameterError
    otherwise.

    A number counts stages at once on this machine, 0 for one per GPU, or per core without. "ray" is
    the cluster that `RAY_ADDRESS` names, or a Ray of this machine for the time of the run where
    there is no such variable.
    """
    if type(workers) is int and workers >= 0:
        return workers
    if isinstance(workers, str) and (workers == RAY or _CLIENT_ADDRESS.fullmatch(workers)):
        return workers
    raise ParameterError(
        f"workers is {workers!r}: give a whole number (0 for one per core or GPU), or ray or "
        "ray://host:port for a Ray cluster"
    )


def address_of(workers: str) -> str:
    """What `workers` that are on Ray connect to: the address of a cluster, or "local"."""
    return workers if workers != RAY else os.environ.get(ADDRESS) or LOCAL


def runs_here(workers: int | str) -> bool:
    """Whether the stages run on this machine, by Ray or without it."""
    return isinstance(workers, int) or address_of(workers) == LOCAL


def in_words(workers: str) -> str:
    """The cluster of `workers` for people.

    >>> in_words("ray://head:10001")
    'the Ray cluster at ray://head:10001'
    """
    address = address_of(workers)
    return "a Ray of this machine" if address == LOCAL else f"the Ray cluster at {address}"


@contextlib.contextmanager
def connected(workers: str, **given) -> Iterator[None]:
    """Within it this process is connected to the Ray cluster of `workers`.

    A Ray that was started for it ends with it; a connection that was there before is used, and
    stays. given: keywords of `ray.init` that go before ours and need a new connection.

    Raises:
        MissingAsset: Ray is not installed.
        KlearError: the cluster does not answer, or has another version of Ray or of Python.
    """
    require_ray()
    set_variables(workers)
    import ray

    if ray.is_initialized() and not given:
        yield
        return
    address = address_of(workers)
    arguments = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    if address == LOCAL:
        arguments |= {"num_cpus": num_cores(), "num_gpus": len(gpus()), "include_dashboard": False}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        try:
            host, _, port = address.removeprefix(CLIENT).rpartition(":")
            if port.isdecimal():  # Ray would try for a minute
                socket.create_connection((host.strip("[]"), int(port)), ANSWER_S).close()
            ray.init(address, **arguments | given)
        except Exception as error:  # Ray raises no narrower class for a start that takes too long
            fix = "does not answer ({}): start it, or correct the address"
            if address == LOCAL:
                fix = "does not start ({}): fix that, or join a cluster with RAY_ADDRESS"
            raise KlearError(f"{in_words(workers)} {fix.format(cause_of(error))}") from None
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler or signal.SIG_DFL)  # Ray has taken it
        yield
    finally:  # also where it came half-way: a client would refuse every later connection
        ray.shutdown()


def set_variables(workers: str) -> None:
    """Set what Ray reads when it is first imported, where `workers` are on a Ray of our own: that
    it stays off the network, and reports nothing to its makers."""
    if address_of(workers) == LOCAL:
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")


def cause_of(error: BaseException) -> str:
    """One line for an error of Ray or of what ran on it: the last one, which holds the cause."""
    cause = getattr(error, "cause", None) or error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return lines[-1][:400] if lines else type(cause).__name__
