"""Runs Python scripts, each in a fork of this process, which has imported what takes long.

A line of the input has the path of a script, a folder for what it prints and for its temporary
files, and its arguments; the answer is its exit code.
"""

import gc
import os
import runpy
import sys
import tempfile

SLOW = ("pandas", "klearlib.policy.load", "transformers.models.qwen3.modeling_qwen3")


def main() -> None:
    for name in SLOW:
        __import__(name)
    gc.freeze()  # or each fork would look at all that was imported when it ends
    for line in sys.stdin:
        script, folder, *arguments = line.split()
        child = os.fork()
        if child == 0:
            output = os.open(os.path.join(folder, "output.txt"), os.O_WRONLY | os.O_CREAT)
            nothing = os.open(os.devnull, os.O_RDONLY)
            for number, file in enumerate((nothing, output, output)):
                os.dup2(file, number)
            os.environ["TMPDIR"] = tempfile.tempdir = folder
            sys.argv, sys.path[0] = [script, *arguments], os.path.dirname(script)
            runpy.run_path(script, run_name="__main__")
            return
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
