"""
A simulation of consumer groups in the group coordinator's shard: `simulate(seed, consumer_subject(workload), workload)` with a
new `ConsumerWorkload`.

Members of either protocol join, send heartbeats, change subscriptions, stall, die, leave and come back with their instance ids;
they subscribe by names and by patterns; classic groups are upgraded, consumer groups downgraded; answers are lost; topics are
created, grow and are deleted. Beside the guarantees of every simulation these are checked:

- a client that is told a partition while another one uses it has overtaken it: the other one is fenced, and never hears again
  that its heartbeat is welcome;
- the epoch of a member never falls until it joins again;
- a shard that is loaded from the log equals the live one in every value of its groups, down to the owners of partitions.

A member of a classic group may read a partition until it synchronises: the leader assigns, so this is not checked.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from random import Random
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec

from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.heartbeat import heartbeat
from kohort.group.classic.join import join_group
from kohort.group.classic.leave import leave_group
from kohort.group.classic.sync import sync_group
from kohort.group.configs import GroupConfig
from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.heartbeat import consumer_group_heartbeat
from kohort.group.events import GroupConverted
from kohort.group.groups import CLASSIC
from kohort.group.kinds import record_serde
from kohort.group.shard import GroupShard
from kohort.machine.shard import Deadlines, Result
from kohort.machine.timeline import SnapshotRegistry
from kohort.model.errors import ErrorCode
from kohort.model.image import ImageDelta
from kohort.testing.context import FixedContext
from kohort.testing.image import FixedImage, FixedTopic
from kohort.testing.simulation import Subject, Work
from kohort.wire import messages as m
from tests.group.consumer.classic_protocol import HEARTBEAT, JOIN, SYNC, ClassicProtocolMember
from tests.group.consumer.protocol import Partition, ProtocolMember
from tests.testing.group_simulation import GroupPictures, classic_contents

_GROUPS: Final = ("a", "a", "b")
_TOPICS: Final = ("orders", "payments", "clicks")
_SUBSCRIPTIONS: Final = (("orders",), ("orders", "payments"), _TOPICS, ("clicks",), ())
_PATTERNS: Final = ("", "", "", "orders|clicks", "pay.*", ".*")
_INSTANCES: Final = (None, None, "x", "y")
_MEMBERS_MAX: Final = 6
_REBALANCE_MS: Final = 6_000
_SESSION_MS: Final = 12_000
_CONTEXT: Final = FixedContext(9, "client", "/127.0.0.1")

CONFIG: Final = GroupConfig(
    group_consumer_session_timeout_ms=_SESSION_MS,
    group_consumer_heartbeat_interval_ms=3_000,
    group_consumer_max_size=7,
    group_max_size=5,
    group_initial_rebalance_delay_ms=0,
    offsets_retention_check_interval_ms=40_000,
    group_consumer_assignment_interval_ms=0,
)
PATIENT: Final = msgspec.structs.replace(CONFIG, group_consumer_assignment_interval_ms=1_500)
"""With an assignment interval, so that members join, leave and reconcile while the target is old."""

Operation = Callable[[GroupShard, int], Result[Any, Any]]
Client: TypeAlias = ProtocolMember | ClassicProtocolMember


class ConsumerGuaranteeError(AssertionError):
    """A guarantee of the consumer protocol was broken."""


class _Image(FixedImage):
    """Topics with a version that rises with each change."""

    changes = 1

    @property
    def version(self) -> int:
        return self.changes


def consumer_subject(workload: "ConsumerWorkload", config: GroupConfig = CONFIG) -> Subject[GroupShard]:
    """A group coordinator of one partition, in the cluster of the workload."""
    uuids = count(1)

    def make_shard(_partition: int, registry: SnapshotRegistry, deadlines: Deadlines) -> GroupShard:
        return GroupShard(registry, deadlines, config, lambda: f"uuid{next(uuids)}")

    def picture(shard: GroupShard, offset: int) -> object:
        """The hard state of the groups of a shard at an offset. A rebalancing classic group equals everything."""
        return GroupPictures((group_id, _contents(group, offset)) for group_id, group in shard.groups.items_at(offset))

    return Subject(
        make_shard, record_serde(), picture, image=workload.image, partition_count=1, on_effects=workload.on_effects
    )


def _contents(group: object, offset: int) -> object:
    if not isinstance(group, ConsumerGroup):
        return classic_contents(group, offset)
    subscriptions = group.subscriptions
    return {
        "epochs": (group.epoch.get_at(offset), group.assignment_epoch.get_at(offset)),
        "assigned_at_ms": group.assigned_at_ms.get_at(offset),
        "metadata_hash": group.metadata_hash.get_at(offset),
        "members": dict(group.members.items_at(offset)),
        "static_members": dict(group.static_members.items_at(offset)),
        "targets": dict(group.targets.items_at(offset)),
        "owners": {topic: dict(epochs.items_at(offset)) for topic, epochs in group.owners._by_topic.items_at(offset)},
        "names": dict(subscriptions.names.items_at(offset)),
        "patterns": dict(subscriptions.patterns.items_at(offset)),
        "resolved": dict(subscriptions.resolved.items_at(offset)),
        "matches": dict(subscriptions.matches.items_at(offset)),
    }


class ConsumerWorkload:
    """
    The requests of the members of two groups, and the changes of their topics, in one simulation.

    Args:
        is_plain: whether all members use the consumer protocol, and subscribe by names.

    Attributes:
        image: two topics at first.
    """

    def __init__(self, *, is_plain: bool = False) -> None:
        self.image = _Image([FixedTopic("orders", UUID(int=1), 3), FixedTopic("payments", UUID(int=2), 2)])
        self._members: list[Client] = []
        self._waiting: set[Client] = set()
        """Those with a request that is not answered yet."""
        self._stalled: dict[Client, int] = {}
        """How many requests of others a member misses."""
        self._overtaken: set[Client] = set()
        self._numbers = count(10)
        self._is_plain = is_plain
        self._classic_share = 0.0 if is_plain else None
        self.answered: Counter[str] = Counter()
        """Answers by kind of request or by error, and conversions by kind of group."""

    def on_effects(self, _partition: int, effects: Sequence[Any]) -> None:
        """Count the conversions of groups."""
        for event in effects:
            if isinstance(event, GroupConverted):
                self.answered["downgrade" if event.kind == CLASSIC else "upgrade"] += 1

    def __call__(self, chance: Random) -> Work:
        if self._classic_share is None:
            self._classic_share = chance.choice((0, 0, 0.15, 0.5))
        self._stalled = {member: left - 1 for member, left in self._stalled.items() if left > 1}
        if chance.random() < 0.06:
            return self._topics(chance)
        if len(self._members) < _MEMBERS_MAX and (not self._members or chance.random() < 0.1):
            self._members.append(self._new(chance, chance.choice(_GROUPS), chance.choice(_INSTANCES)))
        able = [each for each in self._members if each not in self._waiting and each not in self._stalled]
        if not able:
            member = self._new(chance, chance.choice(_GROUPS), None)
            self._members.append(member)
            return self._next(chance, member)
        alive = [each for each in able if not each.is_ended]
        classic = [each for each in alive if isinstance(each, ClassicProtocolMember)]
        joining = [each for each in classic if each.step != HEARTBEAT]
        if joining and chance.random() < 0.5:
            return self._next(chance, chance.choice(joining))
        if classic and chance.random() < 0.2:
            return self._next(chance, chance.choice(classic))
        member = chance.choice(alive if alive and chance.random() < 0.8 else able)
        if member.is_ended:
            return self._come_back(chance, member)
        step = chance.random()
        if step < 0.05:
            self._stalled[member] = chance.randrange(5, 60)
        elif step < 0.07:
            member.end()
            self.answered["died"] += 1
            return self._come_back(chance, member)
        elif step < 0.12:
            return self._send("leave", member, "leave_group", member.leaving(), is_lost=False)
        elif step < 0.18:
            topics = chance.choice(_SUBSCRIPTIONS)
            if isinstance(member, ProtocolMember):
                member.subscribe(topics, self._pattern(chance))
            else:
                member.subscribe(topics)
        elif step < 0.21:
            self._overtaken.discard(member)
            member.rejoin()
        return self._next(chance, member)

    def _new(self, chance: Random, group: str, instance: str | None) -> Client:
        topics = chance.choice(_SUBSCRIPTIONS)
        if self._classic_share and chance.random() < self._classic_share:
            return ClassicProtocolMember(
                group,
                topics,
                self.image,
                instance_id=instance,
                is_cooperative=chance.random() < 0.7,
                session_ms=_SESSION_MS,
                rebalance_ms=_REBALANCE_MS,
            )
        return ProtocolMember(
            group,
            f"m{next(self._numbers)}",
            topics,
            pattern=self._pattern(chance),
            instance_id=instance,
            rebalance_ms=_REBALANCE_MS,
        )

    def _pattern(self, chance: Random) -> str:
        return "" if self._is_plain else chance.choice(_PATTERNS)

    def _come_back(self, chance: Random, member: Client) -> Work:
        """Another client takes the place of one that has ended, under its instance id."""
        self._members.remove(member)
        new = self._new(chance, member.group_id, member.instance_id)
        self._members.append(new)
        return self._next(chance, new)

    def _next(self, chance: Random, member: Client) -> Work:
        is_lost = chance.random() < 0.1
        if isinstance(member, ClassicProtocolMember):
            return self._send(f"classic {member.step}", member, member.step, member.request(), is_lost=is_lost)
        kind = "heartbeat" if member.epoch else "join"
        request = member.heartbeat(still_revoking=chance.random() < 0.15)
        return self._send(kind, member, "consumer_group_heartbeat", request, is_lost=is_lost)

    def _send(self, kind: str, member: Client, api: str, request: Any, *, is_lost: bool) -> Work:
        self._waiting.add(member)
        topics: dict[str, UUID] = {}
        """The ids of all topics when the operation ran in a consumer group; nothing in a classic one."""

        def operation(shard: GroupShard, now_ms: int) -> Result[Any, Any]:
            self._look_at_groups(shard)
            if not isinstance(shard.groups.get(member.group_id), ClassicGroup):
                topics.update({name: topic.topic_id for name, topic in self.image.by_name.items()})
            return _handle(shard, now_ms, request)

        return Work(operation, on_answer=partial(self._answered, kind, member, api, request, topics, is_lost))

    def _look_at_groups(self, shard: GroupShard) -> None:
        """In a classic group the coordinator does not assign."""
        for member in self._members:
            if isinstance(member, ClassicProtocolMember):
                member.is_assigned &= not isinstance(shard.groups.get(member.group_id), ClassicGroup)

    def _answered(
        self, kind: str, member: Client, api: str, request: Any, topics: dict[str, UUID], is_lost: bool, answer: Any
    ) -> None:
        self._waiting.discard(member)
        if isinstance(answer, Exception) or is_lost:
            member.not_heard()
            return
        code = ErrorCode(answer.error_code)
        self.answered[kind if code is ErrorCode.NONE else code.name] += 1
        is_welcome = code is ErrorCode.NONE and not member.is_ended
        if is_welcome and (api == HEARTBEAT or getattr(request, "member_epoch", 0) > 0):
            _guarantee(member not in self._overtaken, f"{member.member_id} was overtaken, and its heartbeat is welcome")
        self._overtaken.discard(member)
        if isinstance(member, ProtocolMember):
            if is_welcome and request.member_epoch > 0:
                _guarantee(answer.member_epoch >= member.epoch, f"the epoch of {member.member_id} falls")
            member.heard(answer)
        else:
            member.heard(api, answer)
            if api == SYNC and is_welcome and topics:
                member.assigned(topics)
        if not is_welcome or api == JOIN:
            return
        for other in self._members:
            if other is not member and other.group_id == member.group_id and _used(other) & _used(member):
                self._overtaken.add(other)
                self.answered["overtaken"] += 1

    def _topics(self, chance: Random) -> Work:
        """A change of the cluster, made and told in one operation."""
        name, number = chance.choice(_TOPICS), next(self._numbers)

        def operation(shard: GroupShard, now_ms: int) -> Result[Any, Any]:
            image: Any = shard.context.image
            image.changes += 1
            old = image.by_name.pop(name, None)
            if old is None:
                topic = image.by_name[name] = FixedTopic(name, UUID(int=number), 1 + number % 3)
                delta = ImageDelta(created=(topic,))
            elif number % 3:
                topic = image.by_name[name] = FixedTopic(name, old.topic_id, min(old.partition_count + 1, 6))
                delta = ImageDelta(changed=(topic,))
            else:
                delta = ImageDelta(deleted=(old,))
            shard.on_image(image, delta, now_ms)
            return Result(response="told")

        return Work(operation, on_answer=self._told)

    def _told(self, answer: Any) -> None:
        if answer == "told":
            self.answered["topics"] += 1


def _used(member: Client) -> frozenset[Partition]:
    """The partitions that the client reads because the coordinator assigned them."""
    return member.used if isinstance(member, ProtocolMember) else member.identified


def _handle(shard: GroupShard, now_ms: int, request: Any) -> Result[Any, Any]:
    if isinstance(request, m.JoinGroupRequest):
        return join_group(shard, now_ms, request, _CONTEXT)
    if isinstance(request, m.SyncGroupRequest):
        return sync_group(shard, now_ms, request)
    if isinstance(request, m.HeartbeatRequest):
        return heartbeat(shard, now_ms, request)
    if isinstance(request, m.LeaveGroupRequest):
        return leave_group(shard, now_ms, request)
    return consumer_group_heartbeat(shard, now_ms, request, _CONTEXT)


def _guarantee(is_kept: bool, otherwise: str) -> None:
    if not is_kept:
        raise ConsumerGuaranteeError(otherwise)
