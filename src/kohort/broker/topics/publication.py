"""
Topics that Metadata has created, and does not name yet.

Kafka's controller creates a topic at once: a CreateTopics that follows is answered TOPIC_ALREADY_EXISTS, a DeleteTopics deletes
it. The brokers hear of it later, some 30 ms on a quiet machine (4.2.1). A client that asks again at once thus hears
UNKNOWN_TOPIC_OR_PARTITION a second time. Group readers of kafka-go rely on it: they look for changes from the second answer on.
Clients that retry after a back-off of 50 or 100 ms lose no time.
"""

from typing import Final
from uuid import UUID

from kohort.broker.catalog.view import Topic
from kohort.model.limits import UNPUBLISHED_TOPICS_MAX
from kohort.runtime.ports import Clock

HIDDEN_MS: Final = 40
"""How long a topic is not named after the request that has created it."""


class Publication:
    """The topics that are hidden. They are few, and none at most times."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[UUID, int] = {}
        """By topic id, oldest first."""

    def begin(self, topic_id: UUID) -> None:
        """Hide a topic that is being created."""
        if len(self._until) >= UNPUBLISHED_TOPICS_MAX:
            del self._until[next(iter(self._until))]
        self._until[topic_id] = self._clock.now_ms() + HIDDEN_MS

    def hides(self, topic: Topic) -> bool:
        if not self._until:
            return False
        now_ms = self._clock.now_ms()
        while self._until and now_ms >= self._until[first := next(iter(self._until))]:
            del self._until[first]
        return topic.topic_id in self._until
