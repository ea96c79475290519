"""Files of real data sets, which are no part of the repository."""

import gzip
import json
import os
from pathlib import Path

import pytest

FOLDER = os.environ.get("KLEAR_SHARED", Path(__file__).resolve().parents[2] / "shared" / "data")


def shared(name: str) -> Path:
    """The file, or a test that is skipped."""
    path = Path(FOLDER) / name
    if not path.exists():
        pytest.skip(f"no {name}: set KLEAR_SHARED to the folder that holds it")
    return path


def shared_rows(name: str) -> list[dict]:
    content = shared(name).read_bytes()
    content = gzip.decompress(content) if name.endswith(".gz") else content
    return [json.loads(line) for line in content.decode().splitlines()]
