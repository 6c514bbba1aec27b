"""
The owner of each partition in a group, as the epoch of the member that owns it.

A partition that a member has, or has yet to revoke, is not free: no other member gets it.

Source: Kafka ConsumerGroup.currentPartitionEpoch.
"""

from uuid import UUID

from kohort.group.assignors.specs import Assignment
from kohort.machine.timeline import SnapshotRegistry, TimelineDict
from kohort.model.errors import InvariantError


class PartitionOwners:
    """Epochs by topic and partition."""

    __slots__ = ("_by_topic", "_registry")

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._registry = registry
        self._by_topic: TimelineDict[UUID, TimelineDict[int, int]] = TimelineDict(registry)

    def is_free(self, topic_id: UUID, partition: int) -> bool:
        epochs = self._by_topic.get(topic_id)
        return epochs is None or partition not in epochs

    def add(self, assignment: Assignment, epoch: int) -> None:
        """
        Note a member's partitions.

        During the load of a log that was compacted meanwhile, the release of a partition may be missing. Its present owner then
        has the higher epoch.

        Raises:
            InvariantError: a partition has an owner of this epoch or a higher one.
        """
        for topic_id, partitions in assignment.items():
            epochs = self._by_topic.get(topic_id)
            if epochs is None:
                epochs = TimelineDict(self._registry)
                self._by_topic.put(topic_id, epochs)
            for partition in partitions:
                owner = epochs.get(partition)
                if owner is not None and owner >= epoch:
                    raise InvariantError(
                        f"partition {partition} of topic {topic_id} cannot pass to a member of epoch {epoch}: "
                        f"a member of epoch {owner} owns it"
                    )
            epochs.put_each(partitions, [epoch] * len(partitions))

    def remove(self, assignment: Assignment, epoch: int) -> None:
        """Release a member's partitions; a partition that another epoch owns stays with it."""
        for topic_id, partitions in assignment.items():
            epochs = self._by_topic.get(topic_id)
            if epochs is None:
                continue
            for partition in partitions:
                if epochs.get(partition) == epoch:
                    del epochs[partition]
            if not epochs:
                self._by_topic.remove(topic_id)
