"""Hostile answers, drawn from a seed, and what judging them takes.

    python tests/verify/hostile_answers.py NUM_ANSWERS SEED

prints one JSON line: how many verdicts had each reason, what was paid, and a bound on the memory
that this process and its judges held together (its own peak and the largest judge's for each
worker). `test_answers` runs it, because the peak of the tests' own process is that of other tests.
"""

from __future__ import annotations

import json
import random
import resource
import sys
from pathlib import Path

from klearlib.records import REASONS
from klearlib.verify.answers import close_pool, verify_answers

NUM_WORKERS = 2
TIMEOUT_S = 1.0
_SALAD = r"""
0 1 2 7 10 385 0.5 1,000 -3 1e9 x y n \pi e i \infty + - * / ^ _ = < > \le \ge \ne ! | \| : ; , . '
\cdot \times \div \pm \mp \frac{1}{2} \frac12 \frac \dfrac \sqrt{2} \sqrt[3]{5} \sqrt \prod \int_0^1
\sum \sum_{k=1}^{9} \lim_{x\to0} \log \ln \sin \binom{5}{2} \overline{3} \bar ( ) [ ] { } \{ \} $ $$
\left( \right) \left[ \right. \$ \( \) \[ \] % \% & \\ # ~ \, \! \; \text{cm} \text{or} \text{and}
\text{ \mathrm{kg} ^\circ \begin{pmatrix} \end{pmatrix} \boxed{ \boxed{5} \boxed <think> </think>
\cup \in \emptyset \mid \ldots ... answer: is none True nan inf 9^9 9^{9^9} (10^6)!
2^{2024} \lfloor \rceil \mod \pmod{7} \gcd
"""
_TOKENS = _SALAD.split()
_ODD = "\x00\x1b\ud800\udfff\u202e\u00a0\u2028\uff15\u0665\u00bd\u221e\u221a\ufe0f\U0001f600\u0301"


def hostile_answer(rng: random.Random) -> str:
    """What a broken or malicious policy might write: LaTeX salad, bytes, deep and long text."""
    kind = rng.randrange(100)
    if kind < 30:
        text = rng.choice(["", " "]).join(rng.choices(_TOKENS, k=rng.randint(1, 7)))
    elif kind < 33:
        text = "".join(chr(rng.randrange(32, 127)) for _ in range(rng.randint(1, 60)))
    elif kind < 63:
        text = "".join(rng.choices(_ODD + "0123456789\\{}$^_", k=rng.randint(1, 40)))
    elif kind < 85:
        text = "".join(chr(rng.randrange(0x110000)) for _ in range(rng.randint(1, 40)))
    elif kind < 86:
        text = rng.choice(_TOKENS) * rng.choice([3, 3, 3, 30, 300])
    elif kind < 87:
        depth = rng.choice([3] * 9 + [500])
        opening, closing = rng.choice(
            [("(", ")"), ("{", "}"), ("\\sqrt{", "}"), ("\\frac{1}{", "}")]
        )
        text = opening * depth + "7" + closing * (depth - rng.choice([0, 0, 1]))
    else:
        text = "".join(rng.choices("0123456789", k=rng.choice([10, 10, 100, 1000, 10_000])))
    wrap = rng.choice(["\\boxed{%s}", "\\boxed{%s}", "%s", "The answer is $%s$.", "\\[%s\\]"])
    tags = rng.choice(["<think>a</think>"] * 9 + ["<think>", "</think>", ""])
    return tags + wrap.replace("%s", text)


def own_peak_mb() -> float:
    # ru_maxrss would start from what the process that started this one held.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def main(num_answers: int, seed: int) -> None:
    rng = random.Random(seed)
    answers = [hostile_answer(rng) for _ in range(num_answers)]
    golds = [
        rng.choice(["385", "\\sqrt{2}", "1, 2", "[0, 1)", "2^{25} \\cdot 26!"]) for _ in answers
    ]
    verdicts = verify_answers(answers, golds, workers=NUM_WORKERS, timeout_s=TIMEOUT_S)
    close_pool()
    judge = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    paid = [[a, g] for a, g, v in zip(answers, golds, verdicts, strict=True) if v.correct]
    print(
        json.dumps(
            {
                "reasons": {word: sum(v.reason == word for v in verdicts) for word in REASONS},
                "peak_mb": own_peak_mb() + NUM_WORKERS * judge,
                "correct": paid,
            }
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
