"""
A classic group whose members join, leave, return under their instance id, and change their subscription.

The group keeps the expected rows of the pipeline's tables. It derives them from the events, not from the written records.
"""

from dataclasses import dataclass, field
from typing import Any

from kohort.model.ids import CONSUMER_OFFSETS
from kohort_lab.history import values
from kohort_lab.history.world import World

Row = dict[str, Any]


@dataclass(slots=True)
class ClassicGroup:
    """
    Attributes:
        members: by member id, `names`, `topics` and `owned`.
        changes: rows of `rebalances`.
        stays, owned: rows of `members` and `assignments`.
    """

    world: World
    group: str
    generation: int = -1
    members: dict[str, Row] = field(default_factory=dict)
    changes: list[Row] = field(default_factory=list)
    memberships: list[Row] = field(default_factory=list)
    owned: list[Row] = field(default_factory=list)
    _created_ms: int | None = None

    def act(self) -> None:
        """Run one random event."""
        rng = self.world.rng
        if self.generation < 0:
            self._create()
            return
        steps = [self._joins, self._joins, self._rejoins]
        if self.members:
            steps += [self._leaves, self._leaves, self._resubscribes, self._leaves_and_joins]
            steps += [self._static_member_returns] if self._static() else []
        if self.members and self.generation > 0 and rng.random() < 0.1:
            steps = [self._empties]
        if not self.members and self.generation > 0 and rng.random() < 0.4:
            steps = [self._deletes]
        rng.choice(steps)()

    def owned_partitions(self) -> list[tuple[str, int]]:
        return [topic_partition for member in self.members.values() for topic_partition in member["owned"]]

    def _create(self) -> None:
        self.generation = 0
        self._created_ms = self.world.now_ms
        offset = self._write()
        self._change(offset, "created", why=[])

    def _joins(self) -> None:
        before = self._owners()
        joined = [self._new_member() for _ in range(self.world.rng.randint(1, 2))]
        self._rebalance(before, joined=joined, why=["joined"])

    def _leaves(self) -> None:
        before = self._owners()
        left = [self._remove_member()]
        self._rebalance(before, left=left, why=["left"])

    def _leaves_and_joins(self) -> None:
        before = self._owners()
        left = [self._remove_member()]
        self._rebalance(before, joined=[self._new_member()], left=left, why=["joined", "left"])

    def _resubscribes(self) -> None:
        before = self._owners()
        member = self._any_member()
        member["topics"] = sorted(set(self.world.topics) - set(member["topics"])) or [next(iter(self.world.topics))]
        self._rebalance(before, changed=[member["names"]], why=["subscription"])

    def _rejoins(self) -> None:
        if self.members:
            self._rebalance(self._owners(), why=["rejoined"])

    def _static_member_returns(self) -> None:
        """A static member joins under a new member id and replaces the old one; there is no rebalance."""
        name = self.world.rng.choice(self._static())
        old = self.members.pop(name)
        new = old | {"names": old["names"] | {"member_id": self.world.new_id("m")}}
        self.members[new["names"]["member_id"]] = new
        self._end(self.memberships, lambda row: row["member_id"] == name)
        self._end(self.owned, lambda row: row["member_id"] == name)
        offset = self._write()
        fields = {"joined": [new["names"]], "left": [old["names"]], "fenced": [old["names"]]}
        self._change(offset, "replaced", why=["fenced"], moved=0, **fields)

    def _empties(self) -> None:
        left = [member["names"] for member in self.members.values()]
        self.members = {}
        self.generation += 1
        self._end(self.memberships, lambda _: True)
        self._end(self.owned, lambda _: True)
        offset = self._write()
        self._change(offset, "emptied", left=left, why=["left"])

    def _deletes(self) -> None:
        batch = self.world.write(CONSUMER_OFFSETS, [values.group_tombstone(self.group)])
        self.generation = -1
        row = {"generation": None, "protocol_type": None, "moved": None}
        self._change(batch.base_offset, "deleted", why=[], **row)

    def _new_member(self) -> Row:
        rng = self.world.rng
        instance_id = self.world.new_id("i") if rng.random() < 0.3 else None
        names: Row = {"member_id": self.world.new_id("m"), "instance_id": instance_id}
        names |= {"client_id": self.world.new_id("c"), "client_host": "/127.0.0.1"}
        self.members[names["member_id"]] = {"names": names, "topics": sorted(self.world.topics), "owned": []}
        return names

    def _remove_member(self) -> Row:
        names: Row = self._any_member()["names"]
        del self.members[names["member_id"]]
        return names

    def _any_member(self) -> Row:
        found: Row = self.world.rng.choice(list(self.members.values()))
        return found

    def _static(self) -> list[str]:
        return [name for name, member in self.members.items() if member["names"]["instance_id"] is not None]

    def _owners(self) -> dict[tuple[str, int], str]:
        return {topic_partition: name for name, member in self.members.items() for topic_partition in member["owned"]}

    def _rebalance(self, before: dict[tuple[str, int], str], **fields: Any) -> None:
        self.generation += 1
        if not self.members:
            left = fields["left"]
            self._end(self.memberships, lambda _: True)
            self._end(self.owned, lambda _: True)
            self._change(self._write(), "emptied", left=left, why=["left"])
            return
        self._assign()
        after = self._owners()
        moved = sum(
            topic_partition in before and before[topic_partition] != owner for topic_partition, owner in after.items()
        )
        sync_ms = self.world.rng.choice((0, 3, 200))
        offset = self._write(sync_ms=sync_ms)
        begun = {}
        if self.generation == 1 and self._created_ms is not None:
            begun = {"began_at_ms": self._created_ms, "duration_ms": self.world.now_ms - self._created_ms}
        self._change(offset, "rebalanced", moved=moved, sync_ms=sync_ms, **begun, **fields)
        self._keep_intervals(offset)

    def _assign(self) -> None:
        for member in self.members.values():
            member["owned"] = []
        for topic, partition in self.world.topic_partitions:
            subscribed = [member for member in self.members.values() if topic in member["topics"]]
            if subscribed:
                self.world.rng.choice(subscribed)["owned"].append((topic, partition))

    def _write(self, *, sync_ms: int = 0) -> int:
        members = list(self.members.values())
        leader = next(iter(self.members), None)
        record = values.group_metadata(
            self.group, self.generation, members, leader=leader, state_ms=self.world.now_ms - sync_ms
        )
        offset = self.world.write(CONSUMER_OFFSETS, [record]).base_offset
        self._keep_intervals(offset)
        return offset

    def _change(self, offset: int, event: str, **fields: Any) -> None:
        row: Row = {
            "group": self.group,
            "group_type": "classic",
            "log_partition": self.world.partition,
            "log_offset": offset,
            "began_at_ms": None,
            "completed_at_ms": self.world.now_ms,
            "event": event,
            "generation": self.generation,
            "protocol_type": "consumer",
            "protocol": "range" if self.members else None,
            "leader": next(iter(self.members), None),
            "members": [member["names"] for member in self.members.values()],
            "joined": [],
            "left": [],
            "fenced": [],
            "changed": [],
            "why": [],
            "moved": 0,
            "sync_ms": None,
            "duration_ms": None,
        }
        self.changes.append(row | fields)

    def _keep_intervals(self, offset: int) -> None:
        """Begin and end rows of memberships and ownerships to match the current members."""
        self._end(self.memberships, lambda row: row["member_id"] not in self.members)
        owners = self._owners()
        self._end(self.owned, lambda row: owners.get((row["topic"], row["partition"])) != row["member_id"])
        base = {"group": self.group, "group_type": "classic", "since_ms": self.world.now_ms, "until_ms": None}
        there = {row["member_id"] for row in self.memberships if row["until_ms"] is None}
        for name, member in self.members.items():
            if name not in there:
                self.memberships.append(base | member["names"] | {"first_log_offset": offset})
        held = {(row["topic"], row["partition"]) for row in self.owned if row["until_ms"] is None}
        for (topic, partition), name in owners.items():
            if (topic, partition) not in held:
                topic_partition = {"member_id": name, "topic": topic, "topic_id": None, "partition": partition}
                topic_partition |= {"subtopology": None, "role": None}
                self.owned.append(base | topic_partition | {"first_log_offset": offset})

    def _end(self, rows: list[Row], is_over: Any) -> None:
        for row in rows:
            if row["until_ms"] is None and is_over(row):
                row["until_ms"] = self.world.now_ms
