"""
The history of one group, replayed record by record: the causes of its rebalances, and the partitions that they moved.

A plain class without Spark, for all kinds of groups. Classic groups write their whole membership at the end of a rebalance
(GroupMetadata). Consumer, share and streams groups write changed members, then a new group epoch (the start of a rebalance),
then the target assignment of that epoch, and then the current assignment of each member. The rebalance ends when all members
have their target assignment in that epoch. A broker of 4.3 and later leaves an interval between two assignments, so a new epoch
may wait for its assignment; the record of the assignment has the time when it was computed. There the last phase begins.

Source: Apache Kafka 4.2.1 and 4.4.0, GroupMetadataManager, CurrentAssignmentBuilder, MemberState; KIP-848, KIP-932, KIP-1071.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kohort.model.errors import WireError
from kohort.pipeline.decode.schemas import GROUP_METADATA
from kohort.pipeline.tables.contract import COLUMNS
from kohort.records.consumer_protocol import read_subscription

Row: TypeAlias = dict[str, Any]
Place: TypeAlias = tuple[str, int]

INPUT_COLUMNS = (
    "kind",
    "log_partition",
    "log_offset",
    "timestamp_ms",
    "group",
    "tombstone",
    "protocol_type",
    "generation",
    "protocol",
    "leader",
    "state_timestamp_ms",
    "members",
    "record_type",
    "member_id",
    "key",
    "value",
)
"""Columns that a history reads, of `kind` group_metadata and coordinator."""

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"

CREATED = "created"
REBALANCED = "rebalanced"
EMPTIED = "emptied"
REPLACED = "replaced"
DELETED = "deleted"
CONVERTED = "converted"

JOINED = "joined"
LEFT = "left"
FENCED = "fenced"
SUBSCRIPTION = "subscription"
METADATA = "metadata"
REJOINED = "rejoined"

MEMBER_METADATA = "MemberMetadata"
GROUP_EPOCH = "Metadata"
TARGET_MEMBER = "TargetAssignmentMember"
TARGET_EPOCH = "TargetAssignmentMetadata"
CURRENT = "CurrentMemberAssignment"

RECORD_TYPES = {
    f"{prefix}Group{what}": (group_type, what)
    for prefix, group_type in (("Consumer", CONSUMER), ("Share", SHARE), ("Streams", STREAMS))
    for what in (MEMBER_METADATA, GROUP_EPOCH, TARGET_MEMBER, TARGET_EPOCH, CURRENT)
}
"""The records of consumer, share and streams groups that the history needs."""


REGULAR_EXPRESSION = "ConsumerGroupRegularExpression"
"""The record of the topics that match a regular expression of a subscription."""
REPLAYED = (*RECORD_TYPES, REGULAR_EXPRESSION)
"""All records that the history needs, beside those of classic groups."""


def record_types(what: str) -> dict[str, str]:
    """Return the type of the group by record type, for the records of one purpose."""
    return {name: group_type for name, (group_type, of_what) in RECORD_TYPES.items() if of_what == what}


_STABLE = {CONSUMER: 0, SHARE: 0, STREAMS: 1}
"""The member state STABLE, by group type."""
_FIRST_EPOCH = {CONSUMER: 1, SHARE: 1, STREAMS: 2}
_FIRST_TIMED_EPOCH = 2
"""The epoch of the first assignment of any group, on brokers that write when an assignment was computed."""
_AWAY = -2
"""LEAVE_GROUP_STATIC_MEMBER_EPOCH: a static member left temporarily."""
_NAMES = ("member_id", "instance_id", "client_id", "client_host")


@dataclass(slots=True)
class Member:
    """A member: its names, its subscription (None if unreadable), its epoch and state."""

    names: Row
    subscription: Any = None
    epoch: int = -1
    state: int = -1

    @property
    def identity(self) -> str:
        """The instance id of a static member, which is the same under a new member id; else the member id."""
        return str(self.names["instance_id"] or self.names["member_id"])


@dataclass(slots=True)
class GroupHistory:
    """
    Replays the records of one group in log order and yields a row for each change, see `rebalances`.

    Attributes:
        members: the current members, by member id.
        before: the members after the last change; None if compaction removed that record.
        owners_before: the owners of each partition (or task) after the last assignment; None if unknown.
        overtaken: the rebalance before the last change, while members still take its assignment.
    """

    group: str
    log_partition: int
    members: dict[str, Member] = field(default_factory=dict)
    before: dict[str, Member] | None = None
    owners_before: dict[Place, frozenset[str]] | None = None
    overtaken: Row | None = None
    _open: Row | None = None
    _targets: dict[str, frozenset[Place]] = field(default_factory=dict)
    _matching: dict[str, frozenset[str]] = field(default_factory=dict)
    """The topics that match a regular expression."""
    _target_epoch: int | None = None
    _assigned_at_ms: int | None = None
    _metadata_hash: int | None = None
    _generation: int | None = None
    _created_at_ms: int | None = None

    @property
    def open_change(self) -> Row | None:
        """Return the last change, which later records may still alter; None before the first one."""
        return self._open

    @property
    def is_rebalancing(self) -> bool:
        """Tell whether the last change is a rebalance that is not complete."""
        return self._open is not None and self._open["event"] == REBALANCED and self._open["completed_at_ms"] is None

    @property
    def subscribed(self) -> frozenset[str] | None:
        """Return the topics that the members subscribe to; None if a subscription is unknown, as those of streams groups."""
        found: set[str] = set()
        for member in self.members.values():
            topics = _topics_of(member.subscription, self._matching)
            if topics is None:
                return None
            found |= topics
        return frozenset(found)

    def replay(self, record: Row) -> Iterator[Row]:
        """Apply a record (`INPUT_COLUMNS`); yield rows that later records cannot change."""
        if record["kind"] == GROUP_METADATA:
            yield from self._replay_classic(record)
        elif record["record_type"] == REGULAR_EXPRESSION:
            self._replay_expression(record)
        elif record["record_type"] in RECORD_TYPES:
            group_type, record_name = RECORD_TYPES[record["record_type"]]
            value = None if record["tombstone"] else json.loads(record["value"])
            if self._is_conversion(record):
                yield from self._close(event=CONVERTED, left=[], fenced=[], why=[])
            if record_name == GROUP_EPOCH:
                yield from self._replay_epoch(record, group_type, value)
            else:
                if record_name == TARGET_EPOCH:
                    yield from self._end_overtaken()
                self._replay_member(record, group_type, record_name, value)

    def finish(self) -> Iterator[Row]:
        """Yield the rows that are open at the end of the log."""
        yield from self._end_overtaken()
        yield from self._close()

    def _replay_classic(self, record: Row) -> Iterator[Row]:
        if self._open is not None and self._open["group_type"] != CLASSIC and self._is_conversion(record):
            yield from self._close(event=CONVERTED, left=[], fenced=[], why=[])
        yield from self._close()
        at_ms, generation = record["timestamp_ms"], record["generation"]
        if self.before is None and not record["tombstone"] and generation <= 1:
            self.before, self.owners_before = {}, {}
        self.members = {} if record["tombstone"] else {one["member_id"]: _classic(one) for one in record["members"]}
        event = self._classic_event(record)
        self._open = {
            **self._row(record, CLASSIC, event),
            "completed_at_ms": at_ms,
            **{name: record[name] for name in ("protocol_type", "protocol", "leader")},
            "moved": None if record["tombstone"] else self._moved_to(_classic_owners(record["members"], self.members)),
            "sync_ms": _sync_ms(record, event),
        }
        if event == REBALANCED and generation == 1 and self._created_at_ms is not None:
            self._open["began_at_ms"] = self._created_at_ms
            self._open["duration_ms"] = at_ms - self._created_at_ms
        self._created_at_ms = at_ms if generation == 0 else None
        self._generation = generation
        if not record["tombstone"]:
            self.before = self.members

    def _classic_event(self, record: Row) -> str:
        if record["tombstone"]:
            return DELETED
        if self.members:
            return REPLACED if record["generation"] == self._generation else REBALANCED
        return CREATED if record["generation"] == 0 else EMPTIED

    def _replay_epoch(self, record: Row, group_type: str, value: Row | None) -> Iterator[Row]:
        row = self._open
        if value is None or not self.members:
            yield from self._end_overtaken()
        elif row is not None and self.is_rebalancing and row["generation"] == self._target_epoch:
            self.overtaken, self._open = row, None
        yield from self._close()
        if value is None:
            self.members, self._target_epoch = {}, None
            self._open = {**self._row(record, group_type, DELETED), "completed_at_ms": record["timestamp_ms"]}
            self._targets = {}
            return
        if self.before is None and value["epoch"] <= _FIRST_EPOCH[group_type]:
            self.before, self.owners_before = {}, {}
        event = REBALANCED if self.members else EMPTIED
        row = self._row(record, group_type, event, metadata_hash=value.get("metadataHash", 0))
        row |= {"generation": value["epoch"], "began_at_ms": record["timestamp_ms"]}
        if not self.members:
            row |= {"completed_at_ms": record["timestamp_ms"], "duration_ms": 0}
        self._open = row
        self._metadata_hash = value.get("metadataHash", 0)
        self.before = {name: Member(one.names, one.subscription) for name, one in self.members.items()}

    def _replay_member(self, record: Row, group_type: str, record_name: str, value: Row | None) -> None:
        name = record["member_id"]
        if record_name == MEMBER_METADATA:
            if value is None:
                self.members.pop(name, None)
            else:
                known = self.members.get(name)
                self.members[name] = Member(_names(name, value), _subscription(value))
                if known is not None:
                    self.members[name].epoch, self.members[name].state = known.epoch, known.state
        elif record_name == TARGET_MEMBER:
            self._targets[name] = frozenset() if value is None else frozenset(_target_places(value))
        elif record_name == TARGET_EPOCH:
            self._assigned(value)
        elif record_name == CURRENT and value is not None and name in self.members:
            self.members[name].epoch, self.members[name].state = value["memberEpoch"], value["state"]
            self._settle(record, group_type)

    def _replay_expression(self, record: Row) -> None:
        expression = json.loads(record["key"])["regularExpression"]
        if record["tombstone"]:
            self._matching.pop(expression, None)
        else:
            self._matching[expression] = frozenset(json.loads(record["value"])["topics"])

    def _assigned(self, value: Row | None) -> None:
        owners: dict[Place, frozenset[str]] = {}
        for name, places in self._targets.items():
            identity = self.members[name].identity if name in self.members else name
            for place in places:
                owners[place] = owners.get(place, frozenset()) | {identity}
        row = self._open
        self._target_epoch = None if value is None else value["assignmentEpoch"]
        assigned_at_ms = self._assigned_at_ms = None if value is None else value.get("assignmentTimestamp")
        if row is None or row["generation"] != self._target_epoch:
            self._moved_to(owners)
            return
        if assigned_at_ms is not None:
            # The records of one step are written, and get their time, after the assignment is computed.
            row["began_at_ms"] = min(row["began_at_ms"], assigned_at_ms)
            if row["joined"] is None and row["generation"] == _FIRST_TIMED_EPOCH:
                row |= {"joined": row["members"], "left": [], "fenced": [], "changed": [], "why": [JOINED]}
                self.owners_before = {}
        row["moved"] = self._moved_to(owners)

    def _moved_to(self, owners: dict[Place, frozenset[str]] | None) -> int | None:
        """Count the partitions whose owner changed, and remember the new owners."""
        before, self.owners_before = self.owners_before, owners
        if before is None or owners is None:
            return None
        return sum(1 for place, owner in owners.items() if place in before and before[place] != owner)

    def _settle(self, record: Row, group_type: str) -> None:
        """
        Complete a rebalance if all members, except static members that are away, have its target assignment. While the newest
        epoch waits for an assignment, they still take that of the epoch which it has overtaken.
        """
        present = [member for member in self.members.values() if member.epoch != _AWAY]
        at_ms = record["timestamp_ms"]
        for row in (self.overtaken, self._open):
            if row is None or row["event"] != REBALANCED or row["completed_at_ms"] is not None:
                continue
            if all(one.epoch == row["generation"] and one.state == _STABLE[group_type] for one in present):
                assigned_at_ms = self._assigned_at_ms if row["generation"] == self._target_epoch else None
                row |= {
                    "completed_at_ms": at_ms,
                    "duration_ms": at_ms - row["began_at_ms"],
                    "sync_ms": _last_phase_ms(assigned_at_ms, at_ms),
                }

    def _row(self, record: Row, group_type: str, event: str, *, metadata_hash: int | None = None) -> Row:
        joined, left, fenced, changed = self._differences()
        subscribed = self.subscribed
        row = dict.fromkeys(COLUMNS["rebalances"]) | {
            "group": self.group,
            "group_type": group_type,
            "log_partition": self.log_partition,
            "log_offset": record["log_offset"],
            "event": event,
            "generation": record["generation"] if group_type == CLASSIC else None,
            "members": [member.names for member in self.members.values()],
            "joined": joined,
            "left": left,
            "fenced": fenced,
            "changed": changed,
            "subscribed": None if subscribed is None else sorted(subscribed),
        }
        if joined is not None:
            row["why"] = [] if event in (CREATED, DELETED) else self._why(row, group_type, metadata_hash)
        return row

    def _why(self, row: Row, group_type: str, metadata_hash: int | None) -> list[str]:
        fenced = {one["instance_id"] for one in row["fenced"]}
        causes = {
            JOINED: any(one["instance_id"] is None or one["instance_id"] not in fenced for one in row["joined"]),
            LEFT: len(row["left"]) > len(row["fenced"]),
            FENCED: bool(row["fenced"]),
            SUBSCRIPTION: bool(row["changed"]),
        }
        found = [name for name, holds in causes.items() if holds]
        if group_type == CLASSIC:
            return found or [REJOINED] if row["event"] == REBALANCED else found
        if self.members and self._metadata_hash is not None and metadata_hash != self._metadata_hash and not found:
            return [METADATA]
        return found

    def _differences(self) -> tuple[list[Row] | None, list[Row] | None, list[Row] | None, list[Row] | None]:
        """Return the members that joined, left, were fenced, and changed their subscription since the last change."""
        if self.before is None:
            return None, None, None, None
        joined = [one for name, one in self.members.items() if name not in self.before]
        left = [one for name, one in self.before.items() if name not in self.members]
        successors = {one.names["instance_id"] for one in joined} - {None}
        fenced = [one.names for one in left if one.names["instance_id"] in successors]
        changed = [
            one.names
            for name, one in self.members.items()
            if name in self.before and _has_changed(self.before[name].subscription, one.subscription)
        ]
        return [one.names for one in joined], [one.names for one in left], fenced, changed

    def _is_conversion(self, record: Row) -> bool:
        """Tell whether a group was converted: deleted, and created with another type in the same millisecond."""
        row = self._open
        is_classic = record["kind"] == GROUP_METADATA
        return (
            row is not None
            and row["event"] == DELETED
            and (row["group_type"] == CLASSIC) != is_classic
            and row["completed_at_ms"] == record["timestamp_ms"]
        )

    def _end_overtaken(self) -> Iterator[Row]:
        row, self.overtaken = self.overtaken, None
        if row is not None:
            yield row

    def _close(self, **changes: Any) -> Iterator[Row]:
        row, self._open = self._open, None
        if row is None:
            return
        if row["event"] == DELETED and not changes:
            self.before, self.owners_before, self._metadata_hash = {}, {}, None
        yield row | changes


def changed_at_ms(change: Mapping[str, Any]) -> int:
    """Return when a change was complete; if it never was, when it began."""
    at_ms: int = change["began_at_ms"] if change["completed_at_ms"] is None else change["completed_at_ms"]
    return at_ms


def took_ms(change: Mapping[str, Any]) -> int | None:
    """Return the duration of a rebalance; its last phase, which is the least that it took, if the log tells no more."""
    known: int | None = change["sync_ms"] if change["duration_ms"] is None else change["duration_ms"]
    return known


def _has_changed(before: Any, now: Any) -> bool:
    """Compare subscriptions of the same kind; those of classic members are of another type."""
    return type(before) is type(now) and before != now


def _classic(member: Mapping[str, Any]) -> Member:
    return Member({name: member[name] for name in _NAMES}, _subscribed(member["subscription"]))


def _names(member_id: str, value: Row) -> Row:
    names = (member_id, value.get("instanceId"), value["clientId"], value["clientHost"])
    return dict(zip(_NAMES, names, strict=True))


def _subscription(value: Row) -> Any:
    """Return the part of a member's metadata on which its assignment depends."""
    names = tuple(sorted(value.get("subscribedTopicNames") or ()))
    return (names, value.get("subscribedTopicRegex"), value.get("serverAssignor"), value.get("topologyEpoch"))


def _topics_of(subscription: Any, matching: Mapping[str, frozenset[str]]) -> frozenset[str] | None:
    """Return the topics of a member's subscription; None if they are unknown."""
    if not isinstance(subscription, tuple):
        return subscription if isinstance(subscription, frozenset) else None
    names, expression, _, topology_epoch = subscription
    matched = matching.get(expression) if expression else frozenset()
    return None if matched is None or topology_epoch is not None else matched.union(names)


def _subscribed(subscription: bytes | None) -> frozenset[str] | None:
    """The topics in a subscription of the consumer protocol; None if it is malformed. All versions begin as version 0."""
    try:
        return frozenset(read_subscription(subscription or b"", version=0).topics)
    except WireError:
        return None


def _classic_owners(listed: list[Row], members: dict[str, Member]) -> dict[Place, frozenset[str]] | None:
    owners: dict[Place, frozenset[str]] = {}
    for one in listed:
        if one["assigned"] is None:
            return None
        for place in one["assigned"]:
            owners[place["topic"], place["partition"]] = frozenset({members[one["member_id"]].identity})
    return owners


def _target_places(value: Row) -> Iterator[Place]:
    """Yield partitions by topic id; for streams groups, active tasks by subtopology."""
    for topic in value.get("topicPartitions") or ():
        yield from ((topic["topicId"], partition) for partition in topic["partitions"])
    for task in value.get("activeTasks") or ():
        yield from ((task["subtopologyId"], partition) for partition in task["partitions"])


def _sync_ms(record: Row, event: str) -> int | None:
    """Return the time from the end of the join phase to the assignment, if the record has the former."""
    return _last_phase_ms(record["state_timestamp_ms"], record["timestamp_ms"]) if event == REBALANCED else None


def _last_phase_ms(began_at_ms: int | None, at_ms: int) -> int | None:
    return None if began_at_ms is None or not 0 <= began_at_ms <= at_ms else at_ms - began_at_ms
