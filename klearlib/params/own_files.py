"""Files of a user's own code that a parameter names: their text goes into the parameter, and a run
never looks at the file again."""

from __future__ import annotations

import re
from pathlib import Path

from klearlib.errors import ParameterError
from klearlib.own_code import module_of
from klearlib.params.project import root
from klearlib.run.files import read_own_text


def text_of(file: str, where: str) -> str:
    """The text of a Python file that imports nothing from its own folder.

    file: a path relative to the project's folder. where: the parameter, before every message.

    Raises ParameterError: no such file, not text, or an import from its own folder.
    """
    path = root() / Path(file).expanduser()
    if not path.is_file():
        here = f", write {Path(file).resolve()}" if Path(file).is_file() else ""
        raise ParameterError(
            f"{where}: no file at {path}: paths are relative to the project's folder{here}"
        )
    try:
        text = read_own_text(path)
    except ValueError as error:
        raise ParameterError(f"{where}: {path} {error}") from None
    for top in re.findall(r"^\s*(?:from|import)\s+(\w+)", text, re.MULTILINE):
        beside = path.with_name(top)
        there = beside.with_suffix(".py").is_file() or (beside / "__init__.py").is_file()
        if there and top != "klearlib":
            raise ParameterError(
                f"{where}: it imports {top} from its own folder, but a run keeps only this one "
                f"file: copy what it needs from {top} into it"
            )
    return text


def read_reward(given: object) -> dict | None:
    """The parameter `reward_function`: None, or FILE.py:NAME, which becomes a mapping of ``name``
    and ``source``, the file's text; such a mapping is taken as it is.

    Raises ParameterError: no file, no valid Python, or no such function in it.
    """
    if given is None:
        return None
    where = "reward_function"
    if isinstance(given, str) and ":" in given:
        file, _, name = given.rpartition(":")
        given = {"name": name, "source": text_of(file, where)}
    is_named = isinstance(given, dict) and given.keys() == {"name", "source"}
    if not is_named or not all(isinstance(text, str) for text in given.values()):
        raise ParameterError(f"{where} must be FILE.py:FUNCTION, got {given!r:.100}")
    try:
        function = vars(module_of(given["source"])).get(given["name"])
    except ValueError as error:
        raise ParameterError(f"{where}: {error}") from None
    if not callable(function):
        raise ParameterError(f"{where}: no function {given['name']!r} in the file: check the name")
    return given
