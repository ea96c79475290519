"""What every notebook is: an experiment with parameters, arms, tables, figures and verdicts.

A notebook has one module here, ``nb06_alpha_sweep`` for ``06_alpha_sweep.ipynb``, with one subclass
of `Experiment`. Its cells call ``plan``, ``run``, ``table``, ``figure``, ``publish`` and
``verdict_table`` of it, and `klear run` the same.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from klearlib.curation.pass_rates import RATES, read_pass_rates
from klearlib.errors import Interrupted, KlearError
from klearlib.evaluate.counts import LOOKS
from klearlib.experiments import catalogue, registered
from klearlib.experiments.explore import Exploring
from klearlib.experiments.judged import Judged
from klearlib.experiments.results import Results
from klearlib.experiments.shown import Frame, Rows, Showing, equations_of, table
from klearlib.experiments.tidy import (
    FACTS,
    RUNS,
    Arm,
    Published,
    Run,
    of_stage,
    unlike,
    write_tables,
)
from klearlib.notebook import setup, show_frames, show_resolved, whereabouts
from klearlib.paper import claim
from klearlib.params import check_values, load_profile, root, uses_miniature
from klearlib.params.place import PUBLISHED, Place, differences, place_for
from klearlib.params.statistics import replicates_asked
from klearlib.report.section import Counterpart, SampleItem, Verdict, is_paper_scale, write_section
from klearlib.report.style import series_style
from klearlib.report.verdicts import Evidence, compared, verdicts
from klearlib.run.entry import DONE, read_own_json
from klearlib.run.files import write_text
from klearlib.run.progress import PROGRESS_LOG
from klearlib.run.provenance import provenance
from klearlib.run.stage import Stage, folder_state, is_done, wanted, with_inputs

if TYPE_CHECKING:
    from IPython.display import HTML, Markdown


# A report that fills as seeds finish, without its drawing taking the workers' cores.
_PUBLISH_EVERY_S = 90.0


class Experiment(Showing, Judged, Exploring):
    """An experiment with its parameters. Subclasses say what it is, this class what to do with it.

    name: of the notebook. title, section, question: for the report; section is the paper's.
    phase: of the paper's pipeline. replicated: the kind of its runs in statistics.yaml.
    counterparts: the paper's tables and figures that its own stand beside. Params: the record of
    its parameters.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    section: ClassVar[str]
    question: ClassVar[str]
    phase: ClassVar[str] = ""
    replicated: ClassVar[str] = "maths_rl"
    counterparts: ClassVar[tuple[Counterpart, ...]] = ()
    Params: ClassVar[type]
    gathers: ClassVar[bool] = False
    leads: ClassVar[bool] = False

    def __init__(self, params, place: Place | None = None, published: Published | None = None):
        """published: read the runs from this in place of results/runs."""
        self.params = params
        self._given_place = place
        self.published = published

    @classmethod
    def setup(cls, namespace: dict) -> Self:
        """The experiment with a notebook's parameters."""
        show_frames()
        experiment = cls(setup(cls.name, cls.Params, namespace))
        folder = experiment.place.folder / cls.name  # refused before anything is computed
        if PUBLISHED in os.environ:
            experiment.published = Published.of_notebook(folder, gathers=cls.gathers)
        return experiment

    @classmethod
    def params_of(cls, profile: str):
        """The parameters of a profile's file; ParameterError if it is missing or wrong."""
        return check_values(cls.Params, load_profile(profile, cls.name), cls.name)

    # what an experiment says

    @cached_property
    def arms(self) -> dict[Arm, Stage]:
        """(series, seed) -> its run, round-robin over seeds: the first seed of every series comes
        first."""
        return {}

    def run_sets(self) -> dict[str, Mapping[Arm, Stage]]:
        """Name of a set of runs -> its arms; "" for `arms`. These sets are published."""
        return {"": self.arms}

    def stages(self) -> list[Stage]:
        """All stages that the experiment asks for, in the order in which they should start."""
        every = (stage for arms in self.run_sets().values() for stage in arms.values())
        return [*{id(stage): stage for stage in every}.values()]  # two arms may share one

    def asked(self) -> list[Stage]:
        """The `stages` to run now: those of the replicates that `REPLICATES` names, if it is set;
        stages of no replicate go with the first of all."""
        piece = replicates_asked()
        if piece is None:
            return self.stages()
        seeds = getattr(self.params, "seeds", ())
        first = not seeds or seeds[0] in piece
        arms = [(seed, s) for arms in self.run_sets().values() for (_, seed), s in arms.items()]
        apart = {id(stage) for seed, stage in arms if seed in seeds}
        rest = [stage for stage in self.stages() if first and id(stage) not in apart]
        return [*rest, *(stage for seed, stage in arms if seed in piece)]

    def evidence(self) -> dict[str, Evidence | str]:
        """Claim -> what decides it, or why nothing does yet; see `klearlib.report.verdicts`."""
        return {}

    @cached_property
    def _evidence(self) -> dict[str, Evidence | str]:
        return self.evidence()

    @table(
        "What the verdicts rest on: one number for each arm and replicate, a and b paired.",
        columns="claim, comparison, statistic, replicate, a, b",
        when=lambda e: bool(compared(e._evidence)),
    )
    def replicates(self) -> Rows:
        """In the claim's unit; these rows suffice to check every verdict."""
        for name, found in compared(self._evidence).items():
            for comparison, pair in found.values.items():
                for seed, a, b in zip(found.replicates, *pair, strict=True):
                    yield [name, comparison, claim(name).statistic, seed, float(a), float(b)]

    @table(
        "What goes with the scores of RL at the first and last evaluation, over all responses to "
        "the benchmarks together (to the validation set if it is alone): shares that are right "
        "(score), truncated, or equal to the answer but left unevaluated; mean tokens; and whether "
        "right answers were in a box, behind a marker, or merely the last number.",
        columns=f"arm, evaluation, seeds, {', '.join(LOOKS)}",
        when=lambda e: len(e.table("looked_at")) > 0,
    )
    def looked_at(self) -> Rows:
        """Also the claims' own arms; an arm that several share appears once."""
        shown = set()
        for runs in self.looked_on():
            for series, mine in runs.each(runs.series()):
                every = [run.about for run in mine.runs.values()]
                titles = {about["title"].rpartition(", seed ")[0] for about in every}
                own = f"{series_style(series).label}, each at its own rate"
                title = own if len(titles) > 1 else titles.pop()
                if every[0]["stage"] != "rl" or title in shown:
                    continue
                shown.add(title)
                for word in ("first", "last"):
                    looks = mine.looked_at(first=word == "first")
                    yield [title, word, len(mine), *looks.values()]

    def judged_on(self) -> dict[str, Results]:
        """ "" -> the runs that claims are judged on; a claim -> other runs, for that claim."""
        return {"": self.runs}

    def looked_on(self) -> list[Results]:
        """The runs of the table `looked_at`."""
        return [*self.judged_on().values()]

    def answers(self) -> list[str]:
        """Sentences on what the user asked besides the claims."""
        return []

    def notes(self) -> list[str]:
        """How to read what it publishes."""
        return []

    def reads(self) -> dict[str, object]:
        """The parameters of other notebooks at this profile that its results follow from."""
        return {}

    # what is there

    @cached_property
    def place(self) -> Place:
        """The results folder that it publishes in; see `klearlib.params.place.place_for`."""
        return self._given_place or place_for(self.name, self.params)

    @cached_property
    def runs(self) -> Results:
        """The runs of `arms` that are done."""
        return self.done("")

    def done(self, name: str) -> Results:
        """The runs of a set that are done."""
        found = {arm: self._run(name, arm, stage) for arm, stage in self.run_sets()[name].items()}
        return Results({arm: run for arm, run in found.items() if run})

    def _run(self, name: str, arm: Arm, stage: Stage) -> Run | None:
        if self.published is not None:
            return self.published.arms.get((name, *arm))
        if ("run", stage.key) not in self._kept and self.is_done(stage):
            self._kept["run", stage.key] = of_stage(stage, runs_dir())
        return self._kept.get(("run", stage.key))

    def is_done(self, stage: Stage) -> bool:
        """Whether a stage is done, as of the last `refresh`."""
        if stage.key not in self._kept:
            self._kept[stage.key] = is_done(stage, runs_dir())
        return self._kept[stage.key]

    def folder(self, stage: Stage) -> Path:
        return stage.folder(runs_dir())

    def card(self, stage: Stage) -> dict | None:
        """card.json of a stage, None where it is not done yet."""
        return read_own_json(self.folder(stage) / "card.json") if self.is_done(stage) else None

    def rates(self, stage: Stage) -> list[dict]:
        """The pass rates that a stage of responses has found, as fields of `PassRate`; none before
        it is done."""
        found = read_pass_rates(self.folder(stage) / RATES) if self.is_done(stage) else {}
        return [*map(asdict, found.values())]

    def refresh(self) -> None:
        """Forget what was read and computed: stages may have finished since."""
        kept = ("params", "_given_place", "published")
        self.__dict__ = {name: self.__dict__[name] for name in kept}

    @property
    def known_rules(self) -> dict[str, str]:
        """When each rule was written down, see `registered`."""
        if self.published is not None:
            return registered.read(self.place.folder / registered.REGISTERED)
        return registered.read(runs_dir() / registered.RULES)

    @property
    def paper_scale(self) -> bool:
        """Whether its numbers are compared with the paper's."""
        return is_paper_scale(self.params.profile) and not uses_miniature(self.params)

    # what a notebook calls

    def parameters(self) -> Frame:
        """Every parameter with the paper's value."""
        return show_resolved(self.name, self.params)

    def plan(self) -> Frame:
        """One row for each stage in the order in which they can run: what it is, whether it is
        cached, an estimate in seconds, its folder. Of published tables: one for each arm."""
        import pandas as pd

        from klearlib.run import preload, progress

        if self.published is not None:
            ran = {run.key: run.about for run in self.published.arms.values()}
            runs = pd.DataFrame([*ran.values()], columns=["title", "seconds"])
            arms = runs["title"].str.replace(r", seed \d+$", "", regex=True).rename("stage")
            counted = runs["seconds"].groupby(arms, sort=False).agg(runs="size", seconds="sum")
            return counted.reset_index().assign(state="published")
        rows = [
            {
                "stage": stage.title,
                "state": folder_state(stage.folder(runs_dir())),
                "estimate_s": round(stage.estimate_s),
                "folder": f"results/runs/{stage.name}/{stage.key}",
            }
            for stage in with_inputs(self.asked()).values()
        ]
        if progress.in_notebook() and any(row["state"] in ("absent", "partial") for row in rows):
            preload.preload()  # the next cells take about as long as the imports that `run` needs
        return pd.DataFrame(rows)

    def run(self) -> None:
        """Run all stages that are not done yet, and publish what there is as they finish; nothing
        where runs are read from published tables.

        Raises Interrupted, a KeyboardInterrupt, once the processes that the stop button stopped
        have ended.
        """
        if self.published is not None:
            return
        from klearlib.run.pool import run_stages  # 80 modules that a plan does not need

        last = time.monotonic()
        registered.note(self.params.profile, runs_dir())

        def publish_now_and_then(_: Stage) -> None:
            nonlocal last
            if time.monotonic() - last > _PUBLISH_EVERY_S:
                type(self)(self.params, self.place).publish_and_report()
                last = time.monotonic()

        try:
            run_stages(
                wanted(self.asked(), runs_dir()),
                runs_dir=runs_dir(),
                workers=self.params.workers,
                on_done=publish_now_and_then,
            )
        except KeyboardInterrupt as error:
            twice = isinstance(error.__context__, KeyboardInterrupt)
            how = "at once, the last checkpoints are kept" if twice else "state saved"
            raise Interrupted(f"stopped, {how}: run again to go on") from None
        finally:
            self.refresh()

    def verdicts(self) -> list[Verdict]:
        """The verdicts on its claims by the rules of claims.yaml, from the runs that are done."""
        return verdicts(self._evidence, self.judging)

    def verdict_table(self) -> Frame:
        import pandas as pd

        columns = ["claim", "verdict", "measured", "reason", "settle"]
        return pd.DataFrame([asdict(each) for each in self.verdicts()])[columns]

    def samples(self) -> HTML:
        """What the policies wrote at their first and last step: of each series' first seed up to
        three responses each, a right one first."""
        from IPython.display import HTML

        from klearlib.report.render import render

        return HTML(render("samples.html.j2", samples=self.drawn_samples()))

    def drawn_samples(self) -> list[SampleItem]:
        return self.runs.drawn_samples()

    def publish(self) -> Path:
        """Write tables, figures and section.json from what is done so far; the path of the last.

        The provenance is that of the last stage that ran, so publishing the same results again, at
        another time or commit, changes nothing.
        """
        self.place.claim()
        folder, runs = self.place.folder / self.name, self._places()
        if self.published is not None and (lost := self.published.arms.keys() - runs.keys()):
            _, series, seed = min(lost)
            raise KlearError(
                f"{folder / RUNS} has {len(lost)} runs that neither parameters nor statistics.yaml "
                f"name, such as {series!r}, seed {seed}: restore what named them, or run it again"
            )
        if not self.gathers:  # what tables, figures and verdicts are made of
            write_tables(folder, runs)
            facts = {name: getattr(self, name) for name in self._facts()}
            write_text(folder / FACTS, json.dumps(facts, indent=1) + "\n")
            if self.published is None:
                registered.publish(self.place.folder, self.params.profile, self.known_rules)
        return write_section(folder, **self._section())

    def _places(self) -> dict[tuple[str, str, int], Run]:
        """(set, series, seed) -> its run, of all that are done."""
        sets = {name: self.done(name).runs for name in self.run_sets()}
        return {(name, *arm): run for name, runs in sets.items() for arm, run in runs.items()}

    def _section(self) -> dict:
        other = ", ".join(unlike(self._places(), "made_by"))
        joined = [f"Joined from runs with different code or libraries: {other}."] if other else []
        return dict(
            title=self.title,
            section=self.section,
            question=self.question,
            equations=equations_of(self.name),
            figures={
                each.name: (self.figure(each.name), self._text(each.caption), self._text(each.alt))
                for each in self._shown("figure")
            },
            tables={
                each.name: (self.table(each.name), self._text(each.caption))
                for each in self._shown("table")
            },
            verdicts=self.verdicts(),
            answers=self.answers(),
            notes=[*self.notes(), *self._alarms(), *joined],
            samples=self.drawn_samples(),
            parameters=asdict(self.params),
            changed=differences(self.name, self.params),
            **self._progress(),
        )

    def _progress(self) -> dict:
        """For its section: the missing stages, what made the last one, and how long all took
        together."""
        if self.published is not None:
            names = ("missing", "provenance", "seconds")
            return {name: getattr(self.published.section, name) for name in names}
        stages = self.stages()
        entries = [
            read_own_json(self.folder(stage) / DONE)
            for stage in with_inputs(stages).values()
            if self.is_done(stage)
        ]
        made = [entry["provenance"] for entry in entries]
        return dict(
            missing=[stage.title for stage in stages if not self.is_done(stage)],
            provenance=sorted(made, key=lambda each: each["utc"])[-1] if made else provenance(),
            seconds=sum(entry["seconds"] for entry in entries),
        )

    def publish_and_report(self) -> Path:
        """Publish and, except under `klear run`, build the report; the folder published."""
        from klearlib.report.page import build_report

        folder = self.publish().parent
        if PROGRESS_LOG not in os.environ:
            build_report(folder.parent, catalogue.experiments())
        return folder

    def finish(self) -> Markdown:
        """Publish, build the report and say where everything is: the last cell of a notebook."""
        from IPython.display import Markdown

        folder = self.publish_and_report()
        ran = () if self.published is not None else self.stages()
        return Markdown(whereabouts(folder, [(s.title, self.folder(s)) for s in ran]))


def runs_dir() -> Path:
    """Where the stages of all profiles and notebooks are kept."""
    return root() / "results" / "runs"
