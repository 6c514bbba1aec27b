"""
An action on many files, on several threads: a flush waits for the disk, and a file system serves waiting flushes together.

Beside an event loop the calling thread handles the first files alone, and so learns how long one takes. On a quick disk it
handles all of them: after each call of the system a thread waits for the interpreter, and with sixteen threads in that queue
the event loop had a turn in a millisecond, for as long as the flush of a checkpoint took.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Final, TypeVar

T = TypeVar("T")

THREADS_MAX: Final = 16
"""The calling thread included."""
THREAD_S: Final = 0.001
"""There is a thread for each such time that an item takes, so that a thousand items a second ask for the interpreter."""
TRIED: Final = 16
"""How many items the calling thread handles alone, in order."""


def for_each(
    items: Sequence[T],
    action: Callable[[T], None],
    *,
    is_alone: bool = False,
    now: Callable[[], float] = time.perf_counter,
) -> None:
    """
    Run an action for every item. All are finished on return; the order is not defined behind the first `TRIED` items.

    Args:
        is_alone: whether no other thread needs the interpreter: all threads are used, on a quick disk too.
        now: the time in seconds, for measuring actions.

    Raises:
        Exception: the first error of an action. Running actions have ended then, and no further one was started.
    """
    left = iter(items)
    began_s = now()
    for item in islice(left, TRIED):
        action(item)
    if len(items) <= TRIED:
        return
    wanted = THREADS_MAX if is_alone else min(int((now() - began_s) / TRIED / THREAD_S), THREADS_MAX)
    work = _Work(left, action)
    threads = []
    with suppress(RuntimeError):  # no more threads can be started: the running ones do the work
        for number in range(1, min(wanted, len(items) - TRIED)):
            thread = threading.Thread(target=work.run, name=f"kohort-each-{number}")
            thread.start()
            threads.append(thread)
    work.run()
    for thread in threads:
        thread.join()
    if work.errors:
        raise work.errors[0]


class _Work:
    """The remaining items, shared by the threads."""

    def __init__(self, items: Iterable[T], action: Callable[[T], None]) -> None:
        self._left = (partial(action, item) for item in items)
        self._taking = threading.Lock()
        self.errors: list[Exception] = []

    def run(self) -> None:
        while (job := self._take()) is not None:
            try:
                job()
            except Exception as error:  # noqa: BLE001 -- the edge of the thread: `for_each` raises the error
                self.errors.append(error)

    def _take(self) -> Callable[[], None] | None:
        with self._taking:
            return None if self.errors else next(self._left, None)
