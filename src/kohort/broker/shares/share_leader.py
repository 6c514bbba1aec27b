"""
The share partitions that one broker leads, by group, topic and partition.

Source: Kafka SharePartitionManager, SharePartitionCache.
"""

from __future__ import annotations

from uuid import UUID

from kohort.broker.partitions.partitions import LocalPartitions, Partition
from kohort.broker.shares.led_share_partition import LeaderServices, LedSharePartition
from kohort.broker.shares.share_sessions import ShareSession
from kohort.machine.ports import SharePartitionKey
from kohort.model.errors import ErrorCode
from kohort.model.image import ImageDelta


class ShareLeader:
    """The share partitions in memory."""

    def __init__(self, partitions: LocalPartitions, services: LeaderServices) -> None:
        self._partitions = partitions
        self._services = services
        self._led: dict[str, dict[tuple[UUID, int], LedSharePartition]] = {}
        """By group."""

    def __len__(self) -> int:
        return sum(map(len, self._led.values()))

    def all(self) -> list[LedSharePartition]:
        """The share partitions in memory."""
        return [led for of_group in self._led.values() for led in of_group.values()]

    def find(self, group_id: str, topic_id: UUID, index: int) -> LedSharePartition | None:
        """A share partition in memory, with which all is well."""
        led = self._led.get(group_id, {}).get((topic_id, index))
        return None if led is None or led.partition.topic.is_deleted else led

    def of(self, group_id: str, topic_id: UUID, partition: Partition) -> LedSharePartition:
        """A share partition of a partition that this broker leads, in memory from now on."""
        index = partition.topic_partition.partition
        led = self.find(group_id, topic_id, index)
        if led is not None:
            if led.is_of(partition):
                return led
            led.drop(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        led = LedSharePartition(SharePartitionKey(group_id, topic_id, index), partition, self._services, self._forget)
        self._led.setdefault(group_id, {})[topic_id, index] = led
        led.load()
        return led

    def _forget(self, led: LedSharePartition) -> None:
        """Forget a share partition that was dropped."""
        group_id, topic_id, index = led.key
        of_group = self._led.get(group_id, {})
        if of_group.get((topic_id, index)) is led:
            del of_group[topic_id, index]
            if not of_group:
                del self._led[group_id]

    def check(self, led: LedSharePartition) -> None:
        """Drop a share partition whose partition was deleted, has failed, or has another leader by now."""
        partition = led.partition
        if partition.topic.is_deleted:
            led.drop(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif partition.leader_id != self._partitions.node_id or not led.is_of(partition):
            led.drop(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif partition.log.refusal is not None:
            led.drop(ErrorCode.KAFKA_STORAGE_ERROR)

    def drop_group(self, group_id: str) -> None:
        """Drop the share partitions of a group whose last session ended with its connection."""
        for led in list(self._led.get(group_id, {}).values()):
            led.drop(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def clear(self) -> None:
        """Drop all, as a restart does."""
        for group_id in list(self._led):
            self.drop_group(group_id)

    def release(self, session: ShareSession) -> None:
        """Release what the member of a session that has ended holds in its partitions."""
        for topic_id, index in session.partitions:
            led = self.find(session.group_id, topic_id, index)
            if led is not None:
                led.release(session.member_id)

    def on_change(self, delta: ImageDelta) -> None:
        """Drop the share partitions of deleted topics."""
        deleted = {topic.topic_id for topic in delta.deleted}
        if deleted:
            for led in self.all():
                if led.key.topic_id in deleted:
                    led.drop(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
