"""The rest of an operation, once its records are committed: events are emitted, parked requests are answered."""

from collections.abc import Iterable, Sequence

from kohort.group.events import GroupEvent, GroupEvents
from kohort.machine.shard import Release


def emit_all(emit: GroupEvents, events: Iterable[GroupEvent]) -> None:
    for event in events:
        emit(event)


class EmitEvents:
    """A `kohort.machine.shard.After` that emits events, unless the records could not be written."""

    __slots__ = ("_emit", "_events")

    def __init__(self, emit: GroupEvents, events: Sequence[GroupEvent]) -> None:
        self._emit = emit
        self._events = events

    def __call__(self, error: Exception | None) -> Iterable[Release]:
        if error is None:
            emit_all(self._emit, self._events)
        return ()


class AnswerParked:
    """A `kohort.machine.shard.After` that answers parked requests, whether the records could be written or not."""

    __slots__ = ("_releases",)

    def __init__(self, releases: Sequence[Release]) -> None:
        self._releases = releases

    def __call__(self, _error: Exception | None) -> Iterable[Release]:
        return self._releases
