"""
Invariants of consumer groups under random members, topics and faults of the log.

Members use names and patterns, and either protocol: classic groups are upgraded, consumer groups downgraded.

A partition has one owner; a client uses only what the committed group says is its own; epochs never fall; members that send
heartbeats become STABLE; a group that is loaded from its log, compacted or not, equals the live one; the short cut for
heartbeats that tell nothing new gives what the full handling gives.

Bound: when nothing else changes and no member is fenced, the group is Stable after `ROUNDS_MAX` heartbeats of each member. One
heartbeat tells a member that was fenced to join, one joins it (and raises the epoch), one ends the revocation of an older
target, one is told the revocations of the newest target, one acknowledges them, one takes what the others have released. A
member of the classic protocol joins and synchronises right after the heartbeat that tells it to.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.states import COMPLETING_REBALANCE, PREPARING_REBALANCE, STABLE
from kohort.group.configs import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupConfig
from kohort.group.consumer import heartbeat as handler
from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.patterns import match_topics
from kohort.group.consumer.registry import registry_of
from kohort.group.groups import Group
from kohort.group.records import GroupRecordSerde
from kohort.group.shard import GroupShard
from kohort.model.errors import ErrorCode
from kohort.model.image import ImageDelta
from kohort.records import values as v
from kohort.testing import FixedContext
from kohort.wire import messages as m
from tests.group.consumer.classic_protocol import HEARTBEAT, SYNC, ClassicProtocolMember
from tests.group.consumer.picture import compacted, loaded, picture, size
from tests.group.consumer.protocol import Partition, ProtocolMember
from tests.group.harness import Answer, Coordinator, Topic
from tests.group.test_machine import picture as classic_picture
from tests.group.trouble import SETTINGS, Trouble

GROUPS = ("a", "b")
OFTEN_A = st.sampled_from(("a", "a", "a", "b"))
INSTANCES = (None, None, "x", "y")
TOPICS = ("orders", "payments", "clicks")
PATTERNS = ("", "", "", "orders|clicks", "pay.*", ".*", "none")
ASSIGNORS = (None, None, "uniform", "range")
SESSION_MS, REBALANCE_MS, INTERVAL_MS = 45_000, 20_000, 5_000
CONFIG = GroupConfig(group_consumer_max_size=5, group_max_size=4, offsets_retention_check_interval_ms=1_000_000_000)
GAP_MS = 10_001
"""Longer than the shortest time between two resolutions of patterns."""
MEMBERS_MAX = 7
ROUNDS_MAX = 6
CLASSIC_ROUNDS_MAX = 2 * NEW_MEMBER_JOIN_TIMEOUT_MS // INTERVAL_MS
SESSION_ROUNDS = SESSION_MS // INTERVAL_MS + 1 + 2 * MEMBERS_MAX
"""
Until the sessions of dead members have ended. Clients of either protocol that contend for one instance id convert the group to
and fro until all but one are fenced, and each conversion begins all sessions anew.
"""
REBALANCING = (PREPARING_REBALANCE, COMPLETING_REBALANCE)
RECORDS = (
    v.ConsumerGroupMetadata,
    v.ConsumerGroupMetadataTombstone,
    v.ConsumerGroupPartitionMetadataTombstone,
    v.ConsumerGroupMemberMetadata,
    v.ConsumerGroupMemberMetadataTombstone,
    v.ConsumerGroupTargetAssignmentMetadata,
    v.ConsumerGroupTargetAssignmentMetadataTombstone,
    v.ConsumerGroupTargetAssignmentMember,
    v.ConsumerGroupTargetAssignmentMemberTombstone,
    v.ConsumerGroupCurrentMemberAssignment,
    v.ConsumerGroupCurrentMemberAssignmentTombstone,
    v.ConsumerGroupRegularExpression,
    v.ConsumerGroupRegularExpressionTombstone,
    v.GroupMetadata,
    v.GroupMetadataTombstone,
)
Client: TypeAlias = ProtocolMember | ClassicProtocolMember
which = st.integers(0, MEMBERS_MAX - 1)
subscriptions = st.sampled_from([("orders",), ("orders", "payments"), ("payments",), TOPICS, ()])
patterns = st.sampled_from(PATTERNS)


@dataclass
class InFlight:
    """
    A request without answer.

    Attributes:
        member: the member that hears the answer; None if the answer is lost.
        topics: the ids of all topics when it was sent.
        is_led: whether the group was a classic one then.
    """

    member: Client | None
    api: str
    topics: dict[str, UUID]
    is_led: bool
    answer: Answer


class Members(Trouble):
    @initialize(count=st.integers(0, 3), is_classic=st.booleans(), assignment_interval_ms=st.sampled_from([0, 1_000]))
    def start(self, count: int, is_classic: bool, assignment_interval_ms: int) -> None:
        self.coordinator = Coordinator(CONFIG, assignment_interval_ms=assignment_interval_ms)
        self.members: list[Client] = []
        self.number = 100
        self.in_flight: list[InFlight] = []
        self.epochs: dict[str, int] = {}
        """The highest committed epoch of each group."""
        self.replaced: set[str] = set()
        """Groups that may have been replaced by a new one, whose epochs begin anew."""
        self.generations: dict[str, int] = {}
        """The last generation of a group that was a classic one."""
        self.beats_short = 0
        for _ in range(count):
            self.arrive("a", None, ("orders", "payments"), "", None, is_classic)
        for _ in range(ROUNDS_MAX):
            self.everybody_beats()
            self.coordinator.advance(GAP_MS)

    # Requests

    def fresh(self) -> int:
        self.number += 1
        return self.number

    def member(self, index: int) -> Client | None:
        return self.members[index % len(self.members)] if self.members else None

    def ready(self, index: int) -> Client | None:
        """The member, if it may send a request."""
        member = self.member(index)
        return None if member is None or member.is_ended or self.is_waiting(member) else member

    def send(self, member: Client, request: Any, *, is_lost: bool = False) -> None:
        api = "consumer_group_heartbeat" if isinstance(member, ProtocolMember) else member.step
        if isinstance(request, m.LeaveGroupRequest):
            api = "leave_group"
        self.look_at_groups()
        if isinstance(request, m.ConsumerGroupHeartbeatRequest):
            self.compare_with_the_full_handling(request)
        is_led = isinstance(self.coordinator.shard.groups.get(member.group_id), ClassicGroup)
        topics = {name: topic.topic_id for name, topic in self.coordinator.image.by_name.items()}
        answer = self.coordinator.ask(api, request)
        self.in_flight.append(InFlight(None if is_lost else member, api, topics, is_led, answer))
        if is_lost:
            member.not_heard()
        self.hear()

    def turn(self, member: Client) -> None:
        """
        One heartbeat of a member. One of the classic protocol goes on until it has its assignment or has to wait: it joins and
        synchronises twice if it first has to revoke partitions, and asks for an id before.
        """
        if isinstance(member, ProtocolMember):
            self.send(member, member.heartbeat())
            return
        for _ in range(6):
            self.send(member, member.request())
            if member.is_ended or self.is_waiting(member) or member.step == HEARTBEAT:
                return

    def hear(self) -> None:
        self.look_at_groups()
        waiting: list[InFlight] = []
        for each in self.in_flight:
            member, answer = each.member, each.answer
            if answer.is_parked:
                waiting.append(each)
                continue
            assert answer.code is not ErrorCode.UNKNOWN_SERVER_ERROR, answer.error_message
            if isinstance(member, ProtocolMember):
                member.heard(answer.response)
            elif member is not None:
                member.heard(each.api, answer.response)
                if each.api == SYNC and answer.code is ErrorCode.NONE and not each.is_led:
                    member.assigned(each.topics)
        self.in_flight = waiting

    def look_at_groups(self) -> None:
        """In a classic group a member may use what it was told earlier, and an empty one is replaced by a new group."""
        groups = self.coordinator.shard.groups
        for group_id in GROUPS:
            group = groups.get(group_id)
            if group is None or group.is_empty:
                self.generations.pop(group_id, None)
                if group_id in self.epochs:
                    self.replaced.add(group_id)
            elif isinstance(group, ClassicGroup):
                self.generations[group_id] = group.generation
        for member in self.members:
            if isinstance(member, ClassicProtocolMember) and isinstance(groups.get(member.group_id), ClassicGroup):
                member.is_assigned = False

    def is_waiting(self, member: Client) -> bool:
        return any(each.member is member for each in self.in_flight)

    def compare_with_the_full_handling(self, request: m.ConsumerGroupHeartbeatRequest) -> None:
        """Both are run on the same state. When the short cut applies, the full handling has no effect but the same deadline."""
        shard = self.coordinator.shard
        registry = registry_of(shard)
        if request.member_epoch < 0 or self.coordinator.runtime.states().get(0) is None:
            return
        context = FixedContext(1, "client", "/127.0.0.1")
        short = handler._unchanged(registry, request, context, self.coordinator.now_ms)
        if short is None:
            return
        self.beats_short += 1
        full = handler._Heartbeat(registry, request, context, self.coordinator.now_ms).run()
        assert (list(short.records), short.response) == (list(full.records), full.response)
        assert (len(full.wakes), len(full.effects), full.then, full.otherwise) == (0, 0, None, None)
        (session,) = full.deadlines
        assert session.key == ("session", request.group_id, request.member_id)

    # Members

    def new_client(
        self,
        group: str,
        instance: str | None,
        topics: tuple[str, ...],
        pattern: str,
        assignor: str | None,
        is_classic: bool,
        member_id: str = "",
    ) -> Client:
        if is_classic:
            return ClassicProtocolMember(
                group,
                topics,
                self.coordinator.image,
                member_id=member_id,
                instance_id=instance,
                is_cooperative=bool(self.fresh() % 3),
                session_ms=SESSION_MS,
                rebalance_ms=REBALANCE_MS,
            )
        return ProtocolMember(
            group,
            member_id or f"m{self.fresh()}",
            topics,
            pattern=pattern,
            instance_id=instance,
            assignor=assignor,
            rebalance_ms=REBALANCE_MS,
        )

    @rule(
        group=OFTEN_A,
        instance=st.sampled_from(INSTANCES),
        topics=subscriptions,
        pattern=patterns,
        assignor=st.sampled_from(ASSIGNORS),
        is_classic=st.booleans(),
    )
    def arrive(
        self,
        group: str,
        instance: str | None,
        topics: tuple[str, ...],
        pattern: str,
        assignor: str | None,
        is_classic: bool,
    ) -> None:
        if len(self.members) < MEMBERS_MAX:
            member = self.new_client(group, instance, topics, pattern, assignor, is_classic)
            self.members.append(member)
            self.turn(member)

    @rule(beats=st.lists(st.tuples(which, st.sampled_from(("", "", "lost", "still revoking"))), min_size=1, max_size=6))
    def beat(self, beats: list[tuple[int, str]]) -> None:
        for index, how in beats:
            member = self.ready(index)
            if isinstance(member, ProtocolMember):
                request = member.heartbeat(still_revoking=how == "still revoking")
                self.send(member, request, is_lost=how == "lost")
            elif member is not None:
                self.send(member, member.request(), is_lost=how == "lost")

    @rule(index=which)
    def beat_twice(self, index: int) -> None:
        """
        A client repeats a heartbeat whose answer did not come in time, and hears the second answer only.

        A client that took the first answer must not repeat the request: its list of partitions may be old, and the coordinator
        would give away what it does not name. In Kafka, too; TCP repeats nothing.
        """
        member = self.ready(index)
        if isinstance(member, ProtocolMember):
            request = member.heartbeat()
            self.send(member, request, is_lost=True)
            self.send(member, request)

    @rule()
    def everybody_beats(self) -> None:
        for member in self.members:
            if not member.is_ended and not self.is_waiting(member):
                self.turn(member)

    @rule(index=which, topics=subscriptions, pattern=patterns)
    def subscribe(self, index: int, topics: tuple[str, ...], pattern: str) -> None:
        member = self.ready(index)
        if member is None:
            return
        if isinstance(member, ProtocolMember):
            member.subscribe(topics, pattern)
        else:
            member.subscribe(topics)
        self.turn(member)

    @rule(index=which)
    def rejoin(self, index: int) -> None:
        member = self.ready(index)
        if member is not None:
            member.rejoin()
            self.turn(member)

    @rule(index=which, is_for_good=st.booleans())
    def leave(self, index: int, is_for_good: bool) -> None:
        member = self.ready(index)
        if member is None:
            return
        request = member.leaving()
        if is_for_good and isinstance(request, m.ConsumerGroupHeartbeatRequest):
            request = m.ConsumerGroupHeartbeatRequest(
                group_id=request.group_id,
                member_id=request.member_id,
                instance_id=request.instance_id,
                member_epoch=-1,
            )
        self.send(member, request)

    @rule(indices=st.sets(which, min_size=1, max_size=3))
    def remove(self, indices: set[int]) -> None:
        """An administrator removes members of either protocol in one request."""
        found = [
            member for member in map(self.member, sorted(indices)) if member is not None and member.group_id == "a"
        ]
        identities = [
            m.LeaveGroupRequestMemberIdentity(member_id=member.member_id, group_instance_id=member.instance_id)
            for member in found
        ]
        self.look_at_groups()
        self.coordinator.ask("leave_group", m.LeaveGroupRequest(group_id="a", members=identities))
        self.hear()

    @rule(index=which)
    def die(self, index: int) -> None:
        member = self.member(index)
        if member is not None:
            member.end()

    @rule(index=which, is_classic=st.booleans())
    def come_back(self, index: int, is_classic: bool) -> None:
        """A client takes the place of one that has ended, under its instance id if it was static, with either protocol."""
        member = self.member(index)
        if member is not None and member.is_ended and not self.is_waiting(member):
            self.replace(member, is_classic)

    @rule(index=which)
    def change_protocol(self, index: int) -> None:
        """A member is restarted with the other protocol, and keeps its ids."""
        member = self.ready(index)
        if member is not None:
            self.replace(member, isinstance(member, ProtocolMember), member.member_id)

    def replace(self, member: Client, is_classic: bool, member_id: str = "") -> None:
        self.members.remove(member)
        new = self.new_client(
            member.group_id, member.instance_id, member.topics, "", None, is_classic, member_id=member_id
        )
        self.members.append(new)
        self.turn(new)

    @rule(index=which, partition=st.integers(0, 2))
    def commit(self, index: int, partition: int) -> None:
        member = self.member(index)
        if member is not None:
            self.coordinator.ask(
                "offset_commit",
                m.OffsetCommitRequest(
                    group_id=member.group_id,
                    generation_id_or_member_epoch=member.epoch
                    if isinstance(member, ProtocolMember)
                    else member.generation,
                    member_id=member.member_id,
                    topics=[
                        m.OffsetCommitRequestTopic(
                            name="orders",
                            partitions=[m.OffsetCommitRequestPartition(partition_index=partition, committed_offset=1)],
                        )
                    ],
                ),
            )

    @rule(group=st.sampled_from(GROUPS))
    def delete(self, group: str) -> None:
        self.look_at_groups()
        self.coordinator.ask("delete_groups", m.DeleteGroupsRequest(groups_names=[group]))

    # Topics

    @rule(name=st.sampled_from(TOPICS), count=st.integers(1, 5))
    def create_or_grow(self, name: str, count: int) -> None:
        topics = self.coordinator.image.by_name
        old = topics.get(name)
        if old is not None and old.partition_count >= count:
            return
        topics[name] = Topic(name, UUID(int=self.fresh()) if old is None else old.topic_id, count)
        created = (topics[name],)
        self.tell(ImageDelta(created=created) if old is None else ImageDelta(changed=created))

    @rule(name=st.sampled_from(TOPICS), is_made_again=st.booleans())
    def delete_topic(self, name: str, is_made_again: bool) -> None:
        topics = self.coordinator.image.by_name
        old = topics.pop(name, None)
        if old is None:
            return
        if is_made_again:
            topics[name] = Topic(name, UUID(int=self.fresh()), 3)
        self.tell(ImageDelta(deleted=(old,), created=(topics[name],) if is_made_again else ()))

    def tell(self, delta: ImageDelta) -> None:
        self.coordinator.image.version += 1
        self.coordinator.runtime.on_image(delta)
        self.settle()

    # Time and trouble

    @rule(duration_ms=st.sampled_from([1, INTERVAL_MS, GAP_MS, REBALANCE_MS - 1, REBALANCE_MS, SESSION_MS]))
    def wait(self, duration_ms: int) -> None:
        self.pass_time(duration_ms)

    @rule()
    def hold_background(self) -> None:
        """Patterns are being resolved for a long time."""
        self.coordinator.is_background_held = True

    @rule()
    def end_background(self) -> None:
        self.run_background()

    # Convergence

    @rule()
    def converge(self) -> None:
        """When the others have expired, all members that send heartbeats come to their targets within the bound."""
        self.go_on()
        self.coordinator.log.fail_next_append = None
        for _ in range(SESSION_ROUNDS):
            self.beat_and_wait()
        # A classic group waits minutes for a member that died while it was joining, and then the others rebalance once more.
        rounds = 0
        while any(isinstance(each, ClassicGroup) and each.state in REBALANCING for each in self.all_groups()):
            assert rounds < CLASSIC_ROUNDS_MAX, "a classic group does not come to rest"
            rounds += 1
            self.beat_and_wait()
        for _ in range(SESSION_ROUNDS if rounds else 0):
            self.beat_and_wait()
        for group_id in GROUPS:
            rounds = 0
            while self.listed_state(group_id) not in (None, "Stable", "Empty"):
                assert rounds < ROUNDS_MAX, f"{group_id} is not Stable after {rounds} heartbeats of each member"
                rounds += 1
                self.beat_and_wait()
        self.check_targets()
        self.check_patterns()

    def beat_and_wait(self) -> None:
        self.everybody_beats()
        self.pass_time(INTERVAL_MS)

    def listed_state(self, group_id: str) -> str | None:
        return self.coordinator.listed().get(group_id)

    def check_targets(self) -> None:
        """Every subscribed partition is assigned once, to a subscriber, and evenly if all subscribe to the same."""
        registry = registry_of(self.coordinator.shard)
        for group in self.groups():
            topics_of = group.subscriptions.topics_of
            subscribed = {id_: registry.topic_ids(topics_of(member)) for id_, member in group.members.items()}
            wanted = {
                (topic.topic_id, partition)
                for topic in self.coordinator.image.by_name.values()
                if any(topic.topic_id in topics for topics in subscribed.values())
                for partition in range(topic.partition_count)
            }
            given = [
                (topic_id, partition)
                for target in group.targets.values()
                for topic_id, numbers in target.items()
                for partition in numbers
            ]
            if all(member.classic is not None for member in group.members.values()):
                # The heartbeats of the classic protocol do not look at the topics, so that they may have changed.
                continue
            for id_, target in group.targets.items():
                assert group.members[id_].assigned == target
            if group.epoch.get() <= self.generations.get(group.group_id, 0):
                # An upgrade does not raise the epoch if the joining member adds no topic. The target is the last assignment
                # of the classic group, by topic name: if the topic was made again with fewer partitions since, it names some
                # that are gone, and if a member left a topic since, it has partitions of that topic, as in Kafka
                # (ConsumerGroup.fromClassicGroup).
                existing = {topic.topic_id for topic in self.coordinator.image.by_name.values()}
                assert {topic_id for topic_id, _ in given} <= existing
                continue
            for id_, target in group.targets.items():
                assert set(target) <= subscribed[id_]
            assert sorted(given) == sorted(wanted)
            if group.targets and len(set(subscribed.values())) == 1:
                loads = [size(target) for target in group.targets.values()]
                topics = len(next(iter(subscribed.values())))
                assert max(loads) - min(loads) <= (topics if self.uses_range(group) else 1)

    def check_patterns(self) -> None:
        """Every pattern is resolved with all topics that it matches. A deleted topic stays until the next resolution."""
        names = tuple(self.coordinator.image.by_name)
        for group in self.groups():
            used = {member.topic_pattern for member in group.members.values() if member.topic_pattern}
            assert set(group.subscriptions.patterns) == set(group.subscriptions.resolved) == used
            for pattern, topics in match_topics(tuple(used), names).items():
                assert group.subscriptions.resolved[pattern].topics & set(names) == topics

    def uses_range(self, group: ConsumerGroup) -> bool:
        """Range balances each topic by itself."""
        return any(member.server_assignor == "range" for member in group.members.values())

    # Invariants

    def all_groups(self) -> Iterable[Group]:
        return self.coordinator.shard.groups.values()

    def groups(self) -> Iterator[ConsumerGroup]:
        for group in self.coordinator.shard.groups.values():
            if isinstance(group, ConsumerGroup):
                yield group

    @invariant()
    def a_partition_has_one_owner(self) -> None:
        for group in self.groups():
            owned: list[Partition] = []
            for member in group.members.values():
                for assignment in (member.assigned, member.pending_revocation):
                    owned += [(topic, partition) for topic, numbers in assignment.items() for partition in numbers]
            assert len(owned) == len(set(owned))
            targeted = [(t, p) for target in group.targets.values() for t, numbers in target.items() for p in numbers]
            assert len(targeted) == len(set(targeted))
            epochs = {
                (topic, partition): member.epoch
                for member in group.members.values()
                for assignment in (member.assigned, member.pending_revocation)
                for topic, numbers in assignment.items()
                for partition in numbers
            }
            assert epochs == {
                (topic, partition): epoch
                for topic, owners in group.owners._by_topic.items()
                for partition, epoch in owners.items()
            }

    @invariant()
    def a_client_uses_only_its_own(self) -> None:
        """A client whose session has ended may not know yet; the others use what the committed group says is theirs."""

        def owners(shard: GroupShard, offset: int) -> dict[tuple[str, str], frozenset[Partition]]:
            found = {}
            for group_id, group in shard.groups.items_at(offset):
                if isinstance(group, ConsumerGroup):
                    for member_id, member in group.members.items_at(offset):
                        found[group_id, member_id] = frozenset(
                            (topic, partition)
                            for assignment in (member.assigned, member.pending_revocation)
                            for topic, numbers in assignment.items()
                            for partition in numbers
                        )
            return found

        owned = self.coordinator.runtime.query(0, owners)
        users: dict[tuple[str, Partition], str] = {}
        for member in self.members:
            key = (member.group_id, member.member_id)
            if key not in owned:
                continue
            used = self.used_by(member)
            assert used <= owned[key], f"{key} uses {used - owned[key]}"
            for partition in used:
                assert users.setdefault((member.group_id, partition), member.member_id) == member.member_id

    def used_by(self, member: Client) -> frozenset[Partition]:
        """The partitions that a client reads, as far as their topics exist."""
        if isinstance(member, ProtocolMember):
            return member.used
        image = self.coordinator.image
        return frozenset(each for each in member.identified if image.topic_by_id(each[0]) is not None)

    @invariant()
    def epochs_never_fall(self) -> None:
        def epochs(shard: GroupShard, offset: int) -> dict[str, tuple[int, int, int]]:
            return {
                group_id: (
                    group.epoch.get_at(offset),
                    group.assignment_epoch.get_at(offset),
                    max((member.epoch for _, member in group.members.items_at(offset)), default=0),
                )
                for group_id, group in shard.groups.items_at(offset)
                if isinstance(group, ConsumerGroup)
            }

        for group_id, (epoch, assignment_epoch, member_epoch) in self.coordinator.runtime.query(0, epochs).items():
            if group_id in self.replaced and epoch < self.epochs.get(group_id, 0):
                self.replaced.discard(group_id)
            else:
                assert self.epochs.get(group_id, 0) <= epoch
            assert assignment_epoch <= epoch
            assert member_epoch <= assignment_epoch
            self.epochs[group_id] = epoch

    @invariant()
    def every_member_has_a_session(self) -> None:
        """Otherwise a client that has gone would keep its partitions for ever."""
        for group in self.groups():
            for member_id in group.members:
                has_session = self.coordinator.has_deadline("session", group.group_id, member_id)
                assert has_session, f"{member_id} has no session"

    @precondition(lambda self: not self.coordinator.is_burst and not self.coordinator.log.is_held)
    @invariant()
    def a_loaded_shard_equals_the_live_one(self) -> None:
        log = self.coordinator.log
        if log.high_watermark == log.end_offset:
            self.check_equal(loaded(self.coordinator.records()), self.coordinator.shard)

    def check_equal(self, fresh: GroupShard, live: GroupShard) -> None:
        """A classic group that rebalances is ahead of its log."""
        assert picture(fresh) == picture(live)
        assert {id_: group.kind for id_, group in fresh.groups.items()} == {
            id_: group.kind for id_, group in live.groups.items()
        }
        for group_id, group in live.groups.items():
            if not isinstance(group, ClassicGroup) or group.state is not STABLE:
                continue
            found = fresh.groups[group_id]
            assert isinstance(found, ClassicGroup)
            assert classic_picture(found) == classic_picture(group)

    @rule(seed=st.integers(0, 1 << 32))
    def compact(self, seed: int) -> None:
        """A shard that is loaded from what a compaction leaves equals the live one."""
        self.go_on()
        serde, records = GroupRecordSerde(), self.coordinator.records()
        left = compacted([serde.encode(record) for record in records], Random(seed))
        self.check_equal(loaded(records[position] for position in left), self.coordinator.shard)

    @invariant()
    def records_are_of_groups(self) -> None:
        others = (v.OffsetCommit, v.OffsetCommitTombstone)
        assert all(isinstance(record, (*RECORDS, *others)) for record in self.coordinator.records())

    def teardown(self) -> None:
        if hasattr(self, "coordinator"):
            self.converge()
            assert not self.in_flight


Members.TestCase.settings = SETTINGS
TestMembers = Members.TestCase
