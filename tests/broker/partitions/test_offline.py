"""A partition whose disk fails: whoever waits for it is told at once, and nobody else notices."""

from collections.abc import Iterator
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest

from kohort.model.errors import ErrorCode
from kohort.model.ids import CONSUMER_OFFSETS, TopicPartition
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort_lab.faulty_files import FaultyFiles, fail_on
from tests.broker.harness import Harness, batch, produce_request
from tests.broker.records.test_fetch import asked, fetch_request
from tests.storage.owner import Owner


class Failing:
    """A broker over a disk; topic `t` with two partitions, of which the first one's files can be made to fail."""

    def __init__(self, files: FaultyFiles, data_dir: Path) -> None:
        self.owner = Owner()
        self.store = self.owner.disk(data_dir)
        self.harness = Harness(store=self.store, node=self.owner.node)
        creating = self.harness.begin(ApiKey.CREATE_TOPICS, self._topic())
        self.owner.wait_for(lambda: bool(creating))
        self._files = files

    def _topic(self) -> m.CreateTopicsRequest:
        wanted = m.CreateTopicsRequestCreatableTopic(name="t", num_partitions=2, replication_factor=1)
        return m.CreateTopicsRequest(topics=[wanted], timeout_ms=1000)

    def write(self, partition: int = 0, *, acks: int = -1) -> list[Any]:
        return self.harness.begin(ApiKey.PRODUCE, produce_request("t", {partition: batch(b"v")}, acks=acks), version=12)

    def fail(self, name: str = "t-0") -> None:
        hit, directory = fail_on("write", ".log", code=ENOSPC), self.store.data_dir / name
        self._files.refuse = lambda call, path: hit(call, path) if path.parent == directory else None

    def lose(self) -> None:
        """The first partition goes offline: a write fails on the disk thread."""
        self.fail()
        self.write()
        log = self.store.get(TopicPartition("t", 0))
        assert log is not None
        self.owner.wait_for(lambda: log.refusal is not None)

    def codes(self, answers: list[Any]) -> list[int]:
        return [answer.responses[0].partition_responses[0].error_code for answer in answers]


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[Failing]:
    with FaultyFiles(tmp_path / "data") as files:
        failing = Failing(files, tmp_path / "data")
        yield failing
        files.refuse = lambda _call, _path: None
        failing.store.close()


def test_who_waits_to_be_acknowledged_is_told(failing: Failing) -> None:
    """Not when his time is up: he may have half a minute of it."""
    first, other = failing.write(), failing.write(1)
    failing.fail()
    second = failing.write()
    failing.owner.wait_for(lambda: bool(first) and bool(second))
    assert failing.codes(second) == failing.codes(first) == [ErrorCode.KAFKA_STORAGE_ERROR]
    failing.owner.wait_for(lambda: bool(other))
    assert failing.codes(other) == [ErrorCode.NONE]


@pytest.mark.parametrize(
    ("version", "code"),
    [(4, ErrorCode.NOT_LEADER_OR_FOLLOWER), (5, ErrorCode.NOT_LEADER_OR_FOLLOWER), (6, ErrorCode.KAFKA_STORAGE_ERROR)],
)
def test_who_waits_for_records_is_told(failing: Failing, version: int, code: ErrorCode) -> None:
    """Clients of before version 6 do not know the error. Source: KafkaApis.handleFetchRequest, maybeDownConvertStorageError."""
    request = fetch_request(asked(0), asked(0, partition=1), max_wait_ms=30_000)
    waiting = failing.harness.begin(ApiKey.FETCH, request, version=version)
    assert waiting == []
    failing.lose()
    (answer,) = waiting
    assert [data.error_code for data in answer.responses[0].partitions] == [code, ErrorCode.NONE]


def test_an_offline_partition_tells_no_offsets_either(failing: Failing) -> None:
    failing.lose()
    at_end = m.ListOffsetsRequest(
        replica_id=-1,
        topics=[
            m.ListOffsetsTopic(
                name="t", partitions=[m.ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 1)]
            )
        ],
    )
    (found,) = failing.harness.ask(ApiKey.LIST_OFFSETS, at_end).topics
    assert [data.error_code for data in found.partitions] == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]


@pytest.mark.parametrize("version", [4, 5, 13])
def test_an_offline_partition_has_no_leader(failing: Failing, version: int) -> None:
    """Seen of a 4.2.1 of which one log directory failed; there the controller begins a new leader epoch besides."""
    failing.lose()
    wanted = m.MetadataRequest(topics=[m.MetadataRequestTopic(name="t")])
    (topic,) = failing.harness.ask(ApiKey.METADATA, wanted, version=version).topics
    offline = (1,) if version >= 5 else ()
    assert topic.error_code == ErrorCode.NONE
    assert [
        (data.error_code, data.leader_id, data.replica_nodes, data.isr_nodes, data.offline_replicas)
        for data in topic.partitions
    ] == [(ErrorCode.LEADER_NOT_AVAILABLE, -1, (1,), (), offline), (ErrorCode.NONE, 1, (1,), (1,), ())]
    assert [data.leader_epoch for data in topic.partitions] == [0 if version >= 7 else -1] * 2


def test_an_offline_partition_is_described_without_a_leader(failing: Failing) -> None:
    failing.lose()
    asked = m.DescribeTopicPartitionsRequest(
        topics=[m.DescribeTopicPartitionsRequestTopicRequest(name="t")], response_partition_limit=10, cursor=None
    )
    (topic,) = failing.harness.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, asked).topics
    failed, well = topic.partitions
    assert (failed.error_code, failed.leader_id, failed.isr_nodes) == (ErrorCode.NONE, -1, ())
    assert failed.eligible_leader_replicas == failed.last_known_elr == failed.offline_replicas == (1,)
    assert (well.leader_id, well.isr_nodes, well.offline_replicas) == (1, (1,), ())


def test_a_partition_that_cannot_be_taken_up_has_no_leader(failing: Failing) -> None:
    """Nobody has asked for it since the start."""
    failing.write()
    failing.store.close()
    directory = failing.store.data_dir / "t-0"
    (directory / "7.log").write_bytes(b"")
    failing.store = failing.owner.disk(failing.store.data_dir)
    harness = Harness(store=failing.store, node=failing.owner.node)
    (topic,) = harness.ask(ApiKey.METADATA, m.MetadataRequest(topics=[m.MetadataRequestTopic(name="t")])).topics
    assert [data.leader_id for data in topic.partitions] == [-1, 1]


def test_whoever_waits_for_the_catalog_is_told(failing: Failing) -> None:
    """An id for a producer has no time of its own after which it is given up."""
    harness = failing.harness
    harness.host_transactions(has_topic=False)
    waiting = harness.begin(ApiKey.INIT_PRODUCER_ID, m.InitProducerIdRequest(transactional_id=None))
    failing.fail("__kohort_catalog-0")
    wanted = m.CreateTopicsRequestCreatableTopic(name="u", num_partitions=1, replication_factor=1)
    refused = harness.begin(ApiKey.CREATE_TOPICS, m.CreateTopicsRequest(topics=[wanted], timeout_ms=600_000))
    failing.owner.wait_for(lambda: bool(waiting) and bool(refused))
    assert [answer.error_code for answer in waiting] == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert [answer.topics[0].error_code for answer in refused] == [ErrorCode.KAFKA_STORAGE_ERROR]
    written = failing.write()
    failing.owner.wait_for(lambda: bool(written))
    assert failing.codes(written) == [ErrorCode.NONE]


def test_markers_and_producers_of_an_offline_partition(failing: Failing) -> None:
    """Seen of a 4.2.1 of which one log directory failed: to who writes markers there is no such partition."""
    failing.lose()
    topic = m.WriteTxnMarkersRequestWritableTxnMarkerTopic(name="t", partition_indexes=[0, 1])
    marker = m.WriteTxnMarkersRequestWritableTxnMarker(
        producer_id=7, producer_epoch=0, transaction_result=True, coordinator_epoch=0, topics=[topic]
    )
    waiting = failing.harness.begin(ApiKey.WRITE_TXN_MARKERS, m.WriteTxnMarkersRequest(markers=[marker]), version=1)
    failing.owner.wait_for(lambda: bool(waiting))
    (written,) = waiting[0].markers[0].topics
    codes = {data.partition_index: data.error_code for data in written.partitions}
    assert codes == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 1: ErrorCode.NONE}
    wanted = m.DescribeProducersRequestTopicRequest(name="t", partition_indexes=[0])
    (described,) = failing.harness.ask(ApiKey.DESCRIBE_PRODUCERS, m.DescribeProducersRequest(topics=[wanted])).topics
    (data,) = described.partitions
    assert (data.error_code, data.error_message) == (ErrorCode.KAFKA_STORAGE_ERROR, None)


@pytest.mark.parametrize(
    ("ended", "told"),
    [
        (ErrorCode.NONE, ErrorCode.NONE),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_markers_of_a_group_coordinator_that_is_away(ended: ErrorCode, told: ErrorCode) -> None:
    """Source: KafkaApis.handleWriteTxnMarkersRequest."""
    harness = Harness()
    harness.ask(ApiKey.FIND_COORDINATOR, m.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    harness.coordinators[CONSUMER_OFFSETS] = lambda _partition, _end, done: done(ended)
    topic = m.WriteTxnMarkersRequestWritableTxnMarkerTopic(name=CONSUMER_OFFSETS, partition_indexes=[0])
    marker = m.WriteTxnMarkersRequestWritableTxnMarker(
        producer_id=7, producer_epoch=0, transaction_result=True, coordinator_epoch=0, topics=[topic]
    )
    answer = harness.ask(ApiKey.WRITE_TXN_MARKERS, m.WriteTxnMarkersRequest(markers=[marker]), version=1)
    assert answer.markers[0].topics[0].partitions[0].error_code == told


def test_nobody_is_told_of_a_partition_that_is_well(failing: Failing) -> None:
    waiting = failing.harness.begin(ApiKey.FETCH, fetch_request(asked(0, partition=1), max_wait_ms=30_000), version=12)
    failing.lose()
    assert waiting == []
    log = failing.store.get(TopicPartition("t", 0))
    assert log is not None
    assert "make room" in (log.refusal or "")
