"""What counts as found of what was planted in the sources of the miniature."""

from __future__ import annotations

import json

import pytest

from klearlib.experiments.demos import planted
from klearlib.miniature.sources import TRUTH


def test_the_second_count_of_shared_words_is_strict():
    item = "Start with 3 and apply *4 in turn. Result modulo 7?"
    ngram = "start with 3 and apply 4 in turn result"
    assert planted.truly_shared(ngram, f"Do: {item}", item, num_words=9)
    assert not planted.truly_shared(ngram, "Start with 13 and apply *4", item, num_words=9)
    assert not planted.truly_shared("start with", "start with", item, num_words=9)


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
    assert planted.found(tmp_path, tmp_path, "math") == {(kind, how): [is_found]}
