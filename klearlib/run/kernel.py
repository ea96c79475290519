"""Execute one notebook through papermill in a kernel of this very interpreter, and end that kernel.

What papermill 2.7 leaves open is closed here: the kernel may be another interpreter's, a stop
signal leaves the kernel's children alive, a killed kernel is recorded as success, and the output is
not written atomically.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import klearlib
from klearlib.run import kernel_process
from klearlib.run.job import stop_grace_s
from klearlib.run.progress import PROGRESS_LOG
from klearlib.run.worker import PARENT

# Of its workers' time that a kernel has to end, and seconds where all cells are done and it has
# nothing to lose. Jupyter sends SIGTERM after half, SIGKILL after all; an interrupted cell waits
# for its workers first.
STOPPING_SHARE, IDLE_S = 2.5, 10.0

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

EXIT_FAILED, EXIT_PARAMETERS, EXIT_CTRL_C = 1, 2, 130
EXIT_KERNEL_DIED, EXIT_TERMINATED = 138, 143


class NotebookError(Exception):
    """A notebook did not run to its end: `exit_code`, and `lines` that say where and why."""

    def __init__(self, exit_code: int, lines: list[str]):
        super().__init__(lines[0])
        self.exit_code = exit_code
        self.lines = lines


class StopSignals:
    """SIGTERM and SIGINT become KeyboardInterrupt, once, after a call of `stop`; later ones call
    `kill`.

    Use as a context manager in the main thread (elsewhere it changes nothing). `exit_code` is that
    of the first signal.
    """

    def __init__(self) -> None:
        self.exit_code = EXIT_CTRL_C
        self.stop: Callable[[], None] = lambda: None
        self.kill: Callable[[], None] = lambda: None
        self._stopping = False
        self._previous: dict[int, object] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._previous[number] = signal.signal(number, self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _stop(self, number: int, _frame: object) -> None:
        if self._stopping:
            self.kill()
            return
        self._stopping = True
        self.stop()
        self.exit_code = 128 + number
        # It reports the cell that is interrupted now as a task that nobody awaited.
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        raise KeyboardInterrupt


def execute(source: Path, output: Path, values: dict, *, root: Path, log: Path, signals) -> None:
    """Run the notebook `source` with parameters `values`; `output` is written when it is complete.

    The kernel runs in `root`, talks over TCP, appends its progress and prints to `log`, and has
    ended with all its children when this returns. A notebook that failed is kept beside `output`
    as ``<name>.failed.ipynb``, with its error marked.

    Raises:
        NotebookError: a cell raised (exit code 1; 2 for a ParameterError) or the kernel died (138).
        KeyboardInterrupt: a stop was asked for.
    """
    # papermill, nbclient and zmq take a second to import, which a cached run does not need.
    from nbclient.exceptions import DeadKernelError
    from papermill import PapermillExecutionError, execute_notebook

    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_name(f".{output.stem}.partial.ipynb")
    failed = output.with_name(f"{output.stem}.failed.ipynb")
    managers: list = []
    signals.stop = lambda: _give_time(managers)
    signals.kill = lambda: _kill(managers)
    # They log at length what is raised as well, and told to the user in fewer words.
    logging.getLogger("papermill").setLevel(logging.CRITICAL)
    environment = _environment(root, log)
    try:
        with open(log, "a", encoding="utf-8") as stream:
            notebook = execute_notebook(
                str(source),
                str(partial),
                parameters=values,
                kernel_name="python3",
                language="python",
                progress_bar=False,
                request_save_on_cell_execute=False,
                cwd=str(root),
                stdout_file=stream,
                stderr_file=stream,
                kernel_manager_class=_kernel_manager(environment, stream, managers),
                coalesce_streams=True,
            )
        _write(notebook, partial, {"input_path": source, "output_path": output}, root)
        os.replace(partial, output)
        failed.unlink(missing_ok=True)
    except PapermillExecutionError as error:
        os.replace(partial, failed)
        raise NotebookError(*_cell_failure(error)) from None
    except DeadKernelError:
        line = "the kernel died (out of memory, or killed from outside); finished stages are kept"
        raise NotebookError(EXIT_KERNEL_DIED, [line]) from None
    except RuntimeError as error:  # jupyter_client: it did not answer, or ended before it did
        line = f"the kernel did not start ({error}); its last words are in {log}"
        raise NotebookError(EXIT_KERNEL_DIED, [line]) from None
    finally:
        _kill(managers)
        partial.unlink(missing_ok=True)


def _kernel_manager(environment: dict[str, str], stream: TextIO, managers: list) -> type:
    """A manager that starts `sys.executable`, whatever kernelspecs this machine has.

    What the kernel writes past the notebook (a crash of the interpreter) goes to `stream`. Each
    instance is added to `managers`, so that its process can be ended by force.
    """
    from ipykernel.kernelspec import get_kernel_dict
    from jupyter_client import AsyncKernelManager
    from jupyter_client.kernelspec import KernelSpec
    from traitlets import default

    class InterpreterKernel(AsyncKernelManager):
        def __init__(self, **traits):
            super().__init__(**traits)
            managers.append(self)

        # Kernels that start at the same time collide over IPC (3 of 24 in a trial), not over TCP.
        @default("transport")
        def _transport(self) -> str:
            return "tcp"

        @default("shutdown_wait_time")
        def _shutdown_wait_time(self) -> float:
            return IDLE_S

        @property
        def kernel_spec(self) -> KernelSpec:
            # Below CRITICAL it reports every shutdown as an error and local TCP as unencrypted.
            spec = get_kernel_dict(extra_arguments=["--IPKernelApp.log_level=CRITICAL"])
            launcher = spec["argv"].index("-m")
            spec["argv"][launcher : launcher + 2] = ["-P", "-m", kernel_process.__name__]
            return KernelSpec(**spec, env=environment)

        async def start_kernel(self, **launch) -> None:
            await super().start_kernel(**launch, stdout=stream, stderr=stream)

    return InterpreterKernel


def _environment(root: Path, log: Path) -> dict[str, str]:
    """What the kernel needs to find the project, this very library, its parent, and the log of its
    progress."""
    known = {"KLEAR_ROOT": str(root), PROGRESS_LOG: str(log), PARENT: str(os.getpid())}
    return known | library_path()


def library_path() -> dict[str, str]:
    """The PYTHONPATH of a process that is to import this very library, where it needs one."""
    library = Path(klearlib.__file__).resolve().parents[1]
    if library.name == "site-packages":
        return {}
    known = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": f"{library}{os.pathsep}{known}" if known else str(library)}


def _give_time(managers: list) -> None:
    """Let the kernels' cells end in their own time."""
    for manager in managers:
        manager.shutdown_wait_time = STOPPING_SHARE * stop_grace_s()


def _kill(managers: list) -> None:
    """SIGKILL to the process group of every kernel that still runs."""
    for manager in managers:
        if manager.has_kernel:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(manager.provisioner.pgid, signal.SIGKILL)
            manager.cleanup_connection_file()


def _write(notebook, path: Path, places: dict[str, Path], root: Path) -> None:
    """Save the executed notebook with places relative to the project: it may be published."""
    import nbformat

    for name, place in places.items():
        inside = place.is_relative_to(root)
        notebook.metadata.papermill[name] = str(place.relative_to(root) if inside else place.name)
    nbformat.write(notebook, str(path))


def _cell_failure(error) -> tuple[int, list[str]]:
    """Exit code and lines for a cell that raised: which cell, its source, the error's end."""
    exit_code = EXIT_PARAMETERS if error.ename == "ParameterError" else EXIT_FAILED
    source = [f"    {line}" for line in error.source.splitlines()]
    lines = [f"cell In [{error.exec_count}] failed: {error.ename}: {error.evalue}", *source]
    if len(error.traceback) > 1:
        traceback = "\n".join(error.traceback).splitlines()
        lines += ["  ...", *(f"    {_COLOUR.sub('', line)}".rstrip() for line in traceback[-8:])]
    return exit_code, lines
