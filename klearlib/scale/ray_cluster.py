"""The Ray cluster that stages may run on: where it is; the connection made, watched, ended."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import socket
import threading
import time
import warnings
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
LOOK_S, GONE_S = 5.0, 20.0
"""Seconds between two looks at its head, and after which it counts as gone."""
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray's variable that keeps a Ray of one machine off the network, read when ray is imported."""
STATISTICS = "RAY_USAGE_STATS_ENABLED"
"""Ray's variable that lets it report its use to its makers."""


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
        f"workers is {workers!r}: give a whole number, 0 for one per core or GPU, or ray, or "
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


class _Connection:
    """This process's connection, which has one for all its threads; the last one to leave ends it.

    Ray is started in a thread that lasts as long: the handler of Ctrl-C stays as it is, and the
    kernel ends a Ray of our own with the thread that started it.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.address = ""
        self.was_local = False
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self._failure: BaseException | None = None

    def open(self, address: str, given: dict) -> None:
        ready, self._over, self._failure = threading.Event(), threading.Event(), None
        self._thread = threading.Thread(
            target=self._hold, args=(address, given, ready), name="klear-ray", daemon=True
        )
        self._thread.start()
        try:
            ready.wait()
        except BaseException:  # Ctrl-C
            self.close()
            raise
        if self._failure is not None:
            raise self._failure
        _take_back()
        self.address = address
        self.was_local |= address == LOCAL

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self.address = ""

    def _hold(self, address: str, given: dict, ready: threading.Event) -> None:
        import ray

        arguments = {"log_to_driver": False, "logging_level": logging.CRITICAL}
        if address == LOCAL:
            arguments |= {"num_cpus": num_cores(), "num_gpus": len(gpus())}
            arguments |= {"include_dashboard": False}
        try:
            ray.init(address, **arguments | given)
        except BaseException as error:
            self._failure = error
            ray.shutdown()  # a client that failed half-way would refuse every later connection
            return
        finally:
            ready.set()
        self._over.wait()
        ray.shutdown()


def _take_back() -> None:
    """Have SIGTERM again: Ray's core takes it, and ends the process some seconds after one."""
    handler = signal.getsignal(signal.SIGTERM)
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


_connection = _Connection()


@contextlib.contextmanager
def connected(workers: str, **given) -> Iterator[None]:
    """Within it this process is connected to the Ray cluster of `workers`.

    A Ray that was started for it ends with it; one that this process was connected to before is
    used, and stays. given: keywords of `ray.init` that go before ours, for which the connection has
    to be a new one.

    Raises:
        MissingAsset: Ray is not installed.
        KlearError: the cluster does not answer, or has another version of Ray or of Python.
    """
    require_ray()
    set_variables(workers)
    address = address_of(workers)
    ray = _imported()
    with _connection.lock:
        if _connection.users and _connection.address != address:
            raise KlearError(
                f"this process is connected to {_connection.address}: wait for its run to end, or "
                "use another process"
            )
        if _connection.was_local and address != LOCAL:
            raise KlearError(  # its way of checking who asks stays with a process
                f"this process has had a Ray of its own and cannot join {in_words(workers)}: use "
                "another process (in a notebook, restart the kernel)"
            )
        if given and ray.is_initialized():
            raise KlearError("this process is connected to Ray already: use another process")
        known = ray.is_initialized() and not _connection.users
        if not known:
            if not _connection.users:
                _open(ray, workers, address, given)
            _connection.users += 1
    try:
        yield
    finally:
        if not known:
            with _connection.lock:
                _connection.users -= 1
                if not _connection.users:
                    _connection.close()


def set_variables(workers: str) -> None:
    """Set what Ray reads when it is first imported, where `workers` are on a Ray of our own."""
    if address_of(workers) == LOCAL:
        os.environ.setdefault(LOOPBACK, "0")
        os.environ.setdefault(STATISTICS, "0")


def _imported():
    """Ray, without what its import says about notebooks."""
    disabled = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ray
    finally:
        logging.disable(disabled)
    return ray


def _open(ray, workers: str, address: str, given: dict) -> None:
    where = in_words(workers)
    try:
        if address.rpartition(":")[2].isdecimal():  # Ray would try for a minute
            socket.create_connection(_host_and_port(address), ANSWER_S).close()
        try:
            _connection.open(address, given)
        except ConnectionAbortedError:  # Ray forks a client's server beside threads; some are lost
            _connection.open(address, given)
    except Exception as error:  # for a start that takes too long Ray raises just that
        ends = "does not start ({}): mend that, or join one"
        if address != LOCAL:
            ends = "does not answer ({}): start it, or correct the address"
        raise KlearError(f"{where} {ends.format(short(error))}") from None


@contextlib.contextmanager
def asking(where: str) -> Iterator:
    """Within it Ray, which it gives, may be asked.

    Raises KlearError where this process is no longer connected: Ray would start another one.
    """
    import ray

    try:
        if not ray.is_initialized():
            raise ConnectionError("the connection is lost")
        yield ray
    except (ConnectionError, ray.exceptions.RaySystemError) as error:
        raise gone(where, error) from None


def gone(where: str, why: object) -> KlearError:
    """The error for a cluster that was there when the stages began."""
    return KlearError(
        f"{where} is gone ({short(why)}): start it and run again, which goes on from the last "
        "checkpoints"
    )


def short(why: object) -> str:
    """A reason as a part of one line."""
    return " ".join(str(why).split())[:300]


class Watch:
    """Whether the head of the cluster still takes connections: Ray itself would only say so by
    ending this process, a minute later."""

    def __init__(self, workers: str):
        import ray

        self._where, address = in_words(workers), address_of(workers)
        if not address.startswith(CLIENT):
            address = ray.get_runtime_context().gcs_address
        self._address = _host_and_port(address)
        self._next = self._seen = time.monotonic()

    def look(self) -> None:
        """Look now and then; raises KlearError where the head has been gone for `GONE_S`."""
        if (now := time.monotonic()) < self._next:
            return
        try:
            socket.create_connection(self._address, LOOK_S).close()
            self._seen = now
        except OSError as error:
            if now - self._seen > GONE_S:
                raise gone(self._where, error) from None
        self._next = time.monotonic() + LOOK_S


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix(CLIENT).rpartition(":")
    return host.strip("[]"), int(port)
