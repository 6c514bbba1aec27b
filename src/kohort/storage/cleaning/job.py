"""
What a pass of the cleaner is told and what it tells: plain values, which cross to a process of its own as JSON.

Source: Kafka LogToClean, CleanerStats.
"""

import msgspec

from kohort.storage.log import LogConfig
from kohort.storage.producers import AbortedTxn, ProducerStateManager


class SourceSegment(msgspec.Struct, frozen=True):
    """
    A segment that is read. `next_base_offset` is that of the segment behind it.

    Attributes:
        modified_ns: when it was written last, which the segment that takes its place inherits.
    """

    base_offset: int
    size_bytes: int
    index_bytes: int
    time_index_bytes: int
    next_base_offset: int
    modified_ns: int


class LastRecord(msgspec.Struct, frozen=True):
    """The last of an active producer: the last offset of its last data batch, -1 when only a marker is known; its epoch."""

    data_offset: int
    producer_epoch: int


def last_records(producers: ProducerStateManager) -> dict[int, LastRecord]:
    """The last record of each producer that a partition knows, by producer id."""
    return {
        state.producer_id: LastRecord(state.batches[-1].last_offset if state.batches else -1, state.producer_epoch)
        for state in producers.states.values()
    }


class CleanerJob(msgspec.Struct, frozen=True):
    """
    What a pass has to know.

    Attributes:
        sources: all segments below `first_uncleanable_offset`, which is where the last of them ends.
        aborted: the aborted transactions of the log that begin below there, in the order of their markers.
        last_records: by producer id.
        buffer_bytes: for the map of offsets.
        bytes_per_second: how quickly may be read and written together; 0 for no limit.
    """

    directory: str
    sources: list[SourceSegment]
    first_dirty_offset: int
    first_uncleanable_offset: int
    aborted: list[AbortedTxn]
    last_records: dict[int, LastRecord]
    config: LogConfig
    now_ms: int
    buffer_bytes: int
    load_factor: float
    io_bytes: int
    bytes_per_second: float = 0.0


class SegmentGroup(msgspec.Struct, frozen=True, tag=True):
    """A segment that is complete under its `.swap` names, and the base offsets of those that it replaces."""

    base_offset: int
    replaces: list[int]
    size_bytes: int
    max_timestamp: tuple[int, int]


class PassResult(msgspec.Struct, frozen=True, tag=True):
    """The pass has ended. Below `end_offset` the log is clean."""

    end_offset: int
    map_utilization: float
    bytes_read: int
    bytes_written: int
    invalid_records: int
    elapsed_s: float
