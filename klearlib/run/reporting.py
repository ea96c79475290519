"""Keep the report in step with what the notebooks publish."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from klearlib.run.kernel import EXIT_FAILED
from klearlib.run.notebook_cache import SECTION

POLL_S = 2.0


def rebuild(results: Path) -> int:
    """Build the report of `results`; its fault costs a line and exit code 1, never the results."""
    from klearlib.experiments.counterparts import notebooks
    from klearlib.report.page import build_report

    try:
        build_report(results, notebooks())
    except (ValueError, KeyError, OSError) as error:
        print(f"klear: the report could not be built: {error}", flush=True)
        return EXIT_FAILED
    return 0


@contextlib.contextmanager
def report_follows(results: Path) -> Iterator[None]:
    """Rebuild the report in a thread, during the block, whenever a ``section.json`` changes."""
    ended = threading.Event()
    thread = threading.Thread(target=_follow, args=(results, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _follow(results: Path, ended: threading.Event) -> None:
    seen = _stamps(results)
    while not ended.wait(POLL_S):
        now = _stamps(results)
        if now != seen:
            rebuild(results)
            seen = now


def _stamps(results: Path) -> dict[Path, int]:
    stamps = {}
    for path in results.glob(f"*/{SECTION}"):
        with contextlib.suppress(FileNotFoundError):  # being replaced
            stamps[path] = path.stat().st_mtime_ns
    return stamps
