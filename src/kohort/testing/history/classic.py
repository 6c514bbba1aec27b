"""
A classic group with its people: they join, leave, fall silent, come back under their instance id, change their
subscription.

Keeps what the tables of the pipeline must say of it, from what happened, not from what was written.
"""

from dataclasses import dataclass, field
from typing import Any

from kohort.model.ids import CONSUMER_OFFSETS
from kohort.testing.history import values
from kohort.testing.history.world import World

Row = dict[str, Any]


@dataclass(slots=True)
class ClassicGroup:
    """
    Attributes:
        members: by member id: `names`, `topics`, `owned`.
        changes: rows of `rebalances`.
        stays, owned: rows of `members` and `assignments`.
    """

    world: World
    group: str
    generation: int = -1
    members: dict[str, Row] = field(default_factory=dict)
    changes: list[Row] = field(default_factory=list)
    stays: list[Row] = field(default_factory=list)
    owned: list[Row] = field(default_factory=list)
    _created_ms: int | None = None

    def act(self) -> None:
        """Something happens to the group."""
        chance = self.world.chance
        if self.generation < 0:
            self._create()
            return
        steps = [self._joins, self._joins, self._rejoins]
        if self.members:
            steps += [self._leaves, self._leaves, self._resubscribes, self._leaves_and_joins]
            steps += [self._comes_back] if self._static() else []
        if self.members and self.generation > 0 and chance.random() < 0.1:
            steps = [self._empties]
        if not self.members and self.generation > 0 and chance.random() < 0.4:
            steps = [self._deletes]
        chance.choice(steps)()

    def owned_places(self) -> list[tuple[str, int]]:
        return [place for member in self.members.values() for place in member["owned"]]

    def _create(self) -> None:
        self.generation = 0
        self._created_ms = self.world.now_ms
        offset = self._write()
        self._change(offset, "created", why=[])

    def _joins(self) -> None:
        before = self._owners()
        joined = [self._newcomer() for _ in range(self.world.chance.randint(1, 2))]
        self._rebalance(before, joined=joined, why=["joined"])

    def _leaves(self) -> None:
        before = self._owners()
        left = [self._goes()]
        self._rebalance(before, left=left, why=["left"])

    def _leaves_and_joins(self) -> None:
        before = self._owners()
        left = [self._goes()]
        self._rebalance(before, joined=[self._newcomer()], left=left, why=["joined", "left"])

    def _resubscribes(self) -> None:
        before = self._owners()
        member = self._anybody()
        member["topics"] = sorted(set(self.world.topics) - set(member["topics"])) or [next(iter(self.world.topics))]
        self._rebalance(before, changed=[member["names"]], why=["subscription"])

    def _rejoins(self) -> None:
        if self.members:
            self._rebalance(self._owners(), why=["rejoined"])

    def _comes_back(self) -> None:
        """A static member under a new id, while the old one is still there: no rebalance."""
        name = self.world.chance.choice(self._static())
        old = self.members.pop(name)
        new = old | {"names": old["names"] | {"member_id": self.world.new_id("m")}}
        self.members[new["names"]["member_id"]] = new
        self._end(self.stays, lambda row: row["member_id"] == name)
        self._end(self.owned, lambda row: row["member_id"] == name)
        offset = self._write()
        told = {"joined": [new["names"]], "left": [old["names"]], "fenced": [old["names"]]}
        self._change(offset, "replaced", why=["fenced"], moved=0, **told)

    def _empties(self) -> None:
        left = [member["names"] for member in self.members.values()]
        self.members = {}
        self.generation += 1
        self._end(self.stays, lambda _: True)
        self._end(self.owned, lambda _: True)
        offset = self._write()
        self._change(offset, "emptied", left=left, why=["left"])

    def _deletes(self) -> None:
        batch = self.world.write(CONSUMER_OFFSETS, [values.group_tombstone(self.group)])
        self.generation = -1
        row = {"generation": None, "protocol_type": None, "moved": None}
        self._change(batch.base_offset, "deleted", why=[], **row)

    def _newcomer(self) -> Row:
        chance = self.world.chance
        instance_id = self.world.new_id("i") if chance.random() < 0.3 else None
        names: Row = {"member_id": self.world.new_id("m"), "instance_id": instance_id}
        names |= {"client_id": self.world.new_id("c"), "client_host": "/127.0.0.1"}
        self.members[names["member_id"]] = {"names": names, "topics": sorted(self.world.topics), "owned": []}
        return names

    def _goes(self) -> Row:
        names: Row = self._anybody()["names"]
        del self.members[names["member_id"]]
        return names

    def _anybody(self) -> Row:
        found: Row = self.world.chance.choice(list(self.members.values()))
        return found

    def _static(self) -> list[str]:
        return [name for name, member in self.members.items() if member["names"]["instance_id"] is not None]

    def _owners(self) -> dict[tuple[str, int], str]:
        return {place: name for name, member in self.members.items() for place in member["owned"]}

    def _rebalance(self, before: dict[tuple[str, int], str], **told: Any) -> None:
        self.generation += 1
        if not self.members:
            left = told["left"]
            self._end(self.stays, lambda _: True)
            self._end(self.owned, lambda _: True)
            self._change(self._write(), "emptied", left=left, why=["left"])
            return
        self._assign()
        after = self._owners()
        moved = sum(place in before and before[place] != owner for place, owner in after.items())
        sync_ms = self.world.chance.choice((0, 3, 200))
        offset = self._write(sync_ms=sync_ms)
        begun = {}
        if self.generation == 1 and self._created_ms is not None:
            begun = {"began_at_ms": self._created_ms, "duration_ms": self.world.now_ms - self._created_ms}
        self._change(offset, "rebalanced", moved=moved, sync_ms=sync_ms, **begun, **told)
        self._keep_intervals(offset)

    def _assign(self) -> None:
        for member in self.members.values():
            member["owned"] = []
        for topic, partition in self.world.places:
            wanting = [member for member in self.members.values() if topic in member["topics"]]
            if wanting:
                self.world.chance.choice(wanting)["owned"].append((topic, partition))

    def _write(self, *, sync_ms: int = 0) -> int:
        members = list(self.members.values())
        leader = next(iter(self.members), None)
        record = values.group_metadata(
            self.group, self.generation, members, leader=leader, state_ms=self.world.now_ms - sync_ms
        )
        offset = self.world.write(CONSUMER_OFFSETS, [record]).base_offset
        self._keep_intervals(offset)
        return offset

    def _change(self, offset: int, event: str, **told: Any) -> None:
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
        self.changes.append(row | told)

    def _keep_intervals(self, offset: int) -> None:
        """Stays and ownerships go on, end or begin as the group is now."""
        self._end(self.stays, lambda row: row["member_id"] not in self.members)
        owners = self._owners()
        self._end(self.owned, lambda row: owners.get((row["topic"], row["partition"])) != row["member_id"])
        base = {"group": self.group, "group_type": "classic", "since_ms": self.world.now_ms, "until_ms": None}
        there = {row["member_id"] for row in self.stays if row["until_ms"] is None}
        for name, member in self.members.items():
            if name not in there:
                self.stays.append(base | member["names"] | {"first_log_offset": offset})
        held = {(row["topic"], row["partition"]) for row in self.owned if row["until_ms"] is None}
        for (topic, partition), name in owners.items():
            if (topic, partition) not in held:
                place = {"member_id": name, "topic": topic, "topic_id": None, "partition": partition}
                place |= {"subtopology": None, "role": None}
                self.owned.append(base | place | {"first_log_offset": offset})

    def _end(self, rows: list[Row], is_over: Any) -> None:
        for row in rows:
            if row["until_ms"] is None and is_over(row):
                row["until_ms"] = self.world.now_ms
