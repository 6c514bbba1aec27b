"""The store of a node in memory compacts with the broker's configurations."""

import asyncio
from uuid import UUID

import pytest

from kohort.broker.configs.definitions import BrokerConfig
from kohort.model.ids import TopicPartition
from kohort.server.stores import memory_store
from kohort.server.turns import Turns
from kohort.storage.log import LogConfig
from kohort.storage.memory.log import SEGMENT_BYTES_MAX
from kohort.wire.batches import BatchRecord, build_batch
from tests.server.clients import SECONDS_MAX

BATCHES = 10


@pytest.mark.parametrize("is_enabled", [True, False])
def test_full_segments_are_compacted_at_once_if_the_cleaner_is_enabled(is_enabled: bool) -> None:
    """Each batch begins a segment."""

    async def run() -> None:
        turns = Turns(asyncio.get_running_loop(), None)
        store = memory_store(BrokerConfig({"log.cleaner.enable": str(is_enabled).lower()}), turns, {}, b"")
        log = store.open(TopicPartition("t", 0), UUID(int=1), LogConfig(cleanup_policy="compact"))
        for _ in range(BATCHES):
            record = BatchRecord(key=b"k", value=bytes(SEGMENT_BYTES_MAX))
            log.append(build_batch([record], timestamp_ms=1_000), leader_epoch=0)
            while log.high_watermark < log.end_offset:
                await asyncio.sleep(0)
        done = asyncio.Event()
        turns.call_soon(done.set)
        await done.wait()
        async with asyncio.timeout(SECONDS_MAX):
            while is_enabled and not store.cleaner_metrics().passes:
                await asyncio.sleep(0)
        assert is_enabled or not store.cleaner_metrics().passes

    asyncio.run(run())
