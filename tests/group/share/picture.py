"""The whole hard state of share groups as a value."""

from typing import Any

from kohort.group.shard import GroupShard
from kohort.group.share.group import ShareGroup
from kohort.group.share.registry import registry_of


def picture(shard: GroupShard) -> dict[str, Any]:
    """Every share group of the shard, the groups of each topic, and those with states of each topic."""
    registry = registry_of(shard)
    groups = {group_id: group for group_id, group in shard.groups.items() if isinstance(group, ShareGroup)}
    names = {name for group in groups.values() for name in group.subscriptions.names}
    topic_ids = {topic_id for group in groups.values() for topic_id in group.known_states.topic_ids}
    return {
        "groups": {group_id: group_picture(group) for group_id, group in groups.items()},
        "index": {name: sorted(registry.index.groups(name)) for name in sorted(names)},
        "with_states": {each: sorted(registry.with_states.groups(each.hex)) for each in sorted(topic_ids)},
    }


def group_picture(group: ShareGroup) -> dict[str, Any]:
    states = group.states.get()
    return {
        "state": group.state_name,
        "epoch": group.epoch.get(),
        "assignment_epoch": group.assignment_epoch.get(),
        "assigned_at_ms": group.assigned_at_ms.get(),
        "metadata_hash": group.metadata_hash.get(),
        "members": dict(group.members),
        "targets": dict(group.targets),
        "names": dict(group.subscriptions.names),
        "states": states,
    }
