"""
Groups by topic: a change of a topic concerns only the groups that are subscribed to it.

Source: Kafka GroupMetadataManager.groupsByTopics.
"""

from collections.abc import Iterable

from kohort.machine.timeline import SnapshotRegistry, TimelineDict


class TopicIndex:
    """The ids of the groups of one shard that are subscribed to each topic. It is part of the hard state."""

    __slots__ = ("_groups", "_registry")

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._registry = registry
        self._groups: TimelineDict[str, TimelineDict[str, None]] = TimelineDict(registry)

    def add(self, topic: str, group_id: str) -> None:
        groups = self._groups.get(topic)
        if groups is None:
            groups = TimelineDict(self._registry)
            self._groups.put(topic, groups)
        groups.put(group_id, None)

    def remove(self, topic: str, group_id: str) -> None:
        groups = self._groups.get(topic)
        if groups is not None:
            groups.remove(group_id)
            if not groups:
                self._groups.remove(topic)

    def groups(self, topic: str) -> Iterable[str]:
        """The ids of the groups that are subscribed to the topic."""
        return tuple(self._groups.get(topic, ()))
