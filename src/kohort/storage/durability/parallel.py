"""
An action on many files, on several threads: a flush waits for the disk, and a file system serves waiting flushes together.

The calling thread handles a small number of files alone and in order.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

T = TypeVar("T")

THREADS = 16
"""The calling thread included."""
ITEMS_MIN = 64
"""From this number of items on, threads are used."""


def for_each(items: Sequence[T], action: Callable[[T], None]) -> None:
    """
    Run an action for every item. All are finished on return; the order is not defined for `ITEMS_MIN` items or more.

    Raises:
        Exception: the first error of an action. Running actions have ended then, and no further one was started.
    """
    if len(items) < ITEMS_MIN:
        for item in items:
            action(item)
        return
    work = _Work(items, action)
    threads = []
    with suppress(RuntimeError):  # no more threads can be started: the running ones do the work
        for number in range(1, THREADS):
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

    def __init__(self, items: Sequence[T], action: Callable[[T], None]) -> None:
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
