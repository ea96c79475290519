"""What a notebook publishes: section.json with its figures and tables, written and read here."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from klearlib.errors import KlearError, printable
from klearlib.params.place import Place, read_place
from klearlib.report.style import save_figure
from klearlib.report.tables import write_table
from klearlib.run.files import read_json, write_json

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SECTION = "section.json"
NOT_RUN = "not run"
NOT_TESTED = "not tested"

AT_PAPER = {"supported": "reproduced", "contradicted": "not reproduced"}
"""Words below paper scale -> at paper scale."""


def is_paper_scale(profile: str) -> bool:
    """Whether runs of this profile are compared with the paper's absolute numbers."""
    return profile == "paper"


@dataclass(frozen=True)
class Comparison:
    """A measured difference of a claim over replicates, None for a bound that does not exist; see
    `klearlib.evaluate.statistics.Comparison`. p_flip: by the sign-flip test, None below six
    replicates."""

    difference: float
    high: float | None
    low: float | None
    margin: float
    name: str
    num_replicates: int
    p_flip: float | None
    p_greater: float
    p_less: float


@dataclass(frozen=True)
class Verdict:
    """The verdict on one claim: its word, why, what would settle it and what was measured.

    rule: digest of the rule that decided it, "" for none. exploratory: the rule is younger than a
    run that it was applied to.
    """

    claim: str
    comparisons: tuple[Comparison, ...]
    measured: str
    reason: str
    settle: str | None
    verdict: str
    exploratory: bool = False
    rule: str = ""

    @classmethod
    def not_run(cls, claim: str, reason: str, settle: str | None = None) -> Verdict:
        """The verdict "not run" with its reason, such as data that this profile does not have."""
        return cls(claim, (), "", reason, settle, NOT_RUN)


@dataclass(frozen=True)
class Equation:
    """An equation of the paper: its number, LaTeX without dollar signs, and what it says."""

    number: str
    latex: str
    says: str


@dataclass(frozen=True)
class FigureItem:
    """A published figure, <name>.svg and <name>.png; `alt` is its text for screen readers."""

    alt: str
    caption: str
    name: str


@dataclass(frozen=True)
class TableItem:
    """A published table, <name>.csv."""

    caption: str
    name: str


@dataclass(frozen=True)
class SampleItem:
    """A response that the policy of an arm wrote at a step, possibly shortened; chars: its length;
    found: where its answer stood, "" if that is not known."""

    arm: str
    chars: int
    problem: str
    prompt: str
    reason: str
    reward: float
    step: int
    text: str
    found: str = ""


_LISTS = {
    "equations": Equation,
    "figures": FigureItem,
    "tables": TableItem,
    "samples": SampleItem,
}
"""Fields of a section that are lists of records."""


@dataclass(frozen=True)
class Section:
    """One published notebook and the folder, results/<profile>/<notebook>, that has its files.

    missing: titles of the stages that are not done. seconds: of those that are. changed: parameter
    -> the profile's value and the one that it ran with, where they differ. answers: sentences on
    what a user asked besides the claims, such as their own rule, to be read first.
    """

    folder: Path
    notebook: str
    title: str
    section: str
    question: str
    status: str
    missing: tuple[str, ...]
    equations: tuple[Equation, ...]
    figures: tuple[FigureItem, ...]
    tables: tuple[TableItem, ...]
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...]
    provenance: dict
    seconds: float
    parameters: dict
    changed: dict = dataclasses.field(default_factory=dict)
    samples: tuple[SampleItem, ...] = ()
    answers: tuple[str, ...] = ()

    def __post_init__(self):
        if not re.fullmatch(r"\w+", self.notebook):  # it becomes an address
            raise KlearError(f"a notebook {self.notebook!r}, expected letters, digits and _")

    @property
    def profile(self) -> str:
        return self.parameters.get("profile")

    @property
    def complete(self) -> bool:
        return self.status == "complete"

    @property
    def lacks(self) -> str:
        """What is missing, in words."""
        if len(self.missing) > 3:
            return f"{len(self.missing)} runs"
        return ", ".join(self.missing) or "some runs"

    def path(self, name: str, kind: str) -> Path:
        return self.folder / f"{name}.{kind}"

    @property
    def executed(self) -> Path:
        """The executed notebook, which bare papermill writes elsewhere."""
        return self.folder.with_suffix(".ipynb")

    def published(self, names: Iterable[str]) -> list[str]:
        """The `names` that its figures and tables have, in order."""
        there = {item.name for item in (*self.figures, *self.tables)}
        return [name for name in names if name in there]


@dataclass(frozen=True)
class Counterpart:
    """A table or figure of the paper and its counterpart here.

    item: as the paper calls it, "Table 1" or "Fig. 2a"; shows: what it holds; names: of the figures
    and tables that the notebook publishes for it, the main one first.
    """

    item: str
    shows: str
    names: tuple[str, ...]


class Notebook(Protocol):
    """What the report needs to know of a notebook."""

    name: str
    counterparts: tuple[Counterpart, ...]


def in_paper_order(notebooks: Iterable[Notebook]) -> list[tuple[str, Counterpart]]:
    """The counterparts of all notebooks, each with its notebook's name, in the order of the paper's
    numbers, tables first."""

    def place(pair: tuple[str, Counterpart]) -> tuple[bool, int, str]:
        kind, number, letter = re.fullmatch(r"(\S+) (\d+)(\w*)", pair[1].item).groups()
        return kind != "Table", int(number), letter

    pairs = [(notebook.name, each) for notebook in notebooks for each in notebook.counterparts]
    return sorted(pairs, key=place)


def write_section(
    folder: Path,
    *,
    figures: Mapping[str, tuple[Figure, str, str]],
    tables: Mapping[str, tuple[pd.DataFrame, str]],
    missing: Sequence[str],
    seconds: float,
    **content,
) -> Path:
    """Write the tables and figures of a notebook, then its section.json; "partial" while something
    is `missing`. The same results give the same bytes. What the previous section had and this one
    lacks is removed.

    folder: results/<profile>/<notebook>; it is made if it is absent. figures: name -> (figure,
    caption, alternative text). tables: name -> (table, caption). content: the other fields of
    `Section`.
    """
    made = Section(
        folder=folder,
        notebook=folder.name,
        status="partial" if missing else "complete",
        missing=tuple(missing),
        figures=tuple(
            FigureItem(alt, caption, name) for name, (_, caption, alt) in figures.items()
        ),
        tables=tuple(TableItem(caption, name) for name, (_, caption) in tables.items()),
        seconds=round(seconds, 1),
        **content,
    )
    gone = _names(folder) - figures.keys() - tables.keys()
    for path in folder.glob("*.*"):
        if path.stem in gone and path.suffix in (".csv", ".svg", ".png"):
            path.unlink()
    for name, (table, _) in tables.items():
        write_table(table, folder / f"{name}.csv")
    for name, (figure, _, _) in figures.items():
        save_figure(figure, folder, name)
    content = dataclasses.asdict(made)
    del content["folder"]
    for name in ("changed", "samples", "answers"):
        if not content[name]:
            del content[name]
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / SECTION, content)
    return folder / SECTION


def _names(folder: Path) -> set[str]:
    """The names of the figures and tables of the existing section."""
    try:
        content = read_json(folder / SECTION)
        return {item["name"] for kind in ("figures", "tables") for item in content[kind]}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def read_sections(results_dir: Path) -> list[Section]:
    """The sections published under `results_dir`, in the order of the notebooks' names.

    Raises KlearError for a section.json that is damaged or lacks a field, names an artefact that is
    not there, or is of another profile than the folder's name.
    """
    return [read_section(path.parent) for path in sorted(results_dir.glob(f"*/{SECTION}"))]


def read_section(folder: Path) -> Section:
    """The section that a notebook has published in `folder`; errors as `read_sections`."""
    path, place = folder / SECTION, read_place(folder.parent)
    try:
        section = _section(read_json(path), folder)
        fault = _misplaced(section, place)
    except (OSError, ValueError, TypeError, KeyError) as error:
        fault = f"cannot be read ({error})"
    if fault:
        where = Path(place.folder.resolve().name, folder.name, path.name)
        fix = f"{place.command} --only {folder.name.split('_')[0]} --force"
        raise KlearError(
            f"{where} {printable(fault)}: write it again with `{fix}`, or delete the file"
        )
    return section


def _section(content: dict, folder: Path) -> Section:
    """The records of a file of JSON. Raises TypeError or KeyError where it holds others."""
    records = {n: tuple(kind(**each) for each in content.get(n, ())) for n, kind in _LISTS.items()}
    texts = {name: tuple(content.get(name, ())) for name in ("missing", "notes", "answers")}
    verdicts = [
        Verdict(**each | {"comparisons": tuple(Comparison(**row) for row in each["comparisons"])})
        for each in content["verdicts"]
    ]
    return Section(**content | records | texts | {"verdicts": tuple(verdicts), "folder": folder})


def _misplaced(section: Section, place: Place) -> str:
    """How a section and its folder disagree; "" if they agree."""
    if section.profile != place.profile:
        return f"has parameters of profile {section.profile!r}, not of {place.profile!r}"
    if strange := section.changed.keys() - place.changes.keys():
        return f"ran with {', '.join(sorted(strange))} changed, unlike its folder"
    for items, kinds in ((section.figures, ("svg", "png")), (section.tables, ("csv",))):
        for file in (section.path(item.name, kind) for item in items for kind in kinds):
            if not file.is_file():
                return f"names {file.name}, which is missing"
    return ""
