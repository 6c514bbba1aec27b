"""The group coordinator over a broker in virtual time: configurations that reach its runtime, and markers that are fenced."""

from functools import partial
from typing import Any

import pytest

from kohort.model.errors import ConfigError, ErrorCode
from kohort.model.ids import CONSUMER_OFFSETS, coordinator_partition
from kohort.records.offset_commits import encode_offset_commit
from kohort.records.values import OffsetCommit
from kohort.runtime.processors import InlineProcessor
from kohort.server.coordinators.coordinators import Coordinators
from kohort.server.coordinators.entries import GROUPS
from kohort.storage.log import Log
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import BatchRecord, build_batch, iter_batches
from kohort.wire.compression import Codec
from tests.broker.harness import Harness
from tests.server.clients import commit

PARTITIONS = 2


class Groups:
    """A broker with a topic `t` and a group coordinator."""

    def __init__(self, *, pending_offset: int | None = None, **settings: Any) -> None:
        self.harness = Harness(offsets_topic_num_partitions=str(PARTITIONS), **settings)
        self.harness.create("t")
        if pending_offset is not None:
            self.harness.create(CONSUMER_OFFSETS, PARTITIONS)
            self.log.append(transactional_commit(pending_offset), leader_epoch=0)
        node = self.harness.node
        self.coordinators = Coordinators(node.defer)
        processor = partial(InlineProcessor, node.wheel, node.defer, node.call_soon)
        self.coordinators.start([GROUPS], self.harness.broker, processor)
        self.coordinators.load()
        self.harness.coordinators[CONSUMER_OFFSETS] = self.coordinators.marker_writer(CONSUMER_OFFSETS)

    @property
    def log(self) -> Log:
        """The log of the partition of the group `g`."""
        partition = self.harness.broker.partitions.find(CONSUMER_OFFSETS, coordinator_partition("g", PARTITIONS))
        assert partition is not None
        return partition.log

    def start(self) -> "Groups":
        self.harness.ask(ApiKey.FIND_COORDINATOR, m.FindCoordinatorRequest(coordinator_keys=["g"]))
        self.harness.node.settle()
        return self

    def committed(self) -> int:
        asked = m.OffsetFetchRequestTopics(name="t", partition_indexes=[0])
        request = m.OffsetFetchRequest(groups=[m.OffsetFetchRequestGroup(group_id="g", topics=[asked])])
        (group,) = self.harness.ask(ApiKey.OFFSET_FETCH, request, version=9).groups
        return int(group.topics[0].partitions[0].committed_offset)

    def end(self, *, epoch: int, coordinator_epoch: int = 5, transaction_version: int = 0) -> int:
        topic = m.WriteTxnMarkersRequestWritableTxnMarkerTopic(
            name=CONSUMER_OFFSETS, partition_indexes=[coordinator_partition("g", PARTITIONS)]
        )
        marker = m.WriteTxnMarkersRequestWritableTxnMarker(
            producer_id=9,
            producer_epoch=epoch,
            transaction_result=True,
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
            topics=[topic],
        )
        response = self.harness.ask(ApiKey.WRITE_TXN_MARKERS, m.WriteTxnMarkersRequest(markers=[marker]))
        return int(response.markers[0].topics[0].partitions[0].error_code)


def transactional_commit(offset: int) -> bytes:
    """An offset of `g` in the open transaction of producer 9, epoch 2."""
    record = OffsetCommit(
        group_id="g",
        topic="t",
        partition=0,
        offset=offset,
        leader_epoch=-1,
        metadata="",
        commit_timestamp_ms=1_700_000_000_000,
    )
    return build_batch(
        [BatchRecord(*encode_offset_commit(record))],
        timestamp_ms=1_700_000_000_000,
        producer_id=9,
        producer_epoch=2,
        base_sequence=0,
        transactional=True,
    )


def test_a_batch_lingers_as_configured() -> None:
    groups = Groups(group_coordinator_append_linger_ms="20").start()
    answers = groups.harness.begin(ApiKey.OFFSET_COMMIT, commit(1), version=9)
    groups.harness.node.advance(19)
    assert (answers, groups.log.end_offset) == ([], 0)
    groups.harness.node.advance(1)
    assert len(answers) == 1


def test_by_default_a_batch_lingers_for_the_end_of_the_turn() -> None:
    groups = Groups().start()
    answers = groups.harness.begin(ApiKey.OFFSET_COMMIT, commit(1), version=9)
    groups.harness.node.settle()
    assert len(answers) == 1


@pytest.mark.parametrize("codec", Codec)
def test_batches_are_compressed_as_configured(codec: Codec) -> None:
    groups = Groups(offsets_topic_compression_codec=str(int(codec))).start()
    groups.harness.ask(ApiKey.OFFSET_COMMIT, commit(7), version=9)
    headers = [header for _, header in iter_batches(groups.log.read(0, bytes_max=1 << 20))]
    assert {header.codec for header in headers} == {codec}
    assert groups.committed() == 7


def test_a_codec_that_does_not_exist_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match=r"offsets.topic.compression.codec is 5; it must be one of 0 \(none\)"):
        Groups(offsets_topic_compression_codec="5")


def test_markers_of_earlier_epochs_leave_pending_offsets_pending() -> None:
    """Source: Kafka ProducerAppendInfo.appendEndTxnMarker, on `__consumer_offsets` as on any topic; KIP-890."""
    groups = Groups(pending_offset=3)
    groups.harness.node.settle()
    assert groups.committed() == -1
    assert groups.end(epoch=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert groups.end(epoch=2, transaction_version=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (groups.committed(), groups.log.end_offset) == (-1, 1)
    assert groups.end(epoch=2) == 0
    assert groups.committed() == 3
    assert groups.end(epoch=2, coordinator_epoch=4) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert groups.log.end_offset == 2
