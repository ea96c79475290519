"""A file of Python of a user's own, a clipping rule or a reward function, run from its text.

A run keeps the text among its parameters and never looks at the file, so that it goes on, in any
process and on any machine, whatever became of the file.
"""

from __future__ import annotations

import functools
import hashlib
import linecache
import sys
import traceback
from types import ModuleType

_PREFIX = "klear_own_"


@functools.cache
def module_of(source: str) -> ModuleType:
    """The module that `source` defines; run once.

    Raises:
        ValueError: it is no valid Python, or it raises, in one line that names the place.
    """
    name = f"{_PREFIX}{hashlib.sha256(source.encode()).hexdigest()[:12]}"
    module, file = ModuleType(name), f"<{name}>"
    # Tracebacks show its lines, and dataclasses in it find their module.
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    sys.modules[name] = module
    try:
        exec(compile(source, file, "exec", dont_inherit=True), vars(module))
    except SyntaxError as error:
        raise ValueError(f"line {error.lineno}: {error.msg}") from error
    except (Exception, SystemExit) as error:  # a user's code may raise anything
        raise ValueError(failure(error)) from error
    return module


def failure(error: BaseException) -> str:
    """What `error` says in one line, with the last line of a user's text on its way."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f"line {f.lineno}" for f in frames if f.filename.startswith(f"<{_PREFIX}")]
    text = " ".join(str(error).split())
    return ": ".join(filter(None, [*lines[-1:], type(error).__name__, text]))
