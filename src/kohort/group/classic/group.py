"""
A classic group: its members, their votes, and their parked requests.

The contents of a group are not versioned, as in Kafka: only the map of groups is a timeline. A handler that changes a group
before its records are written undoes the change itself if the write fails.

Source: Kafka ClassicGroup.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from kohort.group.classic.member import ClassicMember, Protocol
from kohort.group.classic.states import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    STABLE,
    TRANSITIONS,
    ClassicGroupState,
)
from kohort.group.classic.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from kohort.group.groups import CLASSIC, BaseTimestamp
from kohort.group.offsets.offsets import committed_at
from kohort.group.records import GroupRecord
from kohort.machine.shard import Reply
from kohort.model.errors import CoordinatorError, ErrorCode, InvariantError
from kohort.model.ids import java_bucket
from kohort.records.values import GroupMetadata, GroupMetadataMember, GroupMetadataTombstone
from kohort.wire import messages as m

NO_MEMBER_ID: Final = ""
NO_GENERATION: Final = -1
NO_LEADER: Final = ""


@dataclass(slots=True, eq=False)
class ClassicGroup:
    """
    Attributes:
        generation: the number of completed join phases.
        protocol_type: None until the first member joins, and for a group that only keeps offsets (a simple group).
        protocol_name: the protocol that the members of this generation voted for; None without members.
        leader: the member that assigns.
        state_timestamp_ms: the time of the last change of state; None if the log does not have it.
        pending_members: member ids that were assigned and are not used yet.
        pending_sync: members of this generation whose SyncGroup has not arrived.
        stored_generation: the generation whose assignment is being written; -1 for none.
        new_member_added: a member joined during the initial delay, so the delay is extended.
        subscribed_topics: of a consumer group; None if unknown.
    """

    group_id: str
    state: ClassicGroupState = EMPTY
    previous_state: ClassicGroupState = EMPTY
    state_timestamp_ms: int | None = None
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    members: dict[str, ClassicMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    pending_members: set[str] = field(default_factory=set)
    pending_sync: set[str] = field(default_factory=set)
    stored_generation: int = -1
    new_member_added: bool = False
    subscribed_topics: frozenset[str] | None = None
    parked_joins: int = 0
    _supporters: Counter[str] = field(default_factory=Counter)

    # Properties

    @property
    def kind(self) -> str:
        # Not a ClassVar: mypyc takes one for a field of the dataclass.
        return CLASSIC

    @property
    def state_name(self) -> str:
        return self.state.value

    def state_name_at(self, _committed_offset: int, /) -> str:
        return self.state.value

    @property
    def listed_protocol_type(self) -> str:
        return self.protocol_type or ""

    @property
    def is_empty(self) -> bool:
        """Whether the group is Empty; pending members do not count."""
        return self.state is EMPTY

    @property
    def member_count(self) -> int:
        return len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members; 0 without members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def has_all_joined(self) -> bool:
        return self.parked_joins == len(self.members) and not self.pending_members

    @property
    def is_consumer(self) -> bool:
        """Whether the members use protocol type "consumer", so that their metadata are subscriptions."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def is_simple(self) -> bool:
        """Whether the group only keeps offsets: no member has ever joined."""
        return self.state is EMPTY and self.protocol_type is None and not self.pending_members

    def is_leader(self, member_id: str) -> bool:
        return self.leader == member_id

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether the topic is in use. A consumer group with unknown subscriptions uses every topic."""
        return self.is_consumer if self.subscribed_topics is None else topic in self.subscribed_topics

    def supports(self, protocol_type: str, protocols: Sequence[Protocol]) -> bool:
        """Whether a member with these protocols fits into the group."""
        if self.state is EMPTY:
            return bool(protocol_type) and bool(protocols)
        size = len(self.members)
        return self.protocol_type == protocol_type and any(self._supporters[name] == size for name, _ in protocols)

    def check_member(self, member_id: str, group_instance_id: str | None) -> ClassicMember:
        """
        The member with this id, if the instance id is its own.

        Raises:
            CoordinatorError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
        """
        if group_instance_id is not None:
            holder = self.static_members.get(group_instance_id)
            if holder is None:
                raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)
            if holder != member_id:
                raise CoordinatorError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    # Validation, as `kohort.group.groups.Group` describes it

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_epoch: int,
        _api_version: int,
        /,
        *,
        is_transactional: bool,
    ) -> None:
        """
        Check in Kafka's order.

        Raises:
            CoordinatorError: COORDINATOR_NOT_AVAILABLE, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
                REBALANCE_IN_PROGRESS.
        """
        if self.state is DEAD:
            raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation_or_epoch < 0:
            if self.state is EMPTY:
                return
            if member_id == NO_MEMBER_ID and group_instance_id is None:
                if is_transactional:
                    return  # producers before KIP-447 name no member
                raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)
        self.check_member(member_id, group_instance_id)
        if generation_or_epoch != self.generation:
            raise CoordinatorError(ErrorCode.ILLEGAL_GENERATION)
        if self.state is COMPLETING_REBALANCE and not is_transactional:
            raise CoordinatorError(ErrorCode.REBALANCE_IN_PROGRESS)

    def validate_offset_fetch(self, _member_id: str | None, _member_epoch: int, _at: int | None, /) -> None:
        """The member fields of OffsetFetch concern other kinds of groups."""
        if self.state is DEAD:
            raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND)

    def validate_offset_delete(self) -> None:
        """Members that are no consumers may use any topic: their subscriptions are unknown."""
        if self.state is DEAD:
            raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND)
        if self.state is not EMPTY and not self.is_consumer:
            raise CoordinatorError(ErrorCode.NON_EMPTY_GROUP)

    def validate_delete(self) -> None:
        if self.state is DEAD:
            raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND)
        if self.state is not EMPTY:
            raise CoordinatorError(ErrorCode.NON_EMPTY_GROUP)

    def offset_expiration_base(self) -> BaseTimestamp | None:
        """
        From when the retention of an offset counts; None while none expires.

        | group                                          | from                                  |
        |------------------------------------------------|---------------------------------------|
        | simple                                         | the commit                            |
        | Empty, had members                             | when it became empty, if known        |
        | consumers, Stable, subscriptions known         | the commit                            |
        | any other (rebalancing, another protocol type) | never                                 |
        """
        if self.protocol_type is None:
            return committed_at
        if self.state is EMPTY:
            emptied_at_ms = self.state_timestamp_ms
            return committed_at if emptied_at_ms is None else lambda _: emptied_at_ms
        if self.is_consumer and self.subscribed_topics is not None and self.state is STABLE:
            return committed_at
        return None

    # Changes

    def move_to(self, state: ClassicGroupState, now_ms: int) -> None:
        if state not in TRANSITIONS[self.state]:
            raise InvariantError(f"group {self.group_id} cannot go from {self.state.value} to {state.value}")
        self.previous_state, self.state, self.state_timestamp_ms = self.state, state, now_ms

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        """Add a member. The first one leads, and decides the protocol type."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self.members[member.member_id] = member
        self._count(member.protocols, 1)
        self.parked_joins += member.join_reply is not None
        self.pending_members.discard(member.member_id)

    def remove(self, member_id: str) -> ClassicMember | None:
        """Remove a member, pending or not. The caller answers its parked requests."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member.protocols, -1)
            self.parked_joins -= member.join_reply is not None
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_members.discard(member_id)
        self.pending_sync.discard(member_id)
        return member

    def update(
        self,
        member: ClassicMember,
        protocols: Sequence[Protocol],
        *,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        """Replace a member's protocols and timeouts."""
        self._count(member.protocols, -1)
        self._count(protocols, 1)
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def replace_static(self, old: ClassicMember, new: ClassicMember) -> None:
        """Put `new` in the place of `old`, which has no parked request: instance id, vote, leadership."""
        assert old.group_instance_id == new.group_instance_id is not None
        assert old.join_reply is None is old.sync_reply
        del self.members[old.member_id]
        self._count(old.protocols, -1)
        self.members[new.member_id] = new
        self._count(new.protocols, 1)
        self.parked_joins += new.join_reply is not None
        self.static_members[new.group_instance_id] = new.member_id
        if self.leader == old.member_id:
            self.leader = new.member_id

    def park_join(self, member: ClassicMember, reply: Reply[m.JoinGroupResponse]) -> Reply[m.JoinGroupResponse] | None:
        """Park a member's JoinGroup; returns the reply of an earlier one that it replaces."""
        replaced, member.join_reply = member.join_reply, reply
        self.parked_joins += replaced is None
        return replaced

    def unpark_join(self, member: ClassicMember) -> Reply[m.JoinGroupResponse] | None:
        reply, member.join_reply = member.join_reply, None
        self.parked_joins -= reply is not None
        return reply

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader has joined: another member replaces it if not. False if no member has joined."""
        leader = self.members.get(self.leader or NO_LEADER)
        if leader is None or leader.join_reply is None:
            joined = next((id_ for id_, member in self.members.items() if member.join_reply is not None), None)
            if joined is None:
                return False
            self.leader = joined
        return True

    def start_next_generation(self, now_ms: int) -> None:
        """End the join phase: the members vote for a protocol; without members the group is Empty."""
        self.generation += 1
        self.pending_sync.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.move_to(COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.move_to(EMPTY, now_ms)
        self.subscribed_topics = self.read_subscribed_topics()

    def select_protocol(self) -> str:
        """
        The result of the vote: each member votes for the first of its protocols that all members support.

        A tie goes to the name that a Java HashMap of sixteen buckets lists first.
        """
        size = len(self.members)
        candidates = {name for name, supporters in self._supporters.items() if supporters == size}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return min(votes, key=lambda name: (-votes[name], java_bucket(name)))

    def read_subscribed_topics(self) -> frozenset[str] | None:
        """The union over all members; None if it is not a consumer group or a subscription cannot be read."""
        if not self.is_consumer:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            subscribed = subscribed_topics(member.metadata(self.protocol_name))
            if subscribed is None:
                return None
            topics |= subscribed
        return frozenset(topics)

    def _count(self, protocols: Sequence[Protocol], step: int) -> None:
        # A name listed twice counts once. Kafka counts it twice, and no vote succeeds from then on.
        for name in {name for name, _ in protocols}:
            self._supporters[name] += step
            if not self._supporters[name]:
                del self._supporters[name]

    # Records

    def to_record(self, assignments: dict[str, bytes] | None = None) -> GroupMetadata:
        """The group's record, with these assignments by member id or those that the members have."""
        members = tuple(
            GroupMetadataMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(self.protocol_name),
                member.assignment if assignments is None else assignments.get(member.member_id, b""),
            )
            for member in self.members.values()
        )
        timestamp_ms = -1 if self.state_timestamp_ms is None else self.state_timestamp_ms
        return GroupMetadata(
            self.group_id,
            self.protocol_type or "",
            self.generation,
            self.protocol_name,
            self.leader,
            timestamp_ms,
            members,
        )

    def tombstones(self) -> Sequence[GroupRecord]:
        return (GroupMetadataTombstone(self.group_id),)


def _rebalance_timeout_ms(stored: GroupMetadataMember) -> int:
    """Value version 0 has no rebalance timeout, and newer versions may hold -1: the session timeout applies."""
    timeout_ms = stored.rebalance_timeout_ms
    return stored.session_timeout_ms if timeout_ms == -1 else timeout_ms


def group_from_record(record: GroupMetadata) -> ClassicGroup:
    """The group as logged: each member supports the selected protocol only."""
    timestamp_ms = record.current_state_timestamp_ms
    group = ClassicGroup(
        record.group_id,
        state=STABLE if record.members else EMPTY,
        state_timestamp_ms=None if timestamp_ms == -1 else timestamp_ms,
        generation=record.generation,
        protocol_name=record.protocol,
    )
    for stored in record.members:
        member = ClassicMember(
            member_id=stored.member_id,
            group_instance_id=stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            rebalance_timeout_ms=_rebalance_timeout_ms(stored),
            session_timeout_ms=stored.session_timeout_ms,
            protocols=(Protocol(record.protocol or "", stored.subscription),),
            assignment=stored.assignment,
        )
        group.add(member, record.protocol_type)
    group.protocol_type = record.protocol_type or None
    group.leader = record.leader
    group.subscribed_topics = group.read_subscribed_topics()
    return group
