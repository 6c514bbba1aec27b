"""The effects of the operations of group shards, which are events: counted, and passed on."""

from collections.abc import Callable, Sequence

from kohort.group.events import AssignmentStored, GroupEvent, GroupEvents
from kohort.group.metrics import GroupCounters


class GroupEffects:
    """
    The `on_effects` of a runtime of group shards: it hears of an event when the records of its operation are committed.

    Args:
        counters: those of a partition.
        events: the sink.
    """

    def __init__(self, counters: Callable[[int], GroupCounters], events: GroupEvents) -> None:
        self._counters = counters
        self._events = events

    def __call__(self, partition: int, effects: Sequence[GroupEvent], /) -> None:
        for event in effects:
            if type(event) is AssignmentStored:
                self._counters(partition).completed_rebalances += 1
            self._events(event)
