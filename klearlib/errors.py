"""Errors that a user can fix: one line that names the cause and the fix, never a traceback."""

import difflib
from collections.abc import Iterable


class KlearError(ValueError):
    """A mistake outside the library: its message is one printable line that names the fix.

    The command line prints it as ``klear: <message>`` and exits with `exit_code`; a notebook shows
    the same line instead of a traceback.
    """

    exit_code = 1

    def __init__(self, message: object):
        super().__init__(printable(str(message), keep="\n\t"))

    def _render_traceback_(self) -> list[str]:
        # IPython's hook: the traceback of a user's mistake would only hide the line that mends it.
        return [f"{type(self).__name__}: {self}"]


class ParameterError(KlearError):
    """An unknown, ill-typed or out-of-range parameter, or an unknown profile or notebook."""

    exit_code = 2


class MissingAsset(KlearError):
    """A model, data set, file or package that this machine does not have."""


class DamagedEntry(KlearError):
    """A checkpoint or cache entry that no longer is what was written."""


class StageFailed(KlearError):
    """A stage ended with an error; the message holds the log's path and its last lines."""


class Interrupted(KeyboardInterrupt):
    """The stop button or Ctrl-C ended a call that goes on when it is made again; a notebook shows
    its one line."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class Stopped(KlearError):
    """A stop was asked for (SIGTERM, Ctrl-C): the state is saved and the same call goes on from
    it."""

    exit_code = 143


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The part of a message that helps after an unknown name.

    >>> did_you_mean("num_step", ["num_steps", "seeds"])
    "did you mean 'num_steps'?"
    """
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"there are: {', '.join(known)}" if known else "there are none"


def one_line(error: Exception) -> str:
    """What an error says, or its name, without line breaks."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def printable(text: str, *, keep: str = "") -> str:
    """`text` without what would steer a terminal, but for the characters of `keep`.

    >>> printable("red: \\x1b[31m, two\\nlines", keep="\\n")
    'red: \\\\x1b[31m, two\\nlines'
    """
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)
