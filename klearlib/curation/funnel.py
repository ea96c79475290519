"""How many rows each step takes away, source by source, in counts that add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


class Funnel:
    """Counts of rows on their way through `stages`; each row ends kept or rejected by one stage.

    >>> funnel = Funnel(("adapter", "overlap"))
    >>> funnel.keep("gsm8k")
    >>> funnel.reject("gsm8k", "overlap", "benchmark")
    >>> card = funnel.card(num_read=2, num_kept=1, num_rejected=1)
    >>> card["sources"]
    {'gsm8k': {'num_read': 2, 'num_kept': 1, 'rejected': {'benchmark': 1}}}
    >>> card["funnel"][1]
    {'source': 'gsm8k', 'stage': 'overlap', 'num_in': 2, 'num_removed': 1, 'num_out': 1}
    """

    def __init__(self, stages: Sequence[str]):
        self.stages = tuple(stages)
        self._kept: Counter = Counter()
        self.rejected: dict[str, Counter] = {}  # by source, of which each is in the card

    def keep(self, source: str) -> None:
        """Count a row of `source` that passed all stages."""
        self._kept[source] += 1
        self.rejected.setdefault(source, Counter())

    def reject(self, source: str, stage: str, reason: str) -> None:
        """Count a row of `source` that `stage` took away."""
        assert stage in self.stages, stage
        self.rejected.setdefault(source, Counter())[stage, reason] += 1

    def card(self, *, num_read: int, num_kept: int, num_rejected: int) -> dict:
        """The counts as JSON, for each source and for each stage of it, sources as they came.

        The arguments are what reader and writers counted themselves: all must agree.
        """
        sources, funnel = {}, []
        for source, rejected in self.rejected.items():
            by_reason: Counter = Counter()
            for (_, reason), count in rejected.items():
                by_reason[reason] += count
            left = self._kept[source] + sum(rejected.values())
            sources[source] = {
                "num_read": left,
                "num_kept": self._kept[source],
                "rejected": dict(sorted(by_reason.items())),
            }
            for stage in self.stages:
                removed = sum(n for (where, _), n in rejected.items() if where == stage)
                row = {"source": source, "stage": stage, "num_in": left, "num_removed": removed}
                left -= removed
                funnel.append(row | {"num_out": left})
            assert left == self._kept[source]
        assert num_read == num_kept + num_rejected, (num_read, num_kept, num_rejected)
        assert num_read == sum(row["num_read"] for row in sources.values())
        assert num_kept == sum(row["num_kept"] for row in sources.values())
        return {
            "num_read": num_read,
            "num_kept": num_kept,
            "num_rejected": num_rejected,
            "sources": sources,
            "funnel": funnel,
        }
