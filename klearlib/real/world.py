"""What is learnt of curated data sets and what is measured: training and validation problems, the
paper's benchmarks, and the responses that SFT may learn, none to a validation problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from klearlib.curation.overlap import OverlapIndex
from klearlib.data.lines import write_lines
from klearlib.data.problems import first_of_both, iter_problems, read_problems, write_problems
from klearlib.data.tables import SampleWriter, read_samples
from klearlib.errors import KlearError
from klearlib.real.model import link_file
from klearlib.records import Problem
from klearlib.run.entry import read_own_json
from klearlib.run.files import write_json
from klearlib.run.seeding import derive_seed
from klearlib.verify.groups import is_code

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder

TRAIN, VALIDATION, REJECTS = "train.jsonl", "validation.jsonl", "rejects.jsonl"
NOTHING_TO_JUDGE_BY = "no answer and no tests"
OTHER_DOMAIN = "a problem of the other domain"
NEAR_HELD_OUT = "too similar to a validation problem"
NOT_DRAWN = "not drawn"
_PROBLEMS = "problems.jsonl"


def build(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    seed: int,
    domain: str,
    num_train_problems: int | None,
    num_validation: int,
    benchmarks: list[str],
    **rule,
) -> None:
    """Stage ``real_world``: validation.jsonl and then train.jsonl, drawn by `seed` from the
    problems of ``inputs["problems"]`` (a stage ``curate``), and a link to each of `benchmarks` in
    ``inputs["benchmarks"]`` (a stage ``benchmarks``). What `near_held_out` finds like a validation
    problem is not trained on.

    Writes rejects.jsonl (id and reason of every other problem) and card.json: counts that add up.

    Args:
        domain: ``math`` or ``code``; problems of the other one are rejects.
        num_train_problems: at most, None for no limit; all that are left where there are fewer.
            num_validation: so many, or it is an error.
        rule: the keywords of `near_held_out`.

    Raises:
        KlearError: no problem is left to train on.
    """
    path = inputs["problems"] / _PROBLEMS
    faults = {problem.id: _fault(problem, domain) for problem in iter_problems(path)}
    usable = [name for name, fault in faults.items() if not fault]
    reasons = {name: fault for name, fault in faults.items() if fault}
    order = Random(derive_seed(seed, "real_world", domain)).sample(usable, len(usable))
    held_out, rest = set(order[:num_validation]), order[num_validation:]
    texts = {problem.id: problem.prompt for problem in iter_problems(path)}
    validation = [Problem(name, texts[name]) for name in sorted(held_out)]
    near = near_held_out((texts[name] for name in rest), validation, **rule)
    unlike = [name for name, is_near in zip(rest, near, strict=True) if not is_near]
    drawn = dict.fromkeys(unlike[:num_train_problems])
    if not drawn:
        raise KlearError(
            f"{len(usable)} problems can be judged, {num_validation} of them are held out, and no "
            "other is unlike them: add data sets or raise limit in real.yaml"
        )
    is_unlike = set(unlike)
    reasons |= {
        name: NOT_DRAWN if name in is_unlike else NEAR_HELD_OUT
        for name in rest
        if name not in drawn
    }
    # A second pass: the tests of a code problem may have megabytes.
    for file, names in ((TRAIN, drawn), (VALIDATION, held_out)):
        chosen = (problem for problem in iter_problems(path) if problem.id in names)
        write_problems(chosen, folder.path / file)
    rejects = ({"id": name, "reason": why} for name, why in reasons.items())
    write_lines(rejects, folder.path / REJECTS)
    _link_benchmarks(folder, inputs["benchmarks"], benchmarks)
    card = {
        "num_read": len(faults),
        "num_kept": len(drawn),
        "num_validation": len(held_out),
        "num_rejected": dict(Counter(reasons.values())),
        "seed": seed,
        "benchmarks": benchmarks,
    }
    write_json(folder.path / "card.json", card)


def join(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    num_validation: int,
    benchmarks: dict[str, list[str]],
) -> None:
    """Stage ``joint_world``: the benchmarks of both domains, and a validation set of which half are
    the first problems of each domain's.

    Args:
        inputs: ``math`` and ``code``, stages of `build`.
        num_validation: an even number of problems, at most twice what a world has.
        benchmarks: domain -> their names.
    """
    validation = {name: inputs[name] / VALIDATION for name in ("math", "code")}
    write_problems(first_of_both(validation, num_validation), folder.path / VALIDATION)
    for name, names in benchmarks.items():
        _link_benchmarks(folder, inputs[name], names)


def keep_learnable(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    domain: str,
    mixed: list[str],
    **rule,
) -> None:
    """Stage ``learnable``: the responses of ``inputs["curated"]`` (a stage ``curate``) to problems
    of one domain that are in neither world's validation set, as ``responses.parquet``, and a link
    to its ``problems.jsonl``.

    Writes card.json: the curation's, with the responses left out in ``learnable``: those of the
    other kinds, by source and kind, and those that `near_held_out` finds, by source; read, kept and
    left out add up.

    Args:
        inputs: also ``math_world`` and ``code_world``, stages of `build`, or one of them.
        domain: ``math`` or ``code``, as `Problem.family` says. mixed: the sources that hold both;
            problems of all others are of the domain.
        rule: the keywords of `near_held_out`.

    Raises:
        KlearError: no response is left.
    """
    kinds, held_out = {}, set()
    table = inputs["curated"] / _PROBLEMS
    worlds = [inputs[name] for name in inputs if name != "curated"]
    validation = chain(*(read_problems(world / VALIDATION) for world in worlds))
    prompts = (problem.prompt for problem in iter_problems(table))
    near = near_held_out(prompts, validation, **rule)
    for problem, is_near in zip(iter_problems(table), near, strict=True):
        if is_near:
            held_out.add(problem.id)
        elif problem.source in mixed:
            kinds[problem.id] = problem.family
    # By the source of the response, which need not be that of the problem.
    left_out: dict[str, Counter[str]] = {}
    num_held_out: Counter[str] = Counter()
    num_read = 0
    with SampleWriter(folder.path / "responses.parquet") as written:
        for sample in read_samples(inputs["curated"] / "responses.parquet"):
            num_read += 1
            kind = kinds.get(sample.problem_id, domain)
            if sample.problem_id in held_out:
                num_held_out[sample.source] += 1
            elif kind != domain:
                left_out.setdefault(sample.source, Counter())[kind] += 1
            else:
                written.add(sample)
    if not written.num_rows:
        raise KlearError(
            f"no responses to {domain} problems are left: raise the limits in real.yaml"
        )
    link_file(inputs["curated"] / _PROBLEMS, folder.path / _PROBLEMS)
    card = read_own_json(inputs["curated"] / "card.json")
    card["learnable"] = {
        "domain": domain,
        "num_read": num_read,
        "num_kept": written.num_rows,
        "other_domain": {name: dict(counts) for name, counts in left_out.items()},
        "held_out": dict(num_held_out),
    }
    write_json(folder.path / "card.json", card)


def near_held_out(
    prompts: Iterable[str],
    problems: Iterable[Problem],
    *,
    ngram_words: int,
) -> Iterator[bool]:
    """Whether each of `prompts`, in order, has the words of one of the validation `problems` or
    shares an n-gram with one alone.

    Validation problems are drawn from what is trained on, and are worded alike: "the first line
    contains a single integer t, the number of test cases" stands in most of Codeforces. So, unlike
    in the search for benchmarks, an n-gram that several of them hold removes nothing.

    ngram_words: as of `klearlib.curation.curate`.
    """
    index = OverlapIndex(
        {"validation": [(problem.id, problem.prompt) for problem in problems]},
        n=ngram_words,
        stop_more_than=1,
    )
    return (index.removal(prompt) is not None for prompt in prompts)


def _fault(problem: Problem, domain: str) -> str:
    """Why a problem cannot be trained on; "" where it can."""
    if problem.answer is None and not problem.tests:
        return NOTHING_TO_JUDGE_BY
    return "" if is_code(problem) == (domain == "code") else OTHER_DOMAIN


def _link_benchmarks(folder: RunFolder, source: Path, names: Iterable[str]) -> None:
    for name in names:
        link_file(source / f"{name}.jsonl", folder.path / f"{name}.jsonl")
