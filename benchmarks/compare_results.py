"""Say what differs between two results folders: tables, figures, sections and the ledger of claims.

    python benchmarks/compare_results.py results/mini /elsewhere/results/mini

Left out is what no two runs share (seconds, provenance, logs, caches, executed notebooks), and the
report, which is made of the rest. A table with a column of seconds (cost.csv) is compared by its
other columns. Exit code 1 where something differs.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path

from common import arguments_of

_TIMED = {"seconds", "per_second", "minutes"}  # columns and keys that no two runs share
_SECTION = _TIMED | {"provenance"}
_TABLES, _DRAWN = (".csv",), (".svg", ".png")


def published(folder: Path) -> dict[str, Path]:
    """The files that are compared, by their path in `folder`."""
    kinds = (*_TABLES, *_DRAWN)
    found = {
        str(path.relative_to(folder)): path
        for path in sorted(folder.glob("*/*"))
        if path.suffix in kinds or path.name == "section.json"
    }
    ledger = folder / "claims.json"
    return found | ({"claims.json": ledger} if ledger.is_file() else {})


def content(path: Path) -> object:
    """What of a file is compared."""
    if path.suffix in _TABLES:
        with path.open(encoding="utf-8", newline="") as file:
            return [
                {name: value for name, value in row.items() if name not in _TIMED}
                for row in csv.DictReader(file)
            ]
    if path.name == "section.json":
        section = json.loads(path.read_text(encoding="utf-8"))
        return {name: value for name, value in section.items() if name not in _SECTION}
    return path.read_bytes()


def differences(first: Path, second: Path) -> list[str]:
    """One line for each file that one folder lacks or that differs, with the first place in it."""
    one, two = published(first), published(second)
    lines = [f"{name}: only in {first}" for name in one if name not in two]
    lines += [f"{name}: only in {second}" for name in two if name not in one]
    for name in one.keys() & two.keys():
        a, b = content(one[name]), content(two[name])
        if a != b:
            lines.append(f"{name}: {where(a, b)}")
    return sorted(lines)


def where(a: object, b: object, place: str = "") -> str:
    """The first place at which two values of JSON differ."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in dict.fromkeys([*a, *b]):
            if a.get(key) != b.get(key):
                return where(a.get(key), b.get(key), f"{place}.{key}")
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        index = next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
        return where(a[index], b[index], f"{place}[{index}]")
    return f"{place or 'content'}: {_short(a)} against {_short(b)}"


def _short(value: object) -> str:
    text = f"{len(value)} bytes" if isinstance(value, bytes) else repr(value)
    return text if len(text) <= 200 else f"{text[:200]} ..."


def main() -> int:
    """Print the differences of two folders; 1 where there are some."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="*", help="two of them")
    arguments = arguments_of(parser)
    if arguments.tiny:
        arguments.folders = two_runs(arguments.results)
    if len(arguments.folders) != 2:
        parser.error("give two folders")
    first, second = arguments.folders
    assert published(first), f"{first} holds no results"
    lines = differences(first, second)
    print("\n".join(lines) or f"{len(published(first))} files are the same")
    return 1 if lines else 0


def two_runs(folder: Path) -> list[Path]:
    """Results that differ in their seconds alone."""
    runs = []
    for seconds in (1, 2):
        runs.append(folder / str(seconds))
        notebook = runs[-1] / "05_clipping"
        notebook.mkdir(parents=True)
        (notebook / "cost.csv").write_text(f"rule,seconds\ngppo,{seconds}\n", encoding="utf-8")
        section = json.dumps({"title": "GPPO", "seconds": seconds})
        (notebook / "section.json").write_text(section, encoding="utf-8")
    return runs


if __name__ == "__main__":
    sys.exit(main())
