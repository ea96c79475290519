"""What git keeps of a notebook: its cells, nothing of their runs. ``python -m
klearlib.suite.clean`` is the clean filter for notebooks/*.ipynb that ``make lab`` sets up: the file
keeps its outputs, and git sees only changes of the cells."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def cleaned(text: str) -> str:
    """The text of an .ipynb without outputs, counts, empty cells at the end and JupyterLab's
    metadata, in nbformat's form. What is not a notebook stays as it is."""
    try:
        notebook = json.loads(text)
        cells = notebook["cells"]
        while cells and not "".join(cells[-1]["source"]).strip():
            cells.pop()
        for cell in cells:
            cell["source"] = "".join(cell["source"]).splitlines(keepends=True)
            cell["metadata"] = {n: v for n, v in cell["metadata"].items() if n == "tags"}
            if cell["cell_type"] == "code":
                cell |= {"outputs": [], "execution_count": None}
        kept = {n: v for n, v in notebook["metadata"].items() if n == "klear"}
        notebook["metadata"] = _METADATA | kept
    except (ValueError, KeyError, TypeError, AttributeError):  # git's marks of a conflict, say
        return text
    return json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def after_save(model: dict, os_path: str, **_) -> None:
    """JupyterLab's hook. `git status` checks a file's size before it asks the filter, so git is
    told that a notebook is unchanged if only its outputs differ; nothing new is staged."""
    place = Path(os_path)
    if model["type"] != "notebook":
        return
    git = ["git", "-C", str(place.parent)]
    with contextlib.suppress(OSError):  # no git here
        same = subprocess.run([*git, "diff", "--quiet", "--", place.name], capture_output=True)
        if same.returncode == 0:
            subprocess.run([*git, "add", "--update", "--", place.name], capture_output=True)


if __name__ == "__main__":
    sys.stdout.buffer.write(cleaned(sys.stdin.buffer.read().decode("utf-8")).encode("utf-8"))
