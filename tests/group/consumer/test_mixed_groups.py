"""
Groups with members of both protocols: timers, heartbeats, conversions, writes that fail.

Source: KIP-848; Kafka GroupMetadataManager.classicGroupHeartbeatToConsumerGroup, classicGroupSyncToConsumerGroup,
convertToClassicGroup, convertToConsumerGroup, ConsumerGroup.allMembersUseClassicProtocolExcept.
"""

from uuid import UUID

from kohort.group.configs import GroupConfig
from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.registry import registry_of
from kohort.group.events import GroupConverted, MemberJoined, MemberLeft
from kohort.model.errors import ErrorCode, StorageError
from kohort.records import values as v
from tests.group.consumer.classic_member import (
    REBALANCE_MS,
    SESSION_MS,
    ClassicMember,
    assignment_bytes,
    classic_group,
    settle,
    subscription_bytes,
)
from tests.group.consumer.members import GROUP, Member, consumer_group, state
from tests.group.consumer.test_classic_members import alive, mixed, silent
from tests.group.consumer.test_migration import upgraded
from tests.group.harness import Coordinator, Topic

NONE, REBALANCE = ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS


def has_session(coordinator: Coordinator, member_id: str) -> bool:
    return coordinator.has_deadline("session", GROUP, member_id)


# Heartbeats and assignments


def test_an_assignment_has_every_topic() -> None:
    coordinator = Coordinator()
    Member(coordinator, "a", ()).join()
    b = ClassicMember(coordinator, ("orders", "payments"))
    b.join()
    b.sync()
    assert b.owned == {"orders": (0, 1, 2, 3), "payments": (0, 1, 2, 3)}


def test_a_heartbeat_asks_to_join_again_when_the_target_of_the_new_epoch_is_computed() -> None:
    group = mixed()
    other = Member(group.coordinator, "other", ())
    other.join()
    settle([group.modern, other], [group.dynamic, group.static])
    other.leave()
    assert state(group.coordinator) == "Assigning"
    assert group.dynamic.heartbeat() is NONE
    group.modern.beat()
    assert group.dynamic.heartbeat() is REBALANCE


def test_partitions_that_a_member_has_do_not_keep_it_waiting() -> None:
    coordinator = Coordinator()
    coordinator.image.by_name["payments"] = Topic("payments", UUID(int=2), 1)
    a = Member(coordinator, "a")
    a.join()
    b = ClassicMember(coordinator, ("orders", "payments"))
    b.join()
    b.sync()
    assert b.owned == {"payments": (0,)}
    # A is told what to give up, then it has done it.
    a.beat()
    assert len(a.owned["orders"]) < 4
    assert b.heartbeat() is NONE
    a.beat()
    assert b.heartbeat() is REBALANCE


# Timers


def test_a_member_whose_sync_is_refused_has_its_rebalance_timeout_to_join_again() -> None:
    group = mixed()
    coordinator = group.coordinator
    slow = ClassicMember(coordinator, session_ms=3 * REBALANCE_MS)
    slow.join()
    slow.sync()
    settle([group.modern], [group.dynamic, group.static, slow])
    new = Member(coordinator, "new")
    new.join()
    assert slow.sync().code is REBALANCE
    alive(group, REBALANCE_MS - 1_000)
    assert slow.member_id in consumer_group(coordinator).members
    alive(group, 1_000)
    assert slow.member_id not in consumer_group(coordinator).members


def test_a_member_that_has_synchronised_lives_on_heartbeats() -> None:
    group = mixed()
    group.dynamic.join()
    assert group.dynamic.sync().code is NONE
    alive(group, REBALANCE_MS + 1_000)
    assert group.dynamic.member_id in consumer_group(group.coordinator).members


def test_a_member_that_has_joined_again_lives_on_heartbeats() -> None:
    group = mixed()
    new = Member(group.coordinator, "new")
    new.join()
    assert group.dynamic.poll() is REBALANCE
    settle([group.modern, new], [group.dynamic, group.static])
    assert group.dynamic.heartbeat() is NONE
    for _ in range(0, REBALANCE_MS + 1_000, 1_000):
        group.coordinator.advance(1_000)
        new.beat()
        group.modern.beat()
        group.static.poll()
        assert group.dynamic.heartbeat() is NONE


def test_sync_extends_the_session() -> None:
    group = mixed()
    silent(group, SESSION_MS - 1_000)
    assert group.dynamic.sync().code is NONE
    assert group.dynamic.member_id in silent(group, SESSION_MS - 1_000)
    assert group.dynamic.member_id not in silent(group, 1_000)


def test_version_0_of_join_group_has_the_session_timeout_for_rebalances() -> None:
    group = mixed()
    metadata = subscription_bytes(version=0)
    answer = group.coordinator.join("old", protocols=[("range", metadata)], session_ms=7_000, version=0)
    assert answer.code is NONE
    assert consumer_group(group.coordinator).members["old"].rebalance_timeout_ms == 7_000


# Members


def test_a_member_with_a_pattern_gives_it_up_for_the_classic_protocol() -> None:
    coordinator = Coordinator()
    a = Member(coordinator, "a", None, subscribed_topic_regex="ord.*")
    a.join()
    Member(coordinator, "b").join()
    end = coordinator.end
    assert coordinator.join("a", protocols=[("range", subscription_bytes(("payments",)))]).code is NONE
    group = consumer_group(coordinator)
    assert (group.members["a"].topic_pattern, group.members["a"].topic_names) == ("", frozenset({"payments"}))
    assert dict(group.subscriptions.patterns) == {}
    assert v.ConsumerGroupRegularExpressionTombstone(GROUP, "ord.*") in coordinator.records(end)


def test_a_join_that_cannot_be_written_arms_no_timer_and_tells_nobody() -> None:
    group = mixed()
    coordinator = group.coordinator
    coordinator.events.clear()
    coordinator.log.fail_next_append = StorageError("disk full")
    answer = coordinator.join("new", protocols=[("range", subscription_bytes())])
    assert answer.code is not NONE
    assert not any(isinstance(event, MemberJoined) for event in coordinator.events)
    # A member that was there keeps the deadline that it had.
    silent(group, SESSION_MS - 1_000)
    coordinator.log.fail_next_append = StorageError("disk full")
    group.dynamic.topics = ("payments",)
    assert group.dynamic.ask_join().code is not NONE
    assert group.dynamic.member_id not in silent(group, 1_000)


def test_a_member_that_is_named_twice_leaves_once() -> None:
    group = mixed()
    group.coordinator.events.clear()
    dynamic = (group.dynamic.member_id, None)
    assert group.coordinator.leave(dynamic, dynamic) == [NONE, NONE]
    left = [event.member_id for event in group.coordinator.events if isinstance(event, MemberLeft)]
    assert left == [group.dynamic.member_id]


# Conversions


def test_a_group_of_the_largest_classic_size_is_downgraded() -> None:
    coordinator, c, _a, _b = upgraded(group_max_size=2)
    c.leave()
    assert coordinator.groups[GROUP].kind == "classic"


def test_the_replacement_of_a_classic_member_downgrades_nothing() -> None:
    group = mixed()
    coordinator = group.coordinator
    metadata = subscription_bytes(owned=group.modern.owned)
    assert coordinator.join("modern", protocols=[("range", metadata)]).code is NONE
    new = ClassicMember(coordinator, instance="i")
    assert new.join().code is NONE
    assert isinstance(coordinator.shard.groups[GROUP], ConsumerGroup)
    assert new.member_id in consumer_group(coordinator).members


def test_a_downgrade_by_replacement_leaves_no_record_of_the_consumer_group() -> None:
    """Otherwise the compacted log holds both groups."""
    coordinator, _c, _a, _b = upgraded()
    ClassicMember(coordinator, instance="i").join()
    last = {}
    for record in coordinator.records():
        name = type(record).__name__
        last[name.removesuffix("Tombstone"), getattr(record, "member_id", "")] = name
    live = [name for name in last.values() if name.startswith("ConsumerGroup") and not name.endswith("Tombstone")]
    assert live == []


def test_a_downgraded_group_is_no_longer_told_of_its_topics() -> None:
    coordinator, c, _a, _b = upgraded()
    index = registry_of(coordinator.shard).index
    assert list(index.groups("orders")) == [GROUP]
    c.leave()
    assert list(index.groups("orders")) == []


def test_the_sessions_run_again_after_a_downgrade_that_cannot_be_written() -> None:
    coordinator, c, a, b = upgraded()
    coordinator.log.fail_next_append = StorageError("disk full")
    assert c.leave().code is not NONE
    assert all(has_session(coordinator, each) for each in ("c", a.member_id, b.member_id))


def test_after_a_downgrade_those_that_stay_have_sessions() -> None:
    coordinator, c, a, b = upgraded()
    assert c.leave().code is NONE
    assert [has_session(coordinator, each) for each in ("c", a.member_id, b.member_id)] == [False, True, True]


def test_a_member_that_is_removed_has_no_session() -> None:
    coordinator = Coordinator()
    members = [Member(coordinator, name) for name in ("a", "b")]
    for member in members:
        member.join()
    members[0].leave()
    assert [has_session(coordinator, each) for each in ("a", "b")] == [False, True]


def test_an_upgrade_that_cannot_be_written_is_not_told() -> None:
    coordinator = Coordinator()
    classic_group(coordinator)
    coordinator.events.clear()
    coordinator.log.fail_next_append = StorageError("disk full")
    assert Member(coordinator, "c").join().code is not NONE
    assert GroupConverted(GROUP, "consumer") not in coordinator.events
    assert Member(coordinator, "c").join().code is NONE
    assert GroupConverted(GROUP, "consumer") in coordinator.events


def test_a_refused_heartbeat_leaves_the_members_of_the_classic_group_waiting() -> None:
    """It was forgotten that they wait, so that the next generation did not answer their JoinGroups."""
    coordinator = Coordinator(GroupConfig(group_consumer_max_size=3))
    a, b = classic_group(coordinator)
    waiting = ClassicMember(coordinator, instance="x").ask_join()
    assert waiting.is_parked
    assert Member(coordinator, "m").join().code is ErrorCode.GROUP_MAX_SIZE_REACHED
    a.ask_join()
    b.ask_join()
    assert waiting.code is NONE


def test_an_upgrade_by_a_member_without_topics_keeps_the_last_assignment() -> None:
    """Apache Kafka 4.2.1 does so too before the leader has assigned, so that the members have nothing until the next epoch."""
    coordinator = Coordinator()
    a = ClassicMember(coordinator)
    answer = a.join()
    coordinator.wait_initial_delay()
    a.take(answer)
    c = Member(coordinator, "c", (), subscribed_topic_regex="none")
    assert c.join().member_epoch == 1
    a.sync({a.member_id: assignment_bytes({"orders": range(4)})})
    assert (a.owned, a.heartbeat(), c.beat().member_epoch) == ({}, NONE, 1)
    assert state(coordinator) == "Stable"
    d = Member(coordinator, "d")
    d.join()
    settle([c, d], [a])
    assert len(a.owned["orders"]) == len(d.owned["orders"]) == 2


def test_an_upgrade_and_a_downgrade_in_one_batch_that_cannot_be_written_leave_the_classic_group() -> None:
    """The append takes both back: the consumer group was never written."""
    coordinator = Coordinator()
    a, b = classic_group(coordinator)
    before = coordinator.groups[GROUP]
    coordinator.is_burst = True
    coordinator.log.fail_next_append = StorageError("disk full")
    c = Member(coordinator, "c")
    joined = c.join()
    left = c.leave()
    coordinator.is_burst = False
    coordinator.node.settle()
    assert joined.code is not NONE
    assert left.code is not NONE
    assert coordinator.groups[GROUP] is before
    # The sessions of the members run: they are not those of the group that took its place for a moment.
    coordinator.advance(SESSION_MS)
    assert state(coordinator) == "Empty"
    assert (a.heartbeat(), b.heartbeat()) == (ErrorCode.UNKNOWN_MEMBER_ID,) * 2


def test_a_new_consumer_group_and_its_downgrade_in_one_batch_that_cannot_be_written_leave_no_group() -> None:
    coordinator = Coordinator()
    coordinator.is_burst = True
    coordinator.log.fail_next_append = StorageError("disk full")
    c = Member(coordinator, "c")
    c.join()
    coordinator.join("classic", protocols=[("range", subscription_bytes())])
    c.leave()
    coordinator.is_burst = False
    coordinator.node.settle()
    assert GROUP not in coordinator.shard.groups


def test_a_downgrade_that_fails_after_a_full_batch_was_written_is_taken_back() -> None:
    """The batch before has room for no more records, and is written when the downgrade is already in memory."""
    coordinator, c, a, b = upgraded()
    before = coordinator.groups[GROUP]
    coordinator.log.batch_bytes_max = 1_200
    coordinator.is_burst = True
    d = Member(coordinator, "d", tuple(f"topic-{index}" * 5 for index in range(12)), group="b")
    joined = d.join()
    left = c.leave()
    coordinator.log.fail_next_append = StorageError("disk full")
    coordinator.is_burst = False
    coordinator.node.settle()
    assert joined.code is NONE
    assert left.code is not NONE
    assert coordinator.groups[GROUP] is before
    assert list(registry_of(coordinator.shard).index.groups("orders")) == [GROUP]
    assert (a.heartbeat(), b.heartbeat()) == (NONE, NONE)
