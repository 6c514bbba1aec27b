"""
Generated scenarios of consumer groups: one to three members join, follow their assignments, lose answers, claim partitions of
others, change their subscriptions, go away and leave. In some scenarios, one more member follows the classic protocol.

Sessions last 45 seconds, so the duration of a scenario has no effect. There is one topic, so no assignment depends on the
order of a hash table of topics.
"""

from typing import Any

from kohort_lab.conformance.generated.writer import ScenarioWriter

BROKER = "consumer"
_GROUP = "@g"
_NULL = {"$none": True}
_CLASSIC = "k"
"""The id of the member of the classic protocol."""
_ANSWER_MS = 3_000
_OFFSETS_VERSION = 9
_MINUTE_MS = 60_000


class _Member:
    """The scenario's view of a client. Its epoch and partitions are kept from the answers."""

    def __init__(self, name: str, instance_id: str | None) -> None:
        self.name = name
        self.instance_id = instance_id
        self.is_inside = False

    @property
    def epoch(self) -> str:
        return f"$epoch_{self.name}"

    @property
    def owned(self) -> str:
        return f"$owned_{self.name}"

    @property
    def keep(self) -> dict[str, str]:
        return {f"epoch_{self.name}": "member_epoch", f"owned_{self.name}": "assignment.topic_partitions?"}


class _ConsumerGroupScenario:
    def __init__(self, writer: ScenarioWriter) -> None:
        self.writer = writer
        writer.broker = BROKER
        writer.topics["t"] = writer.random.randint(1, 6)
        self.members = [
            _Member(name, f"i-{name}" if writer.chance(0.4) else None) for name in "abc"[: writer.pick((1, 2, 2, 3, 3))]
        ]
        self.assignor = writer.pick((None, None, "uniform", "range"))
        self.is_mixed = writer.chance(0.35)

    def write(self) -> None:
        self.join(self.members[0])
        for _ in range(self.writer.random.randint(12, 28)):
            member = self.writer.pick(self.members)
            if member.is_inside or self.writer.chance(0.15):
                self.writer.pick(self.actions())(member)
            else:
                self.join(member)
        for _ in range(2):
            for member in self.members:
                self.follow(member)
        self.describe(self.members[0])

    def actions(self) -> list[Any]:
        return [
            *(self.follow,) * 9,
            *(self.follow_silently,) * 3,
            *(self.claim, self.claim, self.lose_answer, self.lose_answer, self.from_the_future, self.join),
            *(self.subscribe, self.subscribe, self.choose_assignor, self.change_rack, self.tell_all, self.tell_all),
            *(self.leave, self.leave, self.go_away, self.go_away, self.return_as_another, self.stranger),
            *(self.describe, self.describe, self.list, self.commit, self.commit, self.fetch_offsets),
            *(
                (self.join_classic, self.join_classic, self.sync_classic, self.beat_classic, self.leave_classic)
                * self.is_mixed
            ),
        ]

    def heartbeat(self, member: _Member, epoch: Any, /, *, keeps: bool = True, **fields: Any) -> None:
        instance_id = fields.pop("instance_id", member.instance_id)
        self.writer.send(
            "ConsumerGroupHeartbeat",
            {"keep": member.keep} if keeps else {},
            group_id=_GROUP,
            member_id=fields.pop("member_id", member.name),
            member_epoch=epoch,
            instance_id=instance_id or _NULL,
            **fields,
        )

    def names(self) -> list[str]:
        return self.writer.pick((["@t"], ["@t"], ["@t"], ["@t", "@none"], ["@none"], []))

    def assignor_field(self, member: _Member, assignor: str | None) -> dict[str, Any]:
        """
        The assignor that a member prefers. Only the first member has one, so that no two assignors have equal votes: with them
        Apache Kafka raises the epoch with each heartbeat of some members, and Kohort does not.
        """
        is_told = assignor == "nobody" or member is self.members[0]
        return {"server_assignor": assignor} if assignor is not None and is_told else {}

    def join(self, member: _Member) -> None:
        member.is_inside = True
        self.heartbeat(
            member,
            0,
            rebalance_timeout_ms=_MINUTE_MS,
            subscribed_topic_names=["@t"] if self.writer.chance(0.7) else self.names(),
            topic_partitions=[],
            **self.assignor_field(member, self.assignor),
        )

    def follow(self, member: _Member) -> None:
        self.heartbeat(member, member.epoch, topic_partitions=member.owned)

    def follow_silently(self, member: _Member) -> None:
        self.heartbeat(member, member.epoch)

    def claim(self, member: _Member) -> None:
        numbers = self.writer.subset(range(self.writer.topics["t"] + 1))
        claimed = self.writer.pick(([], [{"topic_id": "$t.id", "partitions": sorted(numbers)}]))
        self.heartbeat(member, member.epoch, topic_partitions=claimed)

    def lose_answer(self, member: _Member) -> None:
        """A heartbeat whose answer the member does not see, then its repetition."""
        owned = self.writer.pick((member.owned, member.owned, [], _NULL))
        self.heartbeat(member, member.epoch, keeps=False, topic_partitions=owned)
        self.heartbeat(member, member.epoch, topic_partitions=owned)

    def from_the_future(self, member: _Member) -> None:
        step = self.writer.pick((1, -1))
        owned = self.writer.pick((member.owned, []))
        self.heartbeat(member, {"$plus": [member.epoch, step]}, keeps=False, topic_partitions=owned)

    def subscribe(self, member: _Member) -> None:
        self.heartbeat(member, member.epoch, subscribed_topic_names=self.names())

    def choose_assignor(self, member: _Member) -> None:
        assignor = self.writer.pick(("uniform", "range", "nobody"))
        self.heartbeat(member, member.epoch, keeps=assignor != "nobody", **self.assignor_field(member, assignor))

    def change_rack(self, member: _Member) -> None:
        self.heartbeat(member, member.epoch, rack_id=self.writer.pick(("r1", "r2")))

    def tell_all(self, member: _Member) -> None:
        self.heartbeat(
            member,
            member.epoch,
            rebalance_timeout_ms=_MINUTE_MS,
            subscribed_topic_names=["@t"],
            topic_partitions=member.owned,
        )

    def leave(self, member: _Member) -> None:
        member.is_inside = False
        self.heartbeat(member, -1, keeps=False)

    def go_away(self, member: _Member) -> None:
        self.heartbeat(member, -2, keeps=False)
        if self.writer.chance(0.6):
            self.join(member)

    def return_as_another(self, member: _Member) -> None:
        """A new process of the same instance, with or without a good-bye of the former."""
        if member.instance_id is None:
            return
        if self.writer.chance(0.7):
            self.heartbeat(member, -2, keeps=False)
        member.name = {"a": "d", "b": "e", "c": "f", "d": "a", "e": "b", "f": "c"}[member.name]
        self.join(member)

    def stranger(self, member: _Member) -> None:
        instance_id = self.writer.pick((None, "i-a", "i-nobody"))
        epoch = self.writer.pick((1, 2, -1, -2, -3))
        self.heartbeat(member, epoch, keeps=False, member_id="x", instance_id=instance_id, topic_partitions=[])

    def join_classic(self, _member: _Member) -> None:
        owned = self.writer.pick(({}, {}, {"@t": [0]}))
        subscription = {"topics": ["@t"], "version": self.writer.pick((0, 1, 3)), "owned": owned}
        self.writer.send(
            "JoinGroup",
            {"version": 9, "wait_ms": _ANSWER_MS, "on": _CLASSIC, "keep": {"generation": "generation_id"}},
            group_id=_GROUP,
            member_id=_CLASSIC,
            session_timeout_ms=_MINUTE_MS,
            rebalance_timeout_ms=_MINUTE_MS,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": {"$subscription": subscription}}],
            group_instance_id=_NULL,
        )
        if self.writer.chance(0.7):
            self.sync_classic(_member)

    def sync_classic(self, _member: _Member) -> None:
        self.writer.send(
            "SyncGroup",
            {"version": 5, "wait_ms": _ANSWER_MS, "on": _CLASSIC},
            protocol_type="consumer",
            protocol_name="range",
            **self.classic(),
        )

    def beat_classic(self, _member: _Member) -> None:
        self.writer.send("Heartbeat", {"version": 4, "on": _CLASSIC}, **self.classic())

    def leave_classic(self, _member: _Member) -> None:
        leaving = [{"member_id": self.writer.pick((_CLASSIC, "x")), "group_instance_id": _NULL}]
        self.writer.send("LeaveGroup", {"version": 5}, group_id=_GROUP, members=leaving)

    def classic(self) -> dict[str, Any]:
        generation = {"$plus": ["$generation", self.writer.pick((0, 0, 0, 1, -1))]}
        known = any(step.send == "JoinGroup" for step in self.writer.steps)
        return {
            "group_id": _GROUP,
            "generation_id": generation if known else 1,
            "member_id": _CLASSIC,
            "group_instance_id": _NULL,
        }

    def commit(self, member: _Member) -> None:
        partitions = [
            {"partition_index": 0, "committed_offset": self.writer.pick((1, 2, 3)), "committed_metadata": "m"}
        ]
        self.writer.send(
            "OffsetCommit",
            {"version": _OFFSETS_VERSION},
            group_id=_GROUP,
            generation_id_or_member_epoch=self.some_epoch(member),
            member_id=member.name,
            group_instance_id=_NULL,
            topics=[{"name": "@t", "partitions": partitions}],
        )

    def fetch_offsets(self, member: _Member) -> None:
        topics = [{"name": "@t", "partition_indexes": [0, 1]}]
        asked = {
            "group_id": _GROUP,
            "member_id": member.name,
            "member_epoch": self.some_epoch(member),
            "topics": topics,
        }
        if self.writer.chance(0.3):
            asked |= {"member_id": _NULL, "member_epoch": -1}
        self.writer.send("OffsetFetch", {"version": _OFFSETS_VERSION}, groups=[asked])

    def some_epoch(self, member: _Member) -> Any:
        return {"$plus": [member.epoch, self.writer.pick((0, 0, 0, 1, -1))]}

    def describe(self, _member: _Member) -> None:
        self.writer.send("ConsumerGroupDescribe", {"version": 1}, group_ids=[_GROUP])

    def list(self, _member: _Member) -> None:
        states = self.writer.pick(([], ["Stable"], ["Reconciling", "Assigning"], ["Empty"]))
        self.writer.send("ListGroups", {"version": 5}, states_filter=states, types_filter=["consumer"])


def write_consumer_group_scenario(writer: ScenarioWriter) -> None:
    _ConsumerGroupScenario(writer).write()
