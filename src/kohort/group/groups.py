"""
The contract between a group of any kind and the rooms above it: offsets, listing, deletion, expiration, metrics.

Kafka 4.2 has four kinds: classic, consumer, share and streams. A kind is a folder with three classes: its groups (`Group`),
their manager in one shard (`GroupManager`) and the handlers of its APIs. `kohort.group.kinds` lists the kinds.

A group may change its kind: an empty group is replaced when a member of another kind joins. `TRANSITIONS` says when.

Source: Kafka Group, GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Protocol, TypeAlias, TypeVar
from uuid import UUID

from kohort.group.offsets.offsets import CommittedOffset
from kohort.group.records import GroupRecord
from kohort.machine.shard import Result
from kohort.machine.steps import Deadline, Key
from kohort.model.context import RequestContext
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.image import ImageDelta
from kohort.wire import messages as m

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SHARE: Final = "share"
STREAMS: Final = "streams"

G = TypeVar("G")


def session_key(group_id: str, member_id: str) -> Key:
    """The deadline of a member's session, in a group of any kind."""
    return ("session", group_id, member_id)


PartitionCheck: TypeAlias = Callable[[UUID | None, int], None]
"""Refuses, by a CoordinatorError, the commit of a partition, which is named by the id of its topic and its number."""

BaseTimestamp: TypeAlias = Callable[[CommittedOffset], int]
"""The time in milliseconds from which the retention of an offset counts."""


class Group(Protocol):
    """
    One group.

    Every `validate_` method raises CoordinatorError to refuse, and changes nothing.
    """

    @property
    def group_id(self) -> str: ...

    @property
    def kind(self) -> str:
        """The group type that ListGroups shows: `CLASSIC`, `CONSUMER`, `SHARE` or `STREAMS`."""

    @property
    def state_name(self) -> str:
        """The newest state."""

    def state_name_at(self, committed_offset: int, /) -> str:
        """The state that ListGroups shows; a kind whose contents are not versioned shows the newest one."""

    @property
    def listed_protocol_type(self) -> str:
        """The protocol type that ListGroups shows; "" for none."""

    @property
    def is_empty(self) -> bool:
        """
        Whether the group is in state Empty. An empty group without offsets is deleted by the cleanup of offsets, if its offsets
        may expire.
        """

    @property
    def is_simple(self) -> bool:
        """Whether the group only keeps offsets: it has no record of its own, and a record of any kind takes its place."""

    @property
    def member_count(self) -> int: ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic, so that its offsets are in use."""

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_epoch: int,
        api_version: int,
        /,
        *,
        is_transactional: bool,
    ) -> PartitionCheck | None:
        """Refuse the commit of a client, or judge it by its partitions. None allows every partition."""

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int, committed_offset: int | None, /) -> None:
        """
        Refuse an OffsetFetch. GROUP_ID_NOT_FOUND means that every partition is answered with offset -1 and no error.

        Args:
            committed_offset: check the state as of this offset of the log; None for the newest state.
        """

    def validate_offset_delete(self) -> None: ...

    def validate_delete(self) -> None: ...

    def offset_expiration_base(self) -> BaseTimestamp | None:
        """From when the retention of the offsets of topics without subscription counts; None if none expires now."""

    def tombstones(self) -> Sequence[GroupRecord]:
        """The records that remove the group from the log, in order. Offsets are not among them."""


class ClassicMembers(Protocol):
    """
    The handlers of members of the classic protocol in groups of another kind.

    Args of each:
        group: of that kind; it may be empty.
    """

    def join_group(
        self, group: Any, request: m.JoinGroupRequest, context: RequestContext, now_ms: int, /
    ) -> Result[Any, m.JoinGroupResponse]: ...

    def sync_group(self, group: Any, request: m.SyncGroupRequest, /) -> Result[Any, m.SyncGroupResponse]: ...

    def heartbeat(
        self, group: Any, request: m.HeartbeatRequest, now_ms: int, /
    ) -> Result[Any, m.HeartbeatResponse]: ...

    def leave_group(
        self, group: Any, request: m.LeaveGroupRequest, now_ms: int, /
    ) -> Result[Any, m.LeaveGroupResponse]: ...


class GroupManager(Protocol):
    """
    All groups of one kind in one shard: their replay and their soft state.

    Attributes:
        replayers: by class of record, the method that applies it. A class belongs to one kind.
    """

    @property
    def replayers(self) -> Mapping[type, Callable[[Any], None]]: ...

    @property
    def classic_members(self) -> ClassicMembers | None:
        """The handlers of members of the classic protocol in these groups; None if there are no such members."""

    def on_loaded(self, group: Any, now_ms: int, /) -> Result[Any, None]:
        """Begin the deadlines of a group that was replayed."""

    def on_image(self, delta: ImageDelta, /) -> Sequence[Deadline]:
        """Note a change of the cluster. What has to be written is written by an operation of a deadline."""

    def on_offset_commit(self, group: Any, member_id: str, /) -> None:
        """A commit of this member was accepted. A member that commits is alive."""


# Groups of another kind


class Transition(Enum):
    """The effect of a join on a group of another kind."""

    REPLACE = "tombstones of the old group and a new group in one batch; the offsets stay"
    CONVERT = "the members become members of the new kind, or the request is refused"
    SERVE = "the group stays as it is, and its kind answers the request"


Rule: TypeAlias = Transition | ErrorCode

# fmt: off
TRANSITIONS: Final[Mapping[tuple[str, str], tuple[Rule, Rule]]] = {
    # The group is, the member is: the group is empty             the group has members
    (CLASSIC,  CONSUMER):          (Transition.REPLACE,           Transition.CONVERT),
    (CONSUMER, CLASSIC):           (Transition.REPLACE,           Transition.SERVE),
    (STREAMS,  CLASSIC):           (Transition.REPLACE,           ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    (SHARE,    CLASSIC): (ErrorCode.INCONSISTENT_GROUP_PROTOCOL,  ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
}
"""Any pair that is not here: GROUP_ID_NOT_FOUND. Source: classicGroupJoin, getOrMaybeCreateConsumerGroup and their like."""
# fmt: on


def transition(group: Group, kind: str) -> Transition:
    """
    The rule for a group that a member of another kind wants to join.

    Raises:
        CoordinatorError: the rule is to refuse, with this code.
    """
    rules = TRANSITIONS.get((group.kind, kind))
    if rules is None:
        raise of_another_kind(group.group_id, kind)
    rule = rules[0] if group.is_empty else rules[1]
    if isinstance(rule, ErrorCode):
        raise CoordinatorError(rule)
    return rule


def group_of_kind(group: Group | None, group_id: str, kind: str, group_class: type[G]) -> G:
    """
    The group, if there is one and it is of this kind.

    Raises:
        CoordinatorError: GROUP_ID_NOT_FOUND, with Kafka's message.
    """
    if group is None:
        raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if not isinstance(group, group_class):
        raise of_another_kind(group_id, kind)
    return group


def of_another_kind(group_id: str, kind: str) -> CoordinatorError:
    """The error for a group that exists and is not of the kind asked for; the message is Kafka's."""
    return CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {kind} group.")
