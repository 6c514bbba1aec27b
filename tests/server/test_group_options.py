"""Options of the broker that reach the runtime of the group coordinator."""

from typing import Any
from uuid import UUID

import pytest

from kohort.model.errors import ConfigError
from kohort.model.ids import CONSUMER_OFFSETS
from kohort.runtime.processors import InlineProcessor
from kohort.server.coordinators import CoordinatorEnvironment
from kohort.server.group_coordinator import GroupCoordinator
from kohort.testing import FaultyLog, FixedContext
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import read_header
from kohort.wire.compression import Codec
from tests.broker.harness import Harness


class Bench:
    """One partition of group state, over a log whose appends are seen."""

    def __init__(self, **settings: Any) -> None:
        self.harness = Harness(offsets_topic_num_partitions="1", **settings)
        self.harness.create("t")
        node = self.node = self.harness.node
        self.coordinator = GroupCoordinator(
            CoordinatorEnvironment(
                self.harness.broker, node.clock, lambda: InlineProcessor(node.wheel, node.defer, node.call_soon)
            )
        )
        self.log = FaultyLog(CONSUMER_OFFSETS)
        self.coordinator.load(0, self.log, 0)
        node.settle()

    def commit(self) -> None:
        partition = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="m" * 99)
        topic = m.OffsetCommitRequestTopic(name="t", topic_id=UUID(int=0), partitions=[partition])
        request = m.OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=[topic])
        self.coordinator.handlers()[ApiKey.OFFSET_COMMIT](request, FixedContext(9), lambda _: None)
        self.node.settle()


def test_a_batch_is_appended_at_the_end_of_the_turn_by_default() -> None:
    bench = Bench()
    bench.commit()
    assert bench.log.appends == 1
    assert read_header(bench.log.batches[0]).codec == Codec.NONE


def test_a_linger_keeps_the_batch_open() -> None:
    """group.coordinator.append.linger.ms"""
    bench = Bench(group_coordinator_append_linger_ms="20")
    bench.commit()
    bench.commit()
    bench.node.advance(19)
    assert bench.log.appends == 0
    bench.node.advance(1)
    assert bench.log.appends == 1
    assert read_header(bench.log.batches[0]).record_count == 2


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_the_offsets_topic_may_be_compressed(codec: Codec) -> None:
    """offsets.topic.compression.codec"""
    bench = Bench(offsets_topic_compression_codec=str(int(codec)))
    bench.commit()
    assert read_header(bench.log.batches[0]).codec == codec


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"offsets\.topic.compression\.codec is 9"):
        Bench(offsets_topic_compression_codec="9")
