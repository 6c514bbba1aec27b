"""Processes beside the broker for long work on files. A thread would take the interpreter from those that serve clients."""

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import subprocess

NICENESS: Final = 19


def start_python(*arguments: str, answers: bool) -> "subprocess.Popen[bytes]":
    """
    Start a Python that has the modules of this one, and lets the broker go first.

    Args:
        arguments: behind the options of the interpreter.
        answers: whether its output is read; it writes to that of the broker otherwise.

    Raises:
        OSError: too many processes or open files.
    """
    import subprocess  # few starts need it

    process = subprocess.Popen(
        (sys.executable, "-P", *arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if answers else None,
        # Not a session of its own: Linux weighs the sessions first, and niceness within one only.
        process_group=0,
    )
    _give_way(process.pid)
    return process


def _give_way(process_id: int) -> None:
    """
    Let the broker go first, from the imports of the process on: a thread of the broker waits for no time slice of it then.

    On a single processor the process keeps a small share, or the logs of a broker that is always busy would never be cleaned.
    """
    with suppress(OSError):  # it has ended, or a sandbox forbids it
        os.setpriority(os.PRIO_PROCESS, process_id, NICENESS)
        if sys.platform == "linux" and len(os.sched_getaffinity(0)) > 1:
            os.sched_setscheduler(process_id, os.SCHED_IDLE, os.sched_param(0))
