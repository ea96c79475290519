"""Errors that a user can mend: one line that names the cause and the fix, never a traceback."""


class KlearError(ValueError):
    """A mistake outside the library: its message is one line that names the fix.

    The command line prints it as ``klear: <message>`` and exits with `exit_code`; a notebook shows
    the same line instead of a traceback.
    """

    exit_code = 1

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
