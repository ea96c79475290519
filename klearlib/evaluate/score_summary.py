"""What one evaluation says: avg@n with both intervals, pass@k, and all that was not judged."""

from __future__ import annotations

import numpy as np

from klearlib.evaluate.record_files import UNKNOWN_TOKENS
from klearlib.evaluate.scores import avg_at_n, pass_at_k, problem_interval, sampling_interval
from klearlib.records import FOUND, NOT_JUDGED, REASONS, EvalRecord

_HINT_SHARE = 0.5  # of responses without think tags, or repeated, above which a hint is given


def summarise(record: EvalRecord, *, num_repeated: int) -> dict:
    """The scores of a record, as plain values for JSON.

    num_repeated: responses with the same text as an earlier one to their problem; many in long
    texts are a file joined with itself, whose intervals are too narrow. ``truncated`` and
    ``mean_tokens`` are None if that is not known. ``not_judged`` counts responses whose judge
    failed; in all scores they are wrong. ``found`` counts right answers by where they stood.
    """
    num_problems, n = record.correct.shape
    reasons = {reason: int((record.reason == reason).sum()) for reason in REASONS}
    knows_tokens = bool((record.num_tokens != UNKNOWN_TOKENS).all())
    knows_truncated = record.sampling.get("truncated_known", True)
    return {
        "benchmark": record.benchmark,
        "num_problems": num_problems,
        "num_responses": n,
        "avg_at_n": avg_at_n(record.correct),
        "sampling_interval": list(sampling_interval(record.correct)),
        "problem_interval": list(problem_interval(record.correct)),
        "level": 0.95,
        "pass_at_k": {str(k): pass_at_k(record.correct, k) for k in _ks(n)},
        "truncated": int(record.truncated.sum()) if knows_truncated else None,
        "mean_tokens": float(record.num_tokens.mean()) if knows_tokens else None,
        "not_judged": sum(reasons[reason] for reason in NOT_JUDGED),
        "repeated": num_repeated,
        "reasons": reasons,
        "found": {p: int((record.correct & (record.found == p)).sum()) for p in FOUND},
        "mean_pass_rate": float(record.pass_rate.mean()),
        "sampling": record.sampling,
        "problems": dict(
            zip(record.problem_ids, record.correct.mean(axis=1).tolist(), strict=True)
        ),
    }


def summary_text(scores: dict) -> str:
    """The scores as lines for a terminal, shares in per cent."""
    n, total = scores["num_responses"], scores["num_problems"] * scores["num_responses"]
    sampling = dict(scores["sampling"])
    rule = sampling.pop("truncated")  # beside their number
    judged = "as text" if scores["truncated"] is None or rule == "as_text" else "wrong"

    def count(key: str) -> str:
        return "not known" if scores[key] is None else f"{scores[key]} of {total} responses"

    rows = [
        (f"avg@{n}", f"{100 * scores['avg_at_n']:.1f}"),
        ("", f"{_span(scores['sampling_interval'])} over other responses to these problems"),
        ("", f"{_span(scores['problem_interval'])} over other problems of the same kind"),
        *((f"pass@{k}", f"{100 * value:.1f}") for k, value in scores["pass_at_k"].items()),
        ("truncated", f"{count('truncated')}, judged {judged}"),
        ("not judged", count("not_judged") + (", scored as wrong" if scores["not_judged"] else "")),
        ("repeated texts", count("repeated")),
        ("verdicts", ", ".join(f"{r} {c}" for r, c in scores["reasons"].items() if c)),
    ]
    if places := ", ".join(f"{place} {c}" for place, c in scores["found"].items() if c):
        rows.append(("right answers", places))
    if scores["mean_tokens"] is not None:
        rows.append(("mean tokens", f"{scores['mean_tokens']:.0f}"))
    rows.extend((name, str(value)) for name, value in sampling.items())
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {value}" for name, value in rows]
    if scores["truncated"] == total:
        lines.append("the budget cut off every response: raise --max-new-tokens")
    if scores["repeated"] >= _HINT_SHARE * total:  # a file joined with itself has half
        lines.append(
            f"{scores['repeated']} responses repeat another one to their problem: unless they were "
            "drawn independently, the first interval is too narrow"
        )
    if scores["reasons"]["bad_format"] > _HINT_SHARE * total:
        lines.append(
            f"{scores['reasons']['bad_format']} responses lack a think tag and count as wrong: "
            "--think-tags optional judges them as the released evaluation does"
        )
    return "\n".join(lines)


def _ks(n: int) -> list[int]:
    """1, 2, 4, ... and n.

    >>> _ks(1), _ks(6)
    ([1], [1, 2, 4, 6])
    """
    powers = 2 ** np.arange(int(np.log2(n)) + 1)
    return sorted({*map(int, powers), n})


def _span(ends: list[float]) -> str:
    return f"{100 * ends[0]:.1f} to {100 * ends[1]:.1f}"
