"""
A classic group: its members, their votes, and which of them wait for an answer.

All of it is in timelines, also the soft state: the phase of a rebalance, the members that have joined, the member ids that are
not used yet. An operation whose records cannot be written takes back its changes of both kinds. The log has a group as of its
last completed rebalance, or since when it is empty.

Source: Kafka ClassicGroup.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from kohort.group.classic.member import ClassicMember, Protocol, subscribed_topics
from kohort.group.classic.states import (
    COMPLETING_REBALANCE,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    TRANSITIONS,
    ClassicGroupState,
)
from kohort.group.groups import CLASSIC, BaseTimestamp, session_key
from kohort.group.offsets.offsets import committed_at
from kohort.group.records import GroupRecord
from kohort.machine.timeline import SnapshotRegistry, TimelineDict, TimelineSet
from kohort.machine.timeline_fields import TimelineFields
from kohort.model.errors import CoordinatorError, ErrorCode, InvariantError
from kohort.model.ids import java_bucket
from kohort.records.consumer_protocol import PROTOCOL_TYPE
from kohort.records.values import GroupMetadata, GroupMetadataMember, GroupMetadataTombstone

NO_MEMBER_ID: Final = ""
NO_GENERATION: Final = -1
NO_LEADER: Final = ""


class ClassicGroup(TimelineFields):
    """
    Attributes:
        generation: the number of completed join phases.
        protocol_type: None until the first member joins, and for a group that only keeps offsets (a simple group).
        protocol_name: the protocol that the members of this generation voted for; None without members.
        leader: the member that assigns.
        state_timestamp_ms: the time of the last change of state; None if the log does not have it.
        new_member_added: a member joined during the initial delay, so the delay is extended.
        subscribed_topics: of a consumer group; None if unknown.
        members: by member id.
        static_members: member ids by instance id.
        waiting: the members whose JoinGroup waits (in PREPARING_REBALANCE) or whose SyncGroup does (in COMPLETING_REBALANCE);
            with each, whether it is new and its first JoinGroup is not answered yet.
        pending_members: member ids that were assigned and are not used yet.
        pending_sync: members of this generation whose SyncGroup has not arrived.
    """

    __slots__ = (
        "_supporters",
        "generation",
        "group_id",
        "leader",
        "members",
        "new_member_added",
        "pending_members",
        "pending_sync",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "subscribed_topics",
        "waiting",
    )

    def __init__(self, group_id: str, registry: SnapshotRegistry) -> None:
        super().__init__(registry)
        self.group_id: Final = group_id
        self.state: ClassicGroupState = EMPTY
        self.previous_state: ClassicGroupState = EMPTY
        self.state_timestamp_ms: int | None = None
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.new_member_added = False
        self.subscribed_topics: frozenset[str] | None = None
        self.members: Final[TimelineDict[str, ClassicMember]] = TimelineDict(registry)
        self.static_members: Final[TimelineDict[str, str]] = TimelineDict(registry)
        self.waiting: Final[TimelineDict[str, bool]] = TimelineDict(registry)
        self.pending_members: Final[TimelineSet[str]] = TimelineSet(registry)
        self.pending_sync: Final[TimelineSet[str]] = TimelineSet(registry)
        self._supporters: Final[TimelineDict[str, int]] = TimelineDict(registry)
        """The number of members that support each protocol."""

    # Properties

    @property
    def kind(self) -> str:
        return CLASSIC

    @property
    def state_name(self) -> str:
        return self.state.value

    def state_at(self, committed_offset: int) -> ClassicGroupState:
        """The state as of an offset of the log."""
        state: ClassicGroupState = self.value_at("state", committed_offset)
        return state

    def state_name_at(self, committed_offset: int, /) -> str:
        return self.state_at(committed_offset).value

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
        return len(self.waiting) == len(self.members) and not self.pending_members

    @property
    def is_consumer(self) -> bool:
        """Whether the members use protocol type "consumer", so that their metadata are subscriptions."""
        return self.protocol_type == PROTOCOL_TYPE

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
        return self.protocol_type == protocol_type and any(
            self._supporters.get(name, 0) == size for name, _ in protocols
        )

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
            CoordinatorError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS.
        """
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
        """Do nothing: the member fields of OffsetFetch concern other kinds of groups."""

    def validate_offset_delete(self) -> None:
        """Members that are no consumers may use any topic: their subscriptions are unknown."""
        if self.state is not EMPTY and not self.is_consumer:
            raise CoordinatorError(ErrorCode.NON_EMPTY_GROUP)

    def validate_delete(self) -> None:
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
        self.change(previous_state=self.state, state=state, state_timestamp_ms=now_ms)

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        """Add a member. The first one leads, and decides the protocol type."""
        if not self.members:
            self.change(protocol_type=protocol_type)
        if self.leader is None:
            self.change(leader=member.member_id)
        if member.group_instance_id is not None:
            self.static_members.put(member.group_instance_id, member.member_id)
        self.members.put(member.member_id, member)
        self._count(member.protocols, 1)
        self.pending_members.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member, pending or not, whose request does not wait."""
        member = self.members.remove(member_id)
        if member is not None:
            self._count(member.protocols, -1)
            if member.group_instance_id is not None:
                self.static_members.remove(member.group_instance_id)
        if self.leader == member_id:
            self.change(leader=next(iter(self.members), None))
        self.pending_members.discard(member_id)
        self.pending_sync.discard(member_id)

    def update(
        self,
        member: ClassicMember,
        protocols: tuple[Protocol, ...],
        *,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> ClassicMember:
        """Replace a member's protocols and timeouts."""
        if protocols != member.protocols:
            # Another order changes nothing of the counts.
            if [name for name, _ in protocols] != [name for name, _ in member.protocols]:
                self._count(member.protocols, -1)
                self._count(protocols, 1)
        elif (rebalance_timeout_ms, session_timeout_ms) == (member.rebalance_timeout_ms, member.session_timeout_ms):
            return member
        updated = member.changed(
            protocols=protocols, rebalance_timeout_ms=rebalance_timeout_ms, session_timeout_ms=session_timeout_ms
        )
        self.members.put(member.member_id, updated)
        return updated

    def replace_static(self, old: ClassicMember, new: ClassicMember) -> None:
        """Put `new` in the place of `old`, whose request does not wait: instance id, vote, leadership."""
        assert old.group_instance_id == new.group_instance_id is not None
        del self.members[old.member_id]
        self._count(old.protocols, -1)
        self.members.put(new.member_id, new)
        self._count(new.protocols, 1)
        self.static_members.put(new.group_instance_id, new.member_id)
        if self.leader == old.member_id:
            self.change(leader=new.member_id)

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader has joined: another member replaces it if not. False if no member has joined."""
        if self.leader not in self.waiting:
            joined = next((member_id for member_id in self.members if member_id in self.waiting), None)
            if joined is None:
                return False
            self.change(leader=joined)
        return True

    def start_next_generation(self, now_ms: int) -> None:
        """End the join phase: the members vote for a protocol; without members the group is Empty."""
        self.pending_sync.clear()
        protocol_name = self.select_protocol() if self.members else None
        self.change(
            generation=self.generation + 1,
            protocol_name=protocol_name,
            subscribed_topics=self.read_subscribed_topics(protocol_name),
        )
        self.move_to(COMPLETING_REBALANCE if self.members else EMPTY, now_ms)

    def select_protocol(self) -> str:
        """
        The result of the vote: each member votes for the first of its protocols that all members support.

        A tie goes to the name that a Java HashMap of sixteen buckets lists first.
        """
        size = len(self.members)
        candidates = {name for name, supporters in self._supporters.items() if supporters == size}
        if len(candidates) == 1:
            return candidates.pop()
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return min(votes, key=lambda name: (-votes[name], java_bucket(name)))

    def read_subscribed_topics(self, protocol_name: str | None) -> frozenset[str] | None:
        """The union over all members; None if it is not a consumer group or a subscription cannot be read."""
        if not self.is_consumer:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            subscribed = subscribed_topics(member.metadata(protocol_name))
            if subscribed is None:
                return None
            topics |= subscribed
        return frozenset(topics)

    def _count(self, protocols: Sequence[Protocol], step: int) -> None:
        supporters = self._supporters
        for name in _names(protocols):
            count = supporters.get(name, 0) + step
            if count:
                supporters.put(name, count)
            else:
                del supporters[name]

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

    def replay(self, record: GroupMetadata) -> None:
        """
        Take over a record: the group is Stable with the members of the record, or Empty.

        The protocols of a member that the log does not have stay. A group that prepares a rebalance is ahead of its record: the
        operation that wrote the record has begun it.
        """
        if self.state is PREPARING_REBALANCE:
            return
        members, protocol = self.members, record.protocol
        stored_ids = {stored.member_id for stored in record.members}
        for member_id in [member_id for member_id in members if member_id not in stored_ids]:
            self.remove(member_id)
        is_changed = protocol != self.protocol_name or not record.members
        for stored in record.members:
            old = members.get(stored.member_id)
            if old is not None and _is_stored(old, stored, protocol):
                if old.assignment != stored.assignment:
                    members.put(old.member_id, old.changed(assignment=stored.assignment))
                continue
            if old is not None:
                self.remove(old.member_id)
            self.add(_member_from_record(record, stored), record.protocol_type)
            is_changed = True
        timestamp_ms = record.current_state_timestamp_ms
        self.change(
            previous_state=self.state,
            state=STABLE if record.members else EMPTY,
            state_timestamp_ms=None if timestamp_ms == -1 else timestamp_ms,
            generation=record.generation,
            protocol_type=record.protocol_type or None,
            protocol_name=protocol,
            leader=record.leader,
        )
        if is_changed:
            self.change(subscribed_topics=self.read_subscribed_topics(protocol))


def _names(protocols: Sequence[Protocol]) -> set[str]:
    """A name listed twice counts once. Kafka counts it twice, and no vote succeeds from then on."""
    return {name for name, _ in protocols}


def _is_stored(member: ClassicMember, stored: GroupMetadataMember, protocol: str | None) -> bool:
    """Whether the record has the member as it is, but for its assignment."""
    return (
        member.metadata(protocol) == stored.subscription
        and member.rebalance_timeout_ms == stored.rebalance_timeout_ms
        and member.session_timeout_ms == stored.session_timeout_ms
        and member.client_id == stored.client_id
        and member.client_host == stored.client_host
        and member.group_instance_id == stored.group_instance_id
    )


def _member_from_record(record: GroupMetadata, stored: GroupMetadataMember) -> ClassicMember:
    # Value version 0 has no rebalance timeout, and newer versions may hold -1: the session timeout applies.
    timeout_ms = stored.rebalance_timeout_ms
    return ClassicMember(
        member_id=stored.member_id,
        session=session_key(record.group_id, stored.member_id),
        group_instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        rebalance_timeout_ms=stored.session_timeout_ms if timeout_ms == -1 else timeout_ms,
        session_timeout_ms=stored.session_timeout_ms,
        protocols=((record.protocol or "", stored.subscription),),
        assignment=stored.assignment,
    )
