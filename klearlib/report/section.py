"""What a notebook publishes: section.json beside its figures and tables, written and read here.

The records check themselves when they are made, whether a notebook builds them or a file is read:
a section is right or there is none.
"""

from __future__ import annotations

import csv
import dataclasses
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from klearlib.errors import KlearError, printable
from klearlib.paper import claim, claims
from klearlib.params.fields import default_of
from klearlib.params.place import read_place
from klearlib.report.tables import parse_csv
from klearlib.run.files import read_json, write_json

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SECTION = "section.json"
STATUSES = ("complete", "partial")
PAPER_PROFILE = "paper"
NOT_RUN = "not run"
_IN_WORDS = {str: "text", float: "a number", int: "a whole number", dict: "an object"}
_ENDS = {".svg": b"</svg>", ".png": b"IEND\xaeB`\x82"}

NOT_TESTED = "not tested"
_DECIDED = ("supported", "contradicted", "reproduced", "not reproduced", "undecided", NOT_RUN)
_COMPARED = (*_DECIDED, "no difference", "mixed", NOT_TESTED)
WORDS_BY_KIND: dict[str, tuple[str, ...]] = {
    "mechanism": ("reproduced", "not reproduced", NOT_RUN),
    "direction": _COMPARED,
    "ordering": _COMPARED,
    "exploration": _COMPARED,
    "equivalence": (*_DECIDED, NOT_TESTED),
    "trend": _DECIDED,
    "absolute": ("reproduced", "not reproduced", "undecided", NOT_RUN),
}
"""The words of verdicts that a claim of each kind can get."""

AT_PAPER = {"supported": "reproduced", "contradicted": "not reproduced"}
"""Words below paper scale -> at paper scale."""


def is_paper_scale(profile: str) -> bool:
    """Whether runs of this profile are held against the paper's absolute numbers."""
    return profile == PAPER_PROFILE


@dataclass(frozen=True)
class Comparison:
    """A measured difference of a claim over replicates, None for a bound that does not exist; see
    `klearlib.evaluate.statistics.Comparison`. p_flip: of the sign-flip test, None below six
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

    rule: digest of what it was decided by, "" for none. exploratory: the rule is younger than a run
    that it was applied to.
    """

    claim: str
    comparisons: tuple[Comparison, ...]
    measured: str
    reason: str
    settle: str | None
    verdict: str
    exploratory: bool = False
    rule: str = ""

    def __post_init__(self):
        kinds = {about.id: about.kind for about in claims()}
        if self.claim not in kinds:
            raise KlearError(f"unknown claim {self.claim!r}, expected C1 to {[*kinds][-1]}")
        words = WORDS_BY_KIND[kinds[self.claim]]
        if self.verdict not in words:
            wrong = f"{self.verdict!r} is not a verdict on a {kinds[self.claim]}"
            raise KlearError(f"{self.claim}: {wrong}, expected {', '.join(words)}")

    @classmethod
    def not_run(cls, claim: str, reason: str, settle: str | None = None) -> Verdict:
        """The verdict "not run" with the reason, such as data that this profile does not have."""
        return cls(claim, (), "", reason, settle, NOT_RUN)


@dataclass(frozen=True)
class Equation:
    """An equation of the paper: its number, LaTeX without dollar signs, and what it says."""

    number: str
    latex: str
    says: str

    def __post_init__(self):
        if "`" in self.latex:  # it would end its block in the README
            raise KlearError(f"Eq. {self.number} holds a `: remove it")


@dataclass(frozen=True)
class FigureItem:
    """A published figure, <name>.svg and <name>.png; `alt` is its text for screen readers."""

    alt: str
    caption: str
    name: str

    def __post_init__(self):
        _check_name(self.name)


@dataclass(frozen=True)
class TableItem:
    """A published table, <name>.csv and <name>.md, with `digits` decimals for people."""

    caption: str
    name: str
    digits: int = 3

    def __post_init__(self):
        _check_name(self.name)


@dataclass(frozen=True)
class SampleItem:
    """A response that the policy of an arm wrote at a step, maybe shortened; chars: its length;
    found: where its answer stood, "" where that is not known."""

    arm: str
    chars: int
    problem: str
    prompt: str
    reason: str
    reward: float
    step: int
    text: str
    found: str = ""


@dataclass(frozen=True)
class Section:
    """One published notebook and the folder, results/<profile>/<notebook>, that has its files.

    missing: titles of the stages that are not done. seconds: of those that are. changed: parameter
    -> the profile's value and the one that it ran with, where they differ.
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

    def __post_init__(self):
        if not re.fullmatch(r"\w+", self.notebook):  # it becomes an address
            raise KlearError(f"a notebook {self.notebook!r}, expected letters, digits and _")
        if self.status not in STATUSES:
            raise KlearError(f"status {self.status!r}, expected {' or '.join(STATUSES)}")
        wrong_here = AT_PAPER if is_paper_scale(self.profile) else AT_PAPER.values()
        decided = [verdict.claim for verdict in self.verdicts]
        for about, word in ((claim(each.claim), each.verdict) for each in self.verdicts):
            if about.notebook != self.notebook:
                raise KlearError(f"{about.id} is judged by {about.notebook}, not {self.notebook}")
            if decided.count(about.id) > 1:
                raise KlearError(f"two verdicts on {about.id}")
            if word in wrong_here and about.kind not in ("mechanism", "absolute"):
                raise KlearError(f"{about.id}: {word!r} is not a verdict at profile {self.profile}")

    @property
    def profile(self) -> str:
        return self.parameters.get("profile")

    @property
    def complete(self) -> bool:
        return self.status == "complete"

    @property
    def lacks(self) -> str:
        """What is missing, in words."""
        return ", ".join(self.missing) or "some runs"

    def path(self, name: str, kind: str) -> Path:
        return self.folder / f"{name}.{kind}"

    @property
    def executed(self) -> Path:
        """The executed notebook, which bare papermill writes elsewhere."""
        return self.folder.with_suffix(".ipynb")

    def published(self, names: Iterable[str]) -> list[str]:
        """Those of `names` that its figures and tables have, in their order."""
        there = {item.name for item in (*self.figures, *self.tables)}
        return [name for name in names if name in there]


@dataclass(frozen=True)
class Counterpart:
    """A table or figure of the paper and what stands beside it here.

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
    digits: int = 3,
    missing: Sequence[str],
    seconds: float,
    **content,
) -> Path:
    """Write the tables and figures of a notebook, then its section.json; "partial" while something
    is `missing`. The same results give the same bytes.

    folder: results/<profile>/<notebook>; it is made if it is absent. figures: name -> (figure,
    caption, alternative text). tables: name -> (table, caption). digits: of their numbers, see
    `write_table`. content: the other fields of `Section`.
    """
    from klearlib.report.style import save_figure
    from klearlib.report.tables import write_table

    made = Section(
        folder=folder,
        notebook=folder.name,
        status="partial" if missing else "complete",
        missing=tuple(missing),
        figures=tuple(
            FigureItem(alt, caption, name) for name, (_, caption, alt) in figures.items()
        ),
        tables=tuple(TableItem(caption, name, digits) for name, (_, caption) in tables.items()),
        seconds=round(seconds, 1),
        **content,
    )
    for name, (table, _) in tables.items():
        write_table(table, folder, name, digits=digits)
    for name, (figure, _, _) in figures.items():
        save_figure(figure, folder, name)
    content = dataclasses.asdict(made)
    del content["folder"]
    for name in ("changed", "samples"):
        if not content[name]:
            del content[name]
    for item in content["tables"]:
        if item["digits"] == TableItem.digits:
            del item["digits"]
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / SECTION, content)
    return folder / SECTION


def read_sections(results_dir: Path) -> list[Section]:
    """The sections published under `results_dir`, in the order of the notebooks' names.

    Raises KlearError for a section.json that is damaged, lacks a field, holds a verdict that cannot
    be, names an artefact that is not there or a table that was cut off, or is of another profile
    than the folder's name.
    """
    return [_read(path) for path in sorted(results_dir.glob(f"*/{SECTION}"))]


def _read(path: Path) -> Section:
    notebook, place = path.parent.name, read_place(path.parent.parent)
    try:
        try:
            content = read_json(path)
        except (OSError, ValueError) as error:
            raise KlearError(f"cannot be read ({error})") from error
        if not isinstance(content, dict):
            raise KlearError("is not a JSON object")
        if content.get("notebook", notebook) != notebook:
            raise KlearError(f"is of notebook {content['notebook']!r}")
        section = _typed(Section, content | {"folder": path.parent}, "")
        if section.profile != place.profile:
            raise KlearError(
                f"has parameters of profile {section.profile!r}, not of {place.profile!r}"
            )
        if strange := section.changed.keys() - place.changes.keys():
            raise KlearError(f"ran with {', '.join(sorted(strange))} changed, unlike its folder")
        for items, kinds in ((section.figures, ("svg", "png")), (section.tables, ("csv", "md"))):
            for file in (section.path(item.name, kind) for item in items for kind in kinds):
                if not file.is_file():
                    raise KlearError(f"names {file.name}, which is not there")
                end = _ENDS.get(file.suffix, b"")
                if not file.read_bytes().rstrip().endswith(end):
                    raise KlearError(f"names {file.name}, which was cut off")
        for name in (item.name for item in section.tables):
            try:
                parse_csv(section.path(name, "csv").read_text("utf-8"))
            except (ValueError, csv.Error) as error:
                raise KlearError(f"names {name}.csv, which is damaged ({error})") from error
    except KlearError as error:
        where = Path(place.folder.resolve().name, notebook, path.name)
        fix = f"{place.command} --only {notebook.split('_')[0]} --force"
        raise KlearError(
            f"{where} {printable(str(error))}: write it again with `{fix}`, or delete the file"
        ) from error
    return section


def _typed(kind: type, value: object, where: str) -> typing.Any:
    """`value`, as JSON gives it, as a `kind`: a record, a tuple of some kind, or a plain value.

    Raises KlearError that names `where` inside the file.
    """
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            raise KlearError(f"has a {where!r} that is not an object")
        hints, start = typing.get_type_hints(kind), f"{where}." if where else ""
        needed = [f.name for f in dataclasses.fields(kind) if default_of(f) is dataclasses.MISSING]
        if lacking := [name for name in needed if name not in value]:
            raise KlearError(f"lacks {start + lacking[0]!r}")
        if unknown := value.keys() - hints:
            raise KlearError(f"has an unknown {start + min(unknown)!r}")
        fields = {name: _typed(hints[name], each, start + name) for name, each in value.items()}
        try:
            return kind(**fields)
        except KlearError as error:
            raise KlearError(
                f"has a wrong {where!r}: {error}" if where else f"has {error}"
            ) from error
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise KlearError(f"has a {where!r} that is not a list")
        item = typing.get_args(kind)[0]
        return tuple(_typed(item, each, f"{where}[{index}]") for index, each in enumerate(value))
    kinds = typing.get_args(kind) or (kind,)
    if not isinstance(value, (*kinds, int) if float in kinds else kinds):
        raise KlearError(f"has a {where!r} that is not {_IN_WORDS.get(kinds[0], kinds[0])}")
    return value


def _check_name(name: str) -> None:
    if name != Path(name).name or name.startswith("."):
        raise KlearError(f"{name!r} is not a plain file name")
