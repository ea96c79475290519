"""What code a result depends on, as a hash that comments and docstrings do not change.

Nothing is imported: modules are found as files and read as syntax trees, so that asking whether
hours of training are still valid takes milliseconds and no torch.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from klearlib.errors import KlearError, ParameterError

DATA_SUFFIXES = {".csv", ".json", ".jsonl", ".md", ".toml", ".txt", ".yaml", ".yml"}
_TARGET = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")  # "klearlib.rl.train:train_rl"

# (file, its package) -> (mtime in ns, bytes, digest, names that it may import)
_scanned: dict[tuple[Path, str], tuple[int, int, str, frozenset[str]]] = {}


def code_fingerprint(module: str) -> str:
    """sha256 (hexadecimal) of the code that `module` runs on; see `library_fingerprint`.

    >>> code_fingerprint("klearlib.errors") == code_fingerprint("klearlib.errors")
    True

    Raises ParameterError where there is no such module, KlearError where it is no valid Python.
    """
    return library_fingerprint([module])


def library_fingerprint(modules: Iterable[str]) -> str:
    """sha256 (hexadecimal) over the syntax trees of `modules` and of all that they import.

    Followed: import statements at any depth of a file, the ``__init__`` of every parent package,
    and strings that name a stage's target (``"klearlib.rl.train:train_rl"``), as long as they stay
    inside klearlib or the top-level package of the module asked for. Data files (`DATA_SUFFIXES`)
    that lie in a package belong to its code. Left out: comments, docstrings, ``__version__``,
    blocks under ``if TYPE_CHECKING:``, other libraries (their versions are in the provenance),
    and imports by computed names.

    Raises ParameterError where a module of `modules` does not exist, KlearError where a file is no
    valid Python.
    """
    modules = sorted(modules)
    tops = {"klearlib", *(module.split(".")[0] for module in modules)}
    roots = {top: root for top in tops if (root := _root(top)) is not None}
    for module in modules:
        if _file_of(module, roots) is None:
            raise ParameterError(f"no module {module!r}: check the name and the Python path")
    found: dict[str, str] = {}
    waiting = list(modules)
    seen: set[str] = set()
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        waiting.append(module.rpartition(".")[0])
        file = _file_of(module, roots)
        if file is None:
            continue
        is_package = file.name == "__init__.py"
        digest, names = _scan(file, module if is_package else module.rpartition(".")[0])
        found[module] = digest
        waiting.extend(names)
        if is_package:
            for data in _data_files(file.parent):
                found[f"{module}/{data.relative_to(file.parent)}"] = _scan(data, "")[0]
    return hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()


def _root(top: str) -> Path | None:
    """The folder of a top-level package, or the file of a top-level module; None elsewhere."""
    if not top.isidentifier():
        return None
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # a module that runs as a script has no spec
        return None
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None


def _file_of(module: str, roots: dict[str, Path]) -> Path | None:
    top, *rest = module.split(".")
    root = roots.get(top)
    if root is None:
        return None
    if root.suffix == ".py":
        return root if not rest else None
    folder = root.joinpath(*rest)
    for file in (folder / "__init__.py", folder.with_name(folder.name + ".py")):
        if file.is_file():
            return file
    return None


def _data_files(folder: Path) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith((".", "__")):
            continue
        if entry.suffix in DATA_SUFFIXES:
            yield entry
        elif not entry.suffix and entry.is_dir() and not any(entry.glob("*.py")):
            yield from _data_files(entry)


def _scan(file: Path, package: str) -> tuple[str, frozenset[str]]:
    """A file's digest and the modules that it may import; kept until the file changes."""
    status = file.stat()
    known = _scanned.get((file, package))
    if known is not None and known[:2] == (status.st_mtime_ns, status.st_size):
        return known[2:]
    content, names = file.read_bytes(), frozenset()
    if file.suffix == ".py":
        try:
            tree = _Essence().visit(ast.parse(content))
        except SyntaxError as error:
            raise KlearError(f"{file}, line {error.lineno}: {error.msg}: mend it") from error
        content = ast.unparse(tree).encode()
        names = frozenset(_imported(tree, package))
    digest = hashlib.sha256(content).hexdigest()
    _scanned[(file, package)] = (status.st_mtime_ns, status.st_size, digest, names)
    return digest, names


class _Essence(ast.NodeTransformer):
    """Takes out what cannot change a result."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        is_version = ast.unparse(node.targets[0]) == "__version__"
        return None if is_version else self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        if ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            return [self.visit(statement) for statement in node.orelse]
        return self.generic_visit(node)


def _imported(tree: ast.AST, package: str) -> Iterator[str]:
    """Names that may be modules: of ``from a import b`` both ``a`` and ``a.b``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            base = parents[: len(parents) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            yield source
            yield from (f"{source}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            module, colon, _ = node.value.partition(":")
            yield from [module] if colon and _TARGET.fullmatch(node.value) else []
