"""Replies that wait for the high watermark, in the order of the offsets they wait for."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kohort.machine.shard import After, Release, Reply

Answer = tuple[Reply[Any], Any]
"""Who is to be answered, and what."""


def answers(releases: Iterable[Release]) -> Iterator[Answer]:
    return ((release.reply, release.response) for release in releases)


class Waiting:
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


class DeferredQueue:
    """
    Operations by the offset that the high watermark must reach, oldest first.

    Source: Kafka DeferredEventQueue.
    """

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[tuple[int, list[Waiting]]] = deque()

    def __len__(self) -> int:
        return sum(len(events) for _, events in self._queue)

    def add(self, offset: int, events: list[Waiting]) -> None:
        """
        Raises:
            ValueError: `offset` is below one that waits already.
        """
        queue = self._queue
        if queue:
            newest = queue[-1][0]
            if offset < newest:
                raise ValueError(f"cannot wait for offset {offset} behind {newest}")
            if offset == newest:
                queue[-1][1].extend(events)
                return
        queue.append((offset, events))

    def take_up_to(self, offset: int) -> list[Waiting]:
        """Whatever waits for `offset` or less, in order."""
        queue = self._queue
        taken: list[Waiting] = []
        while queue and queue[0][0] <= offset:
            taken += queue.popleft()[1]
        return taken

    def take_all(self) -> Iterator[Waiting]:
        while self._queue:
            yield from self._queue.popleft()[1]

    def expired(self, now_ms: int) -> Iterator[Waiting]:
        """Whoever has waited too long; they stay in the queue."""
        for _, events in self._queue:
            for event in events:
                if event.deadline_ms > now_ms:
                    return
                yield event

    @property
    def next_deadline_ms(self) -> int | None:
        """When the first that is still to be answered runs out of time."""
        for _, events in self._queue:
            for event in events:
                if event.reply is not None:
                    return event.deadline_ms
        return None
