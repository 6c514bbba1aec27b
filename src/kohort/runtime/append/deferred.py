"""Replies that wait for the high watermark, in the order of the offsets they wait for."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kohort.machine.shard import After, Release, Reply

Answer = tuple[Reply[Any], Any]
"""Who is to be answered, and what."""


def answers(releases: Iterable[Release]) -> Iterator[Answer]:
    return ((release.reply, release.response) for release in releases)


class DeferredEvent:
    """
    One operation whose records are written and not yet committed, or that read what is not.

    `reply` is None when nobody waits any more: answered by a timeout, or parked by the shard.
    """

    __slots__ = ("after", "deadline_ms", "on_error", "releases", "reply", "response")

    def __init__(
        self,
        response: Any,
        reply: Reply[Any] | None,
        on_error: Callable[[Exception], Any],
        releases: Sequence[Release],
        after: After | None,
        deadline_ms: int,
    ) -> None:
        self.response = response
        self.reply = reply
        self.on_error = on_error
        self.releases = releases
        self.after = after
        self.deadline_ms = deadline_ms

    def complete(self, error: Exception | None) -> Iterator[Answer]:
        """
        Run what the shard wants to do now; who is to be answered, and with what.

        On an error those whom the result would have released are not answered: the shard's `after` decides about them.
        """
        if self.after is not None:
            yield from answers(self.after(error))
        reply, self.reply = self.reply, None
        if error is None:
            yield from answers(self.releases)
            if reply is not None:
                yield reply, self.response
        elif reply is not None:
            yield reply, self.on_error(error)

    def expire(self, error: Exception) -> Answer | None:
        """Answer with a timeout. The records stay where they are; completing later answers nobody."""
        reply, self.reply = self.reply, None
        return None if reply is None else (reply, self.on_error(error))


class DeferredBatch:
    """Operations that wait for one offset, and since when they do."""

    __slots__ = ("events", "offset", "since_ms")

    def __init__(self, offset: int, since_ms: int, events: list[DeferredEvent]) -> None:
        self.offset = offset
        self.since_ms = since_ms
        self.events = events


class DeferredQueue:
    """
    Operations by the offset that the high watermark must reach, oldest first.

    Source: Kafka DeferredEventQueue.
    """

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[DeferredBatch] = deque()

    def __len__(self) -> int:
        return sum(len(group.events) for group in self._queue)

    def add(self, offset: int, events: list[DeferredEvent], now_ms: int) -> None:
        """
        Raises:
            ValueError: `offset` is below one that waits already.
        """
        queue = self._queue
        if queue:
            newest = queue[-1]
            if offset < newest.offset:
                raise ValueError(f"cannot wait for offset {offset} behind {newest.offset}")
            if offset == newest.offset and now_ms == newest.since_ms:
                newest.events.extend(events)
                return
        queue.append(DeferredBatch(offset, now_ms, events))

    def take_up_to(self, offset: int) -> list[DeferredBatch]:
        """Whatever waits for `offset` or less, in order."""
        queue = self._queue
        taken: list[DeferredBatch] = []
        while queue and queue[0].offset <= offset:
            taken.append(queue.popleft())
        return taken

    def take_all(self) -> Iterator[DeferredEvent]:
        while self._queue:
            yield from self._queue.popleft().events

    def expired(self, now_ms: int) -> Iterator[tuple[DeferredEvent, int]]:
        """Whoever has waited too long, and since when; they stay in the queue."""
        for group in self._queue:
            for event in group.events:
                if event.reply is not None and event.deadline_ms <= now_ms:
                    yield event, group.since_ms

    @property
    def next_deadline_ms(self) -> int | None:
        """When the first that is still to be answered runs out of time."""
        return min(
            (event.deadline_ms for group in self._queue for event in group.events if event.reply is not None),
            default=None,
        )
