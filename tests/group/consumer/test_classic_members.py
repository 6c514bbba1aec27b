"""
Members of the classic protocol in consumer groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, OffsetCommit, OffsetFetch.

Source: KIP-848; Kafka GroupMetadataManager.classicGroupJoinToConsumerGroup and its like; what Apache Kafka 4.2.1 answered to
raw frames.
"""

from typing import Any, NamedTuple

import pytest

from kohort.group.configs import GroupConfig
from kohort.model.errors import ErrorCode
from kohort.records import values as v
from kohort.wire import messages as m
from tests.group.consumer.classic_member import (
    REBALANCE_MS,
    SESSION_MS,
    ClassicMember,
    assignment_bytes,
    settle,
    subscription_bytes,
)
from tests.group.consumer.members import GROUP, Member, consumer_group, state
from tests.group.harness import Coordinator

NONE, UNKNOWN, FENCED = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID
ILLEGAL, INCONSISTENT = ErrorCode.ILLEGAL_GENERATION, ErrorCode.INCONSISTENT_GROUP_PROTOCOL
STALE, UNSUPPORTED = ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNSUPPORTED_VERSION


class Mixed(NamedTuple):
    """A Stable group of a member of the consumer protocol, a dynamic and a static member of the classic protocol."""

    coordinator: Coordinator
    modern: Member
    dynamic: ClassicMember
    static: ClassicMember


def mixed(**config: Any) -> Mixed:
    coordinator = Coordinator(GroupConfig(**config))
    modern = Member(coordinator, "modern")
    modern.join()
    dynamic, static = ClassicMember(coordinator), ClassicMember(coordinator, instance="i")
    for member in (dynamic, static):
        member.join()
        member.sync()
    settle([modern], [dynamic, static])
    return Mixed(coordinator, modern, dynamic, static)


# The member that a request names: its id, its instance id, and what it is in the group. "@" stands for the id of a real one.
IDENTITIES = [
    # member id  instance   Sync, Heartbeat   LeaveGroup  JoinGroup
    ("@dynamic", None, NONE, NONE, NONE),
    ("@static", "i", NONE, NONE, NONE),
    ("@static", None, NONE, NONE, NONE),
    ("@modern", None, UNKNOWN, NONE, NONE),
    ("nobody", None, UNKNOWN, UNKNOWN, NONE),
    ("@dynamic", "other", UNKNOWN, UNKNOWN, UNKNOWN),
    ("@static", "other", UNKNOWN, UNKNOWN, UNKNOWN),
    ("@dynamic", "i", FENCED, FENCED, FENCED),
    ("nobody", "i", FENCED, FENCED, FENCED),
    ("", "i", FENCED, NONE, NONE),
    ("", "other", UNKNOWN, UNKNOWN, NONE),
    ("", None, UNKNOWN, UNKNOWN, ErrorCode.MEMBER_ID_REQUIRED),
]


def resolved(group: Mixed, member_id: str) -> str:
    ids = {
        "@dynamic": group.dynamic.member_id,
        "@static": group.static.member_id,
        "@modern": group.modern.member_id,
    }
    return ids.get(member_id, member_id)


@pytest.mark.parametrize(("member_id", "instance", "served", "left", "joined"), IDENTITIES)
class TestIdentity:
    def test_heartbeat(
        self, member_id: str, instance: str | None, served: ErrorCode, left: ErrorCode, joined: ErrorCode
    ) -> None:
        group = mixed()
        id_, generation = resolved(group, member_id), group.dynamic.generation
        assert group.coordinator.heartbeat(id_, generation, instance=instance) is served

    def test_sync(
        self, member_id: str, instance: str | None, served: ErrorCode, left: ErrorCode, joined: ErrorCode
    ) -> None:
        group = mixed()
        id_, generation = resolved(group, member_id), group.dynamic.generation
        assert group.coordinator.sync(id_, generation, instance=instance).code is served

    def test_leave(
        self, member_id: str, instance: str | None, served: ErrorCode, left: ErrorCode, joined: ErrorCode
    ) -> None:
        group = mixed()
        assert group.coordinator.leave((resolved(group, member_id), instance)) == [left]

    def test_join(
        self, member_id: str, instance: str | None, served: ErrorCode, left: ErrorCode, joined: ErrorCode
    ) -> None:
        group = mixed()
        metadata = subscription_bytes()
        answer = group.coordinator.join(resolved(group, member_id), instance=instance, protocols=[("range", metadata)])
        assert answer.code is joined
        if joined in (UNKNOWN, FENCED):
            assert (answer.member_id, answer.generation_id) == ("", -1)


GENERATIONS = [(-1, ILLEGAL), (0, NONE), (1, ILLEGAL)]
"""The difference to the member's epoch, and the answer."""


@pytest.mark.parametrize(("difference", "code"), GENERATIONS)
def test_the_generation_is_the_epoch_of_the_member(difference: int, code: ErrorCode) -> None:
    group = mixed()
    member_id, generation = group.dynamic.member_id, group.dynamic.generation + difference
    assert group.coordinator.heartbeat(member_id, generation) is code
    assert group.coordinator.sync(member_id, generation).code is code
    assert group.coordinator.commit(member_id=member_id, generation=generation) == {("orders", 0): code}
    fetch = m.OffsetFetchRequestGroup(group_id=GROUP, member_id=member_id, member_epoch=generation, topics=None)
    (answer,) = group.coordinator.ask("offset_fetch", m.OffsetFetchRequest(groups=[fetch])).groups
    assert ErrorCode(answer.error_code) is code


COMMITS = [
    # member      version  difference  code
    ("@dynamic", 8, 0, NONE),
    ("@dynamic", 8, 1, ILLEGAL),
    ("@dynamic", 9, -1, ILLEGAL),
    ("@modern", 8, 0, UNSUPPORTED),
    ("@modern", 9, 0, NONE),
    # It has the partition since an earlier epoch.
    ("@modern", 9, -1, NONE),
    ("@modern", 9, 1, STALE),
    ("nobody", 8, 0, UNKNOWN),
    ("nobody", 9, 0, UNKNOWN),
]


@pytest.mark.parametrize(("member_id", "version", "difference", "code"), COMMITS)
def test_commits(member_id: str, version: int, difference: int, code: ErrorCode) -> None:
    group = mixed()
    generation = group.modern.epoch + difference
    answer = group.coordinator.commit(member_id=resolved(group, member_id), generation=generation, version=version)
    assert answer == {("orders", 0): code}


@pytest.mark.parametrize(
    ("member_id", "version", "code"),
    [("@dynamic", 5, ILLEGAL), ("@dynamic", 6, ILLEGAL), ("@modern", 5, ILLEGAL), ("@modern", 6, STALE)],
)
def test_transactional_commits_of_a_later_epoch(member_id: str, version: int, code: ErrorCode) -> None:
    group = mixed()
    answer = group.coordinator.commit_in_transaction(
        member_id=resolved(group, member_id), generation=group.modern.epoch + 1, version=version
    )
    assert answer == {("orders", 0): code}


PROTOCOLS = [
    # type        name     what SyncGroup answers
    ("consumer", "range", NONE),
    (None, None, INCONSISTENT),  # from version 5 on
    ("connect", "range", INCONSISTENT),
    ("consumer", "sticky", INCONSISTENT),
]


@pytest.mark.parametrize(("protocol_type", "protocol_name", "code"), PROTOCOLS)
def test_sync_names_the_first_protocol_of_the_member(
    protocol_type: str | None, protocol_name: str | None, code: ErrorCode
) -> None:
    group = mixed()
    member = group.dynamic
    answer = group.coordinator.sync(
        member.member_id, member.generation, protocol_type=protocol_type, protocol_name=protocol_name
    )
    assert answer.code is code


SUBSCRIPTIONS = [
    (b"", INCONSISTENT),
    (b"\0", INCONSISTENT),
    (b"\xff\xff" + subscription_bytes()[2:], INCONSISTENT),
    (b"\0\0\x7f\xff\xff\xff", INCONSISTENT),
    (subscription_bytes(version=0), NONE),
    (subscription_bytes(version=1), NONE),
    (subscription_bytes(version=2), NONE),
    (subscription_bytes(version=3), NONE),
    (b"\0\x63" + subscription_bytes(version=3)[2:], NONE),  # version 99 is read as 3
    (subscription_bytes(version=0) + b"trailing", NONE),
]


@pytest.mark.parametrize(("metadata", "code"), SUBSCRIPTIONS)
def test_the_subscription_is_parsed_when_a_member_joins(metadata: bytes, code: ErrorCode) -> None:
    group = mixed()
    end = group.coordinator.end
    answer = group.coordinator.join("new", protocols=[("range", metadata)])
    assert answer.code is code
    if code is not NONE:
        assert (answer.member_id, group.coordinator.end) == ("", end)


def test_nobody_joins_a_consumer_group_by_the_classic_protocol_while_the_migration_is_disabled() -> None:
    coordinator = Coordinator(GroupConfig(group_consumer_migration_policy="disabled"))
    a = Member(coordinator, "a")
    a.join()
    refused = coordinator.join("b", protocols=[("range", subscription_bytes())])
    assert (refused.code, refused.member_id) == (INCONSISTENT, "")
    # An empty group is replaced.
    a.leave()
    empty = coordinator.join(protocols=[("range", subscription_bytes())])
    assert empty.code is ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_the_assignment_has_the_version_of_the_subscription(version: int) -> None:
    coordinator = Coordinator()
    modern = Member(coordinator, "modern", ("payments",))
    modern.join()
    member = ClassicMember(coordinator, version=version)
    member.join()
    answer = member.sync()
    assert answer.assignment == assignment_bytes({"orders": (0, 1, 2, 3)}, version=version)


JOINS = [
    # protocol type  protocols            code
    ("consumer", ["range"], NONE),
    ("consumer", ["sticky", "range"], NONE),
    ("consumer", ["sticky"], INCONSISTENT),
    ("consumer", [], INCONSISTENT),
    ("connect", ["range"], INCONSISTENT),
    ("", ["range"], INCONSISTENT),
]


@pytest.mark.parametrize(("protocol_type", "names", "code"), JOINS)
def test_a_protocol_has_to_be_common_to_all_members_of_the_classic_protocol(
    protocol_type: str, names: list[str], code: ErrorCode
) -> None:
    group = mixed()
    protocols = [(name, subscription_bytes()) for name in names]
    answer = group.coordinator.join("new", protocol_type=protocol_type, protocols=protocols)
    assert answer.code is code
    if code is NONE:
        assert answer.protocol_name == names[0]


def test_without_members_of_the_classic_protocol_any_protocol_will_do() -> None:
    coordinator = Coordinator()
    Member(coordinator, "modern").join()
    assert coordinator.join("new", protocols=[("own", subscription_bytes())]).code is NONE


def test_a_member_id_that_was_given_out_is_not_noted() -> None:
    group = mixed()
    end = group.coordinator.end
    answer = group.coordinator.join(protocols=[("range", subscription_bytes())], client_id="billing")
    assert answer.code is ErrorCode.MEMBER_ID_REQUIRED
    assert "billing" not in answer.member_id
    assert (group.coordinator.end, consumer_group(group.coordinator).member_count) == (end, 3)


def test_before_version_4_a_member_joins_at_once() -> None:
    group = mixed()
    answer = group.coordinator.join(protocols=[("range", subscription_bytes())], version=3)
    assert answer.code is NONE
    assert answer.member_id in consumer_group(group.coordinator).members


def test_a_full_group_takes_known_ids_only() -> None:
    group = mixed(group_consumer_max_size=3)
    full = ErrorCode.GROUP_MAX_SIZE_REACHED
    assert group.coordinator.join(protocols=[("range", subscription_bytes())]).code is full
    assert group.coordinator.join("new", protocols=[("range", subscription_bytes())]).code is full
    assert group.coordinator.join(instance="other", protocols=[("range", subscription_bytes())]).code is full
    assert group.static.ask_join(member_id="").code is NONE
    assert group.dynamic.ask_join().code is NONE


def test_a_member_that_joins_again_at_its_target_writes_nothing() -> None:
    group = mixed()
    group.dynamic.join()
    end = group.coordinator.end
    assert group.dynamic.ask_join().code is NONE
    assert group.coordinator.end == end


# Rebalances


def test_a_heartbeat_asks_to_join_again_when_the_epoch_rises_when_it_must_revoke_and_when_partitions_are_free() -> None:
    coordinator = Coordinator()
    a = Member(coordinator, "a")
    a.join()
    b = ClassicMember(coordinator)
    b.join()
    b.sync()
    # UNRELEASED: A has not given up anything yet.
    assert (b.owned, b.heartbeat()) == ({}, NONE)
    a.beat()
    assert b.heartbeat() is NONE
    a.beat()
    # The partitions are free now.
    assert b.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    b.join()
    b.sync()
    assert b.owned == {"orders": (2, 3)}
    assert b.heartbeat() is NONE
    c = Member(coordinator, "c")
    c.join()
    # The group epoch is above the epoch of the member.
    assert b.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert b.ask_join().generation_id == 3
    # UNREVOKED: SyncGroup tells what is left, and the next heartbeat has the member join again.
    b.sync()
    assert len(b.owned["orders"]) == 1
    assert b.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert b.join().generation_id == 4


def test_sync_is_refused_when_the_epoch_has_risen_since_the_join() -> None:
    group = mixed()
    Member(group.coordinator, "new").join()
    answer = group.coordinator.sync(group.dynamic.member_id, group.dynamic.generation)
    assert answer.code is ErrorCode.REBALANCE_IN_PROGRESS


def test_an_eager_member_has_given_up_everything_when_it_joins() -> None:
    coordinator = Coordinator()
    a = Member(coordinator, "a")
    a.join()
    b = ClassicMember(coordinator, version=0)
    b.join()
    settle([a], [b])
    c = Member(coordinator, "c")
    c.join()
    # One JoinGroup is enough: it owns nothing.
    assert b.join().generation_id == 4
    assert len(consumer_group(coordinator).members[b.member_id].assigned) <= 1


# Timers


def silent(group: Mixed, duration_ms: int) -> set[str]:
    """The members that are left when the dynamic member is silent for so long."""
    step = 1_000
    for _ in range(0, duration_ms, step):
        group.coordinator.advance(step)
        group.modern.beat()
        group.static.heartbeat()
    return {member.member_id for member in consumer_group(group.coordinator).members.values()}


def test_a_member_is_fenced_by_its_own_session_timeout() -> None:
    group = mixed()
    assert group.dynamic.member_id in silent(group, SESSION_MS - 1_000)
    assert group.dynamic.member_id not in silent(group, 1_000)


def test_a_commit_does_not_extend_the_session() -> None:
    group = mixed()
    silent(group, SESSION_MS - 1_000)
    group.coordinator.commit(member_id=group.dynamic.member_id, generation=group.dynamic.generation)
    assert group.dynamic.member_id not in silent(group, 1_000)


def alive(group: Mixed, duration_ms: int) -> None:
    """Time passes, and every member sends heartbeats."""
    for _ in range(0, duration_ms, 1_000):
        group.coordinator.advance(1_000)
        group.modern.beat()
        group.static.poll()
        group.coordinator.heartbeat(group.dynamic.member_id, group.dynamic.generation)


def test_a_member_that_does_not_join_again_is_fenced_after_its_rebalance_timeout() -> None:
    group = mixed()
    new = Member(group.coordinator, "new")
    new.join()
    assert group.dynamic.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    # Later refusals do not begin the time anew.
    alive(group, REBALANCE_MS - 1_000)
    assert group.dynamic.member_id in consumer_group(group.coordinator).members
    alive(group, 1_000)
    assert group.dynamic.member_id not in consumer_group(group.coordinator).members


def test_a_member_that_does_not_synchronise_is_fenced_after_its_rebalance_timeout() -> None:
    group = mixed()
    group.dynamic.join()
    alive(group, REBALANCE_MS - 1_000)
    assert group.dynamic.member_id in consumer_group(group.coordinator).members
    alive(group, 1_000)
    assert group.dynamic.member_id not in consumer_group(group.coordinator).members


def test_a_member_that_went_over_to_the_consumer_protocol_is_not_fenced_by_timers_of_the_classic_one() -> None:
    group = mixed()
    group.dynamic.join()
    switched = Member(group.coordinator, group.dynamic.member_id)
    switched.join()
    for _ in range(REBALANCE_MS // 1_000 + 1):
        group.coordinator.advance(1_000)
        group.modern.beat()
        group.static.poll()
        assert switched.beat().code is NONE


def test_after_a_restart_the_session_timeout_of_the_group_holds() -> None:
    group = mixed()
    group.coordinator.restart()
    # The static member goes on by heartbeats, which bring back its own timeout.
    assert group.dynamic.member_id in silent(group, 44_000)
    assert group.dynamic.member_id not in silent(group, 1_000)


# Members that change the protocol


def test_a_member_changes_the_protocol_under_its_id_without_a_new_epoch() -> None:
    group = mixed()
    coordinator, epoch = group.coordinator, consumer_group(group.coordinator).epoch.get()
    switched = Member(coordinator, group.dynamic.member_id)
    switched.epoch, switched.owned = group.dynamic.generation, dict(group.dynamic.owned)
    end = coordinator.end
    assert switched.beat().code is NONE
    (record,) = coordinator.records(end)
    assert isinstance(record, v.ConsumerGroupMemberMetadata)
    assert record.classic_member_metadata is None
    assert group.dynamic.heartbeat() is UNKNOWN
    # And back
    end = coordinator.end
    assert group.dynamic.ask_join().code is NONE
    (record,) = coordinator.records(end)
    assert isinstance(record, v.ConsumerGroupMemberMetadata)
    assert record.classic_member_metadata is not None
    assert consumer_group(coordinator).epoch.get() == epoch
    assert group.dynamic.heartbeat() is NONE


def test_a_group_of_classic_members_alone_stays_a_consumer_group_until_one_is_removed() -> None:
    group = mixed()
    coordinator = group.coordinator
    metadata = subscription_bytes(owned=group.modern.owned)
    assert coordinator.join("modern", protocols=[("range", metadata)], session_ms=SESSION_MS).code is NONE
    assert all(member.classic for member in consumer_group(coordinator).members.values())
    assert state(coordinator) == "Stable"
    assert group.dynamic.leave() is NONE
    assert coordinator.groups[GROUP].kind == "classic"


# LeaveGroup


def test_members_that_leave_together_raise_the_epoch_once() -> None:
    group = mixed()
    coordinator = group.coordinator
    other = Member(coordinator, "other")
    other.join()
    end, epoch = coordinator.end, consumer_group(coordinator).epoch.get()
    dynamic = group.dynamic.member_id
    codes = coordinator.leave((dynamic, None), ("", "i"), (dynamic, None), ("nobody", None))
    assert codes == [NONE, NONE, NONE, UNKNOWN]
    records = coordinator.records(end)
    assert [type(record).__name__.removeprefix("ConsumerGroup") for record in records] == [
        *["CurrentMemberAssignmentTombstone", "TargetAssignmentMemberTombstone", "MemberMetadataTombstone"] * 2,
        "Metadata",
    ]
    assert consumer_group(coordinator).epoch.get() == epoch + 1


def test_a_leave_group_that_names_no_member_writes_nothing() -> None:
    group = mixed()
    end = group.coordinator.end
    assert group.coordinator.leave(("nobody", None), ("", "other")) == [UNKNOWN, UNKNOWN]
    assert group.coordinator.end == end
