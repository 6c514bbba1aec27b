"""Committed offsets have the id of their topic, and are deleted with the topic of this id; of what Apache Kafka 4.4.0 wrote."""

from collections import defaultdict
from uuid import UUID

import pytest

from kohort.group.offsets.scan import TOMBSTONES_AT_ONCE
from kohort.group.records import GroupRecordSerde
from kohort.machine.shard import NO_PRODUCER_ID
from kohort.model.errors import ErrorCode
from kohort.records.values import OffsetCommit, OffsetCommitTombstone
from kohort.testing import deleted_topics
from kohort.wire import messages as m
from kohort.wire.batches import BatchHeader, iter_batches, read_marker, read_records
from tests.group.golden import batches_of_4_4_0
from tests.group.harness import Coordinator, Topic

ORDERS, PAYMENTS = ("orders", 0), ("payments", 0)
REBORN = "reborn"
"""The topic that the run deletes and creates again."""


def topic_id_of(coordinator: Coordinator, name: str = "orders") -> UUID:
    return coordinator.image.by_name[name].topic_id


def make_anew(coordinator: Coordinator, name: str = "orders") -> UUID:
    """Delete the topic of this name, and create it again with the next id."""
    coordinator.delete_topics(name)
    former = coordinator.image.by_name[name]
    coordinator.image.by_name[name] = Topic(name, UUID(int=former.topic_id.int + 100), former.partition_count)
    return topic_id_of(coordinator, name)


def kept(coordinator: Coordinator, group_id: str = "group") -> dict[tuple[str, int], tuple[int, UUID | None]]:
    """Offset and topic id of each committed offset."""
    found = coordinator.shard.offsets.by_group.get(group_id)
    return {} if found is None else {each: (offset.offset, offset.topic_id) for each, offset in found.items()}


# Commits


@pytest.mark.parametrize("version", range(2, 11))
def test_every_version_writes_the_id(version: int) -> None:
    """By name it is that of the topic that has the name now."""
    coordinator = Coordinator()
    entries = [m.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)]
    topic_id = topic_id_of(coordinator)
    topic = {"topic_id": UUID(bytes=topic_id.bytes)} if version >= 10 else {"name": "orders"}
    request = m.OffsetCommitRequest(
        group_id="group",
        generation_id_or_member_epoch=-1,
        topics=[m.OffsetCommitRequestTopic(**topic, partitions=entries)],
    )
    coordinator.ask("offset_commit", request, version=version)
    assert coordinator.records() == [OffsetCommit("group", "orders", 0, 7, -1, "", coordinator.now_ms, -1, topic_id)]
    assert coordinator.shard.offsets.by_group["group"][ORDERS].topic_id is topic_id, "no object of the request"


def test_a_commit_with_a_retention_time_has_none() -> None:
    """Its value of version 1 has no field for it."""
    coordinator = Coordinator()
    entries = [m.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)]
    request = m.OffsetCommitRequest(
        group_id="group",
        generation_id_or_member_epoch=-1,
        retention_time_ms=60_000,
        topics=[m.OffsetCommitRequestTopic(name="orders", partitions=entries)],
    )
    coordinator.ask("offset_commit", request, version=3)
    assert kept(coordinator) == {ORDERS: (7, None)}
    coordinator.restart()
    assert kept(coordinator) == {ORDERS: (7, None)}


def test_a_commit_in_a_transaction_has_the_id() -> None:
    coordinator = Coordinator()
    coordinator.commit_in_transaction({ORDERS: 5})
    coordinator.end_transaction(committed=True)
    assert kept(coordinator) == {ORDERS: (5, topic_id_of(coordinator))}
    coordinator.restart()
    assert kept(coordinator) == {ORDERS: (5, topic_id_of(coordinator))}


def test_the_next_commit_by_name_has_the_id_of_the_topic_made_anew() -> None:
    coordinator = Coordinator()
    coordinator.commit({ORDERS: 5})
    topic_id = make_anew(coordinator)
    coordinator.commit({ORDERS: 6})
    assert kept(coordinator) == {ORDERS: (6, topic_id)}


def test_offsets_of_one_topic_share_its_id() -> None:
    """Committed by name, by id and in a transaction, and loaded: a table may have millions of offsets."""
    coordinator = Coordinator()
    for number in range(3):
        coordinator.commit({ORDERS: 1, ("orders", 1): 1}, group=f"group-{number}")
    coordinator.commit_in_transaction({ORDERS: 1}, group="in a transaction")
    coordinator.end_transaction(committed=True)
    for _ in range(2):
        tables = coordinator.shard.offsets.by_group.values()
        assert len({id(offset.topic_id) for table in tables for offset in table.values()}) == 1
        coordinator.restart()


# Deletion


def test_an_offset_of_another_id_stays() -> None:
    """The topic was made again under its name before the deletion was applied."""
    coordinator = Coordinator()
    former = coordinator.image.by_name["orders"]
    coordinator.commit({ORDERS: 5, ("orders", 1): 5, PAYMENTS: 5})
    coordinator.image.by_name["orders"] = Topic("orders", UUID(int=101), 4)
    coordinator.commit({ORDERS: 6})
    coordinator.commit_in_transaction({("orders", 2): 7}, group="pending")
    coordinator.runtime.on_image(deleted_topics(former))
    coordinator.advance(1)
    assert set(kept(coordinator)) == {ORDERS, PAYMENTS}
    coordinator.end_transaction(committed=True)
    assert set(kept(coordinator, "pending")) == {("orders", 2)}


def test_an_offset_without_an_id_goes() -> None:
    """Kafka 4.2.1 wrote it, committed or in an open transaction."""
    coordinator = Coordinator()
    coordinator.shard.replay(0, NO_PRODUCER_ID, -1, OffsetCommit("group", "orders", 0, 5, -1, "", 0))
    coordinator.shard.replay(1, 7, 0, OffsetCommit("pending", "orders", 0, 5, -1, "", 0))
    make_anew(coordinator)
    coordinator.advance(1)
    assert kept(coordinator) == {}
    coordinator.shard.replay_end_transaction_marker(7, 0, committed=True)
    assert kept(coordinator, "pending") == {}


def test_an_offset_without_an_id_that_is_committed_after_the_deletion_stays() -> None:
    """With a retention time, while the old offsets go in parts."""
    coordinator = Coordinator()
    coordinator.commit({("orders", each % 4): 1 for each in range(4)})
    topic_id = make_anew(coordinator)
    request = m.OffsetCommitRequest(
        group_id="group",
        generation_id_or_member_epoch=-1,
        retention_time_ms=600_000,
        topics=[
            m.OffsetCommitRequestTopic(
                name="orders", partitions=[m.OffsetCommitRequestPartition(partition_index=1, committed_offset=7)]
            )
        ],
    )
    begun = coordinator.ask("offset_commit", request, version=3)
    coordinator.advance(1)
    assert begun.responses[0].topics[0].partitions[0].error_code == ErrorCode.NONE
    assert kept(coordinator) == {("orders", 1): (7, None)}
    coordinator.commit({("orders", 1): 8})
    assert kept(coordinator) == {("orders", 1): (8, topic_id)}


def test_a_partition_with_offsets_of_two_topics_keeps_both() -> None:
    """One tombstone takes committed and pending offsets: Kafka loses the one of the new topic."""
    coordinator = Coordinator()
    coordinator.commit({ORDERS: 5})
    former = coordinator.image.by_name["orders"]
    coordinator.image.by_name["orders"] = Topic("orders", UUID(int=101), 4)
    coordinator.commit_in_transaction({ORDERS: 7})
    coordinator.runtime.on_image(deleted_topics(former))
    coordinator.advance(1)
    assert kept(coordinator) == {ORDERS: (5, former.topic_id)}
    coordinator.end_transaction(committed=True)
    assert kept(coordinator) == {ORDERS: (7, UUID(int=101))}


def test_a_topic_that_is_deleted_twice_while_other_offsets_go() -> None:
    """Both of its lives end."""
    coordinator = Coordinator()
    coordinator.image.by_name["large"] = Topic("large", UUID(int=9), 3 * TOMBSTONES_AT_ONCE)
    for low in range(0, 3 * TOMBSTONES_AT_ONCE, 1_000):
        coordinator.commit({("large", index): 1 for index in range(low, low + 1_000)}, group="reads much")
    coordinator.commit({ORDERS: 1}, group="first life")
    coordinator.delete_topics("large")
    make_anew(coordinator)
    coordinator.commit({ORDERS: 2}, group="second life")
    topic_id = make_anew(coordinator)
    coordinator.commit({ORDERS: 3}, group="third life")
    coordinator.advance(1)
    assert kept(coordinator, "reads much") == kept(coordinator, "first life") == kept(coordinator, "second life") == {}
    assert kept(coordinator, "third life") == {ORDERS: (3, topic_id)}


# What Apache Kafka 4.4.0 wrote


def replay(coordinator: Coordinator, header: BatchHeader, batch: bytes) -> None:
    if header.is_control:
        (record,) = read_records(batch)
        marker = read_marker(record)
        assert marker is not None
        coordinator.shard.replay_end_transaction_marker(
            header.producer_id, header.producer_epoch, committed=marker.committed
        )
        return
    serde = GroupRecordSerde()
    producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
    for record in read_records(batch):
        decoded = serde.decode(record.key or b"", record.value)
        coordinator.shard.replay(record.offset, producer_id, header.producer_epoch, decoded)


def test_a_deleted_topic_gets_the_tombstones_of_kafka() -> None:
    """Five groups, one of which has its offset in an open transaction, up to the deletion in each log."""
    serde = GroupRecordSerde()
    logs: dict[str, list[bytes]] = defaultdict(list)
    for name, batch in batches_of_4_4_0():
        logs[name].append(batch)
    seen = 0
    for batches in logs.values():
        coordinator = Coordinator()
        expected: set[OffsetCommitTombstone] = set()
        deleted: UUID | None = None
        for batch in batches:
            ((_, header),) = iter_batches(batch)
            records = [] if header.is_control else [serde.decode(r.key or b"", r.value) for r in read_records(batch)]
            gone = [each for each in records if isinstance(each, OffsetCommitTombstone) and each.topic == REBORN]
            lives = {each.topic_id for each in records if isinstance(each, OffsetCommit) and each.topic == REBORN}
            if expected and not gone:
                break
            expected.update(gone)
            if not gone:
                deleted = lives.pop() if lives else deleted
                replay(coordinator, header, batch)
        assert deleted is not None
        end = coordinator.end
        coordinator.runtime.on_image(deleted_topics(Topic(REBORN, deleted, 2)))
        coordinator.advance(1)
        assert set(coordinator.records(end)) == expected
        seen += len(expected)
    assert seen == 10
