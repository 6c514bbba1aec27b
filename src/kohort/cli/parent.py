"""The end of the parent process, for `--exit-with-parent`: a test that was killed leaves no broker behind."""

import asyncio
import os
from collections.abc import Callable

from kohort.model.errors import ConfigError

POLL_SECONDS = 0.25
"""How often the parent is looked at where the system has no descriptors of processes."""


def watch_parent(loop: asyncio.AbstractEventLoop, on_exit: Callable[[], None]) -> None:
    """
    Call a function once when the process that started this one has ended. Its threads may end before.

    Raises:
        ConfigError: the parent is outside of the container of this process.
    """
    parent = os.getppid()
    if parent == 0:
        raise ConfigError("--exit-with-parent: the parent of this process is outside of its container")
    try:
        descriptor = os.pidfd_open(parent)
    except (AttributeError, OSError):  # not Linux, or the parent has ended
        _poll(loop, parent, on_exit)
        return

    def end() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        on_exit()

    loop.add_reader(descriptor, end)


def _poll(loop: asyncio.AbstractEventLoop, parent: int, on_exit: Callable[[], None]) -> None:
    if os.getppid() == parent:
        loop.call_later(POLL_SECONDS, _poll, loop, parent, on_exit)
    else:
        on_exit()
