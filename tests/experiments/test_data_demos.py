"""What counts as found of what was planted in the sources of the miniature."""

from __future__ import annotations

import json

import pytest

from klearlib.experiments.nb01_data_curation import planted_rows
from klearlib.miniature.sources import TRUTH


@pytest.mark.parametrize(
    ("kind", "reason", "is_found"),
    [
        ("duplicate", "duplicate", True),
        ("duplicate", "overlap", True),
        ("contamination", "overlap", True),
        ("contamination", "duplicate", False),
        ("broken", "no_answer", True),
        ("few_tests", "few_tests", True),
        ("duplicate", None, False),
    ],
)
def test_what_counts_as_found(tmp_path, kind, reason, is_found):
    row = {"source": "math_1", "row": 3, "kind": kind, "how": "exact", "of": None}
    elsewhere = row | {"source": "code_1"}
    lines = "".join(json.dumps(each) + "\n" for each in (row, elsewhere))
    (tmp_path / TRUTH).write_text(lines)
    rejects = [{"source": "math_1", "row": 3 if reason else 4, "reason": reason or "overlap"}]
    (tmp_path / "rejects.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rejects))
    how = "1 to 15 tests" if kind == "few_tests" else "exact"
    assert planted_rows(tmp_path, tmp_path, "math") == {(kind, how): [is_found]}
