"""
Questions to the disk while clients are served: they are asked on a thread of their own, because the disk may hang.

The owner's thread waits for an answer for some milliseconds, which is enough on a disk that answers. A call that takes longer
goes on, and its answer is kept for whoever asks again; until it has ended the owner waits for none behind it.
"""

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from functools import partial
from typing import Final, Generic, TypeVar

from kohort.model.errors import NotYetError, UnavailableError
from kohort.storage.durability.flusher import BackgroundThread

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

WAIT_S: Final = 0.02
"""The longest wait of the thread that serves clients for an answer."""


class BriefWaits(Generic[K, T]):
    """
    Calls of one kind, one after the other. Not thread-safe: call from the owner's thread.

    Args:
        name: of the thread.
        call: asks the disk about something, on any thread.
    """

    def __init__(self, name: str, call: Callable[[K], T]) -> None:
        self._wait_s: float | None = None
        self._call: Final = call
        self._thread: Final = BackgroundThread(name)
        self._futures: dict[K, Future[T]] = {}
        """Calls whose answers were not taken."""
        self._late: Future[T] | None = None
        """The last call that took longer than the owner waited."""

    def start(self, wait_s: float | None) -> None:
        """Call on the other thread from now on, and wait so long for it; None calls on the owner's thread."""
        self._wait_s = wait_s

    def get(self, key: K) -> T:
        """
        The answer of a call, which begins unless it is under way.

        Raises:
            NotYetError: it takes longer; the next `get` takes its answer.
            Exception: the call has failed; the next `get` calls again.
        """
        future = self._futures.get(key)
        if future is None:
            if self._wait_s is None:
                return self._call(key)
            future = self._futures[key] = Future()
            self._thread.submit(partial(self._run, future, key))
        is_late = self._late is not None and not self._late.done()
        try:
            future.exception(0 if is_late else self._wait_s)
        except TimeoutError:
            self._late = future
            raise NotYetError(f"{key} cannot be used yet: the disk has not answered") from None
        del self._futures[key]
        return future.result()

    def _run(self, future: Future[T], key: K) -> None:
        """On the thread of the calls."""
        try:
            future.set_result(self._call(key))
        except Exception as exc:  # noqa: BLE001 -- raised again by `get`
            future.set_exception(exc)

    def when_done(self, key: K, action: Callable[[], None]) -> None:
        """Run `action` when a call that is under way has ended, on any thread."""
        self._futures[key].add_done_callback(lambda _future: action())

    def stop(self, timeout_s: float) -> list[K]:
        """
        End the thread, and call on the owner's thread from now on. Returns the keys whose answers were not taken.

        Raises:
            UnavailableError: a call lasts longer than `timeout_s`.
        """
        self._wait_s = None
        if not self._thread.stop(timeout_s):
            raise UnavailableError(f"the disk has not answered for {timeout_s} s")
        return list(self._futures)
