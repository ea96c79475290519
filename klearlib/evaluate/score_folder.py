"""The folder of one evaluation: one process at a time, and one set of scores."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from klearlib.errors import KlearError
from klearlib.run.files import one_line_failures

LOCK, SCORES = ".lock", "scores.json"


@contextlib.contextmanager
def own_folder(folder: Path) -> Iterator[None]:
    """Hold the folder, which is made where it is absent and removed again where it stays empty.

    Raises KlearError where another process holds it, or where it cannot be made.
    """
    with one_line_failures(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(folder / LOCK, "ab")  # noqa: SIM115 - closed below
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = os.fstat(lock.fileno()).st_nlink > 0  # 0: removed since by who held it
        except BlockingIOError:
            free = False
        if not free:
            raise KlearError(
                f"another klear evaluate works in {folder}: wait for it, or give --out another "
                "folder"
            )
        try:
            yield
        finally:
            (folder / LOCK).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # it holds something
                folder.rmdir()


def check_scores(folder: Path, needed: Mapping[str, str]) -> None:
    """See that the scores of a folder, if there are some, would be replaced by the same.

    needed: ``benchmark``, ``think_tags`` and, for a file, ``responses_sha256``.
    Raises KlearError where they are of other responses or judged otherwise, or damaged.
    """
    path = folder / SCORES
    if not path.exists():
        return
    try:
        scores = json.loads(path.read_text(encoding="utf-8"))
        held = {**scores["sampling"], "benchmark": scores["benchmark"]}
    except (ValueError, KeyError, TypeError) as error:
        raise KlearError(f"{path} is damaged ({error}): delete it") from error
    keys = ("benchmark", "responses_sha256", "think_tags")
    if others := [key for key in keys if held.get(key) != needed.get(key)]:
        raise KlearError(
            f"{folder} holds other scores ({', '.join(others)} differ): give --out another folder, "
            f"or delete {path}"
        )
