"""Groups of all kinds as values, and the named states that tests wait for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from kohort.control.cluster.inside import ELSEWHERE, Inside
from kohort.control.web.problems import Problem
from kohort.model.errors import ErrorCode, WireError
from kohort.records.consumer_protocol import PROTOCOL_TYPE, read_assignment
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey

STATES: Final = (
    "stable",
    "empty",
    "dead",
    "preparing_rebalance",
    "completing_rebalance",
    "assigning",
    "reconciling",
    "not_ready",
    "exists",
    "absent",
)
_NONE: Final = "absent"
_GONE: Final = frozenset({int(ErrorCode.GROUP_ID_NOT_FOUND), int(ErrorCode.UNSUPPORTED_VERSION)})


class AssignedTopic(msgspec.Struct, frozen=True):
    """Partitions of a topic that a member has."""

    topic: str
    partitions: Sequence[int]


class GroupMember(msgspec.Struct, frozen=True, kw_only=True):
    """
    A member of a group.

    Attributes:
        epoch: -1 in a classic group.
        is_at_target: whether the assignment is the one that the group wants; true in a classic group.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    epoch: int
    is_at_target: bool
    assignment: Sequence[AssignedTopic]


class CommittedOffset(msgspec.Struct, frozen=True):
    """A committed offset; `lag` is null if the partition is gone."""

    topic: str
    partition: int
    offset: int
    end_offset: int | None
    lag: int | None
    metadata: str | None


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    """
    A group as it is now.

    Attributes:
        state: Kafka's word in snake case, such as "preparing_rebalance"; "absent" if there is no such group.
        kind: "classic", "consumer", "share" or "streams".
        epoch: of the group; -1 for a classic group.
        coordinator: the id of the broker.
    """

    group: str
    state: str
    kind: str
    protocol: str
    epoch: int
    coordinator: int
    members: Sequence[GroupMember]
    offsets: Sequence[CommittedOffset]


class GroupWait(msgspec.Struct, frozen=True, kw_only=True):
    """
    What a wait is for; everything that is given must be true.

    Attributes:
        state: one of `STATES`.
        members: their number.
        topic: the assignment covers all of its partitions; with `partition`, this one; with `member`, of this member. With
            `offset` or `lag` it says whose offsets count instead.
        member: a member id, an instance id or a client id.
        offset: the committed offset of the topic's partition is at least this one.
        lag: the lag of all committed partitions is at most this one, and at least one offset is committed.
    """

    state: str | None = None
    members: int | None = None
    topic: str | None = None
    partition: int | None = None
    member: str | None = None
    offset: int | None = None
    lag: int | None = None


class Groups:
    """Reads groups from their coordinators."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside

    async def listed(self) -> list[dict[str, str]]:
        """All groups, with their kinds and states."""
        found: dict[str, dict[str, str]] = {}
        for node_id in self._inside.running:
            answer = await self._inside.ask(ApiKey.LIST_GROUPS, m.ListGroupsRequest(), node_id=node_id)
            for each in answer.groups:
                kind, state = each.group_type.lower(), snake_case(each.group_state)
                found[each.group_id] = {"group": each.group_id, "kind": kind, "state": state}
        return [found[name] for name in sorted(found)]

    async def view(self, group_id: str, *, has_offsets: bool = True) -> GroupView:
        """The group now."""
        for api, kind in _DESCRIBES.items():
            if not self._inside.serves(api):
                continue
            found = await self._described(api, group_id)
            if found is not None:
                node_id, described = found
                offsets = await self._offsets(node_id, group_id) if has_offsets else []
                return _view(group_id, kind, node_id, described, offsets)
        return GroupView(
            group=group_id, state=_NONE, kind="", protocol="", epoch=-1, coordinator=-1, members=[], offsets=[]
        )

    async def _described(self, api: ApiKey, group_id: str) -> tuple[int, Any] | None:
        """The broker that knows the group, and the answer to its description; None if there is none of this kind."""
        for node_id in self._inside.running:
            answer = await self._inside.ask(api, _request(api, group_id), node_id=node_id)
            (described,) = answer.groups
            if described.error_code in ELSEWHERE:
                continue
            if described.error_code in _GONE:
                return None
            if described.error_code:
                code = ErrorCode(described.error_code).name
                raise Problem(503, "not-ready", f"the coordinator of the group {group_id!r} answers {code}")
            is_gone = api is ApiKey.DESCRIBE_GROUPS and described.group_state == "Dead"
            return None if is_gone else (node_id, described)
        return None

    async def _offsets(self, node_id: int, group_id: str) -> list[CommittedOffset]:
        asked = m.OffsetFetchRequestGroup(group_id=group_id, topics=None, member_epoch=-1)
        # Version 9 has the names of topics.
        answer = await self._inside.ask(
            ApiKey.OFFSET_FETCH, m.OffsetFetchRequest(groups=[asked]), node_id=node_id, version=9
        )
        found = []
        for topic in answer.groups[0].topics:
            for each in topic.partitions:
                if each.committed_offset < 0:
                    continue
                end = self.end_offset(topic.name, each.partition_index)
                lag = None if end is None else max(end - each.committed_offset, 0)
                found.append(
                    CommittedOffset(
                        topic.name, each.partition_index, each.committed_offset, end, lag, each.metadata or None
                    )
                )
        return found

    def end_offset(self, topic: str, index: int) -> int | None:
        """The high watermark of a partition; None if it is not there."""
        partition = self._inside.broker.partitions.find_led(topic, index)
        return None if partition is None else int(partition.log.high_watermark)

    def partition_count(self, topic: str) -> int:
        found = self._inside.broker.catalog.topic(topic)
        return 0 if found is None else found.partition_count

    def is_reached(self, view: GroupView, wait: GroupWait) -> bool:
        """Whether a group is as it is waited for."""
        if wait.state is not None and not _has_state(view, wait.state):
            return False
        if wait.members is not None and len(view.members) != wait.members:
            return False
        if wait.offset is not None:
            if not any(
                each.topic == wait.topic and each.partition == (wait.partition or 0) and each.offset >= wait.offset
                for each in view.offsets
            ):
                return False
        elif wait.lag is None and (wait.topic or wait.member) is not None and not self._is_assigned(view, wait):
            return False
        lags = [each.lag for each in view.offsets if wait.topic in (None, each.topic)]
        return wait.lag is None or (bool(lags) and all(lag is not None and lag <= wait.lag for lag in lags))

    def _is_assigned(self, view: GroupView, wait: GroupWait) -> bool:
        members = [
            each
            for each in view.members
            if wait.member is None or wait.member in (each.member_id, each.instance_id, each.client_id)
        ]
        if wait.topic is None:
            return bool(members)
        assigned = {
            index
            for member in members
            for each in member.assignment
            if each.topic == wait.topic
            for index in each.partitions
        }
        if wait.partition is not None:
            return wait.partition in assigned
        if wait.member is not None:
            return bool(assigned)
        return bool(assigned) and assigned == set(range(self.partition_count(wait.topic)))


def _has_state(view: GroupView, state: str) -> bool:
    if state == "exists":
        return view.state != _NONE
    if state == "stable":
        return view.state == "stable" and all(member.is_at_target for member in view.members)
    return view.state == state or (state == "dead" and view.state == _NONE)


_DESCRIBES: Final = {
    ApiKey.CONSUMER_GROUP_DESCRIBE: "consumer",
    ApiKey.SHARE_GROUP_DESCRIBE: "share",
    ApiKey.STREAMS_GROUP_DESCRIBE: "streams",
    ApiKey.DESCRIBE_GROUPS: "classic",
}
"""The APIs that describe groups of a kind; that of classic groups is last, because it also describes what is not there."""


def _request(api: ApiKey, group_id: str) -> Any:
    match api:
        case ApiKey.CONSUMER_GROUP_DESCRIBE:
            return m.ConsumerGroupDescribeRequest(group_ids=[group_id])
        case ApiKey.SHARE_GROUP_DESCRIBE:
            return m.ShareGroupDescribeRequest(group_ids=[group_id])
        case ApiKey.STREAMS_GROUP_DESCRIBE:
            return m.StreamsGroupDescribeRequest(group_ids=[group_id])
    return m.DescribeGroupsRequest(groups=[group_id])


def _view(group_id: str, kind: str, node_id: int, described: Any, offsets: Sequence[CommittedOffset]) -> GroupView:
    members = [
        _classic_member(described, each) if kind == "classic" else _member(each, described)
        for each in described.members
    ]
    return GroupView(
        group=group_id,
        state=snake_case(described.group_state),
        kind=kind,
        protocol=described.protocol_data if kind == "classic" else getattr(described, "assignor_name", None) or "",
        epoch=getattr(described, "group_epoch", -1),
        coordinator=node_id,
        members=members,
        offsets=offsets,
    )


def _classic_member(group: Any, member: Any) -> GroupMember:
    assignment: list[AssignedTopic] = []
    if group.protocol_type == PROTOCOL_TYPE and member.member_assignment:
        try:
            read = read_assignment(bytes(member.member_assignment)).assigned_partitions
        except WireError:
            read = ()
        assignment = [AssignedTopic(each.topic, sorted(each.partitions)) for each in read]
    return GroupMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        epoch=-1,
        is_at_target=True,
        assignment=assignment,
    )


def _member(member: Any, group: Any) -> GroupMember:
    own, target = getattr(member, "assignment", None), getattr(member, "target_assignment", None)
    assignment = _assigned(own)
    wanted = assignment if target is None else _assigned(target)
    return GroupMember(
        member_id=member.member_id,
        instance_id=getattr(member, "instance_id", None),
        client_id=member.client_id,
        client_host=member.client_host,
        epoch=member.member_epoch,
        is_at_target=_by_topic(assignment) == _by_topic(wanted) and member.member_epoch == group.group_epoch,
        assignment=assignment,
    )


def _assigned(assignment: Any) -> list[AssignedTopic]:
    topics: Iterable[Any] = getattr(assignment, "topic_partitions", ())
    return [AssignedTopic(each.topic_name, sorted(each.partitions)) for each in topics]


def _by_topic(assignment: Sequence[AssignedTopic]) -> Mapping[str, Sequence[int]]:
    return {each.topic: each.partitions for each in assignment}


def snake_case(state: str) -> str:
    """Kafka's name of a state, as the control API writes it."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in state).lstrip("_")
