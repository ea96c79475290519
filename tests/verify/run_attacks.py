"""All attacks and honest programs in one process tree, and what they left behind.

    KLEAR_SANDBOX=landlock python tests/verify/run_attacks.py [--sample] [UID]

With a UID it becomes that user first; --sample takes one program of each theme. Prints one JSON
line: ``failures`` (programs with another outcome than they must get), ``left`` (what was changed or
left outside) and ``judge_mb`` (the peak memory of all judge processes together).
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from processes import descendants

NUM_WORKERS = 2
_MARK = "klear-attack"
_PLACES = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run", "/run/lock", "/dev", "/")
_SECRET = "the expected output is 271828"
_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36
_CLONE_NEWNS, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x20000, 4096, 16384, 1 << 18
ROOT = Path(__file__).resolve().parents[2]
libc = ctypes.CDLL(None, use_errno=True)


def main(uid: int | None, per_theme: int | None) -> None:
    if uid is not None:
        become(uid)
    # Orphans come here, so a process that outlived its judge is seen at the end.
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.umask(0)
    with outside() as places:
        before = places.state()
        failures, judge_mb = run_all(places, per_theme)
        after = places.state()
        left = [f"{what}: {before[what]} -> {after[what]}" for what in before
                if before[what] != after[what]]  # fmt: skip
        left += [f"process {pid}: {name}" for pid, name in children() if pid != places.pid]
    print(json.dumps({"failures": failures, "left": left, "judge_mb": judge_mb}))


def become(uid: int) -> None:
    """Be a plain user who can read this Python, or exit with a reason."""
    try:
        open_the_way([sys.prefix, sys.base_prefix, ROOT])
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    except OSError as error:
        sys.exit(f"cannot become user {uid}: {error}")
    if not os.access(sys.executable, os.X_OK) or not os.access(ROOT, os.R_OK):
        sys.exit(f"user {uid} cannot run {sys.executable}")
    # After a change of user the files of this process in /proc belong to root, until this is set.
    libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def open_the_way(paths: list[str | Path]) -> None:
    """Show `paths` to all users, where a home folder hides them, in mounts of our own."""
    closed: dict[Path, list[Path]] = {}
    for path in {Path(path).resolve() for path in paths}:
        hidden = [p for p in reversed(path.parents) if p.stat().st_mode & 0o005 != 0o005]
        if hidden:
            closed.setdefault(hidden[0], []).append(path)
    if not closed:
        return
    _check(libc.unshare(_CLONE_NEWNS))
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    sources = {p: os.open(p, os.O_PATH) for shown in closed.values() for p in shown}
    for folder, shown in closed.items():
        _mount("tmpfs", folder, "tmpfs", 0, "mode=755")
        for path in shown:
            path.mkdir(parents=True)
            _mount(f"/proc/self/fd/{sources[path]}", path, None, _MS_BIND | _MS_REC)
            os.close(sources[path])


def _mount(source, place, kind, flags: int, options: str = "") -> None:
    texts = [text and str(text).encode() for text in (source, place, kind)]
    _check(libc.mount(*texts, ctypes.c_ulong(flags), options.encode() or None))


def _check(result: int) -> None:
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@dataclass(frozen=True)
class Outside:
    """What attacks reach for. All of it is open to every user, so only the sandbox protects it."""

    folder: Path
    port: int
    free_port: int
    pid: int
    gates: tuple[socket.socket, ...]

    def filled(self, source: str) -> str:
        """The source of an attack with the places in it."""
        for mark, value in (
            ("@FOLDER@", self.folder),
            ("@PORT@", self.port),
            ("@FREE@", self.free_port),
            ("@PID@", self.pid),
            ("@ROOT@", ROOT),
        ):
            source = source.replace(mark, str(value))
        return source

    def state(self) -> dict[str, object]:
        """All that no program may change, by name."""
        secret = self.folder / "secret"
        status = secret.stat()
        stat = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        state = {
            "secret": [secret.read_text(), status.st_mode, status.st_mtime, status.st_uid],
            "attributes": os.listxattr(secret),
            "folder": sorted(os.listdir(self.folder)),
            "process": [stat[0] in "TtZX", stat[1], stat[16], os.sched_getaffinity(self.pid)],
            "limits": resource.prlimit(self.pid, resource.RLIMIT_NOFILE),
            "cpu limit": resource.prlimit(self.pid, resource.RLIMIT_CPU),
            "own priority": os.getpriority(os.PRIO_PROCESS, 0),
            "own temporary folder": sorted(os.listdir(tempfile.gettempdir())),
            "callers": [caller for gate in self.gates if (caller := _caller(gate))],
            "port taken": _is_taken(self.free_port),
            "host name": socket.gethostname(),
            "modules": _marked_modules(),
        }
        for kind in ("shm", "sem", "msg"):
            path = Path("/proc/sysvipc") / kind
            text = path.read_text() if path.exists() else ""
            state[f"SysV {kind}"] = str(0x6B6C6561) in text
        for place in _PLACES:
            state[place] = _marked(place) if os.access(place, os.R_OK) else []
        return state


@contextmanager
def outside() -> Iterator[Outside]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="klear-outside-")))
        temporary = folder / "temporary"
        shown = folder / "shown"
        for path in (folder, temporary, shown):
            path.mkdir(exist_ok=True)
            path.chmod(0o777)
        (shown / "secret").write_text(_SECRET)
        os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
        gates = [stack.enter_context(_gate(("127.0.0.1", 0)))]
        port = gates[0].getsockname()[1]
        for address in (f"\0klear-attack-gate-{port}", str(shown / "gate.sock")):
            gates.append(stack.enter_context(_gate(address)))
        for family, address in (
            (socket.AF_INET, ("127.0.0.1", port)),
            (socket.AF_UNIX, str(shown / "packets.sock")),
        ):
            packets = stack.enter_context(socket.socket(family, socket.SOCK_DGRAM))
            packets.setblocking(False)
            packets.bind(address)
            gates.append(packets)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            free_port = probe.getsockname()[1]
        canary = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        stack.callback(canary.wait)
        stack.callback(canary.kill)
        yield Outside(shown, port, free_port, canary.pid, tuple(gates))
        tempfile.tempdir = None


def run_all(places: Outside, per_theme: int | None) -> tuple[list[str], float]:
    from attacks import ATTACKS
    from honest_programs import HONEST

    from klearlib.verify import pool, program_judge
    from klearlib.verify.pool import close_pool
    from klearlib.verify.programs import ProgramJob, run_many

    themes: dict[str, list] = {}
    for program in (*ATTACKS, *HONEST):
        themes.setdefault(program.theme, []).append(program)
    programs = [program for each in themes.values() for program in each[:per_theme]]
    jobs = [
        ProgramJob(places.filled(p.source), p.tests, p.timeout_s, p.memory_mb, p.entry_point)
        for p in programs
    ]
    reports = run_many(jobs, workers=NUM_WORKERS)
    failures = [
        f"{p.name} ({p.theme}): wanted {p.outcomes}, got {report.outcomes} {report.messages}"
        for p, report in zip(programs, reports, strict=True)
        if not all(
            word in (wanted if isinstance(wanted, tuple) else (wanted,))
            for word, wanted in zip(report.outcomes, p.outcomes, strict=True)
        )
    ]
    workers = pool.shared_pool(NUM_WORKERS, program_judge.__name__).worker_pids()
    judge_mb = sum(_peak_mb(pid) for worker in workers for pid in [worker, *descendants(worker)])
    close_pool()
    deadline = time.monotonic() + 5  # what is being killed may take a moment
    while time.monotonic() < deadline and len(children()) > 1:
        time.sleep(0.02)
    return failures, judge_mb


def children() -> list[tuple[int, str]]:
    """The living processes below this one, with their command lines."""
    found = []
    for pid in descendants(os.getpid()):
        try:
            found.append((pid, Path(f"/proc/{pid}/cmdline").read_text()[:200]))
        except OSError:
            continue
    return found


def _peak_mb(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0  # the process of the last program, which ends by itself
    if "VmHWM:" not in status:
        return 0.0  # it has ended and is not reaped yet
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _gate(address: object) -> socket.socket:
    gate = socket.socket(socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX)
    gate.setblocking(False)
    gate.bind(address)
    gate.listen()
    return gate


def _caller(gate: socket.socket) -> str:
    try:
        if gate.type == socket.SOCK_DGRAM:
            return f"packet {gate.recv(100)!r}"
        connection, address = gate.accept()
        connection.close()
        return f"connection from {address}"
    except BlockingIOError:
        return ""


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _marked(folder: str) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name.startswith(_MARK))


def _marked_modules() -> list[str]:
    library = Path(os.__file__)
    folders = [library.parent, library.parent / "__pycache__", *map(Path, sys.path)]
    found = [name for folder in folders if folder.is_dir() for name in _marked(str(folder))]
    return found + (["os.py"] if _MARK in library.read_text() else [])


if __name__ == "__main__":
    uids = [int(word) for word in sys.argv[1:] if word != "--sample"]
    main(uids[0] if uids else None, 1 if "--sample" in sys.argv else None)
