"""What both kinds of judge have in common in their process: ``python -m MODULE PARENT DESCRIPTOR``
receives JSON jobs over a connection, one after the other, and sends a JSON reply to each.

`pool` starts it, owns its clock and kills it at the deadline, so a job may hang or crash there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection

from klearlib.errors import MissingAsset
from klearlib.run.stops import die_with


def serve(
    judge: Callable[[dict], dict],
    *,
    prepare: Callable[[], None] = lambda: None,
    is_worn_out: Callable[[], bool] = lambda: False,
) -> int:
    """Reply to jobs until the other end is closed; the exit status.

    The first message is ``{"ready": true}``, or, where `prepare` raises MissingAsset, its message
    as ``{"fatal": message}``. A reply has its job's ``id``. After a job for which memory did not
    suffice, or after which `is_worn_out`, the process ends: the pool starts a fresh one.
    """
    parent, descriptor = map(int, sys.argv[1:])
    die_with(parent)
    connection = Connection(descriptor)

    def reply(record: dict) -> None:
        connection.send_bytes(json.dumps(record).encode())

    try:
        prepare()
    except MissingAsset as error:
        reply({"fatal": str(error)})
        return 1
    reply({"ready": True})
    while not is_worn_out():
        try:
            job = json.loads(connection.recv_bytes())
            reply({"id": job.pop("id"), **judge(job)})
        except EOFError:
            return 0
        except MemoryError:
            return 1
    return 0
