"""What a Fetch sends is copied once between the page cache's bytes and the frame that is given to the socket."""

import tracemalloc
from pathlib import Path
from uuid import UUID

import pytest

from kohort.model.ids import TopicPartition
from kohort.storage.log import LogConfig
from kohort.testing.virtual import VirtualNode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import response_encoder
from tests.broker.harness import batch, disk_store

BATCHES, BATCH_BYTES = 16, 100_000


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_there_is_never_more_than_what_was_read_and_the_frame(tmp_path: Path, version: int) -> None:
    node = VirtualNode()
    store = disk_store(tmp_path, node)
    log = store.open(TopicPartition("t", 0), UUID(int=1), LogConfig())
    for _ in range(BATCHES):
        log.append(batch(b"x" * BATCH_BYTES), leader_epoch=0)
    encode = response_encoder(ApiKey.FETCH, version)
    encode(1, answer(b"warm"))
    tracemalloc.start()
    try:
        records = log.read(0, bytes_max=1 << 30)
        read_bytes = tracemalloc.get_traced_memory()[1]
        frame = encode(1, answer(records))
        whole_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    size = len(records)
    assert size > BATCHES * BATCH_BYTES
    assert records in frame
    assert read_bytes < 1.1 * size, "the read itself is one buffer, filled by the kernel"
    assert whole_bytes < 2.1 * size, "the frame is the one copy"
    store.close()


def answer(records: bytes) -> m.FetchResponse:
    partition = m.FetchResponsePartitionData(
        partition_index=0, high_watermark=1, aborted_transactions=None, records=records
    )
    topic = m.FetchableTopicResponse(topic="t", topic_id=UUID(int=1), partitions=[partition])
    return m.FetchResponse(responses=[topic])
