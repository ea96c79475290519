"""Data sets of this machine or of the hub's cache as stages, so that no key depends on where they
are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.data.files import is_hidden
from klearlib.data.problems import write_problems
from klearlib.errors import MissingAsset
from klearlib.evaluate.benchmark_files import open_benchmark
from klearlib.hub import cached_snapshot, fetch_command, hub_folder
from klearlib.real.model import link_file
from klearlib.run.files import write_json

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder

FILES = "files"


def link_data(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    hub_id: str,
    location: str | None,
    content: str | None,
    name: str,
) -> None:
    """Stage ``data``: ``files/<name>``, a link to a file or a folder of links, and card.json.

    Args:
        inputs: none are read.
        hub_id: of the data set. location: a file or a folder of this machine; None takes the
            snapshot of the hub's cache. content: of that, so that a changed one is another stage.
        name: what the file or folder is called here. Hidden files are left out.

    Raises:
        MissingAsset: nothing there.
    """
    source = cached_snapshot("dataset", hub_id) if location is None else Path(location)
    if source is None:
        place, fetch = hub_folder("dataset", hub_id), fetch_command("dataset", hub_id)
        raise MissingAsset(f"dataset {hub_id} is not at {place}: {fetch}")
    if not source.exists():
        raise MissingAsset(f"no file or folder at {location}: correct the path in real.yaml")
    inside = [file.relative_to(source) for file in (source, *source.rglob("*"))]
    files = sorted(each for each in inside if (source / each).is_file() and not is_hidden(each))
    for each in files:
        link_file(source / each, folder.path / FILES / name / each)
    card = {
        "hub_id": hub_id,
        "snapshot": source.name if location is None else None,
        "num_files": len(files),
        "bytes": sum((source / each).stat().st_size for each in files),
    }
    write_json(folder.path / "card.json", card)


def collect_benchmarks(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    benchmarks: dict[str, int | None],
    places: dict[str, str],
    sources: dict[str, dict] | None = None,
) -> None:
    """Stage ``benchmarks``: real benchmarks as files for `klearlib.evaluate.harness`, which reads
    them as ``inputs["benchmarks"]``.

    Writes ``<name>.jsonl`` for each, under the names that are given, and what they are out of to
    card.json.

    Args:
        inputs: benchmark -> the stage of `link_data` that holds it.
        benchmarks: alias or full name -> the number of problems that there must be, None for any.
        places: where each is in its input.
        sources: of those that are not the paper's, `source` and options of `open_benchmark`, whose
            errors are raised too.
    """
    card = {}
    for number, (name, size) in enumerate(benchmarks.items()):
        folder.progress(number, len(benchmarks), name)
        how = (sources or {}).get(name, {})
        opened = open_benchmark(name, inputs[name] / places[name], expected_size=size, **how)
        write_problems(opened.problems, folder.path / f"{name}.jsonl")
        card[name] = {"num_problems": len(opened.problems), "summary": opened.summary}
    write_json(folder.path / "card.json", card)
    folder.progress(len(benchmarks), len(benchmarks))
