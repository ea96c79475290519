"""Run the notebooks of a profile: check all, say what will be done, run what changed, report.

All stages of the chosen notebooks are one graph. A notebook is executed when its stages are done,
and finds everything there; while they go on, what is done of it is published now and then.
``klear run`` and ``klear plan`` call `run` and `plan`. Exit codes: 0, 1 a notebook failed, 2 wrong
parameters, 130 Ctrl-C, 138 a kernel died, 143 terminated.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from klearlib.errors import KlearError, MissingAsset, ParameterError
from klearlib.experiments import catalogue
from klearlib.experiments.experiment import Experiment, runs_dir
from klearlib.params import did_you_mean, load_profile, missing_assets, require_profile, root
from klearlib.run.files import one_line_failures
from klearlib.run.pool import Failure, run_stages, stop_grace_s
from klearlib.run.stage import Stage
from klearlib.run.task import Task
from klearlib.suite.cache import (
    LOG,
    digests,
    estimates_s,
    read_notebook,
    remember,
    seconds_last_time,
    why_not_cached,
)
from klearlib.suite.kernel import EXIT_FAILED
from klearlib.suite.plan import CACHED, WILL_RUN, PlannedNotebook, counted, describe, weighed

PUBLISH_EVERY_S = 60.0
"""Between two publications of what is done of one notebook."""
PUBLISH = "klearlib.suite.notebooks:publish"
"""What publishes, in a process of its own."""


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
        if changes and each.state == CACHED and catalogue.experiment_of(each.notebook).gathers
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
) -> int:
    """Run what is not cached and return the exit code, that of the first notebook that failed.

    Nothing starts before all parameters are checked. The report is rebuilt at the start, while
    results come in and at the end. A failure stops the rest, whose stages save their state, unless
    `keep_going`: then what does not need the failed stage goes on. workers: stages and notebooks at
    a time, as in `klearlib.run.pool.run_stages`.

    Raises:
        ParameterError: as `plan`; a bad KLEAR_STOP_GRACE_S.
        MissingAsset: what has to run cannot finish here; see `plan.weighed`.
        KlearError: another run works on this profile; a Ray cluster does not answer.
    """
    stop_grace_s()
    planned = weighed(profile, plan(profile, only, force=force, workers=workers))
    print(describe(planned), flush=True)
    todo = [each for each in planned if each.state == WILL_RUN]
    if missing := [line for each in todo for line in each.missing]:
        raise MissingAsset("\n  ".join(counted(missing)))
    results = results_dir(profile)
    if not todo:
        return _report(results)
    resume = resuming(profile, only, keep_going, workers)
    asked = [each.values.get("workers", 0) for each in todo]
    with _locked(profile), _stops() as stopped:
        _report(results)
        try:
            code = _Suite(todo, results, resume).run(_workers(asked), keep_going)
        except KeyboardInterrupt:
            code = 128 + stopped[0]
            print(f"klear: stopped; finished work is kept, go on with: {resume}", flush=True)
        with _no_stops():
            reported = _report(results)
        return code or reported


class _Suite:
    """The notebooks of one run as one graph of stages and tasks."""

    def __init__(self, todo: Sequence[PlannedNotebook], results: Path, resume: str):
        self.results, self.resume = results, resume
        self.planned = {each.notebook: each for each in todo}
        self.experiments: dict[str, Experiment] = {
            name: catalogue.experiment_of(name)(catalogue.check(name, each.values))
            for name, each in self.planned.items()
        }
        self.stages = {name: each.stages() for name, each in self.experiments.items()}
        self.needing: dict[str, set[str]] = {}  # key of a stage -> the notebooks that ask for it
        for name, stages in self.stages.items():
            for stage in stages:
                self.needing.setdefault(stage.key, set()).add(name)
        self.executing = {
            name: self._execution(name, tuple(stages))
            for name, stages in self.stages.items()
            if not self.experiments[name].gathers
        }
        others = tuple(self.executing.values())
        for name, each in self.experiments.items():
            if each.gathers:
                self.executing[name] = self._execution(name, others)
        self.notebook_of = {task: name for name, task in self.executing.items()}
        self.published = dict.fromkeys(self.experiments, time.monotonic())
        self.publishing: dict[Task, str] = {}
        self.ended: set[str] = set()  # keys of the stages that this run has finished
        self.failed: list[Failure] = []

    def run(self, workers: int | str, keep_going: bool) -> int:
        """Run everything; the exit code."""
        with contextlib.suppress(KlearError):  # told by `_fails`
            run_stages(
                [stage for stages in self.stages.values() for stage in stages],
                runs_dir=runs_dir(),
                workers=workers,
                tasks=list(self.executing.values()),
                on_done=self._done,
                on_failed=self._fails,
                keep_going=keep_going,
            )
        return self.failed[0].exit_code if self.failed else 0

    def _execution(self, name: str, needs: tuple[Stage | Task, ...]) -> Task:
        folder = self.results / name
        with one_line_failures(folder):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / LOG).write_text("", encoding="utf-8")
        arguments = {
            "source": str(root() / "notebooks" / f"{name}.ipynb"),
            "output": str(folder.with_suffix(".ipynb")),
            "values": self.planned[name].values,
            "root": str(root()),
            "log": str(folder / LOG),
        }
        return Task(
            f"notebook {self.planned[name].number}",
            "klearlib.suite.kernel:execute_notebook",
            arguments,
            folder / LOG,
            needs,
            estimate_s=8.0,
        )

    def _done(self, item: Stage | Task) -> list[Task]:
        if isinstance(item, Stage):
            return self._publications(item)
        if item in self.publishing:
            self.published[self.publishing.pop(item)] = time.monotonic()
            _report(self.results)
        else:
            self._executed(self.notebook_of[item], item)
        return []

    def _executed(self, name: str, task: Task) -> None:
        """A notebook is done: keep what its results follow from, which may have changed for one
        that gathers, and show it."""
        planned, output = self.planned[name], self.results / f"{name}.ipynb"
        found = planned.digests
        if self.experiments[name].gathers:
            source = read_notebook(root() / "notebooks" / f"{name}.ipynb")
            found = digests(source, self.experiments[name])
        remember(self.results / name, found, executed=output, seconds=task.seconds)
        print(f"[{planned.number}] done: {_relative(output)}", flush=True)
        _report(self.results)

    def _publications(self, stage: Stage) -> list[Task]:
        """What is to be published anew now that a stage is done; a notebook whose stages are all
        done is executed at once."""
        self.ended.add(stage.key)
        tasks = []
        for name in sorted(self.needing.get(stage.key, ())):
            recent = time.monotonic() - self.published[name] < PUBLISH_EVERY_S
            whole = all(each.key in self.ended for each in self.stages[name])
            if recent or whole or name in self.publishing.values():
                continue
            planned, log = self.planned[name], self.results / name / LOG
            task = Task(
                f"results of {planned.number}",
                PUBLISH,
                {"notebook": name, "values": planned.values},
                log,
                estimate_s=5.0,
            )
            self.publishing[task] = name
            tasks.append(task)
        return tasks

    def _fails(self, failure: Failure) -> None:
        """Say what failed, which notebooks wait for it, and how to go on."""
        self.failed.append(failure)
        waiting = failure.skipped if isinstance(failure.item, Stage) else [failure.item]
        tasks = [each for each in waiting if isinstance(each, Task)]
        names = [self.notebook_of[each] for each in tasks if each in self.notebook_of]
        names = [name for name in names if not self.experiments[name].gathers] or names
        numbers = "".join(f"[{self.planned[name].number}]" for name in names) or "klear:"
        lines = list(failure.lines)
        if isinstance(failure.item, Task) and names:
            lines.append(f"log: {_relative(self.results / names[0] / LOG)}")
        print("\n".join(f"{numbers} {line}" for line in lines), flush=True)
        print(f"{numbers} go on with: {self.resume}", flush=True)


def publish(notebook: str, values: dict) -> None:
    """Publish what is done of a notebook so far."""
    catalogue.experiment_of(notebook)(catalogue.check(notebook, values)).publish()


def resuming(profile: str, only: Sequence[str], keep_going: bool, workers: int | str | None) -> str:
    """The command that goes on where this run stops; never --force, which would start over."""
    words = ["klear run --profile", profile]
    words += ["--only", *only] if only else []
    words += ["--keep-going"] if keep_going else []
    words += ["--workers", str(workers)] if workers is not None else []
    return " ".join(words)


def _workers(asked: Sequence[int | str]) -> int | str:
    """What all notebooks ask for; of several numbers the largest.

    Raises ParameterError where some want a cluster and others another place.
    """
    if any(isinstance(each, str) for each in asked) and len(set(asked)) > 1:
        words = ", ".join(map(str, dict.fromkeys(asked)))
        raise ParameterError(f"the notebooks have several workers ({words}): give one by --workers")
    return 0 if 0 in asked else max(asked) if len(set(asked)) > 1 else asked[0]


def _report(results: Path) -> int:
    """Build the report of `results`; its fault costs a line and exit code 1, never the results."""
    from klearlib.report.page import build_report

    try:
        build_report(results, catalogue.experiments())
    except (ValueError, KeyError, OSError) as error:
        print(f"klear: the report could not be built: {error}", flush=True)
        return EXIT_FAILED
    return 0


def _planned(profile: str, name: str, force: bool, workers: int | str | None) -> PlannedNotebook:
    values = load_profile(profile, name)
    cls = catalogue.experiment_of(name)
    if workers is not None and "workers" in {each.name for each in dataclasses.fields(cls.Params)}:
        values["workers"] = workers
    params = catalogue.check(name, values)
    path = root() / "notebooks" / f"{name}.ipynb"
    if not path.is_file():
        raise ParameterError(f"{profile} has {name} and there is no notebook {_relative(path)}")
    notebook, folder = read_notebook(path), results_dir(profile) / name
    found = digests(notebook, cls(params))
    why = "forced" if force else why_not_cached(folder, found)
    return PlannedNotebook(
        notebook=name,
        state=WILL_RUN if why else CACHED,
        why=why,
        estimate_s=estimates_s(notebook).get(profile, seconds_last_time(folder)),
        missing=tuple(missing_assets(params)),
        values=values,
        digests=found,
    )


def _chosen(profile: str, only: Sequence[str]) -> list[str]:
    names = catalogue.notebooks_of(require_profile(profile))
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
def _stops() -> Iterator[list[int]]:
    """SIGTERM and SIGINT become KeyboardInterrupt, each time; gives the list of those that came."""
    came: list[int] = []

    def stop(number: int, frame: object) -> None:
        came.append(number)
        raise KeyboardInterrupt

    with _handled(stop):
        yield came


@contextlib.contextmanager
def _no_stops() -> Iterator[None]:
    """A stop that comes while the last report is built stops nothing."""
    with _handled(lambda number, frame: None):
        yield


@contextlib.contextmanager
def _handled(handler: Callable) -> Iterator[None]:
    """Both signals go to `handler` inside the block; in the main thread alone."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    if threading.current_thread() is not threading.main_thread():
        numbers = ()
    previous = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, known in previous.items():
            signal.signal(number, known)


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
