"""
Queries about groups: list, description, committed offsets.

A group is described as Kafka's admin client does it: first as a consumer group (KIP-848), then as a classic group; then as a
share group (KIP-932), whose start offsets stand for committed ones.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kohort.cli.groups.share_groups import SHARE, StartOffset, describe_share_group, start_offsets
from kohort.cli.topics import queries
from kohort.client.cluster import Client
from kohort.client.connection import ANY, Versions, refusal
from kohort.model.errors import ConfigError, ErrorCode, WireError
from kohort.model.ids import TopicPartition
from kohort.model.suggestion import suggestion
from kohort.wire import messages
from kohort.wire.apis import ApiKey

DEAD = "Dead"
"""State of a classic group that does not exist (DescribeGroups before version 6)."""

EMPTY = "Empty"
"""State of a group without members."""

CONSUMER = "consumer"
"""Protocol type of a classic group of consumers."""

_MEMBER_PROTOCOLS = {0: "classic", 1: CONSUMER}
"""By member type of ConsumerGroupDescribe."""

_TYPES = ("", "classic", CONSUMER)
"""Group types with committed offsets. Brokers before 3.8 return no type."""

_WITH_STATES = Versions(4, 1 << 15)
"""Versions of ListGroups with a filter of states."""

_WITH_TYPES = Versions(5, 1 << 15)
"""Versions of ListGroups with a filter of types."""

_BY_GROUP_AND_NAME = Versions(8, 9)
"""Versions of OffsetFetch with several groups and topic names; version 10 has topic ids."""


class GroupMember(NamedTuple):
    """
    A member and its assignment.

    Attributes:
        assignment: None if the bytes do not follow the consumer protocol (Kafka Connect has its own).
        protocol: of the member in a consumer group, "consumer" or "classic"; None in other groups, and if the broker does
            not tell (ConsumerGroupDescribe before version 1).
        epoch: None in a classic group.
        target: the target assignment; None in a classic group, and in a share group, whose members follow it at once.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    subscription: list[str] | None
    assignment: list[TopicPartition] | None
    protocol: str | None = None
    epoch: int | None = None
    target: list[TopicPartition] | None = None


class Group(NamedTuple):
    """
    A group as its coordinator describes it.

    Attributes:
        type: "classic", "consumer" or "share".
        protocol: the protocol that the members of a classic group chose, or the assignor of another group.
        epoch: the group epoch; None for classic groups.
        target_epoch: the epoch of the target assignment; None for classic groups.
    """

    group: str
    type: str
    state: str
    protocol: str
    epoch: int | None
    members: list[GroupMember]
    target_epoch: int | None = None

    @property
    def is_empty(self) -> bool:
        return self.state in (EMPTY, DEAD)


def list_groups(client: Client, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[Any]:
    """
    List the groups of all brokers, sorted by id. Returns groups of the ListGroups response.

    Args:
        states: only groups in these states; empty for all.
        types: only groups of these types, in lower or upper case; empty for all.

    Raises:
        CoordinatorError: a broker returned an error.
    """
    found: dict[str, Any] = {}
    within = _WITH_TYPES if types else _WITH_STATES if states else ANY
    for address in client.brokers().values():
        request = messages.ListGroupsRequest(states_filter=states, types_filter=types)
        response = client.send(ApiKey.LIST_GROUPS, request, at=address, within=within)
        if response.error_code:
            raise refusal(response.error_code, f"groups of the broker at {address}")
        found.update((group.group_id, group) for group in response.groups)
    return [found[group_id] for group_id in sorted(found)]


def describe_group(client: Client, group_id: str) -> Group:
    """
    Describe a group.

    Raises:
        ConfigError: the group does not exist, or is a streams group.
    """
    found = find_group(client, group_id)
    if found is None:
        raise unknown_group(client, group_id)
    return found


def find_group(client: Client, group_id: str) -> Group | None:
    """Describe a group. Returns None if there is no classic, consumer or share group with this id."""
    return _consumer_group(client, group_id) or _classic_group(client, group_id) or _share_group(client, group_id)


def group_ids(client: Client) -> list[str]:
    """Return the ids of all classic, consumer and share groups."""
    return [group.group_id for group in list_groups(client) if group.group_type.lower() in (*_TYPES, SHARE)]


def consumer_group_ids(client: Client) -> list[str]:
    """Return the ids of groups whose members are consumers. Kafka Connect workers, for example, are left out."""
    return [
        group.group_id
        for group in list_groups(client)
        if group.group_type.lower() in _TYPES and group.protocol_type in ("", CONSUMER)
    ]


def offset_rows(client: Client, group_id: str, assigned: Iterable[TopicPartition] = ()) -> list[dict[str, Any]]:
    """
    Return committed offsets, end offsets and lag of a group, one row for each partition.

    `end_offset` and `lag` are None if the partition does not exist any more. Fields and the rule for lag (never below 0) are
    those of the tables of `kohort pipeline`.

    Args:
        assigned: partitions that get a row without a committed offset, too; `offset` is then None.
    """
    committed = fetch_committed(client, group_id)
    partitions = sorted({*committed, *assigned})
    ends = queries.offsets(client, queries.existing_topics(client, {each.topic for each in partitions}), queries.LATEST)
    return [_row(group_id, each, committed.get(each), ends.get(each)) for each in partitions]


def rows_of(client: Client, group: Group, assigned: Iterable[TopicPartition] = ()) -> list[dict[str, Any]]:
    """As `offset_rows`; of a share group the start offsets, and the lag that its coordinator counts."""
    rows = _share_offset_rows if group.type == SHARE else offset_rows
    return rows(client, group.group, assigned)


def _share_offset_rows(client: Client, group_id: str, assigned: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    known = start_offsets(client, group_id)
    partitions = sorted({*known, *assigned})
    ends = queries.offsets(client, queries.existing_topics(client, {each.topic for each in partitions}), queries.LATEST)
    rows = []
    for each in partitions:
        found = known.get(each) or StartOffset(None, None, None)
        fields = {"offset": found.offset, "leader_epoch": found.leader_epoch, "lag": found.lag}
        rows.append(_row(group_id, each, None, ends.get(each)) | fields)
    return rows


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


def fetch_committed(client: Client, group_id: str) -> dict[TopicPartition, Any]:
    """
    Return the committed offsets of a group, as partitions of the OffsetFetch response. Empty for an unknown classic group.

    Raises:
        ConfigError: the coordinator returned GROUP_ID_NOT_FOUND.
        CoordinatorError: the coordinator returned another error.
    """
    request = messages.OffsetFetchRequest(
        groups=[messages.OffsetFetchRequestGroup(group_id=group_id, member_id=None, member_epoch=-1, topics=None)]
    )
    response = client.send_to_coordinator(
        group_id,
        ApiKey.OFFSET_FETCH,
        request,
        error_code=lambda response: response.groups[0].error_code,
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
    """Describe a group with ConsumerGroupDescribe. Returns None for another group type, or if the API is not supported."""
    if not client.serves(ApiKey.CONSUMER_GROUP_DESCRIBE):
        return None
    request = messages.ConsumerGroupDescribeRequest(group_ids=(group_id,))
    response = client.send_to_coordinator(
        group_id, ApiKey.CONSUMER_GROUP_DESCRIBE, request, error_code=lambda response: response.groups[0].error_code
    )
    (group,) = response.groups
    if group.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    if group.error_code:
        raise refusal(group.error_code, f"group {group_id}", group.error_message)
    members = [_consumer_member(member) for member in group.members]
    return Group(
        group_id, CONSUMER, group.group_state, group.assignor_name, group.group_epoch, members, group.assignment_epoch
    )


def _consumer_member(member: Any) -> GroupMember:
    regex = [member.subscribed_topic_regex] if member.subscribed_topic_regex else []
    subscription = sorted(member.subscribed_topic_names) + regex
    return GroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        subscription,
        _partitions(member.assignment),
        _MEMBER_PROTOCOLS.get(member.member_type),
        member.member_epoch,
        _partitions(member.target_assignment),
    )


def _partitions(assignment: Any) -> list[TopicPartition]:
    return sorted(
        TopicPartition(topic.topic_name, partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    )


def _classic_group(client: Client, group_id: str) -> Group | None:
    """Describe a group with DescribeGroups. Returns None if there is no such classic group."""
    response = client.send_to_coordinator(
        group_id,
        ApiKey.DESCRIBE_GROUPS,
        messages.DescribeGroupsRequest(groups=(group_id,)),
        error_code=lambda response: response.groups[0].error_code,
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
    from kohort.records.consumer_protocol import read_subscription

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
    from kohort.records.consumer_protocol import read_assignment

    topics = read_assignment(data).assigned_partitions
    return sorted(TopicPartition(topic.topic, partition) for topic in topics for partition in topic.partitions)


def _share_group(client: Client, group_id: str) -> Group | None:
    group = describe_share_group(client, group_id)
    if group is None:
        return None
    members = [
        GroupMember(
            member.member_id,
            None,
            member.client_id,
            member.client_host,
            sorted(member.subscribed_topic_names),
            _partitions(member.assignment),
            epoch=member.member_epoch,
        )
        for member in group.members
    ]
    return Group(
        group_id, SHARE, group.group_state, group.assignor_name, group.group_epoch, members, group.assignment_epoch
    )


def unknown_group(client: Client, group_id: str) -> ConfigError:
    """Make the error for a group that is neither a classic, a consumer nor a share group."""
    found = list_groups(client)
    for group in found:
        if group.group_id == group_id:
            kind = group.group_type or group.protocol_type
            return ConfigError(
                f"{group_id!r} is a {kind} group; this command supports classic, consumer and share groups"
            )
    near = suggestion(group_id, [group.group_id for group in found])
    return ConfigError(f"group {group_id!r} does not exist{near or '; see: kohort groups list'}")
