"""
What this broker made on the disk and belongs to no topic is set aside at the start. `server/test_foreign_directories` has what
others made.
"""

import logging
from pathlib import Path
from uuid import UUID

import pytest

from kohort.model.ids import TopicPartition
from kohort.storage.log import LogConfig
from kohort.testing.virtual import VirtualNode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import BatchRecord, build_batch
from tests.broker.harness import Harness, disk_store

GONE = TopicPartition("gone", 0)
BEYOND = TopicPartition("kept", 2)
"""Of a topic that has two partitions."""
KEPT = TopicPartition("kept", 1)


def started(data_dir: Path) -> Harness:
    node = VirtualNode()
    store = disk_store(data_dir, node, cluster_id=None, journal_file_bytes=1 << 16)
    return Harness(store=store, node=node)


def append(harness: Harness, topic_partition: TopicPartition, topic_id: UUID) -> None:
    log = harness.store.open(topic_partition, topic_id, LogConfig())
    log.append(build_batch([BatchRecord(None, b"x")], timestamp_ms=1000), leader_epoch=0)


def test_partitions_of_no_topic_are_renamed_with_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    harness = started(tmp_path)
    topic = m.CreateTopicsRequestCreatableTopic(name="kept", num_partitions=2, replication_factor=1)
    answer = harness.ask(ApiKey.CREATE_TOPICS, m.CreateTopicsRequest(topics=[topic], timeout_ms=1000))
    topic_id = answer.topics[0].topic_id
    for topic_partition, owner in ((KEPT, topic_id), (BEYOND, topic_id), (GONE, UUID(int=9))):
        append(harness, topic_partition, owner)
    harness.store.close()
    with caplog.at_level(logging.WARNING):
        harness = started(tmp_path)
        harness.store.flush()
    assert [it.topic for it in harness.store.partitions()] == ["__kohort_catalog", "kept"]
    assert harness.store.open(KEPT, topic_id, LogConfig()).end_offset == 1
    strays = sorted(path.name.partition(".")[0] for path in tmp_path.glob("*-stray"))
    assert strays == ["gone-0", "kept-2"]
    assert [record.getMessage().split()[0] for record in caplog.records] == ["log.stray"] * 2
    harness.store.close()
    harness = started(tmp_path)
    assert len(list(tmp_path.glob("*-stray"))) == 2
    harness.store.close()


def test_a_log_of_a_deleted_topic_says_nothing_of_its_namesake(tmp_path: Path) -> None:
    """
    A crash between the deletion and the renaming: clients who hear of the old one's leader epoch believe no lower one. The
    start raises the epochs of all partitions by 2.
    """
    harness = started(tmp_path)
    topic_id = harness.create("kept", 2)
    log = harness.store.open(KEPT, UUID(int=9), LogConfig())
    log.append(build_batch([BatchRecord(None, b"x")], timestamp_ms=1000), leader_epoch=0)
    log.become_leader(5)
    harness.store.close()
    harness = started(tmp_path)
    wanted = m.MetadataRequest(topics=[m.MetadataRequestTopic(name="kept")])
    for _ in range(2):
        (topic,) = harness.ask(ApiKey.METADATA, wanted).topics
        assert [(data.error_code, data.leader_id, data.leader_epoch) for data in topic.partitions] == [(0, 1, 2)] * 2
        assert harness.store.open(KEPT, topic_id, LogConfig()).end_offset == 0
    harness.store.close()
