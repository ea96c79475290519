"""What code a result depends on, as a hash that comments and docstrings do not change.

Nothing is imported: modules are found as files and read as syntax trees, so that asking whether
hours of training are still valid takes milliseconds and no torch. The digests of files are cached
next to Python's own compiled files.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from klearlib.errors import KlearError, ParameterError
from klearlib.run.files import write_json

DATA_SUFFIXES = {".csv", ".json", ".jsonl", ".md", ".toml", ".txt", ".yaml", ".yml"}
_TARGET = re.compile(r"'([A-Za-z_][\w.]*):[A-Za-z_]\w*'")  # 'klearlib.rl.train:train_rl'
_TYPES_ONLY = ("TYPE_CHECKING", "typing.TYPE_CHECKING")
_changed: list[str] = []  # what this process found and the cache file lacks

_LIBRARY = Path(__file__).resolve().parents[1]
# Texts of syntax trees differ between versions of Python, so this file does too.
_SCANNED_FILE = _LIBRARY / "__pycache__" / f"fingerprints.{sys.implementation.cache_tag}.json"


MOVES_NO_NUMBER = ("klearlib.errors", "klearlib.experiments", "klearlib.run", "klearlib.rl.alarms")
"""Messages, files, processes and progress, and what is made from results: how a stage is run, not
what it computes."""
MOVES_NUMBERS = ("klearlib.run.seeding",)
"""The exceptions among them."""


def code_fingerprint(module: str, *, without: Sequence[str] = MOVES_NO_NUMBER) -> str:
    """sha256 (hexadecimal) over the syntax trees of `module` and of all that it imports.

    Followed: import statements at any depth of a file, the ``__init__`` of every parent package,
    and strings that name a stage's target (``"klearlib.rl.train:train_rl"``), as long as they stay
    inside klearlib or the top-level package of the module asked for. Data files (`DATA_SUFFIXES`)
    in a package belong to its code. Left out: comments, docstrings, ``__version__``, blocks under
    ``if TYPE_CHECKING:``, other libraries, imports by computed names, and the imported packages and
    modules `without` (except `MOVES_NUMBERS`), with all that they import: so a message can be
    reworded without training anything again.

    >>> code_fingerprint("klearlib.errors") == code_fingerprint("klearlib.errors")
    True

    Raises ParameterError where there is no such module, KlearError where it is not valid Python.
    """
    top_files = {top: _top_file(top) for top in ("klearlib", module.split(".")[0])}
    if _file_of(module, top_files) is None:
        raise ParameterError(f"no module {module!r}: check the name and the Python path")
    found: dict[str, str] = {}
    waiting = [module]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        is_left_out = any(f"{name}.".startswith(f"{each}.") for each in without)
        if is_left_out and name not in (module, *MOVES_NUMBERS):
            continue
        package = name.rpartition(".")[0]
        waiting.append(package)
        file = _file_of(name, top_files)
        if file is None:
            continue
        is_package = file.name == "__init__.py"
        found[name], imported = _scan(file, name if is_package else package)
        waiting.extend(imported)
        if is_package:
            for data in _data_files(file.parent):
                found[f"{name}/{data.relative_to(file.parent)}"] = _scan(data, "")[0]
    _keep_scanned()
    return hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()


def _top_file(top: str) -> Path | None:
    """The file of a top-level module or of a package's ``__init__``."""
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # a module that runs as a script has no spec
        return None
    has_file = spec is not None and spec.origin and spec.origin.endswith(".py")
    return Path(spec.origin) if has_file else None


def _file_of(module: str, top_files: dict[str, Path | None]) -> Path | None:
    top, *rest = module.split(".")
    top_file = top_files.get(top)
    if not rest or top_file is None:
        return top_file
    place = os.path.join(top_file.parent, *rest)
    files = (f"{place}/__init__.py", f"{place}.py") if top_file.name == "__init__.py" else ()
    return next((Path(file) for file in files if os.path.isfile(file)), None)


def _data_files(folder: Path) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith((".", "__")):
            continue
        if entry.suffix in DATA_SUFFIXES:
            yield entry
        elif not entry.suffix and entry.is_dir() and not any(entry.glob("*.py")):
            yield from _data_files(entry)


def _scan(file: Path, package: str) -> tuple[str, list[str]]:
    """A file's digest and the modules that it may import; kept until the file changes."""
    status, scanned, name = file.stat(), _scanned(), f"{package} {file}"
    stamp = [status.st_mtime_ns, status.st_size]
    if name not in scanned or scanned[name][0] != stamp:
        content, names = file.read_bytes(), set()
        if file.suffix == ".py":
            text, names = _essence(file, content, package)
            content = text.encode()
        scanned[name] = [stamp, hashlib.sha256(content).hexdigest(), sorted(names)]
        _changed.append(name)
    return tuple(scanned[name][1:])


@functools.cache
def _scanned() -> dict[str, list]:
    """By package and file: mtime in ns and bytes, digest, names; from earlier processes too."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(_SCANNED_FILE.read_text(encoding="utf-8"))
        if kept["by"] == Path(__file__).stat().st_mtime_ns:  # not before a change of this file
            return kept["files"]
    return {}


def _keep_scanned() -> None:
    if not _changed:
        return
    _changed.clear()
    ours = {name: entry for name, entry in _scanned().items() if str(_LIBRARY) in name}
    kept = {"by": Path(__file__).stat().st_mtime_ns, "files": ours}
    with contextlib.suppress(OSError):  # the library may be another user's
        _SCANNED_FILE.parent.mkdir(exist_ok=True)
        write_json(_SCANNED_FILE, kept, durable=False)


def _essence(file: Path, content: bytes, package: str) -> tuple[str, set[str]]:
    """A module's code without what cannot change a result, and the modules that it may import."""
    try:
        tree = ast.parse(content)
    except SyntaxError as error:
        raise KlearError(f"{file}, line {error.lineno}: {error.msg}: fix it") from error
    imported = list(_imports(tree, package))
    text = ast.unparse(tree)
    return text, {*imported, *_TARGET.findall(text)}


def _imports(node: ast.AST, package: str) -> Iterator[str]:
    """Removes from a tree what cannot change a result, and yields the names in its imports that may
    be modules: for ``from a import b`` both ``a`` and ``a.b``."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        statements = getattr(node, name, None)
        if not isinstance(statements, list):  # of a lambda or a conditional expression
            continue
        kept = []
        for statement in statements:
            if isinstance(statement, ast.If) and ast.unparse(statement.test) in _TYPES_ONLY:
                yield from _imports(ast.Module(statement.orelse), package)
                kept += statement.orelse
            elif not _is_idle(statement):
                yield from _imports(statement, package)
                kept.append(statement)
        statements[:] = kept
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        parents = package.split(".")
        base = parents[: len(parents) - node.level + 1] if node.level else []
        source = ".".join([*base, *([node.module] if node.module else [])])
        yield source
        yield from (f"{source}.{alias.name}" for alias in node.names)


def _is_idle(statement: ast.stmt) -> bool:
    """Whether it is a bare string, as a docstring is, or the version of the library."""
    match statement:
        case ast.Expr(ast.Constant(str())) | ast.Assign([ast.Name("__version__")]):
            return True
    return False
