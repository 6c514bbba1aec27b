"""
Generated scenarios of groups: members join and sync in rounds, with requests of members and strangers in between.

Sessions last a minute, so the duration of a scenario has no effect. Every member sends assignments for all members, because
only the broker knows the leader; Kafka takes the leader's.
"""

from typing import Any

from kohort_lab.conformance.generated.writer import ScenarioWriter

_NULL = {"$none": True}
_MEMBER_ID_REQUIRED_SINCE = 4
_STATIC_SINCE = 5
_LEADER_IS_CLEAR = 2
_ANSWER_MS = 2_200


class _Member:
    """The scenario's view of a client."""

    def __init__(self, name: str, instance_id: str | None) -> None:
        self.name = name
        self.instance_id = instance_id
        self.has_id = False

    @property
    def id(self) -> str:
        return f"$id_{self.name}" if self.has_id else ""


class _GroupScenario:
    def __init__(self, writer: ScenarioWriter) -> None:
        self.writer = writer
        writer.topics["t"] = writer.pick((1, 2))
        is_static = writer.version("JoinGroup") >= _STATIC_SINCE and writer.chance(0.35)
        self.members = [
            _Member(name, f"i-{name}" if is_static and writer.chance(0.6) else None)
            for name in "abcd"[: writer.pick((1, 2, 2, 3, 4))]
        ]
        self.inside: list[_Member] = []
        self._joined: dict[str, _Member] = {}
        self.has_generation = False

    def write(self) -> None:
        for _ in range(self.writer.pick((1, 2, 2, 3))):
            self.round()
            for _ in range(self.writer.random.randint(1, 4)):
                self.writer.pick(self.questions())()
        self.describe()

    def questions(self) -> list[Any]:
        return [
            *(self.heartbeat, self.heartbeat, self.commit, self.commit, self.fetch_offsets, self.fetch_offsets),
            *(self.leave, self.describe, self.list_groups, self.sync_again, self.delete_offsets, self.delete_group),
            self.stranger,
        ]

    def round(self) -> None:
        """Every member joins again or leaves, some clients join as new members, then all members sync."""
        writer = self.writer
        newcomers = [each for each in self.members if each not in self.inside]
        joining = [*self.inside, *(writer.subset(newcomers) if newcomers else [])]
        writer.random.shuffle(joining)
        outstanding = []
        for number, member in enumerate(joining):
            if number and member in self.inside and self.may_leave() and writer.chance(0.15):
                self.leave_as(member)
                continue
            outstanding.append(self.join(member))
            if number + 1 < len(joining) and writer.chance(0.25):
                writer.pick((self.heartbeat, self.commit, self.describe))()
        writer.receive(outstanding, _ANSWER_MS)
        for label in outstanding:
            member = self._joined[label]
            if member not in self.inside:
                self.inside.append(member)
        self.has_generation = True
        self.sync(self.inside)

    def join(self, member: _Member) -> str:
        writer = self.writer
        request = self.join_request(member)
        keep = {f"id_{member.name}": "member_id"}
        is_asked_twice = (
            not member.has_id
            and member.instance_id is None
            and writer.version("JoinGroup") >= _MEMBER_ID_REQUIRED_SINCE
        )
        if is_asked_twice:
            writer.send("JoinGroup", {**self.as_member(member), "keep": keep}, **request)
            member.has_id = True
            request["member_id"] = member.id
        label = writer.send(
            "JoinGroup",
            {**self.as_member(member), "parked": True, "keep": {**keep, "generation": "generation_id"}},
            **request,
        )
        member.has_id = True
        self._joined[label] = member
        return label

    def join_request(self, member: _Member) -> dict[str, Any]:
        names = self.writer.pick((["range"], ["range"], ["range", "sticky"], ["sticky", "range"]))
        subscription = {"$subscription": {"topics": ["@t"], "version": self.writer.pick((0, 1, 3))}}
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
        writer = self.writer
        order = writer.random.sample(members, len(members))
        labels = [self.sync_as(member) for member in order if not writer.chance(0.08)]
        if labels:
            writer.receive(labels, _ANSWER_MS)

    def sync_as(self, member: _Member) -> str:
        return self.writer.send(
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
            label = self.sync_as(self.writer.pick(self.inside))
            self.writer.receive([label], _ANSWER_MS)

    def generation(self) -> Any:
        if not self.has_generation:
            return self.writer.pick((-1, 0, 1))
        return self.writer.pick(
            ("$generation", "$generation", {"$plus": ["$generation", -1]}, {"$plus": ["$generation", 1]})
        )

    def member_fields(self) -> dict[str, Any]:
        """Fields of a member and a generation, valid or invalid."""
        writer = self.writer
        known = [each for each in self.members if each.has_id]
        if not known or writer.chance(0.15):
            return {
                "member_id": writer.pick(("", "nobody")),
                "group_instance_id": _NULL,
                "generation": self.generation(),
            }
        member = writer.pick(known)
        instance_id = member.instance_id
        if writer.chance(0.1):
            instance_id = "i-somebody"
        return {"member_id": member.id, "group_instance_id": instance_id or _NULL, "generation": self.generation()}

    def heartbeat(self) -> None:
        fields = self.member_fields()
        self.writer.send("Heartbeat", group_id="@g", generation_id=fields.pop("generation"), **fields)

    def commit(self) -> None:
        fields = self.member_fields()
        if self.writer.chance(0.2):
            fields = {"member_id": "", "group_instance_id": _NULL, "generation": -1}
        partitions = [
            {
                "partition_index": index,
                "committed_offset": self.writer.pick((0, 7, 1 << 40, -1)),
                "committed_leader_epoch": self.writer.pick((-1, 0)),
                "committed_metadata": self.writer.pick(("", "m", {"$repeat": ["x", 65]})),
            }
            for index in self.writer.subset((0, 1, 9))
        ]
        self.writer.send(
            "OffsetCommit",
            group_id="@g",
            generation_id_or_member_epoch=fields.pop("generation"),
            retention_time_ms=self.writer.pick((-1, -1, 90_000)),
            topics=[{"name": "@t", "topic_id": "$t.id", "partitions": partitions}],
            **fields,
        )

    def fetch_offsets(self) -> None:
        asked = self.writer.pick(([0], [0, 1], [1, 0, 5], None))
        old = [{"name": "@t", "partition_indexes": asked}] if asked else _NULL
        new = [{"name": "@t", "topic_id": "$t.id", "partition_indexes": asked}] if asked else _NULL
        if asked is None and self.writer.version("OffsetFetch") < 2:
            old = []
        self.writer.send(
            "OffsetFetch",
            group_id="@g",
            topics=old,
            groups=[{"group_id": "@g", "topics": new}],
            require_stable=self.writer.chance(0.5),
        )

    def describe(self) -> None:
        groups = self.writer.pick((["@g"], ["@g", "@other"]))
        self.writer.send("DescribeGroups", groups=groups, include_authorized_operations=self.writer.chance(0.3))

    def list_groups(self) -> None:
        states = self.writer.pick(([], ["Stable"], ["Empty", "Dead"], ["nonsense"]))
        types = self.writer.pick(([], ["classic"], ["consumer"], ["Classic"]))
        self.writer.send("ListGroups", states_filter=states, types_filter=types)

    def leave(self) -> None:
        if self.inside and self.may_leave() and self.writer.chance(0.7):
            self.leave_as(self.writer.pick(self.inside))
            return
        fields = {"member_id": "nobody", "group_instance_id": self.writer.pick((_NULL, "i-nobody"))}
        self.writer.send(
            "LeaveGroup",
            group_id="@g",
            member_id=fields["member_id"],
            members=[{"member_id": fields["member_id"], "group_instance_id": fields["group_instance_id"]}],
        )

    def may_leave(self) -> bool:
        """Whether the next leader is determined. Among more than one member, Kafka chooses by the order of a hash table."""
        return len(self.inside) <= _LEADER_IS_CLEAR

    def leave_as(self, member: _Member) -> None:
        self.writer.send(
            "LeaveGroup",
            group_id="@g",
            member_id=member.id,
            members=[{"member_id": member.id, "group_instance_id": member.instance_id or _NULL}],
        )
        self.inside = [each for each in self.inside if each is not member]
        member.has_id = self.writer.chance(0.2)

    def delete_offsets(self) -> None:
        partitions = [{"partition_index": index} for index in self.writer.subset((0, 1, 9))]
        self.writer.send("OffsetDelete", group_id="@g", topics=[{"name": "@t", "partitions": partitions}])

    def delete_group(self) -> None:
        self.writer.send("DeleteGroups", groups_names=self.writer.pick((["@g"], ["@g", "@other"])))

    def stranger(self) -> None:
        """Add a JoinGroup with one invalid field."""
        request = self.join_request(_Member("x", None))
        spoiled: dict[str, Any] = self.writer.pick(
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
        self.writer.send("JoinGroup", {"on": "x", "client_id": "kc-x", "wait_ms": 1_000}, **{**request, **spoiled})


def write_group_scenario(writer: ScenarioWriter) -> None:
    _GroupScenario(writer).write()
