"""
Loads of partitions while clients are served: on a thread of their own, because the disk may hang.

The owner's thread waits for a load for some milliseconds, which is enough on a disk that answers. A load that takes longer goes
on, and its result is kept for the next request of the partition; until it has ended the owner waits for no other load.
"""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Final, Generic, TypeVar

from kohort.model.errors import UnavailableError
from kohort.model.ids import TopicPartition
from kohort.storage.durability.flusher import BackgroundThread

T = TypeVar("T")

LOAD_WAIT_S: Final = 0.02
"""The longest wait of the thread that serves clients for the load of a partition."""


class LoadingError(UnavailableError):
    """A partition is being loaded."""


class Loads(Generic[T]):
    """
    The loads of one data directory, one after the other. Not thread-safe: call from the owner's thread.

    Args:
        load: loads a partition, on any thread.
    """

    def __init__(self, load: Callable[[TopicPartition], T]) -> None:
        self._wait_s: float | None = None
        self._load: Final = load
        self._thread: Final = BackgroundThread("kohort-load")
        self._futures: dict[TopicPartition, Future[T]] = {}
        """Loads whose results were not taken."""
        self._late: Future[T] | None = None
        """The last load that took longer than the owner waited."""

    def start(self, wait_s: float | None) -> None:
        """Load on the other thread from now on, and wait so long for it; None loads on the owner's thread."""
        self._wait_s = wait_s

    def get(self, topic_partition: TopicPartition) -> T:
        """
        The result of a load, which begins unless it is under way.

        Raises:
            LoadingError: it takes longer; the next call gets its result.
            Exception: the load has failed; the next call begins another one.
        """
        future = self._futures.get(topic_partition)
        if future is None:
            if self._wait_s is None:
                return self._load(topic_partition)
            future = self._futures[topic_partition] = Future()
            self._thread.submit(partial(self._run, future, topic_partition))
        is_late = self._late is not None and not self._late.done()
        try:
            future.exception(0 if is_late else self._wait_s)
        except TimeoutError:
            self._late = future
            raise LoadingError(f"{topic_partition} is being loaded: the disk has not answered yet") from None
        del self._futures[topic_partition]
        return future.result()

    def _run(self, future: Future[T], topic_partition: TopicPartition) -> None:
        """On the thread of the loads."""
        try:
            future.set_result(self._load(topic_partition))
        except Exception as exc:  # noqa: BLE001 -- raised again by `get`
            future.set_exception(exc)

    def when_done(self, topic_partition: TopicPartition, action: Callable[[], None]) -> None:
        """Call `action` when a load that is under way has ended, on any thread."""
        self._futures[topic_partition].add_done_callback(lambda _future: action())

    def stop(self, timeout_s: float) -> list[TopicPartition]:
        """
        End the thread; returns the partitions whose results were not taken.

        Raises:
            UnavailableError: a load lasts longer than `timeout_s`.
        """
        if not self._thread.stop(timeout_s):
            raise UnavailableError(f"the disk has not answered for {timeout_s} s, in the load of a partition")
        return list(self._futures)
