"""
The same for many files, some at a time: a flush waits for the disk, and a file system flushes for all who wait at once.

A few are done one after the other, in order, by whoever asks.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

T = TypeVar("T")

THREADS = 16
"""With the one that asks."""
ITEMS_MIN = 64
"""From so many on threads are worth their while."""


def for_each(items: Sequence[T], action: Callable[[T], None]) -> None:
    """
    Do it for every item; everything is done on return, in no order where there are many.

    Raises:
        Exception: the first that an action raised. What was begun is over then, and nothing else is begun.
    """
    if len(items) < ITEMS_MIN:
        for item in items:
            action(item)
        return
    work = _Work(items, action)
    threads = []
    with suppress(RuntimeError):  # the system has no more threads for us: those that began do it all
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
    """What is left to do, shared by the threads that do it."""

    def __init__(self, items: Sequence[T], action: Callable[[T], None]) -> None:
        self._left = (partial(action, item) for item in items)
        self._taking = threading.Lock()
        self.errors: list[Exception] = []

    def run(self) -> None:
        while (job := self._take()) is not None:
            try:
                job()
            except Exception as error:  # noqa: BLE001 -- the edge of the thread: whoever waits raises it
                self.errors.append(error)

    def _take(self) -> Callable[[], None] | None:
        with self._taking:
            return None if self.errors else next(self._left, None)
