"""
Groups that become groups of another kind: upgrade, downgrade, empty groups.

Source: KIP-848, "Migration"; Kafka GroupMetadataManager.convertToConsumerGroup, convertToClassicGroup; what Apache Kafka 4.2.1
answered to raw frames.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kohort.group.configs import GroupConfig
from kohort.group.consumer.registry import registry_of
from kohort.group.events import GroupConverted
from kohort.model.errors import ErrorCode, StorageError
from kohort.records import values as v
from tests.group.consumer.classic_member import (
    SESSION_MS,
    ClassicMember,
    assigned,
    assignment_bytes,
    classic_group,
    settle,
    subscription_bytes,
)
from tests.group.consumer.members import GROUP, Member, consumer_group, state
from tests.group.harness import Coordinator


def kinds(records: Sequence[object]) -> list[str]:
    return [type(record).__name__.removeprefix("ConsumerGroup") for record in records]


def test_an_upgrade_is_one_batch_of_the_old_group_the_new_one_and_the_member_that_joins() -> None:
    coordinator = Coordinator()
    classic_group(coordinator)
    end, batches = coordinator.end, len(coordinator.log.batches)
    answer = Member(coordinator, "c").join()
    assert (answer.code, answer.member_epoch) == (ErrorCode.NONE, 2)
    assert len(coordinator.log.batches) == batches + 1
    records = coordinator.records(end)
    assert kinds(records) == [
        "GroupMetadataTombstone",
        "MemberMetadata",
        "MemberMetadata",
        "Metadata",
        "TargetAssignmentMember",
        "TargetAssignmentMember",
        "TargetAssignmentMetadata",
        "CurrentMemberAssignment",
        "CurrentMemberAssignment",
        # The member that joins
        "MemberMetadata",
        "Metadata",
        # One of the old members keeps its target.
        *["TargetAssignmentMember"] * 2,
        "TargetAssignmentMetadata",
        "CurrentMemberAssignment",
    ]
    metadata = records[1]
    assert isinstance(metadata, v.ConsumerGroupMemberMetadata)
    assert metadata.classic_member_metadata is not None
    assert metadata.classic_member_metadata.session_timeout_ms == 10_000
    assert [protocol.name for protocol in metadata.classic_member_metadata.supported_protocols] == ["range"]
    first, second = records[3], records[10]
    assert isinstance(first, v.ConsumerGroupMetadata)
    assert isinstance(second, v.ConsumerGroupMetadata)
    assert (first.epoch, second.epoch) == (1, 2)
    assert first.metadata_hash == second.metadata_hash != 0
    for record in records[7:9]:
        assert isinstance(record, v.ConsumerGroupCurrentMemberAssignment)
        assert (record.member_epoch, record.previous_member_epoch, record.state) == (1, 1, 0)
        assert [entry.assignment_epochs for entry in record.assigned_partitions] == [(1, 1)]


def test_the_members_of_an_upgraded_group_share_with_the_new_one() -> None:
    coordinator = Coordinator()
    a, b = classic_group(coordinator)
    c = Member(coordinator, "c")
    c.join()
    settle([c], [a, b])
    owned = [member.owned["orders"] for member in (a, b, c)]
    assert sorted(partition for each in owned for partition in each) == [0, 1, 2, 3]
    assert sorted(map(len, owned)) == [1, 1, 2]
    assert state(coordinator) == "Stable"


def test_the_last_member_of_the_consumer_protocol_leaves_and_the_group_is_classic_again() -> None:
    coordinator = Coordinator()
    a, b = classic_group(coordinator)
    c = Member(coordinator, "c")
    c.join()
    settle([c], [a, b])
    end = coordinator.end
    assert c.leave().code is ErrorCode.NONE
    assert coordinator.groups[GROUP].kind == "classic"
    assert state(coordinator) == "PreparingRebalance"
    records = coordinator.records(end)
    assert kinds(records) == [
        *["CurrentMemberAssignmentTombstone"] * 3,
        *["TargetAssignmentMemberTombstone"] * 3,
        "TargetAssignmentMetadataTombstone",
        *["MemberMetadataTombstone"] * 3,
        "PartitionMetadataTombstone",
        "MetadataTombstone",
        "GroupMetadata",
    ]
    group = records[-1]
    assert isinstance(group, v.GroupMetadata)
    assert (group.generation, group.protocol, group.protocol_type) == (2, "range", "consumer")
    assert {member.member_id for member in group.members} == {a.member_id, b.member_id}
    # Members at the group epoch join again.
    assert (a.heartbeat(), b.heartbeat()) == (ErrorCode.REBALANCE_IN_PROGRESS,) * 2
    joins = [a.join(), b.join()]
    assert [answer.code for answer in joins] == [ErrorCode.NONE] * 2
    assert joins[0].generation_id == 3


def test_an_upgraded_and_a_downgraded_group_are_the_same_after_a_restart() -> None:
    coordinator = Coordinator()
    a, b = classic_group(coordinator)
    coordinator.commit({("orders", 1): 42}, member_id=a.member_id, generation=a.generation)
    c = Member(coordinator, "c")
    c.join()
    settle([c], [a, b])
    live = consumer_group(coordinator)
    before = dict(live.members), dict(live.targets), live.epoch.get(), live.assignment_epoch.get()
    coordinator.restart()
    loaded = consumer_group(coordinator)
    assert (dict(loaded.members), dict(loaded.targets), loaded.epoch.get(), loaded.assignment_epoch.get()) == before
    c.leave()
    members = {id_: member.assignment for id_, member in coordinator.groups[GROUP].members.items()}
    coordinator.restart()
    group = coordinator.groups[GROUP]
    assert {id_: member.assignment for id_, member in group.members.items()} == members
    assert (group.kind, group.state_name, group.generation) == ("classic", "Stable", 2)
    assert coordinator.fetch() == {("orders", 1): 42}


def test_a_new_classic_member_joins_a_consumer_group() -> None:
    coordinator = Coordinator()
    a = Member(coordinator, "a")
    a.join()
    b = ClassicMember(coordinator)
    answer = b.join()
    assert (answer.generation_id, answer.protocol_type, answer.protocol_name, answer.leader, answer.members) == (
        3,
        "consumer",
        "range",
        "",
        (),
    )
    assert b.sync().code is ErrorCode.NONE
    assert b.owned == {}
    settle([a], [b])
    assert (len(a.owned["orders"]), len(b.owned["orders"])) == (2, 2)


# Upgrade: refused, and from states other than Stable


def refusal(reason: str) -> str:
    return f"Cannot upgrade classic group group to consumer group because {reason}"


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"group_consumer_migration_policy": "disabled"}, "online upgrade is disabled."),
        ({"group_consumer_migration_policy": "downgrade"}, "online upgrade is disabled."),
        ({"group_consumer_max_size": 1}, "the group size exceeds the consumer group maximum size."),
        ({"group_consumer_migration_policy": "upgrade"}, None),
        ({"group_consumer_migration_policy": "bidirectional"}, None),
    ],
)
def test_the_configuration_decides_about_an_upgrade(config: dict[str, Any], reason: str | None) -> None:
    coordinator = Coordinator(GroupConfig(**config))
    a, b = classic_group(coordinator)
    end = coordinator.end
    answer = Member(coordinator, "c").join()
    if reason is None:
        assert answer.code is ErrorCode.NONE
        return
    assert (answer.code, answer.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, refusal(reason))
    assert (coordinator.end, a.heartbeat(), b.heartbeat()) == (end, ErrorCode.NONE, ErrorCode.NONE)


def test_a_group_at_its_largest_size_is_not_upgraded_by_a_newcomer() -> None:
    coordinator = Coordinator(GroupConfig(group_consumer_max_size=2))
    a, _ = classic_group(coordinator)
    assert Member(coordinator, "c").join().code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (state(coordinator), a.heartbeat()) == ("Stable", ErrorCode.NONE)
    # A member of the group may.
    assert Member(coordinator, a.member_id).join().code is ErrorCode.NONE


CUSTOM = (
    "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default assignor before "
    "re-attempting the upgrade."
)
MALFORMED = "the embedded consumer protocol is malformed."


@pytest.mark.parametrize(
    ("protocol_type", "metadata", "assignment", "reason"),
    [
        ("consumer", subscription_bytes(), assignment_bytes({"orders": [0]}, user_data=b"x"), CUSTOM),
        ("consumer", subscription_bytes(), assignment_bytes({"orders": [0]}, user_data=b""), None),
        ("consumer", subscription_bytes(user_data=b"x"), assignment_bytes({"orders": [0]}), None),
        ("consumer", subscription_bytes(), b"", None),
        ("consumer", subscription_bytes(), b"\0", MALFORMED),
        ("consumer", b"", assignment_bytes({"orders": [0]}), MALFORMED),
        ("consumer", subscription_bytes(), assignment_bytes({"gone": [0], "orders": [1]}), None),
        ("connect", subscription_bytes(), b"", "the group does not use the consumer embedded protocol."),
    ],
)
def test_what_the_classic_members_wrote_decides_about_an_upgrade(
    protocol_type: str, metadata: bytes, assignment: bytes, reason: str | None
) -> None:
    coordinator = Coordinator()
    member_id = coordinator.new_member_id(protocol_type=protocol_type, protocols=[("range", metadata)])
    join = coordinator.join(member_id, protocol_type=protocol_type, protocols=[("range", metadata)])
    coordinator.wait_initial_delay()
    coordinator.sync(member_id, join.generation_id, {member_id: assignment}, protocol_type=protocol_type)
    answer = Member(coordinator, "c").join()
    if reason is None:
        assert answer.code is ErrorCode.NONE
        assert set(consumer_group(coordinator).members) == {member_id, "c"}
        return
    assert (answer.code, answer.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, refusal(reason))
    assert coordinator.groups[GROUP].kind == "classic"


@pytest.mark.parametrize("epoch", [1, -1, -2])
def test_only_a_member_that_joins_upgrades(epoch: int) -> None:
    coordinator = Coordinator()
    classic_group(coordinator)
    answer = Member(coordinator, "c", instance="i").beat(member_epoch=epoch)
    assert (answer.code, answer.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group group is not a consumer group.",
    )


def test_a_rebalancing_group_is_upgraded_and_parked_members_join_again() -> None:
    coordinator = Coordinator()
    a, _b = classic_group(coordinator)
    parked = a.ask_join()
    assert parked.is_parked
    assert state(coordinator) == "PreparingRebalance"
    c = Member(coordinator, "c")
    assert c.join().code is ErrorCode.NONE
    assert (parked.code, parked.member_id) == (ErrorCode.REBALANCE_IN_PROGRESS, a.member_id)
    assert a.join().code is ErrorCode.NONE


def test_a_group_that_waits_for_its_leader_is_upgraded_with_the_last_assignment() -> None:
    coordinator = Coordinator()
    a, b = classic_group(coordinator)
    joins = [a.ask_join(), b.ask_join()]
    for member, answer in zip((a, b), joins, strict=True):
        member.take(answer)
    parked = coordinator.sync(b.member_id, b.generation)
    assert parked.is_parked
    assert Member(coordinator, "c").join().member_epoch == 3
    assert parked.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert consumer_group(coordinator).members[a.member_id].epoch == 2


def test_before_the_first_vote_an_upgrade_is_put_off_and_the_parked_members_wait_on() -> None:
    coordinator = Coordinator()
    a, b = ClassicMember(coordinator), ClassicMember(coordinator)
    parked = [a.join(), b.join()]
    c = Member(coordinator, "c")
    for _ in range(3):
        answer = c.join()
        assert answer.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert [each.is_parked for each in parked] == [True, True]
        assert (state(coordinator), coordinator.groups[GROUP].member_count) == ("PreparingRebalance", 2)
    coordinator.wait_initial_delay()
    assert [each.code for each in parked] == [ErrorCode.NONE, ErrorCode.NONE]
    for member, each in zip((a, b), parked, strict=True):
        member.take(each)
    assert c.join().code is ErrorCode.NONE
    assert set(consumer_group(coordinator).members) == {a.member_id, b.member_id, "c"}
    settle([c], [a, b])


def test_pending_members_do_not_hinder_an_upgrade_and_their_ids_work_after_it() -> None:
    coordinator = Coordinator()
    a, b = classic_group(coordinator)
    new = ClassicMember(coordinator)
    new.member_id = new.ask_join().member_id
    c = Member(coordinator, "c")
    assert c.join().code is ErrorCode.NONE
    assert new.join().code is ErrorCode.NONE
    settle([c], [a, b, new])


def test_a_static_member_upgrades_the_group_under_its_instance_id() -> None:
    coordinator = Coordinator()
    a = ClassicMember(coordinator, instance="i")
    answer = a.join()
    coordinator.wait_initial_delay()
    a.take(answer)
    a.sync({a.member_id: assignment_bytes({"orders": range(4)})})
    new = Member(coordinator, "new", instance="i")
    assert new.join().code is ErrorCode.NONE
    assert new.owned == {"orders": (0, 1, 2, 3)}
    assert set(consumer_group(coordinator).members) == {"new"}
    assert a.heartbeat() is ErrorCode.FENCED_INSTANCE_ID


def test_an_upgraded_member_is_fenced_by_its_own_session_timeout() -> None:
    coordinator = Coordinator()
    a, b = classic_group(coordinator)
    c = Member(coordinator, "c")
    c.join()
    coordinator.advance(SESSION_MS - 1)
    c.beat()
    b.poll()
    coordinator.advance(1)
    assert a.member_id not in consumer_group(coordinator).members
    assert b.member_id in consumer_group(coordinator).members


# Downgrade


def upgraded(**config: Any) -> tuple[Coordinator, Member, ClassicMember, ClassicMember]:
    """A Stable group of a static member of the consumer protocol and two members of the classic one."""
    coordinator = Coordinator(GroupConfig(**config))
    a, b = classic_group(coordinator)
    c = Member(coordinator, "c", instance="i")
    c.join()
    settle([c], [a, b])
    return coordinator, c, a, b


def expire(coordinator: Coordinator, classic: Sequence[ClassicMember], duration_ms: int = 45_000) -> None:
    for _ in range(0, duration_ms, 5_000):
        coordinator.advance(5_000)
        for member in classic:
            member.heartbeat()


WAYS: dict[str, Callable[[Coordinator, Member, Sequence[ClassicMember]], object]] = {
    "leave": lambda _coordinator, c, _classic: c.leave(),
    "LeaveGroup": lambda coordinator, _c, _classic: coordinator.leave(("", "i")),
    "session": lambda coordinator, _c, classic: expire(coordinator, classic),
    "static replacement": lambda coordinator, _c, _classic: ClassicMember(coordinator, instance="i").join(),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_group_is_downgraded_when_its_last_member_of_the_consumer_protocol_goes(way: str) -> None:
    coordinator, c, a, b = upgraded()
    coordinator.commit({("orders", 0): 7}, member_id=a.member_id, generation=a.generation)
    coordinator.events.clear()
    WAYS[way](coordinator, c, (a, b))
    group = coordinator.groups[GROUP]
    assert (group.kind, group.generation) == ("classic", 2)
    assert GroupConverted(GROUP, "classic") in coordinator.events
    assert {a.member_id, b.member_id} <= set(group.members)
    assert coordinator.fetch() == {("orders", 0): 7}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "config",
    [
        {"group_consumer_migration_policy": "upgrade"},
        # Two members are left, and three if one is replaced.
        {"group_max_size": 1},
    ],
)
def test_a_group_that_may_not_be_downgraded_stays_a_consumer_group(way: str, config: dict[str, Any]) -> None:
    coordinator, c, a, b = upgraded()
    coordinator.restart(GroupConfig(**config))
    for member in (a, b):
        member.heartbeat()
    WAYS[way](coordinator, c, (a, b))
    assert coordinator.groups[GROUP].kind == "consumer"
    assert a.heartbeat() in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)


def test_the_last_member_leaves_an_empty_consumer_group() -> None:
    coordinator = Coordinator()
    c = Member(coordinator, "c")
    c.join()
    c.leave()
    assert (coordinator.groups[GROUP].kind, state(coordinator)) == ("consumer", "Empty")


def test_after_a_downgrade_members_at_the_epoch_join_again_and_others_are_refused() -> None:
    coordinator, _c, a, b = upgraded()
    d = Member(coordinator, "d")
    d.join()
    # Only B reaches the new epoch, after it has given up a partition.
    b.poll()
    b.poll()
    assert (a.generation, b.generation) == (2, 3)
    coordinator.leave(("c", None), ("d", None))
    assert b.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert a.heartbeat() is ErrorCode.ILLEGAL_GENERATION


def test_a_downgraded_member_keeps_all_its_protocols_and_its_target() -> None:
    coordinator, c, a, _b = upgraded()
    targets = dict(consumer_group(coordinator).targets)
    c.leave()
    group = coordinator.groups[GROUP]
    member = group.members[a.member_id]
    assert [name for name, _ in member.protocols] == ["range"]
    topic_id = coordinator.image.by_name["orders"].topic_id
    assert assigned(member.assignment) == {"orders": targets[a.member_id][topic_id]}
    assert group.is_subscribed_to("orders")
    assert not group.is_subscribed_to("payments")


def test_a_static_replacement_with_the_same_topics_leaves_the_group_stable() -> None:
    coordinator, c, a, b = upgraded()
    new = ClassicMember(coordinator, instance="i")
    answer = new.join()
    assert (answer.code, answer.generation_id) == (ErrorCode.NONE, 2)
    assert state(coordinator) == "Stable"
    assert assigned(new.sync().assignment) == c.owned
    assert (a.heartbeat(), b.heartbeat(), new.heartbeat()) == (ErrorCode.NONE,) * 3


def test_a_static_replacement_with_other_topics_rebalances() -> None:
    coordinator, _c, a, b = upgraded()
    new = ClassicMember(coordinator, ("payments",), instance="i")
    answer = new.join()
    assert (answer.code, answer.generation_id) == (ErrorCode.NONE, 0)
    assert (state(coordinator), coordinator.groups[GROUP].generation) == ("PreparingRebalance", 2)
    assert (a.heartbeat(), b.heartbeat()) == (ErrorCode.REBALANCE_IN_PROGRESS,) * 2


def test_a_static_replacement_rebalances_if_the_targets_are_older_than_the_group_epoch() -> None:
    coordinator, *_ = upgraded()
    coordinator.assignment_interval_ms = 15_000
    d = Member(coordinator, "d")
    d.join()
    d.leave()
    group = consumer_group(coordinator)
    assert (group.epoch.get(), group.assignment_epoch.get()) == (4, 2)
    ClassicMember(coordinator, instance="i").join()
    assert (state(coordinator), coordinator.groups[GROUP].generation) == ("PreparingRebalance", 4)


def test_the_records_of_a_downgrade_by_replacement_load_in_their_order() -> None:
    coordinator, _c, a, b = upgraded()
    new = ClassicMember(coordinator, ("payments",), instance="i")
    new.join()
    coordinator.restart()
    group = coordinator.groups[GROUP]
    assert (group.kind, set(group.members)) == ("classic", {a.member_id, b.member_id, new.member_id})


def test_timers_of_the_consumer_group_have_no_effect_on_the_classic_one() -> None:
    coordinator, _c, a, b = upgraded()
    Member(coordinator, "d").join()
    a.heartbeat()  # begins the time in which it has to join again
    coordinator.leave(("c", None), ("d", None))
    for member, answer in [(member, member.ask_join()) for member in (a, b)]:
        member.take(answer)
    # A sends no SyncGroup, and the group becomes a consumer group again.
    c = Member(coordinator, "c")
    c.join()
    a.poll()
    for _ in range(40):
        coordinator.advance(1_000)
        c.beat()
        a.poll()
        b.poll()
    assert set(consumer_group(coordinator).members) == {a.member_id, b.member_id, "c"}


# Writes that fail


@pytest.mark.parametrize("failure", ["the disk is full", "the records are too large"])
def test_a_downgrade_that_cannot_be_written_is_taken_back(failure: str) -> None:
    coordinator, c, a, b = upgraded()
    before = coordinator.groups[GROUP]
    size = coordinator.log.batch_bytes_max
    if failure == "the disk is full":
        coordinator.log.fail_next_append = StorageError(failure)
    else:
        coordinator.log.batch_bytes_max = 200
    assert c.leave().code is not ErrorCode.NONE
    coordinator.log.batch_bytes_max = size
    assert coordinator.groups[GROUP] is before
    assert (a.heartbeat(), b.heartbeat(), c.beat().code) == (ErrorCode.NONE,) * 3
    # The sessions run again, and so does the index from topics to groups.
    assert list(registry_of(coordinator.shard).index.groups("orders")) == [GROUP]
    coordinator.advance(45_001)
    assert set(coordinator.groups[GROUP].members) == set()


def test_a_member_that_joined_the_classic_group_of_a_downgrade_that_cannot_be_written_is_refused() -> None:
    """In Kafka it waits until its request times out."""
    coordinator, c, a, b = upgraded()
    coordinator.is_burst = True
    c.leave()
    parked = a.ask_join()
    assert coordinator.groups[GROUP].kind == "classic"
    assert parked.is_parked
    coordinator.log.fail_next_append = StorageError("disk full")
    coordinator.is_burst = False
    coordinator.node.settle()
    assert coordinator.groups[GROUP].kind == "consumer"
    assert parked.code is ErrorCode.NOT_COORDINATOR
    assert (a.heartbeat(), b.heartbeat(), c.beat().code) == (ErrorCode.NONE,) * 3


def test_an_upgrade_that_cannot_be_written_is_taken_back() -> None:
    coordinator = Coordinator()
    a, b = classic_group(coordinator)
    parked = a.ask_join()
    coordinator.log.fail_next_append = StorageError("disk full")
    c = Member(coordinator, "c")
    assert c.join().code is not ErrorCode.NONE
    assert parked.is_parked, "in Kafka it joins again"
    assert coordinator.groups[GROUP].kind == "classic"
    assert c.join().code is ErrorCode.NONE
    assert parked.code is ErrorCode.REBALANCE_IN_PROGRESS
    settle([c], [a, b])


# Empty groups, and many conversions


def test_an_empty_consumer_group_turns_classic_and_back_with_its_offsets() -> None:
    coordinator = Coordinator()
    c = Member(coordinator, "c")
    c.join()
    coordinator.commit({("orders", 0): 5}, member_id="c", generation=2)
    c.leave()
    a = ClassicMember(coordinator)
    # Even if the answer is MEMBER_ID_REQUIRED.
    assert a.ask_join().code is ErrorCode.MEMBER_ID_REQUIRED
    assert (coordinator.groups[GROUP].kind, coordinator.fetch()) == ("classic", {("orders", 0): 5})
    coordinator.restart()
    assert (coordinator.groups[GROUP].kind, coordinator.fetch()) == ("classic", {("orders", 0): 5})
    assert Member(coordinator, "d").join().member_epoch == 2
    assert coordinator.fetch() == {("orders", 0): 5}


def test_a_group_converted_many_times_loads_as_it_is() -> None:
    coordinator = Coordinator()
    a, b = classic_group(coordinator)
    coordinator.commit({("orders", 3): 9}, member_id=a.member_id, generation=a.generation)
    for number in range(4):
        c = Member(coordinator, f"c{number}")
        c.join()
        settle([c], [a, b])
        live = consumer_group(coordinator)
        before = dict(live.members), dict(live.targets), live.epoch.get(), live.metadata_hash.get()
        coordinator.restart()
        loaded = consumer_group(coordinator)
        after = dict(loaded.members), dict(loaded.targets), loaded.epoch.get(), loaded.metadata_hash.get()
        assert after == before
        c.leave()
        joins = [member.ask_join(owned={}) for member in (a, b)]
        for member, answer in zip((a, b), joins, strict=True):
            assert answer.code is ErrorCode.NONE
            member.take(answer)
        leader = a if joins[0].leader == a.member_id else b
        share = {a.member_id: assignment_bytes({"orders": (0, 1)}), b.member_id: assignment_bytes({"orders": (2, 3)})}
        synced = [member.sync(share if member is leader else None) for member in (a, b)]
        for member, answer in zip((a, b), synced, strict=True):
            member.owned = assigned(answer.assignment)
        coordinator.restart()
        assert state(coordinator) == "Stable"
        assert coordinator.groups[GROUP].generation == a.generation
        assert coordinator.fetch() == {("orders", 3): 9}
