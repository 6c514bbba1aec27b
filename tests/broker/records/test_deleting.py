"""What leaves a log before its topic does: deleted records, and what retention does not keep."""

from pathlib import Path
from typing import Any

import pytest

from kohort.broker.ports import FLUSH_MS_MIN
from kohort.model.errors import ErrorCode
from kohort.model.ids import CONSUMER_OFFSETS
from kohort.storage.disk import DiskStore
from kohort.testing.virtual import VirtualNode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import Harness, batch
from tests.storage.owner import Owner

HOUR_MS = 3_600_000


def request(offset: int, topic: str = "t", partition: int = 0, timeout_ms: int = 1000) -> m.DeleteRecordsRequest:
    asked = m.DeleteRecordsPartition(partition_index=partition, offset=offset)
    return m.DeleteRecordsRequest(topics=[m.DeleteRecordsTopic(name=topic, partitions=[asked])], timeout_ms=timeout_ms)


def delete(harness: Harness, *args: Any) -> tuple[int, int]:
    """Code and low watermark."""
    ((found,),) = [topic.partitions for topic in harness.ask(ApiKey.DELETE_RECORDS, request(*args)).topics]
    return found.error_code, found.low_watermark


def earliest(harness: Harness, topic: str = "t") -> int:
    asked = m.ListOffsetsTopic(
        name=topic, partitions=[m.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-2)]
    )
    answer = harness.ask(ApiKey.LIST_OFFSETS, m.ListOffsetsRequest(replica_id=-1, topics=[asked], timeout_ms=1000))
    return int(answer.topics[0].partitions[0].offset)


def filled(**configs: Any) -> Harness:
    harness = Harness()
    harness.create("t", **configs)
    for _ in range(3):
        harness.write("t", b"x", b"y")
    return harness


# fmt: off
OFFSETS = {  # of a log from 0 to 6: code and low watermark
    0:  (0, 0),
    1:  (0, 1),   # within a batch
    2:  (0, 2),
    6:  (0, 6),
    -1: (0, 6),   # all that is there
    7:  (ErrorCode.OFFSET_OUT_OF_RANGE, -1),
    -2: (ErrorCode.OFFSET_OUT_OF_RANGE, -1),
}
# fmt: on


@pytest.mark.parametrize("offset", OFFSETS)
def test_offsets(offset: int) -> None:
    harness = filled()
    assert delete(harness, offset) == OFFSETS[offset]
    assert earliest(harness) == max(OFFSETS[offset][1], 0)


def test_the_log_start_does_not_go_back() -> None:
    harness = filled()
    assert delete(harness, 4) == (0, 4)
    assert delete(harness, 2) == (0, 4), "a success"
    assert earliest(harness) == 4


REFUSED = {
    "no such topic": (("none",), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "no such partition": (("t", 5), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "an internal topic": ((CONSUMER_OFFSETS,), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "a topic that is only compacted": (("compacted",), ErrorCode.POLICY_VIOLATION),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what: str) -> None:
    harness = filled()
    harness.create("compacted", cleanup_policy="compact")
    where, code = REFUSED[what]
    assert delete(harness, 0, *where) == (code, -1)


@pytest.fixture
def owner() -> Owner:
    return Owner()


def on_disk(owner: Owner, directory: Path) -> tuple[Harness, DiskStore]:
    store = owner.disk(directory)
    return Harness(store=store, node=owner.node), store


def test_deleted_records_stay_deleted(owner: Owner, tmp_path: Path) -> None:
    """The answer comes when the journal has it: a crash right after it changes nothing."""
    harness, store = on_disk(owner, tmp_path)
    creation = harness.begin(
        ApiKey.CREATE_TOPICS,
        m.CreateTopicsRequest(
            topics=[m.CreateTopicsRequestCreatableTopic(name="t", num_partitions=1, replication_factor=1)],
            timeout_ms=1000,
        ),
    )
    owner.wait_for(lambda: bool(creation))
    partition = harness.broker.partitions.find("t", 0)
    assert partition is not None
    for _ in range(3):
        partition.append(batch(b"x", b"y"))
    owner.wait_for(lambda: partition.log.high_watermark == 6)
    answers = harness.begin(ApiKey.DELETE_RECORDS, request(3))
    assert answers == []
    owner.wait_for(lambda: bool(answers))
    assert answers[0].topics[0].partitions[0].low_watermark == 3
    store._lock.release()
    again = Owner()
    harness, store = on_disk(again, tmp_path)
    assert earliest(harness) == 3
    store.close()
    harness, store = on_disk(Owner(), tmp_path)
    assert earliest(harness) == 3
    store.close()


def test_an_answer_does_not_wait_for_ever() -> None:
    harness = filled()
    harness.hold()
    answers = harness.begin(ApiKey.DELETE_RECORDS, request(3, timeout_ms=50))
    harness.node.advance(FLUSH_MS_MIN - 1)
    assert not answers
    harness.node.advance(1)
    ((found,),) = [topic.partitions for topic in answers[0].topics]
    assert (found.error_code, found.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    harness.let_go()
    assert len(answers) == 1


@pytest.mark.parametrize("delay_ms", [30_000, 7_000, 0])
def test_retention_by_time(delay_ms: int) -> None:
    """First after `log.initial.task.delay.ms`, then at each interval. Each record has a segment of its own."""
    node = VirtualNode()
    harness = Harness(node=node, log_retention_check_interval_ms="300000", log_initial_task_delay_ms=str(delay_ms))
    harness.create("t", retention_ms=str(HOUR_MS), segment_ms="1")
    harness.create("kept", cleanup_policy="compact", retention_ms="1")
    harness.write("kept", b"x")
    for age_ms in (2 * HOUR_MS, HOUR_MS + 2, HOUR_MS - delay_ms, 0):
        harness.write("t", b"x", timestamp_ms=node.clock.now_ms() - age_ms)
    node.advance(delay_ms)
    assert earliest(harness) == 2, "that just as old as is kept stays"
    node.advance(300_000)
    assert earliest(harness) == 3
    node.advance(2 * HOUR_MS)
    assert earliest(harness) == 4
    assert earliest(harness, "kept") == 0


def test_producers_are_forgotten() -> None:
    harness = Harness(producer_id_expiration_ms="100000", log_retention_check_interval_ms="60000")
    harness.create("t")
    harness.produce(
        "t",
        {0: batch(b"x", timestamp_ms=harness.node.clock.now_ms(), producer_id=5, producer_epoch=0, base_sequence=0)},
    )
    partition = harness.broker.partitions.find("t", 0)
    assert partition is not None
    harness.node.advance(90_000)
    assert 5 in partition.log.producers.states
    harness.node.advance(60_000)
    assert 5 not in partition.log.producers.states
