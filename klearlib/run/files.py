"""Files that are whole or absent: atomic writes, digests, and one line for a write that failed."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from klearlib.errors import KlearError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
EXPLAINED = (*_FULL, *_FORBIDDEN)  # faults of the machine, not of the code


def write_failure(error: OSError, path: Path | str) -> KlearError:
    """The one line that says why `path` could not be written or read, and what to do.

    >>> str(write_failure(OSError(errno.ENOSPC, "No space left on device"), "runs/log.txt"))
    'no space left for runs/log.txt: free some disk space, then run again (it resumes)'
    """
    if error.errno in _FULL:
        line = f"no space left for {path}: free some disk space, then run again (it resumes)"
    elif error.errno in _FORBIDDEN:
        line = f"no permission for {path}: make it accessible to you, then run again"
    else:
        line = f"cannot write {path} ({error.strerror or error}): fix this, then run again"
    return KlearError(line)


@contextlib.contextmanager
def one_line_failures(path: Path | str) -> Iterator[None]:
    """Turn an OSError of the block (full disk, missing permission) into a one-line KlearError."""
    try:
        yield
    except OSError as error:
        raise write_failure(error, error.filename or path) from error


def write_bytes(
    path: Path | str, content: bytes, *, durable: bool = True, make_folder: bool = False
) -> Path:
    """Write `content` to `path` so that a reader, or a kill at any moment, sees all of it or none.

    durable: also survive a power cut (fsync), which takes milliseconds. make_folder: make the
    folder of `path` if it is missing. Returns `path`. Raises KlearError where the file cannot be
    written (the old content stays).
    """
    path = Path(path)
    # Two processes, and two threads of one, may write the same file.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        if make_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(content)
            with contextlib.suppress(OSError):  # it does not exist yet, or cannot be changed
                shutil.copymode(path, temporary)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
        if durable:
            sync_folder(path.parent)
    except OSError as error:
        raise write_failure(error, path) from error
    finally:
        with contextlib.suppress(OSError):  # the error that led here is the one to report
            temporary.unlink(missing_ok=True)
    return path


def write_text(
    path: Path | str, text: str, *, durable: bool = True, make_folder: bool = False
) -> Path:
    """`write_bytes` of `text` in UTF-8."""
    return write_bytes(path, text.encode(), durable=durable, make_folder=make_folder)


def write_json(path: Path, value: object, *, durable: bool = True) -> None:
    """`write_text` of sorted, indented JSON."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True) + "\n", durable=durable)


def read_json(path: Path) -> Any:
    """What a file of JSON holds.

    Raises OSError where it cannot be read, and ValueError where it is not JSON in UTF-8.
    """
    return json.loads(path.read_text(encoding="utf-8"))


def read_own_text(path: Path) -> str:
    """The text of a file that a user wrote.

    Raises OSError where it cannot be read, and ValueError with the fix where it is not UTF-8.
    """
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 (byte {error.start}): save it in this encoding") from None


def sync_folder(folder: Path) -> None:
    """Make the renames done in `folder` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256_file(path: Path) -> str:
    """The hexadecimal sha256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class HashingFile:
    """Writes through to `file`; keeps the sha256 of the bytes and the OSError that ended it."""

    def __init__(self, file: BinaryIO):
        self.file = file
        self.sha256 = hashlib.sha256()
        self.error: OSError | None = None

    def write(self, content: bytes) -> int:
        try:
            self.file.write(content)
        except OSError as error:
            self.error = error
            raise
        self.sha256.update(content)
        return len(content)

    def flush(self) -> None:
        self.file.flush()
