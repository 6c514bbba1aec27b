"""
A group with a server-side assignor, of the consumer, share or streams kind: members join, leave, are replaced by instance id
and change their subscription. Every change begins an epoch, and each member reconciles to its target assignment step by step.

The group keeps the expected rows of the pipeline's tables. It derives them from the events, not from the written records.

Source: KIP-848, reconciliation; KIP-932; KIP-1071.
"""

from dataclasses import dataclass, field
from typing import Any

from kohort.model.ids import CONSUMER_OFFSETS
from kohort_lab.history import values
from kohort_lab.history.logs import Record
from kohort_lab.history.world import World

Row = dict[str, Any]
Partition = tuple[str, int]

_STABLE = {"consumer": 0, "share": 0, "streams": 1}
_FIRST_EPOCH = {"consumer": 1, "share": 1, "streams": 2}


@dataclass(slots=True)
class Member:
    """A member: its names, subscription, current and target assignment; for streams groups also standby and warm-up tasks."""

    names: Row
    subscribed: list[str]
    epoch: int = 0
    state: int = 0
    assigned: set[Partition] = field(default_factory=set)
    target: set[Partition] = field(default_factory=set)
    copies: dict[Partition, str] = field(default_factory=dict)
    target_copies: dict[Partition, str] = field(default_factory=dict)


@dataclass(slots=True)
class ModernGroup:
    """
    Attributes:
        changes, stays, owned: rows of `rebalances`, `members` and `assignments`.
    """

    world: World
    group: str
    kind: str
    epoch: int = 0
    target_epoch: int = 0
    metadata_hash: int = 1
    members: dict[str, Member] = field(default_factory=dict)
    changes: list[Row] = field(default_factory=list)
    memberships: list[Row] = field(default_factory=list)
    owned: list[Row] = field(default_factory=list)
    _known: dict[str, Member] = field(default_factory=dict)
    _owners: dict[Partition, frozenset[str]] = field(default_factory=dict)

    def act(self) -> None:
        """Run one random event."""
        rng = self.world.rng
        if not self.members:
            if self.epoch and rng.random() < 0.2:
                self._deletes()
            else:
                self._joins()
            return
        steps = [self._joins, self._leaves, self._subscription_changes, self._metadata_changes]
        if self.kind == "consumer" and any(one.names["instance_id"] for one in self.members.values()):
            steps.append(self._static_member_returns)
        if rng.random() < 0.6:
            steps = [self._heartbeats]
        rng.choice(steps)()

    def owned_partitions(self) -> list[Partition]:
        """The partitions for which the group commits offsets; only consumer groups do."""
        if self.kind != "consumer":
            return []
        return [partition for member in self.members.values() for partition in sorted(member.assigned)]

    def _joins(self) -> None:
        static = self.kind != "share" and self.world.rng.random() < 0.3
        names: Row = {"member_id": self.world.new_id("m"), "instance_id": self.world.new_id("i") if static else None}
        names |= {"client_id": self.world.new_id("c"), "client_host": "/127.0.0.1"}
        member = self.members[names["member_id"]] = Member(names, sorted(self.world.topics))
        self._begin([self._metadata(member)], assigning=member)

    def _leaves(self) -> None:
        member = self._any_member()
        name = member.names["member_id"]
        del self.members[name]
        gone = [self._record(what, name, None) for what in ("CurrentMemberAssignment", "TargetAssignmentMember")]
        self._begin([*gone, self._record("MemberMetadata", name, None)], assigning=None)

    def _subscription_changes(self) -> None:
        member = self._any_member()
        topics = sorted(self.world.topics)
        member.subscribed = topics[:1] if member.subscribed != topics[:1] else topics
        self._begin([self._metadata(member)], assigning=member)

    def _metadata_changes(self) -> None:
        self.metadata_hash += 1
        self._begin([], assigning=self._any_member())

    def _static_member_returns(self) -> None:
        """A static member joins under a new member id and replaces the old one within the epoch."""
        old = self.world.rng.choice([one for one in self.members.values() if one.names["instance_id"]])
        name = old.names["member_id"]
        del self.members[name]
        new = Member(
            old.names | {"member_id": self.world.new_id("m")},
            old.subscribed,
            old.epoch,
            old.state,
            old.assigned,
            old.target,
        )
        self.members[new.names["member_id"]] = new
        records = [
            self._record("CurrentMemberAssignment", name, None),
            self._record("TargetAssignmentMember", name, None),
        ]
        records += [
            self._record("MemberMetadata", name, None),
            self._metadata(new),
            self._target(new),
            self._current(new),
        ]
        base = self._write(records)
        self._keep(
            base,
            {name: base, new.names["member_id"]: base + 5},
            metadata={name: base, new.names["member_id"]: base + 3},
        )

    def _deletes(self) -> None:
        """Delete the empty group: tombstones of its target epoch and its epoch."""
        records = [self._record("TargetAssignmentMetadata", None, None)] if self.target_epoch else []
        base = self._write([*records, self._record("Metadata", None, None)])
        self._change(base + len(records), "deleted", generation=None, completed_at_ms=self.world.now_ms)
        self.epoch = self.target_epoch = 0
        self._known, self._owners = {}, {}

    def _heartbeats(self) -> None:
        """One member reconciles a step; before that, the target assignment is computed if it is older than the group epoch."""
        records = self._assigned() if self.target_epoch < self.epoch else []
        member = self._any_member()
        self._step(member)
        base = self._write([*records, self._current(member)])
        self._settle()
        self._keep(base, {member.names["member_id"]: base + len(records)})

    def _begin(self, records: list[Record], *, assigning: Member | None) -> None:
        """Begin an epoch. A member that caused it is assigned at once; after a leave the next heartbeat computes the target."""
        self.epoch = max(self.epoch + 1, _FIRST_EPOCH[self.kind])
        at = len(records)
        records.append(self._record("Metadata", None, {"epoch": self.epoch, "metadataHash": self.metadata_hash}))
        event = "rebalanced" if self.members else "emptied"
        row = self._difference(event)
        if assigning is not None:
            records += self._assigned(row)
            self._step(assigning)
            records.append(self._current(assigning))
        base = self._write(records)
        over = {} if self.members else {"completed_at_ms": self.world.now_ms, "duration_ms": 0}
        begun = {"generation": self.epoch, "began_at_ms": self.world.now_ms}
        self._change(base + at, event, **{**begun, **over, **row})
        self._settle()
        named = {} if assigning is None else {assigning.names["member_id"]: base + len(records) - 1}
        self._keep(base, named)

    def _difference(self, event: str) -> Row:
        """The members that joined and left since the previous epoch, and the causes of this one."""
        joined = [one.names for name, one in self.members.items() if name not in self._known]
        left = [one.names for name, one in self._known.items() if name not in self.members]
        fenced = [
            one
            for one in left
            if one["instance_id"] and any(one["instance_id"] == new["instance_id"] for new in joined)
        ]
        successors = [
            one
            for one in joined
            if one["instance_id"] and any(one["instance_id"] == old["instance_id"] for old in left)
        ]
        changed = [
            one.names
            for name, one in self.members.items()
            if name in self._known and one.subscribed != self._known[name].subscribed
        ]
        fields = {"joined": len(joined) > len(successors), "left": len(left) > len(fenced), "fenced": bool(fenced)}
        why = [name for name, assigned in (fields | {"subscription": bool(changed)}).items() if assigned]
        self._known = {name: Member(one.names, list(one.subscribed)) for name, one in self.members.items()}
        if not why and event == "rebalanced":
            why = ["metadata"]
        return {"joined": joined, "left": left, "fenced": fenced, "changed": changed, "why": why, "moved": None}

    def _assigned(self, row: Row | None = None) -> list[Record]:
        """Compute the target assignment and count its moves, into the given row or the row of the open epoch."""
        before = {name: (one.target, one.target_copies) for name, one in self.members.items()}
        for one in self.members.values():
            one.target, one.target_copies = set(), {}
        for topic, partition in self.world.topic_partitions:
            subscribers = [one for one in self.members.values() if topic in one.subscribed]
            if subscribers:
                owner = self.world.rng.choice(subscribers)
                owner.target.add((topic, partition))
                self._copy((topic, partition), [one for one in subscribers if one is not owner])
        owners: dict[Partition, frozenset[str]] = {}
        for one in self.members.values():
            for topic_partition in one.target:
                owners[topic_partition] = frozenset({str(one.names["instance_id"] or one.names["member_id"])})
        open_row = row if row is not None else self.changes[-1]
        open_row["moved"] = sum(
            topic_partition in self._owners and self._owners[topic_partition] != owner
            for topic_partition, owner in owners.items()
        )
        self._owners = owners
        self.target_epoch = self.epoch
        changed = [
            self._target(one)
            for name, one in self.members.items()
            if (one.target, one.target_copies) != before[name] or not one.epoch
        ]
        return [*changed, self._record("TargetAssignmentMetadata", None, {"assignmentEpoch": self.epoch})]

    def _copy(self, task: Partition, others: list[Member]) -> None:
        """Add standby and warm-up copies of a task in streams groups."""
        for one in others if self.kind == "streams" else ():
            role = self.world.rng.choice((None, "standby", "warmup"))
            if role is not None:
                one.target_copies[task] = role

    def _step(self, member: Member) -> None:
        stable = _STABLE[self.kind]
        if self.kind != "consumer":
            member.epoch, member.state, member.assigned = self.epoch, stable, set(member.target)
            member.copies = dict(member.target_copies)
            return
        surplus = member.assigned - member.target
        if surplus:
            member.state = stable + 1
            member.assigned -= surplus
            return
        taken = {
            topic_partition for one in self.members.values() if one is not member for topic_partition in one.assigned
        }
        member.epoch = self.epoch
        member.assigned = member.target - taken
        member.state = stable if member.assigned == member.target else stable + 2

    def _settle(self) -> None:
        row = self.changes[-1]
        if row["event"] != "rebalanced" or row["completed_at_ms"] is not None:
            return
        if all(one.epoch == self.epoch and one.state == _STABLE[self.kind] for one in self.members.values()):
            row["completed_at_ms"] = self.world.now_ms
            row["duration_ms"] = self.world.now_ms - row["began_at_ms"]

    def _any_member(self) -> Member:
        return self.world.rng.choice(list(self.members.values()))

    def _write(self, records: list[Record]) -> int:
        return self.world.write(CONSUMER_OFFSETS, records).base_offset

    def _record(self, what: str, member_id: str | None, value: Row | None) -> Record:
        key: Row = {"groupId": self.group} | ({} if member_id is None else {"memberId": member_id})
        return values.record(f"{self.kind.capitalize()}Group{what}", key, value)

    def _metadata(self, member: Member) -> Record:
        names = member.names
        value = {"instanceId": names["instance_id"], "rackId": None, "clientId": names["client_id"]}
        value |= {
            "clientHost": names["client_host"],
            "subscribedTopicNames": member.subscribed,
            "subscribedTopicRegex": "",
        }
        value |= {"rebalanceTimeoutMs": 300_000, "serverAssignor": None, "classicMemberMetadata": None}
        # A streams member has a topology epoch in place of a subscription.
        value |= {"topologyEpoch": len(member.subscribed), "processId": "p", "userEndpoint": None, "clientTags": []}
        return self._record("MemberMetadata", names["member_id"], value)

    def _target(self, member: Member) -> Record:
        value = {"topicPartitions": self._by_id(member.target)} | _tasks(member.target, member.target_copies)
        return self._record("TargetAssignmentMember", member.names["member_id"], value)

    def _current(self, member: Member) -> Record:
        held = self._by_id(member.assigned)
        pending = ("activeTasksPendingRevocation", "standbyTasksPendingRevocation", "warmupTasksPendingRevocation")
        value = {"memberEpoch": member.epoch, "previousMemberEpoch": member.epoch, "state": member.state}
        fields = {"assignedPartitions": held, "partitionsPendingRevocation": [], **{name: [] for name in pending}}
        fields |= _tasks(member.assigned, member.copies)
        return self._record("CurrentMemberAssignment", member.names["member_id"], value | fields)

    def _by_id(self, topic_partitions: set[Partition]) -> list[Row]:
        return [
            {"topicId": self.world.topic_id(topic), "partitions": [partition]}
            for topic, partition in sorted(topic_partitions)
        ]

    def _change(self, offset: int, event: str, **fields: Any) -> None:
        row: Row = {
            "group": self.group,
            "group_type": self.kind,
            "log_partition": self.world.partition,
            "log_offset": offset,
            "began_at_ms": None,
            "completed_at_ms": None,
            "event": event,
            "generation": None,
            "protocol_type": None,
            "protocol": None,
            "leader": None,
            "members": [one.names for one in self.members.values()],
            "joined": [],
            "left": [],
            "fenced": [],
            "changed": [],
            "why": [],
            "moved": None,
            "sync_ms": None,
            "duration_ms": None,
        }
        self.changes.append(row | fields)

    def _keep(self, base: int, holding: dict[str, int], *, metadata: dict[str, int] | None = None) -> None:
        """Begin and end rows; `holding` and `metadata` are the offsets of the records with assignments and member metadata."""
        now_ms = self.world.now_ms
        named: Row = {"group": self.group, "group_type": self.kind, "since_ms": now_ms, "until_ms": None}
        for row in self.memberships:
            if row["until_ms"] is None and row["member_id"] not in self.members:
                row["until_ms"] = now_ms
        there = {row["member_id"] for row in self.memberships if row["until_ms"] is None}
        for name, one in self.members.items():
            if name not in there:
                offset = (metadata or {}).get(name, base)
                self.memberships.append(named | one.names | {"first_log_offset": offset})
        self._keep_owned(named, holding)

    def _keep_owned(self, named: Row, holding: dict[str, int]) -> None:
        topic_partitions = {name: self._partitions(one) for name, one in self.members.items()}
        for row in self.owned:
            if row["until_ms"] is None and _partition_of(row) not in topic_partitions.get(row["member_id"], ()):
                row["until_ms"] = self.world.now_ms
        held = {(row["member_id"], _partition_of(row)) for row in self.owned if row["until_ms"] is None}
        for name, here in topic_partitions.items():
            for topic_partition in here:
                if (name, topic_partition) not in held:
                    fields = dict(zip(_PARTITION, topic_partition, strict=True))
                    self.owned.append(named | fields | {"member_id": name, "first_log_offset": holding[name]})

    def _partitions(self, member: Member) -> list[tuple[Any, ...]]:
        """The assignment of a member as `_PARTITION`: partitions by topic, or tasks by subtopology."""
        if self.kind != "streams":
            return [(topic, self.world.topic_id(topic), None, at, None) for topic, at in sorted(member.assigned)]
        active = [(None, None, topic, at, "active") for topic, at in sorted(member.assigned)]
        return active + [(None, None, topic, at, role) for (topic, at), role in sorted(member.copies.items())]


_PARTITION = ("topic", "topic_id", "subtopology", "partition", "role")


def _partition_of(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in _PARTITION)


def _tasks(active: set[Partition], copies: dict[Partition, str]) -> Row:
    """Tasks in the form of records; a subtopology has the name of its topic."""
    by_role: dict[str, list[Partition]] = {"active": sorted(active), "standby": [], "warmup": []}
    for topic_partition, role in sorted(copies.items()):
        by_role[role].append(topic_partition)
    return {
        f"{role}Tasks": [{"subtopologyId": topic, "partitions": [partition]} for topic, partition in topic_partitions]
        for role, topic_partitions in by_role.items()
    }
