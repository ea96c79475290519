"""What both kinds of judge have in common in their process: ``python -m MODULE PARENT_PID`` reads
one JSON job a line from standard input and writes one JSON reply a line.

`pool` starts it, owns its clock and kills it at the deadline, so a job may hang or crash there.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

from klearlib.errors import MissingAsset
from klearlib.run.stops import die_with


def serve(
    parent_pid: int,
    judge: Callable[[dict], dict],
    *,
    prepare: Callable[[], None] = lambda: None,
    is_worn_out: Callable[[], bool] = lambda: False,
) -> int:
    """Reply to jobs until standard input ends; the exit status.

    The first line is ``{"ready": true}``, or, where `prepare` raises MissingAsset, its message as
    ``{"fatal": message}``. A reply has its job's ``id``. After a job for which memory did not
    suffice, or after which `is_worn_out`, the process ends: the pool starts a fresh one.
    """
    die_with(parent_pid)
    # Replies get a descriptor of their own: parsers print to standard output.
    replies = os.dup(1)
    os.dup2(2, 1)

    def reply(record: dict) -> None:
        line = memoryview(json.dumps(record).encode() + b"\n")
        while line:
            line = line[os.write(replies, line) :]

    try:
        prepare()
    except MissingAsset as error:
        reply({"fatal": str(error)})
        return 1
    reply({"ready": True})
    for line in sys.stdin.buffer:
        job = json.loads(line)
        number = job.pop("id")
        try:
            reply({"id": number, **judge(job)})
        except MemoryError:
            return 1
        if is_worn_out():
            break
    return 0
