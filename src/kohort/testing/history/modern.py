"""
A group that its coordinator assigns, of the consumer, share or streams kind: members come, go, are replaced by their
instance id, want something else; every change begins an epoch, and each member moves to its target step by step.

Keeps what the tables of the pipeline must say of it, from what happened, not from what was written.

Source: KIP-848, reconciliation; KIP-932; KIP-1071.
"""

from dataclasses import dataclass, field
from typing import Any

from kohort.model.ids import CONSUMER_OFFSETS
from kohort.testing.history import values
from kohort.testing.history.logs import Record
from kohort.testing.history.world import World

Row = dict[str, Any]
Place = tuple[str, int]

_STABLE = {"consumer": 0, "share": 0, "streams": 1}
_FIRST_EPOCH = {"consumer": 1, "share": 1, "streams": 2}


@dataclass(slots=True)
class Member:
    """A member: what it is called and wants, what it holds and should hold, tasks and the roles of their copies among it."""

    names: Row
    wants: list[str]
    epoch: int = 0
    state: int = 0
    holds: set[Place] = field(default_factory=set)
    target: set[Place] = field(default_factory=set)
    copies: dict[Place, str] = field(default_factory=dict)
    target_copies: dict[Place, str] = field(default_factory=dict)


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
    people: dict[str, Member] = field(default_factory=dict)
    changes: list[Row] = field(default_factory=list)
    stays: list[Row] = field(default_factory=list)
    owned: list[Row] = field(default_factory=list)
    _known: dict[str, Member] = field(default_factory=dict)
    _owners: dict[Place, frozenset[str]] = field(default_factory=dict)

    def act(self) -> None:
        """Something happens to the group."""
        chance = self.world.chance
        if not self.people:
            if self.epoch and chance.random() < 0.2:
                self._deletes()
            else:
                self._joins()
            return
        steps = [self._joins, self._leaves, self._wants_else, self._metadata_changes]
        if self.kind == "consumer" and any(one.names["instance_id"] for one in self.people.values()):
            steps.append(self._comes_back)
        if chance.random() < 0.6:
            steps = [self._heartbeats]
        chance.choice(steps)()

    def owned_places(self) -> list[Place]:
        """Of share groups nobody commits offsets, of streams groups the places are tasks."""
        return [place for one in self.people.values() for place in sorted(one.holds)] if self.kind == "consumer" else []

    def _joins(self) -> None:
        static = self.kind != "share" and self.world.chance.random() < 0.3
        names: Row = {"member_id": self.world.new_id("m"), "instance_id": self.world.new_id("i") if static else None}
        names |= {"client_id": self.world.new_id("c"), "client_host": "/127.0.0.1"}
        person = self.people[names["member_id"]] = Member(names, sorted(self.world.topics))
        self._begin([self._metadata(person)], assigning=person)

    def _leaves(self) -> None:
        person = self._anybody()
        name = person.names["member_id"]
        del self.people[name]
        gone = [self._record(what, name, None) for what in ("CurrentMemberAssignment", "TargetAssignmentMember")]
        self._begin([*gone, self._record("MemberMetadata", name, None)], assigning=None)

    def _wants_else(self) -> None:
        person = self._anybody()
        topics = sorted(self.world.topics)
        person.wants = topics[:1] if person.wants != topics[:1] else topics
        self._begin([self._metadata(person)], assigning=person)

    def _metadata_changes(self) -> None:
        self.metadata_hash += 1
        self._begin([], assigning=self._anybody())

    def _comes_back(self) -> None:
        """A static member under a new id takes the place of the old one, within the epoch."""
        old = self.world.chance.choice([one for one in self.people.values() if one.names["instance_id"]])
        name = old.names["member_id"]
        del self.people[name]
        new = Member(
            old.names | {"member_id": self.world.new_id("m")}, old.wants, old.epoch, old.state, old.holds, old.target
        )
        self.people[new.names["member_id"]] = new
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
        """The empty group goes: its target epoch and its epoch."""
        records = [self._record("TargetAssignmentMetadata", None, None)] if self.target_epoch else []
        base = self._write([*records, self._record("Metadata", None, None)])
        self._change(base + len(records), "deleted", generation=None, completed_at_ms=self.world.now_ms)
        self.epoch = self.target_epoch = 0
        self._known, self._owners = {}, {}

    def _heartbeats(self) -> None:
        """One member takes a step towards its target; the target is made first where it is not that of the epoch."""
        records = self._assigned() if self.target_epoch < self.epoch else []
        person = self._anybody()
        self._step(person)
        base = self._write([*records, self._current(person)])
        self._settle()
        self._keep(base, {person.names["member_id"]: base + len(records)})

    def _begin(self, records: list[Record], *, assigning: Member | None) -> None:
        """A new epoch; who asked for it is assigned at once, after a leave somebody's next heartbeat does that."""
        self.epoch = max(self.epoch + 1, _FIRST_EPOCH[self.kind])
        at = len(records)
        records.append(self._record("Metadata", None, {"epoch": self.epoch, "metadataHash": self.metadata_hash}))
        event = "rebalanced" if self.people else "emptied"
        row = self._difference(event)
        if assigning is not None:
            records += self._assigned(row)
            self._step(assigning)
            records.append(self._current(assigning))
        base = self._write(records)
        over = {} if self.people else {"completed_at_ms": self.world.now_ms, "duration_ms": 0}
        begun = {"generation": self.epoch, "began_at_ms": self.world.now_ms}
        self._change(base + at, event, **{**begun, **over, **row})
        self._settle()
        named = {} if assigning is None else {assigning.names["member_id"]: base + len(records) - 1}
        self._keep(base, named)

    def _difference(self, event: str) -> Row:
        """Who came and went since the epoch before, and why this one began."""
        joined = [one.names for name, one in self.people.items() if name not in self._known]
        left = [one.names for name, one in self._known.items() if name not in self.people]
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
            for name, one in self.people.items()
            if name in self._known and one.wants != self._known[name].wants
        ]
        told = {"joined": len(joined) > len(successors), "left": len(left) > len(fenced), "fenced": bool(fenced)}
        why = [name for name, holds in (told | {"subscription": bool(changed)}).items() if holds]
        self._known = {name: Member(one.names, list(one.wants)) for name, one in self.people.items()}
        if not why and event == "rebalanced":
            why = ["metadata"]
        return {"joined": joined, "left": left, "fenced": fenced, "changed": changed, "why": why, "moved": None}

    def _assigned(self, row: Row | None = None) -> list[Record]:
        """A target for everybody, and what that moves; into the row of the epoch that is open, or the one given."""
        before = {name: (one.target, one.target_copies) for name, one in self.people.items()}
        for one in self.people.values():
            one.target, one.target_copies = set(), {}
        for topic, partition in self.world.places:
            wanting = [one for one in self.people.values() if topic in one.wants]
            if wanting:
                owner = self.world.chance.choice(wanting)
                owner.target.add((topic, partition))
                self._copy((topic, partition), [one for one in wanting if one is not owner])
        owners: dict[Place, frozenset[str]] = {}
        for one in self.people.values():
            for place in one.target:
                owners[place] = frozenset({str(one.names["instance_id"] or one.names["member_id"])})
        open_row = row if row is not None else self.changes[-1]
        open_row["moved"] = sum(
            place in self._owners and self._owners[place] != owner for place, owner in owners.items()
        )
        self._owners = owners
        self.target_epoch = self.epoch
        changed = [
            self._target(one)
            for name, one in self.people.items()
            if (one.target, one.target_copies) != before[name] or not one.epoch
        ]
        return [*changed, self._record("TargetAssignmentMetadata", None, {"assignmentEpoch": self.epoch})]

    def _copy(self, task: Place, others: list[Member]) -> None:
        """Streams groups keep copies of the state of some tasks."""
        for one in others if self.kind == "streams" else ():
            role = self.world.chance.choice((None, "standby", "warmup"))
            if role is not None:
                one.target_copies[task] = role

    def _step(self, person: Member) -> None:
        stable = _STABLE[self.kind]
        if self.kind != "consumer":
            person.epoch, person.state, person.holds = self.epoch, stable, set(person.target)
            person.copies = dict(person.target_copies)
            return
        surplus = person.holds - person.target
        if surplus:
            person.state = stable + 1
            person.holds -= surplus
            return
        taken = {place for one in self.people.values() if one is not person for place in one.holds}
        person.epoch = self.epoch
        person.holds = person.target - taken
        person.state = stable if person.holds == person.target else stable + 2

    def _settle(self) -> None:
        row = self.changes[-1]
        if row["event"] != "rebalanced" or row["completed_at_ms"] is not None:
            return
        if all(one.epoch == self.epoch and one.state == _STABLE[self.kind] for one in self.people.values()):
            row["completed_at_ms"] = self.world.now_ms
            row["duration_ms"] = self.world.now_ms - row["began_at_ms"]

    def _anybody(self) -> Member:
        return self.world.chance.choice(list(self.people.values()))

    def _write(self, records: list[Record]) -> int:
        return self.world.write(CONSUMER_OFFSETS, records).base_offset

    def _record(self, what: str, member_id: str | None, value: Row | None) -> Record:
        key: Row = {"groupId": self.group} | ({} if member_id is None else {"memberId": member_id})
        return values.record(f"{self.kind.capitalize()}Group{what}", key, value)

    def _metadata(self, person: Member) -> Record:
        names = person.names
        value = {"instanceId": names["instance_id"], "rackId": None, "clientId": names["client_id"]}
        value |= {"clientHost": names["client_host"], "subscribedTopicNames": person.wants, "subscribedTopicRegex": ""}
        value |= {"rebalanceTimeoutMs": 300_000, "serverAssignor": None, "classicMemberMetadata": None}
        # Streams members want a topology; another one stands for other topics.
        value |= {"topologyEpoch": len(person.wants), "processId": "p", "userEndpoint": None, "clientTags": []}
        return self._record("MemberMetadata", names["member_id"], value)

    def _target(self, person: Member) -> Record:
        value = {"topicPartitions": self._by_id(person.target)} | _tasks(person.target, person.target_copies)
        return self._record("TargetAssignmentMember", person.names["member_id"], value)

    def _current(self, person: Member) -> Record:
        held = self._by_id(person.holds)
        pending = ("activeTasksPendingRevocation", "standbyTasksPendingRevocation", "warmupTasksPendingRevocation")
        value = {"memberEpoch": person.epoch, "previousMemberEpoch": person.epoch, "state": person.state}
        told = {"assignedPartitions": held, "partitionsPendingRevocation": [], **{name: [] for name in pending}}
        told |= _tasks(person.holds, person.copies)
        return self._record("CurrentMemberAssignment", person.names["member_id"], value | told)

    def _by_id(self, places: set[Place]) -> list[Row]:
        return [
            {"topicId": self.world.topic_id(topic), "partitions": [partition]} for topic, partition in sorted(places)
        ]

    def _change(self, offset: int, event: str, **told: Any) -> None:
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
            "members": [one.names for one in self.people.values()],
            "joined": [],
            "left": [],
            "fenced": [],
            "changed": [],
            "why": [],
            "moved": None,
            "sync_ms": None,
            "duration_ms": None,
        }
        self.changes.append(row | told)

    def _keep(self, base: int, holding: dict[str, int], *, metadata: dict[str, int] | None = None) -> None:
        """Stays and ownerships end or begin; `holding` and `metadata` are the offsets of the records that say so."""
        now_ms = self.world.now_ms
        named: Row = {"group": self.group, "group_type": self.kind, "since_ms": now_ms, "until_ms": None}
        for row in self.stays:
            if row["until_ms"] is None and row["member_id"] not in self.people:
                row["until_ms"] = now_ms
        there = {row["member_id"] for row in self.stays if row["until_ms"] is None}
        for name, one in self.people.items():
            if name not in there:
                offset = (metadata or {}).get(name, base)
                self.stays.append(named | one.names | {"first_log_offset": offset})
        self._keep_owned(named, holding)

    def _keep_owned(self, named: Row, holding: dict[str, int]) -> None:
        places = {name: self._places(one) for name, one in self.people.items()}
        for row in self.owned:
            if row["until_ms"] is None and _place_of(row) not in places.get(row["member_id"], ()):
                row["until_ms"] = self.world.now_ms
        held = {(row["member_id"], _place_of(row)) for row in self.owned if row["until_ms"] is None}
        for name, here in places.items():
            for place in here:
                if (name, place) not in held:
                    told = dict(zip(_PLACE, place, strict=True))
                    self.owned.append(named | told | {"member_id": name, "first_log_offset": holding[name]})

    def _places(self, person: Member) -> list[tuple[Any, ...]]:
        """What somebody holds as `_PLACE`: partitions by topic, or tasks by subtopology."""
        if self.kind != "streams":
            return [(topic, self.world.topic_id(topic), None, at, None) for topic, at in sorted(person.holds)]
        active = [(None, None, topic, at, "active") for topic, at in sorted(person.holds)]
        return active + [(None, None, topic, at, role) for (topic, at), role in sorted(person.copies.items())]


_PLACE = ("topic", "topic_id", "subtopology", "partition", "role")


def _place_of(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in _PLACE)


def _tasks(active: set[Place], copies: dict[Place, str]) -> Row:
    """Tasks as records list them; a subtopology is called as its topic."""
    by_role: dict[str, list[Place]] = {"active": sorted(active), "standby": [], "warmup": []}
    for place, role in sorted(copies.items()):
        by_role[role].append(place)
    return {
        f"{role}Tasks": [{"subtopologyId": topic, "partitions": [partition]} for topic, partition in places]
        for role, places in by_role.items()
    }
