"""How many rows each step takes away, source by source, in counts that add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence


def funnel(fates: Counter, stages: Sequence[str], sources: Iterable[str] = ()) -> dict:
    """The counts of a card: of all rows, of each source, and of each stage of a source.

    fates: (source, stage, reason) -> rows that the stage took away for that reason; stage and
    reason are "" for rows that are kept. sources: those that may have had no row.

    >>> card = funnel(Counter({("gsm8k", "", ""): 1, ("gsm8k", "overlap", "benchmark"): 1}),
    ...               ("adapter", "overlap"))
    >>> card["num_read"], card["num_kept"], card["num_rejected"]
    (2, 1, 1)
    >>> card["sources"]
    {'gsm8k': {'num_read': 2, 'num_kept': 1, 'rejected': {'benchmark': 1}}}
    >>> card["funnel"][1]
    {'source': 'gsm8k', 'stage': 'overlap', 'num_in': 2, 'num_removed': 1, 'num_out': 1}
    """
    by_source, rows = {}, []
    for source in dict.fromkeys([*(source for source, _, _ in fates), *sources]):
        own = [(stage, reason, count) for (s, stage, reason), count in fates.items() if s == source]
        left = num_read = sum(count for _, _, count in own)
        rejected: Counter[str] = Counter()
        for stage in stages:
            removed = {reason: count for where, reason, count in own if where == stage}
            rejected.update(removed)
            row = {"source": source, "stage": stage, "num_in": left}
            left -= sum(removed.values())
            rows.append(row | {"num_removed": row["num_in"] - left, "num_out": left})
        by_source[source] = {"num_read": num_read, "num_kept": left, "rejected": dict(rejected)}
    num_read, num_kept = (
        sum(counts[word] for counts in by_source.values()) for word in ("num_read", "num_kept")
    )
    total = {"num_read": num_read, "num_kept": num_kept, "num_rejected": num_read - num_kept}
    return total | {"sources": by_source, "funnel": rows}
