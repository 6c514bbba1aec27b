"""Errors that end a measure of one rival. The other rivals continue."""

import subprocess
from typing import Final

import psutil

from bench.load.client import RefusedError
from bench.load.closed_loop import LoadError
from bench.servers.process import ServerError
from kohort.model.errors import WireError

FAILURES: Final = (
    LoadError,
    RefusedError,
    ServerError,
    WireError,
    OSError,  # connections refused, reset, too slow; the disk full
    psutil.Error,  # the process has ended
    subprocess.SubprocessError,
)

_REASON_CHARACTERS: Final = 160


def reason(error: BaseException) -> str:
    """Return one line: the last line of the output of a server or a program, or the first line of the error."""
    output = error.stderr if isinstance(error, subprocess.CalledProcessError) else None
    said = output.decode(errors="replace") if isinstance(output, bytes) else output
    lines = [it.strip() for it in (said or str(error)).splitlines() if it.strip()]
    if not lines:
        return type(error).__name__
    return (lines[-1] if said or isinstance(error, ServerError) else lines[0])[:_REASON_CHARACTERS]
