"""What a program may read, and the private root that shows nothing else."""

from __future__ import annotations

import ctypes
import os
import stat
import sys
import sysconfig
from pathlib import Path

from klearlib.verify.sandbox_kernel import check, libc, system_call

DEVICES = ("/dev/null", "/dev/urandom")
_SYSTEM = ("/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib", "/lib", "/lib32", "/lib64")
_SYSTEM += ("/etc/ld.so.cache", "/etc/localtime", "/usr/share/zoneinfo")
_LIBRARIES = ("site-packages", "dist-packages")

_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT = 1, 2, 4, 8, 32
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
# statvfs flag -> mount flag: a remount in a user namespace must keep those of the source.
_KEPT_FLAGS = ((1, _MS_RDONLY), (2, _MS_NOSUID), (4, _MS_NODEV), (8, _MS_NOEXEC))
_KEPT_TIMES = ((1024, 1024), (2048, 2048), (4096, 1 << 21))  # noatime, nodiratime, relatime
_MNT_DETACH = 2
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}


def library_folders() -> list[str]:
    """The folders of ``sys.path`` that a program gets: the standard library and installed packages,
    neither the working folder nor checkouts that are installed for editing."""
    paths = sysconfig.get_paths()
    wanted = {os.path.realpath(paths[key]) for key in ("stdlib", "platstdlib")}
    return [
        path
        for path in sys.path
        if os.path.basename(path) in _LIBRARIES
        or os.path.realpath(path) in wanted
        or os.path.dirname(os.path.realpath(path)) in wanted
        or path.endswith(".zip")
    ]


def readable_paths() -> list[str]:
    """All that a program may read and that exists here."""
    base = (sysconfig.get_config_var("LIBDIR") or "", os.path.join(sys.base_prefix, "lib"))
    candidates = [*_SYSTEM, *library_folders(), *(p for p in base if p)]
    candidates += [sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib")]
    return sorted({path for path in candidates if os.path.exists(path)})


def enter_private_root(folder: str, *, folder_bytes: int, folder_entries: int) -> None:
    """Make a root of read-only binds of `readable_paths`, with `folder` as its only writable place.

    This process must have mount, and may have other, namespaces of its own. It is of no use after
    an OSError, where the kernel refuses a step.
    """
    links, sources = _plan([*readable_paths(), *DEVICES])
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)  # nothing below shows outside
    root = os.path.realpath("/tmp")
    _mount("tmpfs", root, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755,size=1m")
    for place, descriptor in sources.items():
        _bind(descriptor, root + place)
        os.close(descriptor)
    for place, target in links.items():
        if not os.path.lexists(root + place):
            os.makedirs(os.path.dirname(root + place), exist_ok=True)
            os.symlink(target, root + place)
    os.makedirs(root + folder)
    _mount_processes(root)
    # its size and number of files are limits of the kernel
    room = f"mode=777,size={folder_bytes},nr_inodes={folder_entries}"
    _mount("tmpfs", root + folder, "tmpfs", _MS_NOSUID | _MS_NODEV, room)
    _mount("none", root, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)
    os.chdir(root)
    system_call(_SYS_PIVOT_ROOT[os.uname().machine], b".", b".", what="pivot_root")
    check(libc.umount2(b".", _MNT_DETACH), "umount of the old root")
    os.chdir("/")


def _plan(paths: list[str]) -> tuple[dict[str, str], dict[str, int]]:
    """Symbolic links on the way to `paths` with their targets, and real paths opened as sources."""
    links: dict[str, str] = {}
    real: set[str] = set()
    for path in paths:
        current, left = "/", list(Path(path).parts[1:])
        while left:
            step = os.path.join(current, left.pop(0))
            if os.path.islink(step):
                links[step] = os.readlink(step)
                target = os.path.normpath(os.path.join(current, links[step]))
                current, left = "/", [*Path(target).parts[1:], *left]
            else:
                current = step
        real.add(current)
    tops = sorted(p for p in real if not any(Path(other) in Path(p).parents for other in real))
    links = {p: t for p, t in links.items() if not any(Path(o) in Path(p).parents for o in tops)}
    return links, {p: os.open(p, os.O_PATH | os.O_CLOEXEC) for p in tops}


def _bind(descriptor: int, place: str) -> None:
    is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
    is_device = stat.S_ISCHR(os.fstat(descriptor).st_mode)
    os.makedirs(place if is_folder else os.path.dirname(place), exist_ok=True)
    if not is_folder:
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o644))
    source = f"/proc/self/fd/{descriptor}"
    _mount(source, place, None, _MS_BIND | _MS_REC)
    held = os.statvfs(place).f_flag
    flags = sum(mount for flag, mount in (*_KEPT_FLAGS, *_KEPT_TIMES) if held & flag)
    flags |= _MS_NOSUID | (0 if is_device else _MS_NODEV | _MS_RDONLY)
    _mount("none", place, None, _MS_REMOUNT | _MS_BIND | flags)


def _mount_processes(root: str) -> None:
    """/proc of the process namespace, for /dev/stdin and the fork server's clock, where allowed."""
    os.makedirs(root + "/proc")
    try:
        # Read-only: where root stays root, /proc/sys is the whole machine's.
        flags = _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
        _mount("proc", root + "/proc", "proc", flags)
    except OSError:
        return  # a container that hides parts of /proc
    os.makedirs(root + "/dev", exist_ok=True)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"{root}/dev/{name}")
    os.symlink("/proc/self/fd", f"{root}/dev/fd")


def _mount(source: str, place: str, kind: str | None, flags: int, options: str = "") -> None:
    result = libc.mount(
        source.encode(),
        place.encode(),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        options.encode() or None,
    )
    check(result, f"mount on {place}")
