"""What an experiment shows besides its verdicts: the tables and figures that its methods make, the
equations of the paper, and the note on options that depart from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, asdict, dataclass, fields, replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING

from klearlib.paper import DATA
from klearlib.report.section import Equation

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame as Frame
else:  # what methods return, without importing either at the start
    Figure, Frame = "matplotlib.figure.Figure", "pandas.DataFrame"

Rows = Iterator[list | dict]
"""The rows of a table, each a list in the order of its columns, or a dict by their names."""


@dataclass(frozen=True)
class _Shown:
    """Marks a method as a published table or figure, `when` there is something to show. The texts
    may use the parameters as `p` and the experiment as `e`, as in "avg@{p.eval_responses}".

    name: to publish it under, by default the method's. alt: what a figure shows, for readers who
    cannot see it. columns: the names of a table's columns, as in "arm, seeds"; "" for the keys of
    dicts.
    """

    kind: str
    caption: str
    _: KW_ONLY
    name: str = ""
    alt: str = ""
    columns: str = ""
    when: Callable[[Showing], bool] = lambda e: True

    def __call__(self, make: Callable) -> Callable:
        make.klear_shows = replace(self, name=self.name or make.__name__)
        return make


table = partial(_Shown, "table")
"""Marks a method that gives `Rows` or a DataFrame."""
figure = partial(_Shown, "figure", when=lambda e: bool(e.runs))
"""Marks a method that gives a matplotlib figure."""


class fact(cached_property):
    """A method of an experiment that reads more than `runs`, such as the card of a stage; its JSON
    is published, and read back where nothing else exists."""

    def __get__(self, experiment, owner=None):
        if experiment is None:
            return self
        name, kept = self.attrname, experiment._kept
        if ("fact", name) not in kept:
            published = experiment.published
            found = self.func(experiment) if published is None else published.facts[name]
            kept["fact", name] = json.loads(json.dumps(found))
        return kept["fact", name]


class Showing:
    """What has tables and figures, each made once. It has `params`."""

    params: object

    def table(self, name: str) -> Frame:
        """A copy: what a cell writes into it is not published."""
        return self._made("table", name).copy()

    def figure(self, name: str) -> Figure:
        return self._made("figure", name)

    @classmethod
    def _facts(cls) -> list[str]:
        return [name for name in dir(cls) if isinstance(getattr(cls, name, None), fact)]

    @classmethod
    def _declared(cls, kind: str) -> dict[str, tuple[_Shown, Callable]]:
        """Its tables or figures in the order of its classes, those that all experiments have last;
        one that a subclass redefines comes where the subclass has it."""
        found: dict[str, tuple[_Shown, Callable]] = {}
        bases = cls.__mro__[: cls.__mro__.index(Showing)]
        for base in (*reversed(bases[:-1]), bases[-1]):
            for method in vars(base).values():
                shown = getattr(method, "klear_shows", None)
                if shown and shown.kind == kind:
                    found.pop(shown.name, None)
                    found[shown.name] = shown, method
        return found

    def _shown(self, kind: str) -> list[_Shown]:
        return [shown for shown, _ in self._declared(kind).values() if shown.when(self)]

    def _made(self, kind: str, name: str):
        import pandas as pd

        if (kind, name) not in self._kept:
            found = self._declared(kind)
            assert name in found, f"no {kind} {name!r}: there are {', '.join(found)}"
            shown, make = found[name]
            made = make(self)
            if kind == "table" and not isinstance(made, pd.DataFrame):
                columns = self._text(shown.columns).split(", ") if shown.columns else None
                made = pd.DataFrame(list(made), columns=columns)
            self._kept[kind, name] = made
        return self._kept[kind, name]

    @cached_property
    def _kept(self) -> dict:
        return {}

    def departures(self, *names: str) -> list[str]:
        """The notes on the options, in the parameters `names`, by which it departs from the
        paper."""
        about = {each.name: each.metadata for each in fields(self.params)}
        found = []
        for name in names:
            changed = changed_options(getattr(self.params, name), about[name]["record"])
            # For a user's file only the name of the function: the parameters have its text.
            named = {k: v["name"] if isinstance(v, Mapping) else v for k, v in changed.items()}
            switched = ", ".join(f"{option}: {value}" for option, value in named.items())
            found += [f"Options that depart from the paper: {switched}."] if changed else []
        return found

    def _text(self, text: str) -> str:
        return text.format(p=self.params, e=self)


def changed_options(options: Mapping[str, object], record: type) -> dict[str, object]:
    """The entries of an `options` parameter whose value is not the default of `record`."""
    defaults = asdict(record())
    return {
        name: options[name]
        for name in defaults
        if options.get(name, defaults[name]) != defaults[name]
    }


@cache
def equations_of(notebook: str) -> tuple[Equation, ...]:
    """The equations of the paper that a notebook shows: paper/data/equations.yaml."""
    import yaml

    found = yaml.safe_load((DATA / "equations.yaml").read_text(encoding="utf-8"))
    latex, shown = found["latex"], found["shown"].get(notebook, {})
    return tuple(Equation(number, latex[number], says) for number, says in shown.items())
