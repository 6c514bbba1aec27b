"""Idempotent producers, markers of transactions, and those who read committed data only, as probed on Apache Kafka 4.2.1."""

from collections.abc import Callable
from typing import Any

import pytest

from kohort.machine.shard import EndTransaction
from kohort.model.errors import ErrorCode
from kohort.model.ids import CONSUMER_OFFSETS, TopicPartition
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import BatchRecord, build_batch
from tests.broker.harness import Harness, batch, produce_request

NOW_MS = 1_700_000_000_000


def sent(sequence: int, *, count: int = 1, epoch: int = 0, timestamp_ms: int = NOW_MS - 5) -> bytes:
    return build_batch(
        [BatchRecord(b"k", b"v")] * count,
        timestamp_ms=timestamp_ms,
        producer_id=7,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


@pytest.fixture
def harness() -> Harness:
    harness = Harness()
    harness.create("t")
    return harness


def produce(harness: Harness, records: bytes, **how: Any) -> tuple[int, int, int]:
    """Code, base offset, log append time."""
    (answer,) = harness.produce("t", {0: records}, **how)
    assert answer.log_start_offset == 0
    return answer.error_code, answer.base_offset, answer.log_append_time_ms


def test_a_batch_sent_again_is_answered_as_before_and_not_written(harness: Harness) -> None:
    assert produce(harness, sent(0, count=3)) == (0, 0, -1)
    assert produce(harness, sent(3)) == (0, 3, -1)
    assert produce(harness, sent(0, count=3)) == (0, 0, NOW_MS - 5), "with its time, although the topic has CreateTime"
    assert produce(harness, sent(4), acks=1) == (0, 4, -1)
    assert produce(harness, sent(4), acks=1) == (0, 4, NOW_MS - 5)


REFUSED = {
    "a gap": (sent(4), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    "other sequences": (sent(0, count=2), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    "an old epoch": (sent(3, epoch=0), ErrorCode.INVALID_PRODUCER_EPOCH),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(harness: Harness, what: str) -> None:
    records, code = REFUSED[what]
    epoch = 1 if code == ErrorCode.INVALID_PRODUCER_EPOCH else 0
    assert produce(harness, sent(0, count=3, epoch=epoch)) == (0, 0, -1)
    assert produce(harness, records) == (code, -1, -1)
    assert produce(harness, sent(3, epoch=epoch)) == (0, 3, -1)


def test_a_duplicate_of_what_is_not_durable_yet_waits_for_it(harness: Harness) -> None:
    harness.hold()
    first = harness.begin(ApiKey.PRODUCE, produce_request("t", {0: sent(0)}), version=12)
    again = harness.begin(ApiKey.PRODUCE, produce_request("t", {0: sent(0)}), version=12)
    second = harness.begin(ApiKey.PRODUCE, produce_request("t", {0: sent(1)}), version=12)
    again_after = harness.begin(ApiKey.PRODUCE, produce_request("t", {0: sent(0)}), version=12)
    harness.node.settle()
    assert [first, again, second, again_after] == [[]] * 4
    harness.let_go()
    for answers in (first, again, second, again_after):
        assert [answer.responses[0].partition_responses[0].error_code for answer in answers] == [0]


def end(
    harness: Harness,
    *,
    committed: bool,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    topics: dict[str, list[int]] | None = None,
    transaction_version: int = 0,
    producer_id: int = 7,
    version: int = 2,
) -> dict[tuple[str, int], int]:
    marker = m.WriteTxnMarkersRequestWritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=committed,
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
        topics=[
            m.WriteTxnMarkersRequestWritableTxnMarkerTopic(name=name, partition_indexes=indexes)
            for name, indexes in (topics or {"t": [0]}).items()
        ],
    )
    answer = harness.ask(ApiKey.WRITE_TXN_MARKERS, m.WriteTxnMarkersRequest(markers=[marker]), version=version)
    return {
        (topic.name, result.partition_index): result.error_code
        for told in answer.markers
        for topic in told.topics
        for result in topic.partitions
    }


def write_in_transaction(harness: Harness, sequence: int, *, count: int = 1, epoch: int = 0) -> None:
    """As a coordinator would have let a producer do."""
    partition = harness.broker.partitions.find("t", 0)
    assert partition is not None
    records = batch(*[b"v"] * count, producer_id=7, producer_epoch=epoch, base_sequence=sequence, transactional=True)
    partition.append(records)
    harness.node.settle()


def fetch(harness: Harness, offset: int, isolation_level: int) -> Any:
    partition = m.FetchRequestFetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = m.FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=isolation_level,
        topics=[m.FetchRequestFetchTopic(topic="t", partitions=[partition])],
    )
    ((found,),) = [topic.partitions for topic in harness.ask(ApiKey.FETCH, request, version=11).responses]
    return found


def latest(harness: Harness, isolation_level: int, timestamp: int = -1) -> tuple[int, int]:
    topic = m.ListOffsetsTopic(
        name="t", partitions=[m.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)]
    )
    request = m.ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=[topic], timeout_ms=1000)
    ((found,),) = [topic.partitions for topic in harness.ask(ApiKey.LIST_OFFSETS, request).topics]
    return found.error_code, found.offset


def aborted(found: Any) -> list[tuple[int, int]] | None:
    if found.aborted_transactions is None:
        return None
    return [(entry.producer_id, entry.first_offset) for entry in found.aborted_transactions]


def test_committed_data_ends_where_a_transaction_is_open(harness: Harness) -> None:
    harness.write("t", b"plain")
    write_in_transaction(harness, 0, count=2)
    harness.write("t", b"plain")
    found = fetch(harness, 0, 1)
    assert (found.high_watermark, found.last_stable_offset, aborted(found)) == (4, 1, [])
    assert len(found.records) < len(fetch(harness, 0, 0).records)
    assert (latest(harness, 0), latest(harness, 1)) == ((0, 4), (0, 1))
    assert latest(harness, 1, timestamp=-3) == (0, 0), "all of one time: the first"
    for offset in (1, 3, 4):
        found = fetch(harness, offset, 1)
        assert (found.error_code, found.records, aborted(found)) == (0, b"", []), "Kafka: no error behind it"


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_ends_a_transaction(harness: Harness, committed: bool) -> None:
    write_in_transaction(harness, 0, count=2)
    assert end(harness, committed=committed) == {("t", 0): 0}
    found = fetch(harness, 0, 1)
    assert (found.high_watermark, found.last_stable_offset) == (3, 3)
    assert aborted(found) == ([] if committed else [(7, 0)])
    assert aborted(fetch(harness, 0, 0)) is None
    assert latest(harness, 1) == (0, 3)


def test_the_end_of_a_transaction_counts_when_its_marker_is_durable(harness: Harness) -> None:
    write_in_transaction(harness, 0)
    harness.hold()
    log = harness.store.get(TopicPartition("t", 0))
    assert log is not None
    marker = m.WriteTxnMarkersRequestWritableTxnMarker(
        producer_id=7,
        producer_epoch=0,
        transaction_result=True,
        coordinator_epoch=0,
        topics=[m.WriteTxnMarkersRequestWritableTxnMarkerTopic(name="t", partition_indexes=[0])],
    )
    answers = harness.begin(ApiKey.WRITE_TXN_MARKERS, m.WriteTxnMarkersRequest(markers=[marker]), version=1)
    harness.node.settle()
    assert (answers, log.last_stable_offset) == ([], 0)
    harness.let_go()
    assert (len(answers), log.last_stable_offset) == (1, 2)


EPOCH, FENCED = ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED
# fmt: off
MARKERS: dict[str, tuple[dict[str, Any], int]] = {  # after epoch 3 of coordinator epoch 2: what is sent, and the code
    "of an unknown producer":     ({"producer_id": 99},                                        0),
    "the same epoch again":       ({"epoch": 3, "coordinator_epoch": 2},                       0),
    "version 2, nothing open":    ({"epoch": 3, "coordinator_epoch": 2, "transaction_version": 2}, 0),
    "a later epoch":              ({"epoch": 4, "coordinator_epoch": 2},                       0),
    "an earlier epoch":           ({"epoch": 2, "coordinator_epoch": 2},                       EPOCH),
    "an earlier coordinator":     ({"epoch": 3, "coordinator_epoch": 1},                       FENCED),
    "both earlier":               ({"epoch": 2, "coordinator_epoch": 1},                       EPOCH),
    "a negative epoch":           ({"epoch": -1},                              ErrorCode.UNKNOWN_SERVER_ERROR),
}
# fmt: on


@pytest.mark.parametrize("what", MARKERS)
def test_markers(harness: Harness, what: str) -> None:
    write_in_transaction(harness, 0, epoch=3)
    assert end(harness, committed=True, epoch=3, coordinator_epoch=2) == {("t", 0): 0}
    how, code = MARKERS[what]
    assert end(harness, committed=False, **how) == {("t", 0): code}


def test_version_2_wants_a_higher_epoch_than_the_data(harness: Harness) -> None:
    write_in_transaction(harness, 0, epoch=3)
    assert end(harness, committed=True, epoch=3, transaction_version=2) == {("t", 0): EPOCH}
    assert end(harness, committed=True, epoch=4, transaction_version=2) == {("t", 0): 0}
    assert produce(harness, sent(1, epoch=4))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(harness, sent(0, epoch=4))[0] == 0


def test_where_no_marker_is_written(harness: Harness) -> None:
    harness.create(CONSUMER_OFFSETS)
    harness.coordinators[CONSUMER_OFFSETS] = lambda _partition, _end, done: done(ErrorCode.NOT_COORDINATOR)
    answers = end(harness, committed=True, topics={"t": [0, 1], "none": [0], CONSUMER_OFFSETS: [0]})
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answers == {
        ("t", 0): 0,
        ("t", 1): unknown,
        ("none", 0): unknown,
        (CONSUMER_OFFSETS, 0): ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
    assert end(harness, committed=True, topics={"t": []}) == {}


def test_the_owner_of_offsets_ends_transactions_there(harness: Harness) -> None:
    harness.create(CONSUMER_OFFSETS)
    asked: list[tuple[int, EndTransaction, Callable[[ErrorCode], None]]] = []
    harness.coordinators[CONSUMER_OFFSETS] = lambda partition, end, done: asked.append((partition, end, done))
    marker = m.WriteTxnMarkersRequestWritableTxnMarker(
        producer_id=7,
        producer_epoch=1,
        transaction_result=True,
        coordinator_epoch=3,
        transaction_version=2,
        topics=[m.WriteTxnMarkersRequestWritableTxnMarkerTopic(name=CONSUMER_OFFSETS, partition_indexes=[0])],
    )
    answers = harness.begin(ApiKey.WRITE_TXN_MARKERS, m.WriteTxnMarkersRequest(markers=[marker]))
    harness.node.settle()
    ((partition, end_, ended),) = asked
    assert (answers, partition, end_) == ([], 0, EndTransaction(7, 1, 3, committed=True, transaction_version=2))
    ended(ErrorCode.INVALID_PRODUCER_EPOCH)
    (answer,) = answers
    assert answer.markers[0].topics[0].partitions[0].error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_plain_data_of_a_producer_within_its_transaction_is_refused(harness: Harness) -> None:
    write_in_transaction(harness, 0)
    (answer,) = harness.produce("t", {0: sent(1)})
    assert answer.error_code == ErrorCode.INVALID_TXN_STATE


def test_producers_are_described(harness: Harness) -> None:
    write_in_transaction(harness, 0, count=2)
    topics = [
        m.DescribeProducersRequestTopicRequest(name="t", partition_indexes=[0, 9]),
        m.DescribeProducersRequestTopicRequest(name="none", partition_indexes=[0]),
    ]
    answer = harness.ask(ApiKey.DESCRIBE_PRODUCERS, m.DescribeProducersRequest(topics=topics))
    (found, no_partition), (no_topic,) = (topic.partitions for topic in answer.topics)
    (producer,) = found.active_producers
    assert (producer.producer_id, producer.last_sequence, producer.coordinator_epoch) == (7, 1, -1)
    assert producer.current_txn_start_offset == 0
    assert no_partition.error_code == no_topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (no_partition.error_message, bool(no_topic.error_message)) == (None, True)
    end(harness, committed=True)
    answer = harness.ask(ApiKey.DESCRIBE_PRODUCERS, m.DescribeProducersRequest(topics=topics[:1]))
    (producer,) = answer.topics[0].partitions[0].active_producers
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (0, -1)
