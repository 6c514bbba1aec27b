"""
Stories of groups: rounds in which members join and sync, and what they, and others, ask in between.

Sessions last a minute, so that nothing in a story depends on how fast it is told. Every member sends the assignments of all,
for who leads is known to the brokers alone; Kafka takes those of the leader.
"""

from typing import Any

from kohort.conformance.generated.writer import ScenarioWriter

_NULL = {"$none": True}
_MEMBER_ID_REQUIRED_SINCE = 4
_STATIC_SINCE = 5
_LEADER_IS_CLEAR = 2
_ANSWER_MS = 2_200


class _Member:
    """What the story knows of a client."""

    def __init__(self, name: str, instance_id: str | None) -> None:
        self.name = name
        self.instance_id = instance_id
        self.has_id = False

    @property
    def id(self) -> str:
        return f"$id_{self.name}" if self.has_id else ""


class _GroupScenario:
    def __init__(self, teller: ScenarioWriter) -> None:
        self.teller = teller
        teller.topics["t"] = teller.pick((1, 2))
        is_static = teller.version("JoinGroup") >= _STATIC_SINCE and teller.chance(0.35)
        self.members = [
            _Member(name, f"i-{name}" if is_static and teller.chance(0.6) else None)
            for name in "abcd"[: teller.pick((1, 2, 2, 3, 4))]
        ]
        self.inside: list[_Member] = []
        self._joined: dict[str, _Member] = {}
        self.has_generation = False

    def tell(self) -> None:
        for _ in range(self.teller.pick((1, 2, 2, 3))):
            self.round()
            for _ in range(self.teller.random.randint(1, 4)):
                self.teller.pick(self.questions())()
        self.describe()

    def questions(self) -> list[Any]:
        return [
            *(self.heartbeat, self.heartbeat, self.commit, self.commit, self.fetch_offsets, self.fetch_offsets),
            *(self.leave, self.describe, self.list_groups, self.sync_again, self.delete_offsets, self.delete_group),
            self.stranger,
        ]

    def round(self) -> None:
        """Everybody inside joins again, or leaves; some join who were not inside; then they sync."""
        teller = self.teller
        newcomers = [each for each in self.members if each not in self.inside]
        joining = [*self.inside, *(teller.subset(newcomers) if newcomers else [])]
        teller.random.shuffle(joining)
        outstanding = []
        for number, member in enumerate(joining):
            if number and member in self.inside and self.may_leave() and teller.chance(0.15):
                self.leave_as(member)
                continue
            outstanding.append(self.join(member))
            if number + 1 < len(joining) and teller.chance(0.25):
                teller.pick((self.heartbeat, self.commit, self.describe))()
        teller.receive(outstanding, _ANSWER_MS)
        for label in outstanding:
            member = self._joined[label]
            if member not in self.inside:
                self.inside.append(member)
        self.has_generation = True
        self.sync(self.inside)

    def join(self, member: _Member) -> str:
        teller = self.teller
        request = self.join_request(member)
        keep = {f"id_{member.name}": "member_id"}
        is_asked_twice = (
            not member.has_id
            and member.instance_id is None
            and teller.version("JoinGroup") >= _MEMBER_ID_REQUIRED_SINCE
        )
        if is_asked_twice:
            teller.send("JoinGroup", {**self.as_member(member), "keep": keep}, **request)
            member.has_id = True
            request["member_id"] = member.id
        label = teller.send(
            "JoinGroup",
            {**self.as_member(member), "parked": True, "keep": {**keep, "generation": "generation_id"}},
            **request,
        )
        member.has_id = True
        self._joined[label] = member
        return label

    def join_request(self, member: _Member) -> dict[str, Any]:
        names = self.teller.pick((["range"], ["range"], ["range", "sticky"], ["sticky", "range"]))
        subscription = {"$subscription": {"topics": ["@t"], "version": self.teller.pick((0, 1, 3))}}
        return {
            "group_id": "@g",
            "session_timeout_ms": 60_000,
            "rebalance_timeout_ms": 60_000,
            "member_id": member.id,
            "group_instance_id": member.instance_id or _NULL,
            "protocol_type": "consumer",
            "protocols": [{"name": name, "metadata": subscription} for name in names],
        }

    def as_member(self, member: _Member) -> dict[str, Any]:
        return {"on": member.name, "client_id": f"kc-{member.name}"}

    def sync(self, members: list[_Member]) -> None:
        teller = self.teller
        order = teller.random.sample(members, len(members))
        labels = [self.sync_as(member) for member in order if not teller.chance(0.08)]
        if labels:
            teller.receive(labels, _ANSWER_MS)

    def sync_as(self, member: _Member) -> str:
        return self.teller.send(
            "SyncGroup",
            {**self.as_member(member), "parked": True},
            group_id="@g",
            generation_id="$generation",
            member_id=member.id,
            group_instance_id=member.instance_id or _NULL,
            protocol_type="consumer",
            protocol_name={"$none": True},
            assignments=[
                {"member_id": each.id, "assignment": {"$assignment": {"@t": [number]}}}
                for number, each in enumerate(self.inside)
            ],
        )

    def sync_again(self) -> None:
        if self.inside:
            label = self.sync_as(self.teller.pick(self.inside))
            self.teller.receive([label], _ANSWER_MS)

    def generation(self) -> Any:
        if not self.has_generation:
            return self.teller.pick((-1, 0, 1))
        return self.teller.pick(
            ("$generation", "$generation", {"$plus": ["$generation", -1]}, {"$plus": ["$generation", 1]})
        )

    def somebody(self) -> dict[str, Any]:
        """A member with a generation, right or wrong ones."""
        teller = self.teller
        known = [each for each in self.members if each.has_id]
        if not known or teller.chance(0.15):
            return {
                "member_id": teller.pick(("", "nobody")),
                "group_instance_id": _NULL,
                "generation": self.generation(),
            }
        member = teller.pick(known)
        instance_id = member.instance_id
        if teller.chance(0.1):
            instance_id = "i-somebody"
        return {"member_id": member.id, "group_instance_id": instance_id or _NULL, "generation": self.generation()}

    def heartbeat(self) -> None:
        who = self.somebody()
        self.teller.send("Heartbeat", group_id="@g", generation_id=who.pop("generation"), **who)

    def commit(self) -> None:
        who = self.somebody()
        if self.teller.chance(0.2):
            who = {"member_id": "", "group_instance_id": _NULL, "generation": -1}
        partitions = [
            {
                "partition_index": index,
                "committed_offset": self.teller.pick((0, 7, 1 << 40, -1)),
                "committed_leader_epoch": self.teller.pick((-1, 0)),
                "committed_metadata": self.teller.pick(("", "m", {"$repeat": ["x", 65]})),
            }
            for index in self.teller.subset((0, 1, 9))
        ]
        self.teller.send(
            "OffsetCommit",
            group_id="@g",
            generation_id_or_member_epoch=who.pop("generation"),
            retention_time_ms=self.teller.pick((-1, -1, 90_000)),
            topics=[{"name": "@t", "topic_id": "$t.id", "partitions": partitions}],
            **who,
        )

    def fetch_offsets(self) -> None:
        asked = self.teller.pick(([0], [0, 1], [1, 0, 5], None))
        old = [{"name": "@t", "partition_indexes": asked}] if asked else _NULL
        new = [{"name": "@t", "topic_id": "$t.id", "partition_indexes": asked}] if asked else _NULL
        if asked is None and self.teller.version("OffsetFetch") < 2:
            old = []
        self.teller.send(
            "OffsetFetch",
            group_id="@g",
            topics=old,
            groups=[{"group_id": "@g", "topics": new}],
            require_stable=self.teller.chance(0.5),
        )

    def describe(self) -> None:
        groups = self.teller.pick((["@g"], ["@g", "@other"]))
        self.teller.send("DescribeGroups", groups=groups, include_authorized_operations=self.teller.chance(0.3))

    def list_groups(self) -> None:
        states = self.teller.pick(([], ["Stable"], ["Empty", "Dead"], ["nonsense"]))
        types = self.teller.pick(([], ["classic"], ["consumer"], ["Classic"]))
        self.teller.send("ListGroups", states_filter=states, types_filter=types)

    def leave(self) -> None:
        if self.inside and self.may_leave() and self.teller.chance(0.7):
            self.leave_as(self.teller.pick(self.inside))
            return
        who = {"member_id": "nobody", "group_instance_id": self.teller.pick((_NULL, "i-nobody"))}
        self.teller.send(
            "LeaveGroup",
            group_id="@g",
            member_id=who["member_id"],
            members=[{"member_id": who["member_id"], "group_instance_id": who["group_instance_id"]}],
        )

    def may_leave(self) -> bool:
        """When one of two goes it is clear who leads; among more Kafka's choice is that of a hash table."""
        return len(self.inside) <= _LEADER_IS_CLEAR

    def leave_as(self, member: _Member) -> None:
        self.teller.send(
            "LeaveGroup",
            group_id="@g",
            member_id=member.id,
            members=[{"member_id": member.id, "group_instance_id": member.instance_id or _NULL}],
        )
        self.inside = [each for each in self.inside if each is not member]
        member.has_id = self.teller.chance(0.2)

    def delete_offsets(self) -> None:
        partitions = [{"partition_index": index} for index in self.teller.subset((0, 1, 9))]
        self.teller.send("OffsetDelete", group_id="@g", topics=[{"name": "@t", "partitions": partitions}])

    def delete_group(self) -> None:
        self.teller.send("DeleteGroups", groups_names=self.teller.pick((["@g"], ["@g", "@other"])))

    def stranger(self) -> None:
        """Somebody who gets most things wrong asks to join."""
        request = self.join_request(_Member("x", None))
        spoiled: dict[str, Any] = self.teller.pick(
            (
                {"protocol_type": "connect"},
                {"protocols": [{"name": "roundrobin", "metadata": "x"}]},
                {"session_timeout_ms": 1},
                {"session_timeout_ms": 600_001},
                {"member_id": "nobody"},
                {"group_id": ""},
                {"protocols": []},
            )
        )
        if spoiled.keys() & {"protocol_type", "protocols"} and not self.inside:
            spoiled = {"member_id": "nobody"}
        self.teller.send("JoinGroup", {"on": "x", "client_id": "kc-x", "wait_ms": 1_000}, **{**request, **spoiled})


def group_story(teller: ScenarioWriter) -> None:
    _GroupScenario(teller).tell()
