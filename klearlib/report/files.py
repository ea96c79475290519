"""Writing results so that no reader ever sees half of one."""

from __future__ import annotations

import os
from pathlib import Path

from klearlib.run.files import one_line_failures


def write_atomic(path: Path, content: str | bytes) -> Path:
    """Write a whole file or nothing: readers and a kill see either the old content or the new."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with one_line_failures(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(content.encode() if isinstance(content, str) else content)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    return path
