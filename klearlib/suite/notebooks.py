"""Run the notebooks of a profile: check all, say what will be done, run what changed, report.

All stages of the chosen notebooks are one graph. A notebook is executed when its stages are done,
and finds all results; while they run, what is done of it is published now and then. Exit codes:
those of `klearlib.cli.main`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.errors import KlearError, MissingAsset
from klearlib.experiments import catalogue, registered
from klearlib.experiments.experiment import runs_dir
from klearlib.params import root
from klearlib.params.place import Place, read_place
from klearlib.params.statistics import REPLICATES
from klearlib.run.files import one_line_failures
from klearlib.run.pool import Failure, run_stages, stop_grace_s
from klearlib.run.progress import Progress
from klearlib.run.stage import Stage, with_inputs
from klearlib.run.stops import on_stop
from klearlib.run.task import Task
from klearlib.suite.cache import LOG, digests, read_notebook, remember
from klearlib.suite.kernel import EXIT_FAILED
from klearlib.suite.plan import (
    NOTEBOOK_S,
    PlannedNotebook,
    describe,
    notebook_file,
    plan,
    weighed,
    workers_of,
)
from klearlib.suite.summary import summary, verdicts_of

if TYPE_CHECKING:
    from klearlib.suite.tensorboard import Mirror

PUBLISH_EVERY_S, PUBLISH_AT_MOST_S, PUBLISH_SHARE = 240.0, 1800.0, 0.03
"""Between two publications of what is done of a notebook, at least and at most; and the share of
the time that they take, as one of a thousand runs takes a minute."""
EXECUTE = "klearlib.suite.kernel:execute_notebook"
PUBLISH = "klearlib.suite.notebooks:publish"
"""What executes a notebook and what publishes, each in a process of its own."""


def run(
    profile: str,
    only: Sequence[str] = (),
    *,
    settings: Sequence[str] = (),
    out: str | None = None,
    force: bool = False,
    keep_going: bool = False,
    workers: int | str | None = None,
    tensorboard: str | None = None,
) -> int:
    """Run what is not cached and return the exit code, that of the first notebook that failed.

    Nothing starts before all parameters are checked. The report is rebuilt at the start, while
    results come in and at the end, where the verdicts are printed. A failure stops the rest, which
    saves its state, unless `keep_going`: then what does not need the failed stage goes on.
    settings, out: as in `plan`. workers: stages and notebooks at a time, as in
    `klearlib.run.pool.run_stages`. tensorboard: a folder for the metrics of all runs, cached ones
    included.

    Raises:
        ParameterError: as `plan`; a bad KLEAR_STOP_GRACE_S.
        MissingAsset: what has to run cannot finish here; see `plan.weighed`.
        KlearError: another run uses this folder; a Ray cluster does not answer.
        KeyboardInterrupt: it was stopped; running stages have saved their state.
    """
    began = time.monotonic()
    stop_grace_s()
    asked = {"settings": settings, "out": out, "force": force, "workers": workers}
    planned = weighed(profile, plan(profile, only, **asked))
    print(describe(planned), flush=True)
    if missing := planned.missing:
        several = f"{len(missing)} things keep this run from finishing:"
        raise MissingAsset("\n  ".join([several, *missing] if len(missing) > 1 else missing))
    place = planned.notebooks[0].place
    results, before = place.folder, verdicts_of(place.folder)
    mirror = _mirror(tensorboard, planned.notebooks)
    if not planned.todo:
        if mirror is not None:
            mirror(True)
        reported = _report(results)
        print(summary(results, before, [], time.monotonic() - began), flush=True)
        return reported
    resume = resuming(place, only, keep_going, workers)
    registered.note(profile, runs_dir())
    with _locked(results):
        place.claim()
        suite = _Suite(planned.todo, results, resume)
        _report(results)
        try:
            code = suite.run(workers_of(planned.todo), keep_going, mirror)
        except KeyboardInterrupt:
            with on_stop(lambda number, frame: None):  # always build the last report
                _report(results)
            print(f"klear: finished work is kept, go on with: {resume}", flush=True)
            raise
        reported = _report(results)
    print(summary(results, before, suite.computed, time.monotonic() - began), flush=True)
    if code:
        print(f"klear: some notebooks failed; go on with: {resume}", flush=True)
    return code or reported


class _Suite:
    """The notebooks of one run as one graph of stages and tasks."""

    def __init__(self, todo: Sequence[PlannedNotebook], results: Path, resume: str):
        self.results, self.resume = results, resume
        self.planned = {each.name: each for each in todo}
        self.executing: dict[Task, PlannedNotebook] = {}
        for each in todo:  # those that gather come last
            needs = tuple(self.executing) if each.experiment.gathers else tuple(each.stages)
            self.executing[_execution(each.name, results, each.values, needs)] = each
        self.publish_after = time.monotonic() + PUBLISH_EVERY_S
        self.publish_began = 0.0
        self.publishing: Task | None = None
        self.computed: list[Stage] = []  # that this run has finished
        self.failed: list[Failure] = []

    def run(self, workers: int | str, keep_going: bool, mirror: Mirror | None) -> int:
        """Run everything; the exit code. Raises KlearError for failures other than its stages'."""
        try:
            run_stages(
                [stage for each in self.planned.values() for stage in each.stages],
                runs_dir=runs_dir(),
                workers=workers,
                tasks=list(self.executing),
                on_done=self._done,
                on_failed=self._fails,
                progress=Progress(listener=mirror),
                keep_going=keep_going,
            )
        except KlearError as error:
            if all(each.error is not error for each in self.failed):  # `_fails` tells the others
                raise
        return self.failed[0].error.exit_code if self.failed else 0

    def _done(self, item: Stage | Task) -> list[Task]:
        if isinstance(item, Stage):
            return self._publications(item)
        if item is self.publishing:
            took = time.monotonic() - self.publish_began
            wait = max(PUBLISH_EVERY_S, min(took / PUBLISH_SHARE, PUBLISH_AT_MOST_S))
            self.publishing, self.publish_after = None, time.monotonic() + wait
        else:
            self._executed(self.executing[item])
        _report(self.results)
        return []

    def _executed(self, planned: PlannedNotebook) -> None:
        """A notebook is done: record what its results follow from, which may have changed if it
        gathers."""
        found, output = planned.digests, self.results / f"{planned.name}.ipynb"
        if planned.experiment.gathers:
            found = digests(read_notebook(notebook_file(planned.name)), planned.experiment)
        remember(self.results / planned.name, found, executed=output)
        print(f"[{planned.number}] done: {output.relative_to(root())}", flush=True)

    def _publications(self, stage: Stage) -> list[Task]:
        """Publish a notebook with this finished stage that still waits for others; one at a time
        and only now and then, so that drawing takes little from training."""
        self.computed.append(stage)
        ended = {each.key for each in self.computed}
        keys = {name: {each.key for each in p.stages} for name, p in self.planned.items()}
        waiting = [name for name, its in keys.items() if stage.key in its and not its <= ended]
        now = time.monotonic()
        if now < self.publish_after or self.publishing or not waiting:
            return []
        self.publish_began = now
        name = waiting[0]
        values = self.planned[name].values
        arguments = {"notebook": name, "values": values, "out": str(self.results)}
        log = self.results / name / LOG
        self.publishing = Task(f"results of {name}", PUBLISH, arguments, log, estimate_s=5.0)
        return [self.publishing]

    def _fails(self, failure: Failure) -> None:
        """Say what failed, which notebooks wait for it, and how to go on."""
        self.failed.append(failure)
        is_stage = isinstance(failure.item, Stage)
        waiting = failure.skipped if is_stage else [failure.item]
        found = [each for task, each in self.executing.items() if task in waiting]
        found = [each for each in found if not each.experiment.gathers] or found
        numbers = "".join(f"[{each.number}]" for each in found) or "klear:"
        lines = [*getattr(failure.error, "lines", [str(failure.error)])]
        if found and not is_stage:
            log = self.results / found[0].name / LOG
            lines.append(f"log: {log.relative_to(root())}")
        lines.append(f"go on with: {self.resume}")
        print("\n".join(f"{numbers} {line}" for line in lines), flush=True)


def publish(notebook: str, values: dict, out: str) -> None:
    """Publish what is done of a notebook so far in the results folder `out`."""
    params, place = catalogue.check(notebook, values), read_place(Path(out))
    catalogue.experiment_of(notebook)(params, place).publish()


def execute_published(place: Place) -> int:
    """Execute the notebooks of a results folder with the runs that their tables hold; the exit code
    of the first that failed, else 0.

    Raises KlearError: a run uses this folder.
    """
    found, tasks = catalogue.with_tables(place.folder), []
    for _, section in found:
        read_notebook(notebook_file(section.notebook))
    with _locked(place.folder):
        for experiment, section in found:
            how = section.parameters, tuple(tasks) if experiment.gathers else ()
            tasks.append(_execution(section.notebook, place.folder, *how, published=True))
        failed = run_stages([], runs_dir=runs_dir(), tasks=tasks, keep_going=True)
    for each in failed:
        lines = getattr(each.error, "lines", [str(each.error)])
        print("\n".join([*lines, f"log: {each.item.log.relative_to(root())}"]), flush=True)
    return failed[0].error.exit_code if failed else 0


def _execution(
    name: str, results: Path, values: dict, needs: Sequence[Stage | Task], **how: bool
) -> Task:
    """What executes a notebook."""
    folder = results / name
    log = folder / LOG
    with one_line_failures(folder):
        folder.mkdir(parents=True, exist_ok=True)
        log.write_text("", encoding="utf-8")
    arguments = {"source": str(notebook_file(name)), "output": f"{folder}.ipynb", "values": values}
    arguments |= {"log": str(log), **how}
    title = f"notebook {name.partition('_')[0]}"
    return Task(title, EXECUTE, arguments, log, needs, estimate_s=NOTEBOOK_S)


def _mirror(folder: str | None, planned: Sequence[PlannedNotebook]) -> Mirror | None:
    if folder is None:
        return None
    from klearlib.suite.tensorboard import Mirror

    stages = with_inputs(stage for each in planned for stage in each.stages).values()
    return Mirror(Path(folder), [stage.folder(runs_dir()) for stage in stages])


def resuming(place: Place, only: Sequence[str], keep_going: bool, workers: int | str | None) -> str:
    """The command that continues this run; never with --force, which would start over."""
    words = [place.command]
    words += ["--only", *only] if only else []
    if piece := os.environ.get(REPLICATES):
        words += ["--replicates", piece]
    words += ["--keep-going"] if keep_going else []
    words += ["--workers", str(workers)] if workers is not None else []
    return " ".join(words)


def _report(results: Path) -> int:
    """Build the report of `results`; if that fails, say so and return 1: the results are safe."""
    from klearlib.report.page import build_report

    try:
        build_report(results, catalogue.experiments())
    except (ValueError, KeyError, OSError) as error:
        print(f"klear: the report could not be built: {error}", flush=True)
        return EXIT_FAILED
    return 0


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a results folder: two runs would write the same artefacts."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise KlearError(
                f"another klear run is using results/{folder.name}: wait for it or stop it"
            ) from None
        yield
