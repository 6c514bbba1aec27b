"""The load of a shard: its log up to the high watermark, and from there to the end, with a snapshot at each."""

import logging
from collections.abc import Iterator
from functools import partial
from typing import Any

from kohort.machine.shard import RecordSerde, Shard
from kohort.runtime.append.position import Position
from kohort.runtime.loading.loader import load
from kohort.runtime.loading.windows import LoadSummary
from kohort.runtime.metrics import ShardMetrics
from kohort.runtime.ports import Clock, PartitionLog

_log = logging.getLogger("kohort.runtime")


def load_shard(
    log: PartitionLog,
    shard: Shard[Any],
    position: Position,
    *,
    serde: RecordSerde[Any],
    clock: Clock,
    buffer_bytes: int,
    leader_epoch: int,
    metrics: ShardMetrics,
) -> Iterator[None]:
    """
    Replay a log into a new shard, one step per `next`, and set its position.

    Raises:
        CorruptError: see `kohort.runtime.loading.loader.load`.
        StorageError: the log cannot be read.
    """
    summary = LoadSummary()
    started_ms = clock.now_ms()
    committed, end = log.high_watermark, log.end_offset
    replay = partial(load, log, shard, serde, summary, now_ms=clock.now_ms, buffer_bytes=buffer_bytes)
    yield from replay(start=log.log_start_offset, end=committed)
    if committed < end:
        position.registry.create(committed)
        yield from replay(start=committed, end=end)
    position.last_written_offset, position.last_committed_offset = end, committed
    ended_ms = clock.now_ms()
    metrics.loaded(started_ms=started_ms, ended_ms=ended_ms, records_set_aside=summary.set_aside_count)
    _log.log(
        logging.INFO if summary.records else logging.DEBUG,
        "shard.loaded partition=%s leader_epoch=%d records=%d replayed=%d set_aside=%d bytes=%d elapsed_ms=%d",
        log.topic_partition,
        leader_epoch,
        summary.records,
        summary.replayed,
        summary.set_aside_count,
        summary.bytes,
        ended_ms - started_ms,
    )
