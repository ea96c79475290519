"""The keys of metrics.jsonl and timings.jsonl of an RL run, as docs/metrics.md lists them."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "metrics.md"
LISTED = re.findall(r"^\| *`([^`]+)` *\|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
METRICS = [name for name in LISTED if name.startswith(("rollout/", "train/", "tests/"))]
TIMINGS = [
    name for name in LISTED if name.startswith(("seconds/", "tokens_per_second/", "training/"))
]
