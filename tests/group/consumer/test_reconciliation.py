"""
How members go from what they have to what they should have, one heartbeat at a time.

Source: KIP-848, Kafka CurrentAssignmentBuilder; what Apache Kafka 4.2.1 answered to raw frames.
"""

from typing import Any

import pytest

from kohort.group.consumer.group import PartitionOwners
from kohort.group.consumer.member import STABLE, UNRELEASED_PARTITIONS, UNREVOKED_PARTITIONS, ConsumerMember
from kohort.group.consumer.steps import reconcile
from kohort.machine.timeline import SnapshotRegistry
from kohort.model.errors import ErrorCode
from kohort.records.values import (
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMetadata,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupTargetAssignmentMetadata,
)
from tests.group.consumer.members import Member, consumer_group, owned_of, partitions_of, settle, state
from tests.group.consumer.states import ORDERS, PAYMENTS, Known, group_of
from tests.group.harness import Coordinator


def member_of(coordinator: Coordinator, member_id: str) -> ConsumerMember:
    member = consumer_group(coordinator).members[member_id]
    assert isinstance(member, ConsumerMember)
    return member


def pair() -> tuple[Coordinator, Member, Member]:
    """A Stable group at epoch 3: A has 0 and 1, B has 2 and 3."""
    coordinator = Coordinator()
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    a.join()
    b.join()
    settle(a, b)
    return coordinator, a, b


def loaded(coordinator: Coordinator, member_id: str, epoch: int, **owned: Any) -> Member:
    """The client of a member that the log has."""
    member = Member(coordinator, member_id)
    member.epoch = epoch
    member.owned = owned
    return member


# 34: the answer to a heartbeat is lost


@pytest.mark.parametrize("owned", [(), (0,), (0, 1)])
def test_a_member_that_lost_an_answer_may_send_its_previous_epoch_with_a_part_of_what_it_has(
    owned: tuple[int, ...],
) -> None:
    coordinator = group_of([Known("a", 5, 4, 0, (0, 1), target=(0, 1)), Known("b", 5, 4, 0, (2, 3), target=(2, 3))])
    end = coordinator.end
    answer = loaded(coordinator, "a", 4, orders=owned).beat()
    assert (answer.code, answer.member_epoch, answer.assignment) == (ErrorCode.NONE, 5, None)
    assert coordinator.end == end


@pytest.mark.parametrize("owned", [{"orders": (0, 1, 2)}, {"orders": (0,), "payments": (0,)}, None])
def test_a_member_that_claims_more_at_its_previous_epoch_is_fenced(owned: dict[str, tuple[int, ...]] | None) -> None:
    coordinator = group_of([Known("a", 5, 4, 0, (0, 1), target=(0, 1)), Known("b", 5, 4, 0, (2, 3), target=(2, 3))])
    member = loaded(coordinator, "a", 4)
    answer = member.beat(topic_partitions=None if owned is None else owned_of(coordinator, dict(owned)))
    assert answer.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert loaded(coordinator, "a", 6).beat().code is ErrorCode.FENCED_MEMBER_EPOCH


def test_what_a_member_claims_at_its_present_epoch_is_not_checked() -> None:
    coordinator, a, _ = pair()
    claims = owned_of(coordinator, {"orders": (0, 1, 2, 3), "payments": (9,)})
    end = coordinator.end
    for owned in (claims, [], None):
        assert a.beat(topic_partitions=owned).code is ErrorCode.NONE
    assert coordinator.end == end


# 35: a live member joins again


def test_a_stable_member_that_joins_again_writes_nothing() -> None:
    coordinator, a, _ = pair()
    end = coordinator.end
    answer = a.join()
    assert partitions_of(coordinator, answer.assignment) == {"orders": (0, 1)}
    assert (answer.member_epoch, coordinator.end) == (3, end)


def test_a_member_that_joins_again_has_revoked_everything() -> None:
    """From UNREVOKED_PARTITIONS straight to its target; the others get what it had."""
    coordinator = Coordinator()
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    a.join()
    b.join()
    a.beat()
    assert member_of(coordinator, "a").state == UNREVOKED_PARTITIONS
    answer = a.join()
    assert (answer.member_epoch, partitions_of(coordinator, answer.assignment)) == (3, {"orders": (0, 1)})
    assert member_of(coordinator, "a").state == STABLE
    assert partitions_of(coordinator, b.beat().assignment) == {"orders": (2, 3)}


def test_a_waiting_member_that_joins_again_still_waits() -> None:
    coordinator = Coordinator()
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    a.join()
    b.join()
    answer = b.join()
    assert (answer.member_epoch, partitions_of(coordinator, answer.assignment)) == (3, {})
    assert member_of(coordinator, "b").state == UNRELEASED_PARTITIONS


def test_a_member_keeps_what_it_leaves_out_when_it_joins_again() -> None:
    coordinator = Coordinator()
    a = Member(coordinator, "a")
    a.join(server_assignor="range", rack_id="r1")
    a.join()
    member = member_of(coordinator, "a")
    assert (member.server_assignor, member.rack_id) == ("range", "r1")
    assert sum(isinstance(record, ConsumerGroupMemberMetadata) for record in coordinator.records()) == 1


# 36: duplicate joins


def test_two_joins_of_one_id_are_one_member() -> None:
    coordinator = Coordinator()
    first, second = Member(coordinator, "a").join(), Member(coordinator, "a").join()
    assert (first.member_epoch, second.member_epoch) == (2, 2)
    assert list(consumer_group(coordinator).members) == ["a"]


# 37: the hand-over of a partition


def test_a_partition_of_a_silent_member_passes_when_it_dies() -> None:
    coordinator = Coordinator()
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    a.join()
    b.join()
    for _ in range(8):
        coordinator.advance(5_000)
        assert b.beat().assignment is None
    coordinator.advance(5_000)
    assert partitions_of(coordinator, b.beat().assignment) == {"orders": (0, 1, 2, 3)}


def test_a_waiting_member_gets_each_partition_when_it_is_free() -> None:
    coordinator = group_of(
        [
            Known("a", 5, 4, 2, (), target=(0, 1)),
            Known("b", 4, 3, 1, (2,), (0,), target=(2,)),
            Known("c", 4, 3, 1, (3,), (1,), target=(3,)),
        ]
    )
    a = loaded(coordinator, "a", 5)
    b, c = loaded(coordinator, "b", 4, orders=(2,)), loaded(coordinator, "c", 4, orders=(3,))
    assert a.beat().assignment is None
    b.beat()
    assert partitions_of(coordinator, a.beat().assignment) == {"orders": (0,)}
    assert member_of(coordinator, "a").state == UNRELEASED_PARTITIONS
    c.beat()
    assert partitions_of(coordinator, a.beat().assignment) == {"orders": (0, 1)}
    assert (member_of(coordinator, "a").state, state(coordinator)) == (STABLE, "Stable")


# 38: the target moves while a member revokes


def test_a_member_that_is_slow_to_revoke_meets_the_next_target() -> None:
    coordinator = Coordinator()
    a, b, c = (Member(coordinator, name) for name in "abc")
    a.join()
    b.join()
    answer = a.beat()
    assert (a.epoch, partitions_of(coordinator, answer.assignment)) == (2, {"orders": (0, 1)})
    c.join()
    # It still has what it must revoke, or does not tell: no progress.
    assert a.beat(topic_partitions=None).assignment is None
    assert a.beat(topic_partitions=owned_of(coordinator, {"orders": (0, 1, 2)})).assignment is None
    assert member_of(coordinator, "a").pending_revocation == {ORDERS: (2, 3)}
    # It acknowledges, and is told what the new target takes from it.
    target = consumer_group(coordinator).targets["a"].get(ORDERS, ())
    a.owned = {"orders": (0, 1)}
    a.beat()
    settle(a, b, c)
    assert a.owned == {"orders": tuple(target)}


def test_unrevoked_follows_unrevoked() -> None:
    """The acknowledged revocation is followed by another; the epoch stays where it is [4.2]."""
    coordinator = group_of(
        [Known("a", 3, 2, 1, (0, 1), (2,), target=(0,)), Known("b", 5, 4, 2, (3,), target=(1, 2, 3))], epoch=5
    )
    a = loaded(coordinator, "a", 3, orders=(0, 1))
    answer = a.beat()
    assert (answer.member_epoch, partitions_of(coordinator, answer.assignment)) == (3, {"orders": (0,)})
    member = member_of(coordinator, "a")
    assert (member.state, member.previous_epoch, member.pending_revocation) == (UNREVOKED_PARTITIONS, 3, {ORDERS: (1,)})
    assert a.beat().member_epoch == 5


# 39: a partition comes back before it was released


def test_a_partition_that_comes_back_to_its_member_is_not_waited_for() -> None:
    """Fixed in 4.1.2. The member revokes 1, and the new target gives it back."""
    coordinator = group_of(
        [Known("a", 4, 3, 1, (0,), (1,), target=(0, 1)), Known("b", 5, 4, 0, (2, 3), target=(2, 3))], epoch=5
    )
    a = loaded(coordinator, "a", 4, orders=(0,))
    answer = a.beat()
    assert (answer.member_epoch, partitions_of(coordinator, answer.assignment)) == (5, {"orders": (0, 1)})
    assert member_of(coordinator, "a").state == STABLE


# 40: a subscription that shrinks takes effect at once


def test_a_topic_that_is_given_up_is_revoked_at_once() -> None:
    """It does not wait for the new target; the epoch stays until the revocation is acknowledged."""
    coordinator = Coordinator()
    a = Member(coordinator, "a", ("orders", "payments"))
    a.join()
    answer = a.beat(subscribed_topic_names=["orders"])
    assert (answer.member_epoch, partitions_of(coordinator, answer.assignment)) == (2, {"orders": (0, 1, 2, 3)})
    member = member_of(coordinator, "a")
    assert (member.state, member.pending_revocation) == (UNREVOKED_PARTITIONS, {PAYMENTS: (0, 1, 2, 3)})
    assert a.beat().member_epoch == 3
    assert state(coordinator) == "Stable"


def test_a_topic_that_is_given_up_during_a_revocation_joins_it() -> None:
    coordinator = Coordinator()
    a, b = Member(coordinator, "a", ("orders", "payments")), Member(coordinator, "b", ("orders",))
    a.join()
    b.join()
    a.beat()
    before = member_of(coordinator, "a")
    assert before.state == UNREVOKED_PARTITIONS
    assert PAYMENTS not in before.pending_revocation
    # It has not revoked yet, and gives up the other topic.
    a.beat(subscribed_topic_names=["orders"], topic_partitions=None)
    after = member_of(coordinator, "a")
    assert (after.epoch, after.state) == (2, UNREVOKED_PARTITIONS)
    assert after.pending_revocation == {**before.pending_revocation, PAYMENTS: (0, 1, 2, 3)}
    settle(a, b)
    assert (a.epoch, set(a.owned)) == (b.epoch, {"orders"})


def test_a_waiting_member_gets_nothing_of_a_topic_that_it_gives_up() -> None:
    coordinator = Coordinator()
    a, b = Member(coordinator, "a", ("orders", "payments")), Member(coordinator, "b", ("orders", "payments"))
    a.join()
    b.join()
    b.beat(subscribed_topic_names=["payments"])
    settle(a, b)
    assert set(b.owned) == {"payments"}
    assert a.owned["orders"] == (0, 1, 2, 3)


# 44: answers of heartbeats


def test_a_full_heartbeat_gets_the_assignment() -> None:
    coordinator, a, _ = pair()
    full: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["orders"]}
    end = coordinator.end
    assert partitions_of(coordinator, a.beat(**full).assignment) == {"orders": (0, 1)}
    assert a.beat(**full, topic_partitions=None).assignment is None
    assert a.beat(subscribed_topic_names=["orders"]).assignment is None
    assert a.beat(rebalance_timeout_ms=60_000).assignment is None
    assert coordinator.end == end


def test_an_answer_never_shows_what_is_to_be_revoked() -> None:
    coordinator = group_of(
        [Known("a", 4, 3, 1, (0,), (1,), target=(0,)), Known("b", 5, 4, 2, (2, 3), target=(1, 2, 3))]
    )
    full: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["orders"]}
    answer = loaded(coordinator, "a", 4, orders=(0, 1)).beat(**full)
    assert (answer.member_epoch, partitions_of(coordinator, answer.assignment)) == (4, {"orders": (0,)})


# 48: a state of a newer version


@pytest.mark.parametrize("state_byte", [3, 9, 100, -1])
def test_a_member_of_unknown_state_gives_up_everything_first(state_byte: int) -> None:
    coordinator = group_of(
        [Known("a", 5, 4, state_byte, (0, 1), target=(0, 1)), Known("b", 5, 4, 0, (2, 3), target=(2, 3))]
    )
    a = loaded(coordinator, "a", 5, orders=(0, 1))
    answer = a.beat()
    assert answer.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert answer.error_message == (
        "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin."
    )
    assert a.beat(topic_partitions=None).code is ErrorCode.FENCED_MEMBER_EPOCH
    # What it had is its own: the target tells that it has nothing to wait for.
    answer = a.beat(topic_partitions=[])
    assert (answer.member_epoch, member_of(coordinator, "a").state) == (5, STABLE)
    assert state(coordinator) == "Stable"


def test_a_member_of_unknown_state_goes_to_another_target() -> None:
    coordinator = group_of([Known("a", 3, 2, 9, (0, 1), target=(0, 2)), Known("b", 5, 4, 0, (3,), target=(1, 3))])
    answer = loaded(coordinator, "a", 3).join()
    assert (answer.member_epoch, partitions_of(coordinator, answer.assignment)) == (5, {"orders": (0, 2)})


# 58: an epoch without other targets


def test_an_epoch_that_changes_no_target_still_reaches_every_member() -> None:
    coordinator, a, b = pair()
    a.beat(subscribed_topic_names=["orders", "nowhere"])
    end = coordinator.end
    b.beat()
    (record,) = coordinator.records(end)
    assert isinstance(record, ConsumerGroupCurrentMemberAssignment)
    assert (record.member_id, record.member_epoch, record.previous_member_epoch) == ("b", 4, 3)
    assert state(coordinator) == "Stable"


@pytest.mark.parametrize("fields", [{"client_id": "other"}, {"rack_id": "r1"}, {"server_assignor": "uniform"}])
def test_other_fields_are_written_without_a_new_epoch(fields: dict[str, Any]) -> None:
    coordinator, a, _ = pair()
    end = coordinator.end
    assert a.beat(**fields).member_epoch == 3
    assert [type(record) for record in coordinator.records(end)] == [ConsumerGroupMemberMetadata]
    assert consumer_group(coordinator).epoch.get() == 3


def test_another_preferred_assignor_raises_the_epoch() -> None:
    """The one that most members prefer counts; without any preference, the first one of the configuration."""
    coordinator, a, b = pair()
    assert a.beat(server_assignor="range").member_epoch == 4
    settle(a, b)
    assert b.beat(server_assignor="range").member_epoch == 4
    assert (consumer_group(coordinator).epoch.get(), state(coordinator)) == (4, "Stable")


def test_a_first_member_with_no_topics_stays_at_the_first_epoch_unless_it_prefers_another_assignor() -> None:
    for assignor, epoch, kinds in (
        (None, 1, [ConsumerGroupMemberMetadata, ConsumerGroupCurrentMemberAssignment]),
        (
            "range",
            2,
            [
                ConsumerGroupMemberMetadata,
                ConsumerGroupMetadata,
                ConsumerGroupTargetAssignmentMember,
                ConsumerGroupTargetAssignmentMetadata,
                ConsumerGroupCurrentMemberAssignment,
            ],
        ),
    ):
        coordinator = Coordinator()
        assert Member(coordinator, "a", topics=()).join(server_assignor=assignor).member_epoch == epoch
        assert [type(record) for record in coordinator.records()] == kinds
        group = consumer_group(coordinator)
        assert (group.epoch.get(), group.assignment_epoch.get(), state(coordinator)) == (epoch, epoch, "Stable")


def test_a_member_at_its_target_revokes_at_once_what_it_gives_up() -> None:
    """The target is still the old one: a new one is computed in the background, or a pattern is not resolved yet."""
    assigned = {ORDERS: (0, 1), PAYMENTS: (2,)}
    member = ConsumerMember("a", epoch=5, previous_epoch=4, assigned=assigned)
    owners = PartitionOwners(SnapshotRegistry())
    found = reconcile(member, assigned, 5, owned=None, topic_ids={ORDERS}, subscription_changed=True, owners=owners)
    assert (found.epoch, found.previous_epoch, found.state) == (5, 5, UNREVOKED_PARTITIONS)
    assert (found.assigned, found.pending_revocation) == ({ORDERS: (0, 1)}, {PAYMENTS: (2,)})
    unchanged = reconcile(
        member, assigned, 5, owned=None, topic_ids={ORDERS}, subscription_changed=False, owners=owners
    )
    assert unchanged is member
    without = ConsumerMember("a", epoch=5, previous_epoch=4)
    found = reconcile(without, {}, 5, owned=None, topic_ids=(), subscription_changed=True, owners=owners)
    assert (found.epoch, found.previous_epoch, found.state, found.assigned) == (5, 5, STABLE, {})
