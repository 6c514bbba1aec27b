"""Offsets by time and by epoch. Source: Kafka UnifiedLog.fetchOffsetByTimestamp, KafkaApis; probed on 4.2.1."""

from typing import Any

import pytest

from kohort.model.errors import ErrorCode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import Harness, batch


def filled() -> Harness:
    """Offsets 0 to 3 at times 100, 300, 200, 300; epoch 0 up to 2, epoch 5 from there."""
    harness = Harness()
    harness.create("t")
    for timestamp_ms in (100, 300):
        harness.write("t", b"x", timestamp_ms=timestamp_ms)
    harness.broker.partitions.find("t", 0).begin_epoch(5)  # type: ignore[union-attr]
    for timestamp_ms in (200, 300):
        harness.write("t", b"x", timestamp_ms=timestamp_ms)
    return harness


def ask(
    harness: Harness, timestamp: int, *, version: int = 11, topic: str = "t", partition: int = 0, **what: Any
) -> m.ListOffsetsPartitionResponse:
    epoch = what.pop("current_leader_epoch", -1)
    asked = m.ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
    request = m.ListOffsetsRequest(
        topics=[m.ListOffsetsTopic(name=topic, partitions=[asked])], **{"replica_id": -1} | what
    )
    answer: m.ListOffsetsPartitionResponse = (
        harness.ask(ApiKey.LIST_OFFSETS, request, version=version).topics[0].partitions[0]
    )
    return answer


# fmt: off
FOUND = {  # timestamp asked for: offset, timestamp, leader epoch
    -1:  (4, -1, 5),
    -2:  (0, -1, 0),
    -3:  (1, 300, 0),     # the first of equal ones
    -4:  (0, -1, 0),
    -5:  (-1, -1, -1),
    -6:  (-1, -1, -1),
    0:   (0, 100, 0),
    100: (0, 100, 0),
    101: (1, 300, 0),
    200: (1, 300, 0),     # the first in the log's order, not in that of time
    300: (1, 300, 0),
    301: (-1, -1, -1),
}
SINCE = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11, -7: 99, 100: 1}
# fmt: on


@pytest.mark.parametrize("timestamp", FOUND)
def test_found(timestamp: int) -> None:
    answer = ask(filled(), timestamp)
    assert (answer.error_code, (answer.offset, answer.timestamp, answer.leader_epoch)) == (0, FOUND[timestamp])


@pytest.mark.parametrize("timestamp", SINCE)
def test_versions(timestamp: int) -> None:
    harness = filled()
    codes = {version: ask(harness, timestamp, version=version).error_code for version in range(1, 12)}
    expected = {v: 0 if v >= SINCE[timestamp] else ErrorCode.UNSUPPORTED_VERSION for v in range(1, 12)}
    assert codes == expected


def test_empty_log() -> None:
    harness = Harness()
    harness.create("t")
    seen = {timestamp: ask(harness, timestamp).offset for timestamp in (-1, -2, -3, 5)}
    assert seen == {-1: 0, -2: 0, -3: -1, 5: -1}


def test_what_is_not_below_the_high_watermark_is_not_found() -> None:
    harness = filled()
    harness.hold()
    log = harness.broker.partitions.find("t", 0).log  # type: ignore[union-attr]
    log.append(batch(b"x", timestamp_ms=400), leader_epoch=5)
    assert log.end_offset == 5
    seen = {timestamp: ask(harness, timestamp).offset for timestamp in (-1, -3, 301, 400)}
    assert seen == {-1: 4, -3: -1, 301: -1, 400: -1}
    assert ask(harness, 400, replica_id=2).offset == 4, "a replica reads to the end"


# fmt: off
REFUSED: dict[str, tuple[dict[str, Any], ErrorCode]] = {
    "unknown topic":     ({"topic": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "unknown partition": ({"partition": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "isolation level":   ({"isolation_level": 2}, ErrorCode.UNKNOWN_SERVER_ERROR),
    "old epoch":         ({"current_leader_epoch": 4}, ErrorCode.FENCED_LEADER_EPOCH),
    "new epoch":         ({"current_leader_epoch": 6}, ErrorCode.UNKNOWN_LEADER_EPOCH),
    "right epoch":       ({"current_leader_epoch": 5}, ErrorCode.NONE),
    "read committed":    ({"isolation_level": 1}, ErrorCode.NONE),
}
# fmt: on


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what: str) -> None:
    arguments, code = REFUSED[what]
    assert ask(filled(), -1, **arguments).error_code == code


def test_partition_that_is_named_twice() -> None:
    asked = [m.ListOffsetsPartition(partition_index=0, timestamp=timestamp) for timestamp in (-1, -2)]
    request = m.ListOffsetsRequest(replica_id=-1, topics=[m.ListOffsetsTopic(name="t", partitions=asked)])
    (topic,) = filled().ask(ApiKey.LIST_OFFSETS, request).topics
    assert {answer.error_code for answer in topic.partitions} == {ErrorCode.INVALID_REQUEST}


# fmt: off
EPOCH_ENDS = {  # epoch asked for, of epoch 0 up to 2 and epoch 5 up to 4: the epoch known, where it ends
    -1: (-1, -1),
    0:  (0, 2),
    1:  (0, 2),
    4:  (0, 2),
    5:  (5, 4),
    6:  (-1, -1),
}
# fmt: on


@pytest.mark.parametrize("leader_epoch", EPOCH_ENDS)
def test_end_of_an_epoch(leader_epoch: int) -> None:
    for version in range(2, 5):
        answer = ask_epoch(filled(), leader_epoch, version=version)
        assert (answer.error_code, (answer.leader_epoch, answer.end_offset)) == (0, EPOCH_ENDS[leader_epoch])


@pytest.mark.parametrize(
    ("partition", "current", "code"),
    [(0, 4, ErrorCode.FENCED_LEADER_EPOCH), (0, 6, ErrorCode.UNKNOWN_LEADER_EPOCH), (1, -1, 3), (0, 5, 0)],
)
def test_end_of_an_epoch_refused(partition: int, current: int, code: int) -> None:
    answer = ask_epoch(filled(), 0, partition=partition, current_leader_epoch=current)
    assert answer.error_code == code


def ask_epoch(
    harness: Harness, leader_epoch: int, *, version: int = 4, partition: int = 0, current_leader_epoch: int = -1
) -> m.OffsetForLeaderEpochResponseEpochEndOffset:
    asked = m.OffsetForLeaderEpochRequestOffsetForLeaderPartition(
        partition=partition, current_leader_epoch=current_leader_epoch, leader_epoch=leader_epoch
    )
    topics = [m.OffsetForLeaderEpochRequestOffsetForLeaderTopic(topic="t", partitions=[asked])]
    request = m.OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)
    response = harness.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, request, version=version)
    found: m.OffsetForLeaderEpochResponseEpochEndOffset = response.topics[0].partitions[0]
    return found


# fmt: off
BY_ISOLATION = {  # timestamp asked for: (offset, timestamp) read_uncommitted, and read_committed
    -1:  ((4, -1),   (2, -1)),
    -2:  ((0, -1),   (0, -1)),
    -3:  ((3, 400),  (-1, -1)),  # the newest is behind the last stable offset
    -4:  ((0, -1),   (0, -1)),
    -5:  ((-1, -1),  (-1, -1)),
    -6:  ((-1, -1),  (-1, -1)),
    0:   ((0, 100),  (0, 100)),
    200: ((1, 300),  (1, 300)),
    300: ((1, 300),  (1, 300)),
    301: ((2, 350),  (-1, -1)),
    400: ((3, 400),  (-1, -1)),
    401: ((-1, -1),  (-1, -1)),
}
TRIMMED = {  # the same when the log starts at offset 1
    -2:  ((1, -1),   (1, -1)),
    -4:  ((1, -1),   (1, -1)),
    0:   ((1, 300),  (1, 300)),
    100: ((1, 300),  (1, 300)),
}
# fmt: on


def with_open_transaction() -> Harness:
    """Offsets 0 to 3 at times 100, 300, 350, 400; the one at 2 belongs to a transaction that is open."""
    harness = Harness()
    harness.create("t")
    for timestamp_ms in (100, 300):
        harness.write("t", b"x", timestamp_ms=timestamp_ms)
    transactional: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    partition = harness.broker.partitions.find("t", 0)
    assert partition is not None
    partition.log.append(batch(b"x", timestamp_ms=350, **transactional), leader_epoch=0)
    harness.node.settle()
    harness.write("t", b"x", timestamp_ms=400)
    return harness


@pytest.mark.parametrize("timestamp", BY_ISOLATION)
def test_by_isolation_level(timestamp: int) -> None:
    answers = [ask(with_open_transaction(), timestamp, isolation_level=level) for level in (0, 1)]
    assert tuple((answer.offset, answer.timestamp) for answer in answers) == BY_ISOLATION[timestamp]


@pytest.mark.parametrize("timestamp", TRIMMED)
def test_what_was_deleted_is_not_found(timestamp: int) -> None:
    harness = with_open_transaction()
    partition = harness.broker.partitions.find("t", 0)
    assert partition is not None
    partition.log.delete_before(1)
    answers = [ask(harness, timestamp, isolation_level=level) for level in (0, 1)]
    assert tuple((answer.offset, answer.timestamp) for answer in answers) == TRIMMED[timestamp]
