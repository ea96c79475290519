"""What the notebooks of one profile published: section.json files, read strictly, and their
artefacts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from klearlib.errors import KlearError

_FIELDS = {
    "notebook": str,
    "title": str,
    "section": str,
    "question": str,
    "status": str,
    "missing": list,
    "equations": list,
    "figures": list,
    "tables": list,
    "verdicts": list,
    "notes": list,
    "provenance": dict,
    "seconds": (int, float),
    "parameters": dict,
}
_ITEMS = {
    "missing": None,
    "notes": None,
    "equations": ("number", "latex", "says"),
    "figures": ("name", "caption", "alt"),
    "tables": ("name", "caption"),
}
STATUSES = ("complete", "partial")


@dataclass(frozen=True)
class Section:
    """One published notebook: the checked content of section.json and the folder with its files."""

    folder: Path
    content: dict

    @property
    def notebook(self) -> str:
        """Name of the notebook, such as 05_clipping."""
        return self.content["notebook"]

    def path(self, name: str, kind: str) -> Path:
        """The file of a figure or table."""
        return self.folder / f"{name}.{kind}"

    def executed(self) -> list[Path]:
        """The executed notebook and its rendering, as far as they exist."""
        candidates = [self.folder.with_suffix(suffix) for suffix in (".html", ".ipynb")]
        return [path for path in candidates if path.is_file()]


def read_sections(results_dir: Path) -> list[Section]:
    """The sections published under `results_dir`, in the order of the notebooks' names.

    Raises:
        KlearError: a section.json is damaged, lacks a field, names an artefact that is not there,
            or is of another profile than the folder, whose name is the profile.
    """
    results_dir = Path(results_dir)
    return [_read(path) for path in sorted(results_dir.glob("*/section.json"))]


def _read(path: Path) -> Section:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _broken(path, f"cannot be read ({error})") from error
    if not isinstance(content, dict):
        raise _broken(path, "is not a JSON object")
    for field, kind in _FIELDS.items():
        if field not in content:
            raise _broken(path, f"lacks {field!r}")
        if not isinstance(content[field], kind) or isinstance(content[field], bool):
            expected = "number" if isinstance(kind, tuple) else kind.__name__
            raise _broken(path, f"has a {field!r} that is no {expected}")
    if content["status"] not in STATUSES:
        raise _broken(path, f"has status {content['status']!r}, expected {' or '.join(STATUSES)}")
    if content["notebook"] != path.parent.name:
        raise _broken(path, f"is of notebook {content['notebook']!r}")
    profile, expected = content["parameters"].get("profile"), path.parent.parent.resolve().name
    if profile != expected:
        raise _broken(path, f"has parameters of profile {profile!r}, not of {expected!r}")
    for field, keys in _ITEMS.items():
        for item in content[field]:
            _check_item(path, field, keys, item)
    section = Section(path.parent, content)
    for field, kinds in (("figures", ("svg", "png")), ("tables", ("csv", "md"))):
        for item in content[field]:
            for kind in kinds:
                if not section.path(item["name"], kind).is_file():
                    raise _broken(path, f"names {item['name']}.{kind}, which is not there")
    return section


def _check_item(path: Path, field: str, keys: tuple[str, ...] | None, item: object) -> None:
    if keys is None:
        if not isinstance(item, str):
            raise _broken(path, f"has an entry of {field!r} that is no text")
        return
    if not isinstance(item, Mapping) or any(not isinstance(item.get(key), str) for key in keys):
        raise _broken(path, f"has an entry of {field!r} without the texts {', '.join(keys)}")
    name = item.get("name", "plain")
    if name != Path(name).name or name.startswith("."):
        raise _broken(path, f"has the name {name!r}, which is no plain file name")


def _broken(path: Path, what: str) -> KlearError:
    notebook, profile = path.parent.name, path.parent.parent.resolve().name
    where = Path(profile, notebook, path.name)
    number = notebook.split("_")[0]
    fix = f"klear run --profile {profile} --only {number} --force"
    return KlearError(f"{where} {what}: write it again with `{fix}`, or delete the file")
