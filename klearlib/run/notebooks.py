"""Run the notebooks of a profile: check all, say what will be done, run what changed, report.

``klear run`` and ``klear plan`` call `run` and `plan`. Exit codes: 0, 1 a notebook failed, 2 wrong
parameters, 130 Ctrl-C, 138 a kernel died, 143 terminated.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
from collections.abc import Iterator, Sequence
from pathlib import Path

from klearlib.errors import KlearError, MissingAsset, ParameterError
from klearlib.params import (
    VERL,
    check,
    load_profile,
    missing_assets,
    notebooks_of,
    record_of,
    require_profile,
    root,
)
from klearlib.params.checking import did_you_mean
from klearlib.run.devices import gpus
from klearlib.run.files import one_line_failures
from klearlib.run.job import stop_grace_s
from klearlib.run.notebook_cache import (
    LOG,
    digests,
    estimates_s,
    read_notebook,
    remember,
    seconds_last_time,
    why_not_cached,
)
from klearlib.run.planned import CACHED, WILL_RUN, PlannedNotebook, counted, describe, resuming
from klearlib.run.progress import rough
from klearlib.run.provenance import num_cores
from klearlib.run.reporting import rebuild, report_follows
from klearlib.run.side_by_side import Stops, Task, run_side_by_side
from klearlib.run.weighing import weighed
from klearlib.scale.address import ray_for


def results_dir(profile: str) -> Path:
    """Where the notebooks of `profile` publish."""
    return root() / "results" / profile


def plan(
    profile: str, only: Sequence[str] = (), *, force: bool = False, workers: int | str | None = None
) -> list[PlannedNotebook]:
    """What `run` would do, in its order, after every parameter of every notebook is checked.

    only: numbers or names of notebooks, all where empty; workers: replaces the parameter of this
    name in the notebooks that have one.

    Raises:
        ParameterError: unknown profile or notebook, a wrong parameter, a parameter file without
            its notebook or with a damaged one, a profile without the embedded world that one of
            its notebooks needs.
    """
    planned = [_planned(profile, name, force, workers) for name in _chosen(profile, only)]
    changes = any(each.state == WILL_RUN for each in planned)
    return [
        dataclasses.replace(each, state=WILL_RUN, why="gathers results that change")
        if changes and each.state == CACHED and _gathers(each.notebook)
        else each
        for each in planned
    ]


def run(
    profile: str,
    only: Sequence[str] = (),
    *,
    force: bool = False,
    keep_going: bool = False,
    workers: int | str | None = None,
    jobs: int = 0,
) -> int:
    """Run what is not cached and return the exit code, that of the first notebook that failed.

    Nothing starts before all parameters are checked. The report is rebuilt at the start, while
    results come in and at the end. After a failure no further notebook starts, unless `keep_going`;
    those that run beside it are finished.

    jobs: notebooks at a time, 0 for `num_jobs`. The notebook that gathers results runs alone, after
    the others. The stages that run at once are limited over all notebooks, by `workers`.

    Raises:
        ParameterError: as `plan`; a bad KLEAR_STOP_GRACE_S.
        MissingAsset: what has to run cannot finish here; see `weighing.weighed`.
        KlearError: another run works on this profile; a Ray cluster does not answer.
    """
    stop_grace_s()
    planned = weighed(profile, plan(profile, only, force=force, workers=workers))
    print(describe(planned), flush=True)
    todo = [each for each in planned if each.state == WILL_RUN]
    missing = [line for each in todo for line in each.missing]
    if missing:
        raise MissingAsset("\n  ".join(counted(missing)))
    results = results_dir(profile)
    if not todo:
        return rebuild(results)
    resume = resuming(profile, only, keep_going, workers, jobs)
    tasks = [_task(profile, each, force, workers, resume) for each in todo]
    workers_of = [each.values.get("workers", 0) for each in todo]
    with _locked(profile), ray_for(workers_of) as cluster, Stops() as stops:
        rebuild(results)
        with report_follows(results):
            code = run_side_by_side(
                tasks,
                jobs=jobs or num_jobs(todo),
                keep_going=keep_going,
                stops=stops,
                num_cached=len(planned) - len(todo),
                variables=cluster,
            )
        if stops.count:
            code = stops.exit_code
            print(f"klear: stopped; finished work is kept, go on with: {resume}", flush=True)
        report_code = rebuild(results)  # a stop that comes meanwhile stops nothing
        return code or report_code


def num_jobs(todo: Sequence[PlannedNotebook]) -> int:
    """Notebooks at a time where nobody says how many.

    Beside the stages of one there is the serial part of another (imports, drawing), which takes a
    core; a GPU would have to share its memory, and a run of verl takes the whole cluster.
    """
    on_verl = any(each.values.get("engine") == VERL for each in todo)
    return 1 if on_verl or gpus() or num_cores() < 2 else 2


def _task(
    profile: str, each: PlannedNotebook, force: bool, workers: int | str | None, resume: str
) -> Task:
    prefix = f"[{each.number}]"
    folder = results_dir(profile) / each.notebook
    log, executed = folder / LOG, folder.with_suffix(".ipynb")
    gathers = _gathers(each.notebook)
    digests = each.digests

    def begin() -> dict:
        nonlocal digests
        if gathers:  # what it gathers has just changed
            digests = _planned(profile, each.notebook, force, workers).digests
        with one_line_failures(folder):
            folder.mkdir(parents=True, exist_ok=True)
            log.write_text("", encoding="utf-8")
        cost = f", {rough(each.estimate_s)}" if each.estimate_s is not None else ""
        print(f"{prefix} started{cost}", flush=True)
        source = root() / "notebooks" / f"{each.notebook}.ipynb"
        places = {"source": source, "output": executed, "root": root(), "log": log}
        return {"values": each.values} | {name: str(place) for name, place in places.items()}

    def end(seconds: float) -> str:
        remember(folder, digests, executed=executed, seconds=seconds)
        return f"done in {seconds:.0f} s: {_relative(executed)}"

    return Task(
        prefix=prefix,
        log=log,
        begin=begin,
        end=end,
        after_failure=(f"log: {_relative(log)}", f"go on with: {resume}"),
        alone=gathers,
        estimate_s=each.estimate_s,
    )


def _planned(profile: str, name: str, force: bool, workers: int | str | None) -> PlannedNotebook:
    values = load_profile(profile, name)
    if workers is not None and "workers" in {each.name for each in _fields(name)}:
        values["workers"] = workers
    params = check(name, values)
    path = root() / "notebooks" / f"{name}.ipynb"
    if not path.is_file():
        raise ParameterError(f"params/{profile}/{name}.yaml has no notebook {_relative(path)}")
    notebook = read_notebook(path)
    of = digests(notebook, params)
    folder = results_dir(profile) / name
    why = "forced" if force else why_not_cached(folder, of)
    stated = estimates_s(notebook)
    if profile in stated and not 0 < stated[profile] < float("inf"):
        raise ParameterError(
            f"{_relative(path)}: metadata.klear.estimate_s of {profile!r} must be above 0, got "
            f"{stated[profile]}"
        )
    return PlannedNotebook(
        notebook=name,
        state=WILL_RUN if why else CACHED,
        why=why,
        estimate_s=stated.get(profile, seconds_last_time(folder)),
        missing=tuple(missing_assets(params)),
        values=values,
        digests=of,
    )


def _gathers(name: str) -> bool:
    return getattr(record_of(name), "gathers", False)


def _fields(name: str) -> tuple[dataclasses.Field, ...]:
    return dataclasses.fields(record_of(name))


def _chosen(profile: str, only: Sequence[str]) -> list[str]:
    names = notebooks_of(require_profile(profile))
    if not only:
        return names
    by_word = {name: name for name in names}
    for name in names:
        number = name.partition("_")[0]
        by_word |= {number: name, number.lstrip("0") or "0": name}
    unknown = [word for word in only if word not in by_word]
    if unknown:
        hint = did_you_mean(unknown[0], names)
        raise ParameterError(f"profile {profile!r} has no notebook {unknown[0]!r}; {hint}")
    chosen = {by_word[word] for word in only}
    return [name for name in names if name in chosen]


def _relative(path: Path) -> str:
    return str(path.relative_to(root()))


@contextlib.contextmanager
def _locked(profile: str) -> Iterator[None]:
    """Hold the profile: two runs would write the same artefacts."""
    folder = results_dir(profile)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise KlearError(
                f"another klear run works on profile {profile!r}: wait for it or stop it"
            ) from None
        yield
