"""
Topics that are created, grow, are deleted and are made again, and the groups that are subscribed to them.

Source: Kafka GroupMetadataManager.onNewMetadataImage, hasMetadataExpired; probes of Apache Kafka 4.2.1.
"""

from uuid import UUID

import pytest

from kohort.model.errors import UnavailableError
from kohort.model.image import ImageDelta
from kohort.records.values import (
    ConsumerGroupMetadata,
    ConsumerGroupPartitionMetadata,
    ConsumerGroupPartitionMetadataTombstone,
    ConsumerGroupTargetAssignmentMetadata,
)
from tests.group.consumer.members import Member, consumer_group, settle, state
from tests.group.consumer.states import GROUP, Known, group_of, write
from tests.group.harness import Coordinator, Topic


def create(coordinator: Coordinator, name: str, count: int = 2, number: int = 100) -> None:
    topic = coordinator.image.by_name[name] = Topic(name, UUID(int=number), count)
    coordinator.on_image(ImageDelta(created=(topic,)))


def grow(coordinator: Coordinator, name: str, count: int) -> None:
    topic = coordinator.image.by_name[name] = Topic(name, coordinator.image.by_name[name].topic_id, count)
    coordinator.on_image(ImageDelta(changed=(topic,)))


def delete(coordinator: Coordinator, name: str) -> None:
    coordinator.on_image(ImageDelta(deleted=(coordinator.image.by_name.pop(name),)))


def epoch(coordinator: Coordinator, group: str = GROUP) -> int:
    return consumer_group(coordinator, group).epoch.get()


def test_a_created_topic_reaches_its_subscribers_with_one_epoch() -> None:
    coordinator = Coordinator()
    a, b = Member(coordinator, "a", ("orders", "late")), Member(coordinator, "b", ("orders", "late"))
    a.join()
    b.join()
    settle(a, b)
    before = epoch(coordinator)
    create(coordinator, "late")
    assert epoch(coordinator) == before
    # The next heartbeat of any member raises the epoch, once.
    b.beat()
    a.beat()
    b.beat()
    assert epoch(coordinator) == before + 1
    settle(a, b)
    assert sorted(a.owned["late"] + b.owned["late"]) == [0, 1]


def test_a_topic_that_grows_is_assigned_anew() -> None:
    coordinator = Coordinator()
    a = Member(coordinator, "a")
    a.join()
    grow(coordinator, "orders", 6)
    a.beat()
    assert (a.epoch, a.owned) == (3, {"orders": (0, 1, 2, 3, 4, 5)})


def test_a_deleted_topic_is_revoked() -> None:
    coordinator = Coordinator()
    a = Member(coordinator, "a", ("orders", "payments"))
    a.join()
    delete(coordinator, "payments")
    a.owned = {"orders": (0, 1, 2, 3)}
    a.beat(topic_partitions=None)
    assert (a.epoch, a.owned) == (2, {"orders": (0, 1, 2, 3)})
    assert state(coordinator) == "Reconciling"
    a.beat()
    assert (a.epoch, epoch(coordinator), state(coordinator)) == (3, 3, "Stable")


def test_a_topic_made_again_is_another_topic() -> None:
    """The old id is revoked before the new one is assigned."""
    coordinator = Coordinator()
    a = Member(coordinator, "a")
    a.join()
    old = coordinator.image.by_name["orders"].topic_id
    delete(coordinator, "orders")
    create(coordinator, "orders", 1, number=77)
    a.beat(topic_partitions=None)
    member = consumer_group(coordinator).members["a"]
    assert (member.assigned, set(member.pending_revocation)) == ({}, {old})
    a.owned = {}
    a.beat()
    assert (a.epoch, a.owned) == (3, {"orders": (0,)})


def test_other_topics_do_not_concern_a_group() -> None:
    coordinator = Coordinator()
    a = Member(coordinator, "a")
    a.join()
    a.beat()
    end = coordinator.end
    create(coordinator, "other")
    grow(coordinator, "payments", 9)
    assert not consumer_group(coordinator).needs_refresh(coordinator.now_ms)
    a.beat()
    assert coordinator.end == end


def test_only_the_groups_of_a_topic_look_at_it() -> None:
    coordinator = Coordinator()
    a, b = Member(coordinator, "a", group="one"), Member(coordinator, "b", ("payments",), group="two")
    for member in (a, b):
        member.join()
        member.beat()
    grow(coordinator, "payments", 5)
    needs = [consumer_group(coordinator, group).needs_refresh(coordinator.now_ms) for group in ("one", "two")]
    assert needs == [False, True]


def test_a_topic_of_a_group_that_was_left_does_not_concern_it() -> None:
    coordinator = Coordinator()
    a = Member(coordinator, "a", ("orders", "payments"))
    a.join()
    a.beat(subscribed_topic_names=["orders"])
    a.beat()
    grow(coordinator, "payments", 8)
    assert not consumer_group(coordinator).needs_refresh(coordinator.now_ms)


def test_a_rack_that_moves_raises_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Coordinator()
    a = Member(coordinator, "a")
    a.join()
    monkeypatch.setattr(coordinator.image, "has_racks", True)
    monkeypatch.setattr(coordinator.image, "racks", lambda _topic, partition: ("r1",) if partition == 0 else ())
    grow(coordinator, "orders", 4)
    assert a.beat().member_epoch == 3


def test_a_change_that_cannot_be_written_is_noticed_again() -> None:
    coordinator = Coordinator()
    a = Member(coordinator, "a")
    a.join()
    grow(coordinator, "orders", 6)
    coordinator.log.fail_next_append = UnavailableError("offline")
    a.beat()
    assert epoch(coordinator) == 2
    a.beat()
    assert (epoch(coordinator), a.owned) == (3, {"orders": (0, 1, 2, 3, 4, 5)})


def test_a_load_looks_at_the_topics_once() -> None:
    """The same hash: no record. Another hash: a new epoch with the first heartbeat."""
    coordinator = Coordinator()
    a = Member(coordinator, "a")
    a.join()
    a.beat()
    coordinator.restart()
    end = coordinator.end
    a.beat()
    assert coordinator.end == end
    coordinator.image.by_name["orders"] = Topic("orders", coordinator.image.by_name["orders"].topic_id, 5)
    coordinator.restart()
    assert a.beat().member_epoch == 3


def test_topics_that_do_not_exist_or_have_odd_names_are_accepted() -> None:
    coordinator = Coordinator()
    a = Member(coordinator, "a", ("", "a b", "nowhere"))
    assert (a.join().member_epoch, a.owned, state(coordinator)) == (2, {}, "Stable")
    assert consumer_group(coordinator).metadata_hash.get() == 0


def test_the_record_of_topics_of_kafka_4_0_is_removed_with_the_next_look() -> None:
    coordinator = group_of([Known("a", 5, 4, 0, (0, 1, 2, 3), target=(0, 1, 2, 3))])
    write(coordinator, [ConsumerGroupPartitionMetadata(GROUP, ())])
    a = Member(coordinator, "a")
    a.epoch, a.owned = 5, {"orders": (0, 1, 2, 3)}
    end = coordinator.end
    a.beat()
    assert [type(record) for record in coordinator.records(end)] == [ConsumerGroupPartitionMetadataTombstone]
    a.beat()
    assert len(coordinator.records(end)) == 1


def test_the_hash_of_a_group_without_members_is_0() -> None:
    coordinator = Coordinator()
    a = Member(coordinator, "a")
    a.join()
    assert consumer_group(coordinator).metadata_hash.get() != 0
    a.leave()
    # An empty group has nothing to assign: both epochs are equal, and the next join is assigned at once.
    assert coordinator.records()[-2:] == [
        ConsumerGroupMetadata("group", 3, 0),
        ConsumerGroupTargetAssignmentMetadata("group", 3, 0),
    ]
