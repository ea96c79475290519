"""Execute one notebook through papermill in a kernel of this very interpreter, and end that kernel.

This fixes what papermill 2.7 leaves open: the kernel may be another interpreter's, a stop leaves it
and its children alive, a killed kernel is recorded as success, and the output is not written
atomically. ``python -m klearlib.suite.kernel -f CONNECTION_FILE`` is the kernel itself.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import sys
from pathlib import Path
from typing import TextIO

from klearlib.notebook import NOTEBOOK_PATH
from klearlib.params import root
from klearlib.params.place import OUT, PUBLISHED
from klearlib.run.progress import PROGRESS_LOG
from klearlib.run.stops import die_with
from klearlib.run.worker import PARENT

EXIT_FAILED, EXIT_PARAMETERS, EXIT_KERNEL_DIED = 1, 2, 138

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class NotebookError(Exception):
    """A notebook did not run to its end: `exit_code`, and `lines` that say where and why."""

    def __init__(self, exit_code: int, lines: list[str]):
        super().__init__(lines[0])
        self.exit_code = exit_code
        self.lines = lines


def execute_notebook(
    source: str, output: str, values: dict, log: str, *, published: bool = False
) -> None:
    """Run the notebook `source` with parameters `values`, which publishes in the results folder of
    `output`; `output` is written when it is complete. published: with the runs that
    the tables in that folder hold.

    The kernel runs in the project's folder, appends its progress and prints to `log`, and has ended
    with all its children when this returns. A notebook that failed is kept next to `output` as
    ``<name>.failed.ipynb``, with its error marked.

    Raises NotebookError: a cell raised (exit code 1; 2 for a ParameterError) or the kernel died
    (138).
    """
    # jsonschema would make a parser of addresses from it, in two seconds that no notebook needs.
    sys.modules.setdefault("rfc3987_syntax", None)
    import nbformat
    from nbclient.exceptions import DeadKernelError
    from papermill import PapermillExecutionError
    from papermill import execute_notebook as papermill

    place, project = Path(output), root()
    partial = place.with_name(f".{place.stem}.partial.ipynb")
    failed = place.with_name(f"{place.stem}.failed.ipynb")
    managers: list = []
    # They log at length what is also raised, and told to the user in fewer words.
    logging.getLogger("papermill").setLevel(logging.CRITICAL)
    environment = {"KLEAR_ROOT": str(project), OUT: str(place.parent), NOTEBOOK_PATH: output}
    environment |= {PROGRESS_LOG: log, PARENT: str(os.getpid())}
    environment |= {PUBLISHED: "1"} if published else {}
    try:
        with open(log, "a", encoding="utf-8") as stream:
            notebook = papermill(
                source,
                str(partial),
                parameters=values,
                kernel_name="python3",
                language="python",
                progress_bar=False,
                request_save_on_cell_execute=False,
                cwd=str(project),
                stdout_file=stream,
                stderr_file=stream,
                kernel_manager_class=_kernel_manager(environment, stream, managers),
                coalesce_streams=True,
            )
        for name in ("input_path", "output_path"):  # it may be published: no local paths
            notebook.metadata.papermill[name] = Path(notebook.metadata.papermill[name]).name
        nbformat.write(notebook, str(partial))
        os.replace(partial, place)
        failed.unlink(missing_ok=True)
    except PapermillExecutionError as error:
        os.replace(partial, failed)
        raise NotebookError(*_cell_failure(error)) from None
    except DeadKernelError:
        line = "the kernel died (out of memory, or killed from outside); finished stages are kept"
        raise NotebookError(EXIT_KERNEL_DIED, [line]) from None
    except RuntimeError as error:  # jupyter_client: it did not answer, or ended before it did
        line = f"the kernel did not start ({error}); its last output is in {log}"
        raise NotebookError(EXIT_KERNEL_DIED, [line]) from None
    finally:
        for manager in managers:
            if manager.has_kernel:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(manager.provisioner.pgid, signal.SIGKILL)
                manager.cleanup_connection_file()
        partial.unlink(missing_ok=True)


def _kernel_manager(environment: dict[str, str], stream: TextIO, managers: list) -> type:
    """A manager that starts `sys.executable`, whatever kernelspecs this machine has.

    What the kernel writes outside the notebook (a crash of the interpreter) goes to `stream`. Each
    instance is added to `managers`, so that its process can be killed.
    """
    from ipykernel.kernelspec import get_kernel_dict
    from jupyter_client import AsyncKernelManager
    from jupyter_client.kernelspec import KernelSpec

    class InterpreterKernel(AsyncKernelManager):
        def __init__(self, **traits):
            super().__init__(**traits)
            managers.append(self)

        @property
        def kernel_spec(self) -> KernelSpec:
            # Below CRITICAL it reports every shutdown as an error and local TCP as unencrypted.
            spec = get_kernel_dict(extra_arguments=["--IPKernelApp.log_level=CRITICAL"])
            launcher = spec["argv"].index("-m")
            spec["argv"][launcher : launcher + 2] = ["-P", "-m", "klearlib.suite.kernel"]
            return KernelSpec(**spec, env=environment)

        async def start_kernel(self, **launch) -> None:
            await super().start_kernel(**launch, stdout=stream, stderr=stream)

    return InterpreterKernel


def _cell_failure(error) -> tuple[int, list[str]]:
    """Exit code and lines for a cell that raised: which cell, its source, the error's end."""
    exit_code = EXIT_PARAMETERS if error.ename == "ParameterError" else EXIT_FAILED
    source = [f"    {line}" for line in error.source.splitlines()]
    lines = [f"cell In [{error.exec_count}] failed: {error.ename}: {error.evalue}", *source]
    if len(error.traceback) > 1:
        traceback = "\n".join(error.traceback).splitlines()
        lines += ["  ...", *(f"    {_COLOUR.sub('', line)}".rstrip() for line in traceback[-8:])]
    return exit_code, lines


def main() -> None:
    """Do what ``python -m ipykernel_launcher`` does, tied to the process that started it: ipykernel
    itself checks once a second whether its parent lives, in a thread that a long call into compiled
    code blocks."""
    die_with(int(os.environ.pop(PARENT)))
    from ipykernel import kernelapp

    kernelapp.launch_new_instance()


if __name__ == "__main__":
    sys.exit(main())
