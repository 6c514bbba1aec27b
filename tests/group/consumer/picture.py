"""The whole hard state of consumer groups as a value, shards that are loaded from records, and the rules of compaction."""

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

from kohort.group.assignors.specs import Assignment
from kohort.group.configs import GroupConfig
from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.registry import registry_of
from kohort.group.records import GroupRecord
from kohort.group.shard import GroupShard
from kohort.machine.timeline import SnapshotRegistry
from kohort.model.image import ClusterImage
from kohort.testing.watched import NoDeadlines
from tests.group.harness import Image

Pair = tuple[bytes, bytes | None]


def picture(shard: GroupShard) -> dict[str, Any]:
    """Every consumer group of the shard, and the groups of each topic."""
    groups = {
        group_id: group_picture(group) for group_id, group in shard.groups.items() if isinstance(group, ConsumerGroup)
    }
    index = registry_of(shard).index
    topics = {topic for group in groups.values() for topic in (*group["names"], *group["matches"])}
    return {"groups": groups, "index": {topic: sorted(index.groups(topic)) for topic in sorted(topics)}}


def group_picture(group: ConsumerGroup) -> dict[str, Any]:
    subscriptions = group.subscriptions
    return {
        "state": group.state_name,
        "epoch": group.epoch.get(),
        "assignment_epoch": group.assignment_epoch.get(),
        "metadata_hash": group.metadata_hash.get(),
        "members": dict(group.members),
        "static_members": dict(group.static_members),
        "assigned_at_ms": group.assigned_at_ms.get(),
        "targets": dict(group.targets),
        "owners": {topic: dict(epochs) for topic, epochs in group.owners._by_topic.items()},
        "has_partition_metadata": group.has_partition_metadata.get(),
        "names": dict(subscriptions.names),
        "patterns": dict(subscriptions.patterns),
        "resolved": dict(subscriptions.resolved),
        "matches": dict(subscriptions.matches),
    }


def loaded(records: Iterable[GroupRecord], image: ClusterImage | None = None) -> GroupShard:
    """A shard that has replayed these records, and is active."""
    shard = GroupShard(SnapshotRegistry(), NoDeadlines(), GroupConfig(), lambda: "uuid")
    for offset, record in enumerate(records):
        shard.replay(offset, -1, -1, record)
    shard.on_loaded(Image() if image is None else image, 0)
    return shard


def compacted(pairs: Sequence[Pair], chance: Random) -> list[int]:
    """
    The positions of the records that a reader may find after a compaction, in order.

    The log is clean up to a random point: of each key only the last record before that point is left. Tombstones before
    a second point have gone, too. A reader that began before the compaction has seen whole segments up to a third point, and
    these tombstones are then still there.

    Source: Kafka Cleaner, UnifiedLog; `delete.retention.ms` keeps tombstones for readers that have begun.
    """
    clean_end = chance.randint(0, len(pairs))
    read_before = chance.choice((0, 0, chance.randint(0, clean_end)))
    tombstones_end = 0 if read_before else chance.randint(0, clean_end)
    last = {key: position for position, (key, _) in enumerate(pairs[:clean_end])}
    return [
        position
        for position, (key, value) in enumerate(pairs)
        if position < read_before
        or position >= clean_end
        or (last[key] == position and (value is not None or position >= tombstones_end))
    ]


def size(assignment: Assignment) -> int:
    return sum(map(len, assignment.values()))
