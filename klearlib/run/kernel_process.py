"""A notebook's kernel that does not outlive who started it: ``python -m klearlib.run.kernel_process
-f CONNECTION_FILE ...``.

ipykernel itself looks once a second whether its parent lives, in a thread that a long call into
compiled code holds up; here the kernel of the operating system sees to it, where it is Linux.
"""

from __future__ import annotations

import os

from klearlib.run.worker import PARENT, die_with


def main() -> None:
    """Tie this process to its parent, then be what ``python -m ipykernel_launcher`` is."""
    die_with(int(os.environ.pop(PARENT)))
    from ipykernel import kernelapp

    kernelapp.launch_new_instance()


if __name__ == "__main__":
    main()
