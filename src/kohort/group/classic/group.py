"""
One classic group: its members, their votes, and which of them wait for an answer.

A plain object, as in Kafka: the map of groups has a past, the contents of a group have none. So whoever changes a group
ahead of a write takes the change back himself when the write fails.

Source: Kafka ClassicGroup, ClassicGroupMember.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kohort.group.classic.states import (
    COMPLETING_REBALANCE,
    EMPTY,
    STABLE,
    TRANSITIONS,
    ClassicGroupState,
)
from kohort.group.classic.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from kohort.group.records import GroupMetadata, GroupMetadataMember
from kohort.machine.shard import Reply, Result
from kohort.model.errors import CoordinatorError, ErrorCode, InvariantError
from kohort.model.ids import java_string_hash
from kohort.wire import messages as m

NO_MEMBER_ID: Final = ""
NO_GENERATION: Final = -1
NO_LEADER: Final = ""


class Protocol(NamedTuple):
    """What a member supports, and its metadata for it (for consumers: the subscription)."""

    name: str
    metadata: bytes


@dataclass(slots=True, eq=False, kw_only=True)
class ClassicMember:
    """
    Attributes:
        protocols: by the member's own preference.
        assignment: what the leader gave it in the last completed rebalance; b"" for nothing.
        is_new: added, but not yet answered for the first time.
        join_reply: where its parked JoinGroup is answered; None when it has none. Likewise `sync_reply`.
        timer_key, on_expiry: its session timer, made once because every heartbeat arms it anew.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Sequence[Protocol]
    assignment: bytes = b""
    is_new: bool = False
    join_reply: Reply[m.JoinGroupResponse] | None = None
    sync_reply: Reply[m.SyncGroupResponse] | None = None
    timer_key: str = ""
    on_expiry: Callable[[int], Result[Any, None]] | None = None

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """Its metadata for one protocol; b"" when it does not know that one."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def vote(self, candidates: Iterable[str]) -> str:
        """The first of its protocols that everybody supports."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise InvariantError(f"member {self.member_id} supports none of the common protocols")


@dataclass(slots=True, eq=False)
class ClassicGroup:
    """
    Attributes:
        generation: counts completed joins; 0 before the first.
        protocol_type: None until the first member, and for a group that only keeps offsets (a simple group).
        protocol_name: what the members voted for in this generation; None while there are none.
        leader: the member that assigns.
        state_timestamp_ms: since when the group is in its state; None when the log does not say.
        pending_members: ids that were given out and not used yet.
        pending_sync: members of this generation whose SyncGroup has not come.
        new_member_added: somebody came during the initial delay; it is extended.
        subscribed_topics: of a group of consumers; None when unknown.
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
    new_member_added: bool = False
    subscribed_topics: frozenset[str] | None = None
    parked_joins: int = 0
    _supporters: Counter[str] = field(default_factory=Counter)

    # What it is

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of its members'; 0 without any."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def has_all_joined(self) -> bool:
        return self.parked_joins == len(self.members) and not self.pending_members

    @property
    def is_consumer(self) -> bool:
        """Whether its members speak the consumer protocol, so that subscriptions can be read."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def is_simple(self) -> bool:
        """Whether it only keeps offsets: nobody has ever joined."""
        return self.state is EMPTY and self.protocol_type is None and not self.pending_members

    def is_leader(self, member_id: str) -> bool:
        return self.leader == member_id

    def is_subscribed(self, topic: str) -> bool:
        """A consumer group whose subscriptions cannot be read counts as subscribed to everything."""
        return self.is_consumer if self.subscribed_topics is None else topic in self.subscribed_topics

    def supports(self, protocol_type: str, protocols: Sequence[Protocol]) -> bool:
        """Whether a member that offers these could be in the group."""
        if self.state is EMPTY:
            return bool(protocol_type) and bool(protocols)
        size = len(self.members)
        return self.protocol_type == protocol_type and any(self._supporters[name] == size for name, _ in protocols)

    def check_member(self, member_id: str, group_instance_id: str | None) -> ClassicMember:
        """
        The member, if it is who it says it is.

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

    # What happens to it

    def move_to(self, state: ClassicGroupState, now_ms: int) -> None:
        if state not in TRANSITIONS[self.state]:
            raise InvariantError(f"group {self.group_id} cannot go from {self.state.value} to {state.value}")
        self.previous_state, self.state, self.state_timestamp_ms = self.state, state, now_ms

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        """Take in a member; the first one leads, and says what kind of group this is."""
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
        """Take out a member, pending or not. What it has parked is the caller's to answer."""
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
        """A member says anew what it supports and how long it may take."""
        self._count(member.protocols, -1)
        self._count(protocols, 1)
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def replace_static(self, old: ClassicMember, new: ClassicMember) -> None:
        """Put `new` in the place of `old`, who has nothing parked: its instance id, its vote, its leadership."""
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
        """Let a member wait for the others; the reply of an older JoinGroup that it replaces, if any."""
        replaced, member.join_reply = member.join_reply, reply
        self.parked_joins += replaced is None
        return replaced

    def unpark_join(self, member: ClassicMember) -> Reply[m.JoinGroupResponse] | None:
        reply, member.join_reply = member.join_reply, None
        self.parked_joins -= reply is not None
        return reply

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader has joined; False when nobody has."""
        leader = self.members.get(self.leader or NO_LEADER)
        if leader is None or leader.join_reply is None:
            joined = next((id_ for id_, member in self.members.items() if member.join_reply is not None), None)
            if joined is None:
                return False
            self.leader = joined
        return True

    def start_next_generation(self, now_ms: int) -> None:
        """All who come have come: count them, let them vote."""
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
        The vote: each member is for the first of its protocols that all support; most votes win.

        A tie goes to the name that a Java hash map of sixteen buckets lists first.
        """
        size = len(self.members)
        candidates = {name for name, supporters in self._supporters.items() if supporters == size}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return min(votes, key=lambda name: (-votes[name], _java_bucket(name)))

    def read_subscribed_topics(self) -> frozenset[str] | None:
        """The union over all members; None when it is not a consumer group or one of them cannot be read."""
        if not self.is_consumer:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            theirs = subscribed_topics(member.metadata(self.protocol_name))
            if theirs is None:
                return None
            topics |= theirs
        return frozenset(topics)

    def _count(self, protocols: Sequence[Protocol], step: int) -> None:
        # A name that is listed twice counts once; Kafka counts it twice, so that no vote can succeed any more.
        for name in {name for name, _ in protocols}:
            self._supporters[name] += step
            if not self._supporters[name]:
                del self._supporters[name]

    # Its record

    def to_record(self, assignments: dict[str, bytes] | None = None) -> GroupMetadata:
        """What is logged of the group as it is now, with new assignments by member id or those that the members hold."""
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


def group_from_record(record: GroupMetadata) -> ClassicGroup:
    """The group as it was logged: each member knows but the protocol that was selected."""
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
            rebalance_timeout_ms=stored.rebalance_timeout_ms,
            session_timeout_ms=stored.session_timeout_ms,
            protocols=(Protocol(record.protocol or "", stored.subscription),),
            assignment=stored.assignment,
        )
        group.add(member, record.protocol_type)
    group.protocol_type = record.protocol_type or None
    group.leader = record.leader
    group.subscribed_topics = group.read_subscribed_topics()
    return group


def _java_bucket(name: str) -> int:
    value = java_string_hash(name) & 0xFFFFFFFF
    return (value ^ value >> 16) & 15
