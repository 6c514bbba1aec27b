"""
The place of a process, for other processes of the same machine: a node that was killed can take its row back at once.

A process is named by the boot of the machine, the namespace of process ids, its id and its start time. If all of these are
comparable and no such process is there, it has ended, and answers nothing any more.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from kohort.storage.shared import Registration

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_START_TIME_AT: Final = 19
"""The place of the start time among the fields of `/proc/PID/stat` that follow the name of the program."""


def this_process() -> str:
    """The place of this process; empty where the operating system does not tell."""
    return f"{_machine()} {os.getpid()} {started}" if (started := _started(os.getpid())) and _machine() else ""


def is_dead(registration: Registration) -> bool:
    """Whether the process of a registration has surely ended."""
    parts = registration.process.split()
    if len(parts) != len(_machine().split()) + 2 or not _machine():
        return False
    *machine, pid, started = parts
    if " ".join(machine) != _machine() or not pid.isdecimal():
        return False
    return _started(int(pid)) != started


def _machine() -> str:
    """The boot of the machine, and the namespace of process ids."""
    with suppress(OSError):
        return f"{_BOOT_ID.read_text().strip()} {Path('/proc/self/ns/pid').readlink()}"
    return ""


def _started(pid: int) -> str:
    """The start time of a process, in ticks since the boot; empty if there is none of this id."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[_START_TIME_AT]
    return ""
