"""
What the commands ask about groups: which there are, what they are doing, where they stand.

A group is described as Kafka's admin client does it: first as a consumer group of KIP-848, and if the coordinator knows none
under that id, as a classic group.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from kohort.cli.topics import reads
from kohort.client.cluster import Client
from kohort.client.connection import ANY, Versions, refusal
from kohort.model.errors import ConfigError, ErrorCode, WireError
from kohort.model.ids import TopicPartition
from kohort.wire import messages
from kohort.wire.apis import ApiKey

DEAD = "Dead"
"""The state in which a classic group is described that does not exist (DescribeGroups before version 6)."""

EMPTY = "Empty"
"""The state of a group without members."""

CONSUMER = "consumer"
"""The protocol type of a classic group whose members are consumers."""

_TYPES = ("", "classic", CONSUMER)
"""Types of groups that have offsets and members of the sort described here; brokers before 3.8 tell none."""

_WITH_STATES = Versions(4, 1 << 15)
"""Versions of ListGroups that can be asked for some states."""

_BY_GROUP_AND_NAME = Versions(8, 9)
"""Versions of OffsetFetch that take groups and answer with names of topics; from 10 on it answers with their ids."""


class GroupMember(NamedTuple):
    """
    A member and what it has been given.

    Attributes:
        assignment: None where the bytes are not those of a consumer (Kafka Connect, for one, writes its own).
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    subscription: list[str] | None
    assignment: list[TopicPartition] | None


class Group(NamedTuple):
    """A group as its coordinator describes it; `type` is "classic" or "consumer", `epoch` None for classic groups."""

    group: str
    type: str
    state: str
    protocol: str
    epoch: int | None
    members: list[GroupMember]

    @property
    def is_empty(self) -> bool:
        return self.state in (EMPTY, DEAD)


def listed_groups(client: Client, states: list[str]) -> list[Any]:
    """
    All groups of all brokers, in the order of their ids; with `states`, those in one of them.

    Raises:
        CoordinatorError: a broker cannot tell.
    """
    found: dict[str, Any] = {}
    for address in client.brokers().values():
        request = messages.ListGroupsRequest(states_filter=states)
        response = client.ask(ApiKey.LIST_GROUPS, request, at=address, within=_WITH_STATES if states else ANY)
        if response.error_code:
            raise refusal(response.error_code, f"groups of the broker at {address}")
        found.update((group.group_id, group) for group in response.groups)
    return [found[group_id] for group_id in sorted(found)]


def described_group(client: Client, group_id: str) -> Group:
    """
    What a group is doing.

    Raises:
        ConfigError: there is no such group, or it is one of share consumers or streams.
    """
    found = found_group(client, group_id)
    if found is None:
        raise unknown_group(client, group_id)
    return found


def found_group(client: Client, group_id: str) -> Group | None:
    """As `described_group`, None when there is no such classic or consumer group."""
    return _consumer_group(client, group_id) or _classic_group(client, group_id)


def all_groups(client: Client) -> list[str]:
    """The ids of all classic and consumer groups."""
    return [group.group_id for group in listed_groups(client, []) if group.group_type.lower() in _TYPES]


def consumers_groups(client: Client) -> list[str]:
    """As `all_groups`, without those of others than consumers: the workers of Kafka Connect, for one, form classic groups."""
    return [
        group.group_id
        for group in listed_groups(client, [])
        if group.group_type.lower() in _TYPES and group.protocol_type in ("", CONSUMER)
    ]


def standing(client: Client, group_id: str, assigned: Iterable[TopicPartition] = ()) -> list[dict[str, Any]]:
    """
    Where a group stands: one row a partition, with `end_offset` and `lag`, both None where the partition is no more.

    The same fields, and the same rule for lag (never below 0), as the tables of `kohort pipeline`.

    Args:
        assigned: partitions that have a row even if nothing was committed; `offset` is None then.
    """
    committed = committed_offsets(client, group_id)
    wanted = sorted({*committed, *assigned})
    ends = reads.offsets(client, reads.existing_topics(client, {each.topic for each in wanted}), reads.LATEST)
    return [_row(group_id, each, committed.get(each), ends.get(each)) for each in wanted]


def _row(group_id: str, topic_partition: TopicPartition, committed: Any, end_offset: int | None) -> dict[str, Any]:
    offset = committed.committed_offset if committed else None
    return {
        "group": group_id,
        "topic": topic_partition.topic,
        "partition": topic_partition.partition,
        "offset": offset,
        "leader_epoch": committed.committed_leader_epoch if committed else None,
        "metadata": committed.metadata if committed else None,
        "end_offset": end_offset,
        "lag": None if end_offset is None or offset is None else max(0, end_offset - offset),
    }


def committed_offsets(client: Client, group_id: str) -> dict[TopicPartition, Any]:
    """
    What a group has committed, as OffsetFetch for all topics has it; nothing for a group that does not exist, too.

    Raises:
        ConfigError: the coordinator says that there is no such group.
    """
    request = messages.OffsetFetchRequest(
        groups=[messages.OffsetFetchRequestGroup(group_id=group_id, member_id=None, member_epoch=-1, topics=None)]
    )
    response = client.ask_coordinator(
        group_id,
        ApiKey.OFFSET_FETCH,
        request,
        error_code=lambda answer: answer.groups[0].error_code,
        within=_BY_GROUP_AND_NAME,
    )
    (group,) = response.groups
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise unknown_group(client, group_id)
    if group.error_code:
        raise refusal(group.error_code, f"offsets of group {group_id}")
    return {
        TopicPartition(topic.name, partition.partition_index): partition
        for topic in group.topics
        for partition in topic.partitions
        if partition.committed_offset >= 0
    }


def _consumer_group(client: Client, group_id: str) -> Group | None:
    """The group as ConsumerGroupDescribe has it, None when it is of another kind or the broker does not know the API."""
    if not client.serves(ApiKey.CONSUMER_GROUP_DESCRIBE):
        return None
    request = messages.ConsumerGroupDescribeRequest(group_ids=(group_id,))
    response = client.ask_coordinator(
        group_id, ApiKey.CONSUMER_GROUP_DESCRIBE, request, error_code=lambda answer: answer.groups[0].error_code
    )
    (group,) = response.groups
    if group.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    if group.error_code:
        raise refusal(group.error_code, f"group {group_id}", group.error_message)
    members = [_consumer_member(member) for member in group.members]
    return Group(group_id, "consumer", group.group_state, group.assignor_name, group.group_epoch, members)


def _consumer_member(member: Any) -> GroupMember:
    assigned = [
        TopicPartition(topic.topic_name, partition)
        for topic in member.assignment.topic_partitions
        for partition in topic.partitions
    ]
    regex = [member.subscribed_topic_regex] if member.subscribed_topic_regex else []
    subscription = sorted(member.subscribed_topic_names) + regex
    return GroupMember(
        member.member_id, member.instance_id, member.client_id, member.client_host, subscription, sorted(assigned)
    )


def _classic_group(client: Client, group_id: str) -> Group | None:
    """The group as DescribeGroups has it, None when there is no such classic group."""
    response = client.ask_coordinator(
        group_id,
        ApiKey.DESCRIBE_GROUPS,
        messages.DescribeGroupsRequest(groups=(group_id,)),
        error_code=lambda answer: answer.groups[0].error_code,
    )
    (group,) = response.groups
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND or (not group.error_code and group.group_state == DEAD):
        return None
    if group.error_code:
        raise refusal(group.error_code, f"group {group_id}", group.error_message)
    is_consumer = group.protocol_type == CONSUMER
    members = [_classic_member(member, is_consumer=is_consumer) for member in group.members]
    return Group(group_id, "classic", group.group_state, group.protocol_data, None, members)


def _classic_member(member: Any, *, is_consumer: bool) -> GroupMember:
    from kohort.wire.consumer_protocol import read_subscription

    subscription: list[str] | None = None
    assigned: list[TopicPartition] | None = None
    if is_consumer:
        try:
            subscription = sorted(read_subscription(member.member_metadata).topics) if member.member_metadata else []
            assigned = _assigned(member.member_assignment) if member.member_assignment else []
        except WireError:
            subscription = assigned = None
    return GroupMember(
        member.member_id, member.group_instance_id, member.client_id, member.client_host, subscription, assigned
    )


def _assigned(data: bytes) -> list[TopicPartition]:
    from kohort.wire.consumer_protocol import read_assignment

    topics = read_assignment(data).assigned_partitions
    return sorted(TopicPartition(topic.topic, partition) for topic in topics for partition in topic.partitions)


def unknown_group(client: Client, group_id: str) -> ConfigError:
    """There is no such group, or it is one of a kind that has neither members nor offsets of this sort."""
    for group in listed_groups(client, []):
        if group.group_id == group_id:
            kind = group.group_type or group.protocol_type
            return ConfigError(f"{group_id!r} is a {kind} group; described are classic and consumer groups")
    return ConfigError(f"there is no group called {group_id!r}; see: kohort groups list")
