"""What an operation leaves to do when its records are committed: events to emit, parked requests to answer."""

from collections.abc import Iterable, Sequence

from kohort.group.events import GroupEvent, GroupEvents
from kohort.machine.shard import Release


class EmitEvents:
    """A `kohort.machine.shard.After` that emits events, unless the records could not be written."""

    __slots__ = ("_emit", "_events")

    def __init__(self, emit: GroupEvents, events: Sequence[GroupEvent]) -> None:
        self._emit = emit
        self._events = events

    def __call__(self, error: Exception | None) -> Iterable[Release]:
        if error is None:
            for event in self._events:
                self._emit(event)
        return ()


class AnswerParked:
    """A `kohort.machine.shard.After` that answers parked requests, whether the records could be written or not."""

    __slots__ = ("_releases",)

    def __init__(self, releases: Sequence[Release]) -> None:
        self._releases = releases

    def __call__(self, _error: Exception | None) -> Iterable[Release]:
        return self._releases
