"""What the benchmarks of a profile are called, and which of the paper's each one is or stands
for."""

from __future__ import annotations

from dataclasses import dataclass, replace

from klearlib.miniature.code_world import DECIDING as CODE_DECIDE
from klearlib.miniature.world import DECIDING as MATH_DECIDE
from klearlib.paper import claim
from klearlib.params import is_real, load
from klearlib.params.real import benchmarks_of

WINDOW_SIZE = 175
"""Assumed: problems of a benchmark whose number the dates decide, LiveCodeBench V6: the most that
sources name."""


@dataclass(frozen=True)
class Named:
    """A benchmark: its domain, its title in our tables and figures, the paper's benchmark that it
    is or stands for, and its column of Table 1. `in_headline_only`: no other notebook has it."""

    domain: str
    title: str
    paper: str
    column: str
    in_headline_only: bool = False


REAL = {
    "aime_2024": Named("math", "AIME 2024", "AIME 2024", "AIME2024 avg@64"),
    "aime_2025": Named("math", "AIME 2025", "AIME 2025", "AIME2025 avg@64"),
    "hmmt_feb_2025": Named("math", "HMMT 2025", "HMMT 2025", "HMMT2025 avg@64", True),
    "livecodebench_v5": Named("code", "LiveCodeBench V5", "LiveCodeBench V5", "LCB V5 avg@8"),
    "livecodebench_v6": Named("code", "LiveCodeBench V6", "LiveCodeBench V6", "LCB V6 avg@8"),
}
"""The paper's own, by the names of `klearlib.data.benchmarks.SIZES`."""
MINIATURE = {
    "math_a": replace(REAL["aime_2024"], title="maths A"),
    "math_b": replace(REAL["aime_2025"], title="maths B"),
    "math_c": replace(REAL["hmmt_feb_2025"], title="maths C"),
    "code_a": replace(REAL["livecodebench_v5"], title="code A"),
    "code_b": replace(REAL["livecodebench_v6"], title="code B"),
}
"""The miniature's benchmarks, each with the paper's that it stands for."""

DECIDING = {"math": MATH_DECIDE, "code": CODE_DECIDE}
"""What decides the miniature's claims, by domain; see `klearlib.miniature.world.DECIDING`."""


def named(profile: str) -> dict[str, Named]:
    """The benchmarks of a profile, in the order of the columns of Table 1. A user's own, under
    their names, stand for the paper's benchmarks that a real profile lacks."""
    if not is_real(profile):
        return MINIATURE
    real, found = load(profile, "real"), {}
    for domain in ("math", "code"):
        mine = benchmarks_of(real, domain)
        free = (each for name, each in REAL.items() if each.domain == domain and name not in mine)
        for name in mine:
            own = {"title": name, "in_headline_only": False}
            found[name] = REAL[name] if name in REAL else replace(next(free), **own)
    return found


def counterparts(profile: str, domain: str) -> dict[str, str]:
    """Benchmark of a profile -> the paper's, for one domain: those of all notebooks but 10.

    >>> counterparts("smoke", "code")
    {'code_a': 'LiveCodeBench V5', 'code_b': 'LiveCodeBench V6'}
    """
    return {
        name: about.paper
        for name, about in named(profile).items()
        if about.domain == domain and not about.in_headline_only
    }


def titles(profile: str) -> dict[str, str]:
    return {name: about.title for name, about in named(profile).items()}


def curve_titles(profile: str, domain: str) -> dict[str, str]:
    """The titles of what RL runs on a domain are measured on: its benchmarks and the validation
    set."""
    mine = {name: titles(profile)[name] for name in counterparts(profile, domain)}
    return mine | {"validation": "validation"}


def standing_for(profile: str, paper: str) -> str:
    """The benchmark of a profile that is, or stands for, one of the paper's."""
    return next(name for name, about in named(profile).items() if about.paper == paper)


def deciding(claim_id: str, profile: str, domain: str) -> list[str]:
    """The benchmarks of a profile that decide a claim: in the miniature those that nothing was
    tuned on, else the paper's own of the claim.

    >>> deciding("C1", "smoke", "math")
    ['math_decide']
    """
    if not is_real(profile):
        return [DECIDING[domain]]
    paper = {name for c in claim(claim_id).comparisons for name in c.benchmarks}
    mine = named(profile).items()
    return [n for n, about in mine if about.domain == domain and about.paper in paper]


def curved(claim_id: str, profile: str, domain: str) -> list[str]:
    """The benchmarks whose mean is the curve that a claim on steadiness is read from, scored at
    every evaluation: in the miniature both of the domain, else the paper's own of the claim."""
    if not is_real(profile):
        return list(counterparts(profile, domain))
    return deciding(claim_id, profile, domain)


def decided_on(claim_id: str, profile: str, domain: str) -> str:
    """What decides a claim, which of the paper's benchmarks it stands for, and which have no
    counterpart.

    >>> decided_on("C8", "smoke", "math")
    'Decided on math_decide, which stands for AIME 2024 and AIME 2025'
    """
    decides, called = deciding(claim_id, profile, domain), named(profile)
    here = " and ".join(titles(profile).get(n, n) for n in decides)
    paper = [*dict.fromkeys(name for c in claim(claim_id).comparisons for name in c.benchmarks)]
    mine = [about.paper for about in REAL.values() if about.domain == domain]
    stands = [name for name in paper if name in mine]
    if is_real(profile):
        stands = [called[n].paper for n in decides if n not in REAL]
    text = f"Decided on {here}" + (f", which stands for {' and '.join(stands)}" if stands else "")
    missing = [name for name in paper if name not in mine]
    if not missing:
        return text
    verb = "has" if len(missing) == 1 else "have"
    why = "a maths student writes no code" if domain == "math" else "a code student does no maths"
    return f"{text}; {' and '.join(missing)} {verb} no counterpart: {why}"
