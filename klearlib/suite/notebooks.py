"""Run the notebooks of a profile: check all, say what will be done, run what changed, report.

All stages of the chosen notebooks are one graph. A notebook is executed when its stages are done,
and finds everything there; while they go on, what is done of it is published now and then.
Exit codes: those of `klearlib.cli.main`.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.errors import Interrupted, KlearError, MissingAsset, ParameterError
from klearlib.experiments import catalogue, registered
from klearlib.experiments.experiment import runs_dir
from klearlib.params import root
from klearlib.params.place import Place, read_place
from klearlib.run.files import one_line_failures
from klearlib.run.pool import Failure, code_read_once, run_stages, stop_grace_s
from klearlib.run.progress import Progress
from klearlib.run.stage import Stage, with_inputs
from klearlib.run.stops import on_stop
from klearlib.run.task import Task
from klearlib.suite.cache import LOG, digests, read_notebook, remember
from klearlib.suite.kernel import EXIT_FAILED
from klearlib.suite.plan import NOTEBOOK_S, PlannedNotebook, describe, plan, weighed
from klearlib.suite.summary import summary, verdicts_of

if TYPE_CHECKING:
    from klearlib.suite.tensorboard import Mirror

PUBLISH_EVERY_S = 60.0
"""Between two publications of what is done of a notebook."""
PUBLISH = "klearlib.suite.notebooks:publish"
"""What publishes, in a process of its own."""


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
    results come in and at the end, where the verdicts are printed. A failure stops the rest, whose
    stages save their state, unless `keep_going`: then what does not need the failed stage goes on.
    settings, out: as in `plan`. workers: stages and notebooks at a time, as in
    `klearlib.run.pool.run_stages`. tensorboard: a folder for the numbers of all runs, cached ones
    included.

    Raises:
        ParameterError: as `plan`; a bad KLEAR_STOP_GRACE_S.
        MissingAsset: what has to run cannot finish here; see `plan.weighed`.
        KlearError: another run works on this profile; a Ray cluster does not answer.
    """
    began = time.monotonic()
    stop_grace_s()
    chosen = {"settings": settings, "out": out}
    planned = weighed(profile, plan(profile, only, **chosen, force=force, workers=workers))
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
    asked = [getattr(each.experiment.params, "workers", None) for each in planned.todo]
    places = _workers([each for each in asked if each is not None] or [0])
    came: list[int] = []

    def stop(number: int, frame: object) -> None:
        came.append(number)
        raise Interrupted

    registered.note(profile, runs_dir())
    with _locked(results), on_stop(stop):
        place.claim()
        suite = _Suite(planned.todo, results, resume)
        _report(results)
        try:
            code = suite.run(places, keep_going, mirror)
        except KeyboardInterrupt:
            code = 128 + came[0]
        with on_stop(lambda number, frame: None):  # the last report is built in any case
            reported = _report(results)
    if came:
        print(f"klear: stopped; finished work is kept, go on with: {resume}", flush=True)
        return code
    print(summary(results, before, suite.computed, time.monotonic() - began), flush=True)
    if code:
        print(f"klear: some notebooks failed; go on with: {resume}", flush=True)
    return code or reported


class _Suite:
    """The notebooks of one run as one graph of stages and tasks."""

    def __init__(self, todo: Sequence[PlannedNotebook], results: Path, resume: str):
        self.results, self.resume = results, resume
        self.planned = {each.name: each for each in todo}
        self.needing: dict[str, set[str]] = {}  # key of a stage -> the notebooks that ask for it
        for each in todo:
            for stage in each.stages:
                self.needing.setdefault(stage.key, set()).add(each.name)
        self.executing: dict[Task, PlannedNotebook] = {}
        for gathers in (False, True):
            others = tuple(self.executing)
            for each in todo:
                if each.experiment.gathers == gathers:
                    needs = others if gathers else tuple(each.stages)
                    self.executing[self._execution(each, needs)] = each
        self.published = dict.fromkeys(self.planned, time.monotonic())
        self.publishing: dict[Task, str] = {}
        self.computed: list[Stage] = []  # that this run has finished
        self.failed: list[Failure] = []

    def run(self, workers: int | str, keep_going: bool, mirror: Mirror | None) -> int:
        """Run everything; the exit code. Raises KlearError for what failed beside its stages."""
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
        return self.failed[0].exit_code if self.failed else 0

    def _execution(self, planned: PlannedNotebook, needs: tuple[Stage | Task, ...]) -> Task:
        folder = self.results / planned.name
        with one_line_failures(folder):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / LOG).write_text("", encoding="utf-8")
        arguments = {
            "source": str(_source(planned)),
            "output": str(folder.with_suffix(".ipynb")),
            "values": planned.values,
            "root": str(root()),
            "log": str(folder / LOG),
            "out": str(self.results),
        }
        target = "klearlib.suite.kernel:execute_notebook"
        name = f"notebook {planned.number}"
        return Task(name, target, arguments, folder / LOG, needs, estimate_s=NOTEBOOK_S)

    def _done(self, item: Stage | Task) -> list[Task]:
        if isinstance(item, Stage):
            return self._publications(item)
        if item in self.publishing:
            self.published[self.publishing.pop(item)] = time.monotonic()
        else:
            self._executed(self.executing[item])
        _report(self.results)
        return []

    def _executed(self, planned: PlannedNotebook) -> None:
        """A notebook is done: keep what its results follow from, which may have changed for one
        that gathers."""
        found, output = planned.digests, self.results / f"{planned.name}.ipynb"
        if planned.experiment.gathers:
            found = digests(read_notebook(_source(planned)), planned.experiment)
        remember(self.results / planned.name, found, executed=output)
        print(f"[{planned.number}] done: {output.relative_to(root())}", flush=True)

    def _publications(self, stage: Stage) -> list[Task]:
        """What is to be published anew now that a stage is done: of notebooks with stages left
        the one whose publication is the oldest, alone, so that drawing takes little from training.
        A notebook whose stages are soon done is executed then, which publishes it too."""
        self.computed.append(stage)
        recent = time.monotonic() - max(self.published.values()) < PUBLISH_EVERY_S
        waiting = [
            name
            for name in sorted(self.needing.get(stage.key, ()))
            if self._seconds_left(name) > PUBLISH_EVERY_S
        ]
        if recent or self.publishing or not waiting:
            return []
        planned = self.planned[min(waiting, key=self.published.__getitem__)]
        arguments = {"notebook": planned.name, "values": planned.values, "out": str(self.results)}
        log = self.results / planned.name / LOG
        task = Task(f"results of {planned.number}", PUBLISH, arguments, log, estimate_s=5.0)
        self.publishing[task] = planned.name
        return [task]

    def _seconds_left(self, name: str) -> float:
        ended = {each.key for each in self.computed}
        stages = self.planned[name].stages
        return sum(each.estimate_s for each in stages if each.key not in ended)

    def _fails(self, failure: Failure) -> None:
        """Say what failed, which notebooks wait for it, and how to go on."""
        self.failed.append(failure)
        is_stage = isinstance(failure.item, Stage)
        waiting = failure.skipped if is_stage else [failure.item]
        tasks = [each for each in waiting if isinstance(each, Task)]
        found = [self.executing[each] for each in tasks if each in self.executing]
        found = [each for each in found if not each.experiment.gathers] or found
        numbers = "".join(f"[{each.number}]" for each in found) or "klear:"
        lines = list(failure.lines)
        if found and not is_stage:
            log = self.results / found[0].name / LOG
            lines.append(f"log: {log.relative_to(root())}")
        lines.append(f"go on with: {self.resume}")
        print("\n".join(f"{numbers} {line}" for line in lines), flush=True)


def publish(notebook: str, values: dict, out: str) -> None:
    """Publish what is done of a notebook so far in the results folder `out`."""
    params = catalogue.check(notebook, values)
    place = read_place(Path(out))
    catalogue.experiment_of(notebook)(params, place).publish()


def _mirror(folder: str | None, planned: Sequence[PlannedNotebook]) -> Mirror | None:
    if folder is None:
        return None
    from klearlib.suite.tensorboard import Mirror

    stages = with_inputs(stage for each in planned for stage in each.stages).values()
    with code_read_once():
        folders = [stage.folder(runs_dir()) for stage in stages]
    return Mirror(Path(folder), folders)


def resuming(place: Place, only: Sequence[str], keep_going: bool, workers: int | str | None) -> str:
    """The command that goes on where this run stops; never --force, which would start over."""
    words = [place.command]
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
    return 0 if 0 in asked else max(asked)


def _report(results: Path) -> int:
    """Build the report of `results`; its fault costs a line and exit code 1, never the results."""
    from klearlib.report.page import build_report

    try:
        build_report(results, catalogue.experiments())
    except (ValueError, KeyError, OSError) as error:
        print(f"klear: the report could not be built: {error}", flush=True)
        return EXIT_FAILED
    return 0


def _source(planned: PlannedNotebook) -> Path:
    return root() / "notebooks" / f"{planned.name}.ipynb"


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a results folder: two runs would write the same artefacts."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise KlearError(
                f"another klear run works on results/{folder.name}: wait for it or stop it"
            ) from None
        yield
