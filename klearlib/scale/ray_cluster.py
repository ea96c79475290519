"""The Ray cluster that stages may run on: where it is, and the connection to it."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator

from klearlib.errors import KlearError, ParameterError
from klearlib.run.provenance import gpus, num_cores
from klearlib.scale.require import require_ray

RAY, LOCAL = "ray", "local"
ADDRESS = "RAY_ADDRESS"
"""The standard variable that names a Ray cluster: "host:port" of its head, or "ray://host:port"."""
ANSWER_S = 10.0
"""Seconds that a cluster has to accept a connection."""


def check_workers(workers: object) -> int | str:
    """`workers` if it is a whole number from 0, or "ray"; ParameterError otherwise.

    A number means that many stages at a time on this machine, 0 one per GPU, or per core without
    GPUs. "ray" is the cluster that `ADDRESS` names, or, if that is not set, a Ray on this machine
    during the run.
    """
    if (type(workers) is int and workers >= 0) or workers == RAY:
        return workers
    raise ParameterError(
        f"workers is {workers!r}: give a whole number (0 for one per core or GPU), or ray for the "
        f"Ray cluster that {ADDRESS} names"
    )


def cluster_address() -> str:
    """The address of the cluster that stages on Ray join; "" for a Ray of this machine."""
    address = os.environ.get(ADDRESS, LOCAL)
    return "" if address == LOCAL else address


def in_words() -> str:
    """The Ray that stages run on, for people."""
    address = cluster_address()
    return f"the Ray cluster at {address}" if address else "a Ray of this machine"


@contextlib.contextmanager
def connected(**given) -> Iterator[None]:
    """Connects this process to the Ray that stages run on.

    A Ray that was started for the block ends with it; an existing connection is used, and stays.
    given: keywords of `ray.init` that override ours and need a new connection.

    Raises:
        MissingAsset: Ray is not installed.
        KlearError: the cluster does not answer, or has another version of Ray or of Python.
    """
    require_ray()
    set_variables()
    import ray

    if ray.is_initialized() and not given:
        yield
        return
    address = cluster_address()
    arguments = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    if not address:
        arguments |= {"num_cpus": num_cores(), "num_gpus": len(gpus()), "include_dashboard": False}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        try:
            host, _, port = address.removeprefix("ray://").rpartition(":")
            if port.isdecimal():  # Ray would try for a minute
                socket.create_connection((host.strip("[]"), int(port)), ANSWER_S).close()
            _join(address or LOCAL, arguments | given)
        except Exception as error:  # Ray raises no narrower class for a start that takes too long
            fix = "does not answer ({}): start it, or correct the address"
            if not address:
                fix = "does not start ({}): fix that, or join a cluster with RAY_ADDRESS"
            raise KlearError(f"{in_words()} {fix.format(cause_of(error))}") from None
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler or signal.SIG_DFL)  # Ray has taken it
        yield
    finally:  # also where it came half-way: a client would refuse every later connection
        ray.shutdown()


def _join(address: str, arguments: dict) -> None:
    """`ray.init`; as a client up to three times, because about 1 in 14 of the servers that Ray
    forks for its clients dies as it starts (ray-project/ray#63202)."""
    import ray

    for _ in range(2 if address.startswith("ray://") else 0):
        with contextlib.suppress(Exception):  # Ray raises no narrower class
            ray.init(address, **arguments)
            return
        ray.shutdown()
    ray.init(address, **arguments)


def set_variables() -> None:
    """Set what Ray reads when it is first imported, if it is our own: that it stays off the
    network, and reports nothing to its makers."""
    if not cluster_address():
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")


def cause_of(error: BaseException) -> str:
    """One line for an error of Ray or of what ran on it: the last one, which holds the cause."""
    cause = getattr(error, "cause", None) or error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return lines[-1][:400] if lines else type(cause).__name__
