"""
The group epoch: when it rises without a heartbeat (`steps.py` has that one), and the metadata hash that is written with it.

Source: Kafka GroupMetadataManager.consumerGroupFenceMembers, handleRegularExpressionsResult.
"""

from collections.abc import Iterable, Mapping

from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.member import ConsumerMember
from kohort.group.consumer.registry import REFRESH_INTERVAL_MS, ConsumerRegistry
from kohort.group.consumer.subscriptions import UNRESOLVED, ResolvedPattern, SubscriptionView
from kohort.group.events import EpochRaised, GroupEvent
from kohort.group.records import GroupRecord
from kohort.records.values import ConsumerGroupMetadata, ConsumerGroupPartitionMetadataTombstone


def epoch_without(
    registry: ConsumerRegistry, group: ConsumerGroup, removed: Iterable[ConsumerMember], records: list[GroupRecord]
) -> int:
    """Raise the epoch because members were removed; the next heartbeat computes the target assignment."""
    view = SubscriptionView(group.subscriptions, removed)
    epoch = group.epoch.get() + 1
    drop_partition_metadata(group, records)
    records.append(ConsumerGroupMetadata(group.group_id, epoch, registry.metadata_hash(view.topics)))
    return epoch


def epoch_with_patterns(
    registry: ConsumerRegistry,
    group: ConsumerGroup,
    resolved: Mapping[str, ResolvedPattern],
    member_id: str,
    now_ms: int,
    records: list[GroupRecord],
    events: list[GroupEvent],
) -> None:
    """
    Raise the epoch if patterns match other topics than until now, or if the topics changed since it was written.

    It also rises if a member changed to a pattern that matches none of its former topics. Kafka leaves the partitions of such
    topics in the member's target, where nobody reads them.
    """
    known = group.subscriptions.resolved
    is_changed = any(
        topics.topics != known.get(pattern, UNRESOLVED).topics for pattern, topics in resolved.items()
    ) or _has_foreign_target(registry, group, {name: resolved[name] for name in resolved if name not in known})
    view = SubscriptionView(group.subscriptions, (), resolved={**known, **resolved})
    metadata_hash = registry.metadata_hash(view.topics)
    if not is_changed and metadata_hash == group.metadata_hash.get():
        return
    epoch = group.epoch.get() + 1
    records.append(ConsumerGroupMetadata(group.group_id, epoch, metadata_hash))
    events.append(EpochRaised(group.group_id, epoch, member_id))
    group.refresh_at_ms = now_ms + REFRESH_INTERVAL_MS
    group.refresh_epoch = epoch


def _has_foreign_target(
    registry: ConsumerRegistry, group: ConsumerGroup, resolved: Mapping[str, ResolvedPattern]
) -> bool:
    """Whether a member with one of these patterns has a topic in its target that it is not subscribed to."""
    if not resolved:
        return False
    for member in group.members.values():
        pattern = resolved.get(member.topic_pattern)
        target = group.targets.get(member.member_id)
        if pattern is not None and target:
            topic_ids = registry.topic_ids(member.topic_names | pattern.topics)
            if any(topic_id not in topic_ids for topic_id in target):
                return True
    return False


def view_after(group: ConsumerGroup, updated: ConsumerMember) -> SubscriptionView:
    """The subscriptions with `updated` in place of itself, or of the static member whose instance id it takes over."""
    old = group.members.get(updated.member_id) or group.static_member(updated.instance_id)
    return SubscriptionView(group.subscriptions, () if old is None else (old,), updated)


def drop_partition_metadata(group: ConsumerGroup, records: list[GroupRecord]) -> None:
    """Remove the record in which Kafka 4.0 kept the topics of a group, in place of a hash."""
    if group.has_partition_metadata.get():
        records.append(ConsumerGroupPartitionMetadataTombstone(group.group_id))
