"""
Input and results of a cleaner pass: plain values, which are passed to the cleaner process as JSON.

Source: Kafka LogToClean, CleanerStats.
"""

import msgspec

from kohort.storage.log import LogConfig
from kohort.storage.producer_states import AbortedTxn
from kohort.storage.producers import ProducerStateManager


class SourceSegment(msgspec.Struct, frozen=True):
    """
    A segment to read. `next_base_offset` is the base offset of the following segment.

    Attributes:
        modified_ns: the modification time, which the cleaned segment inherits.
    """

    base_offset: int
    size_bytes: int
    index_bytes: int
    time_index_bytes: int
    next_base_offset: int
    modified_ns: int


class LastRecord(msgspec.Struct, frozen=True):
    """The last offset of an active producer's last data batch, -1 if only a marker is known, and the producer's epoch."""

    data_offset: int
    producer_epoch: int


def last_records(producers: ProducerStateManager) -> dict[int, LastRecord]:
    """The last record of each producer that a partition knows, by producer id."""
    return {
        state.producer_id: LastRecord(state.batches[-1].last_offset if state.batches else -1, state.producer_epoch)
        for state in producers.states.values()
    }


class PassTerms(msgspec.Struct, frozen=True):
    """
    What the rules of a pass go by, beside the batches.

    Attributes:
        first_dirty_offset: where the last pass ended.
        dirty_bytes: the size of what is to be cleaned from there on, at least.
        high_watermark: of the log. An emptied batch that ends there stays, so that the log keeps its end.
        last_records: the last record of each active producer, by producer id.
        buffer_bytes: the size of the offset map; a pass takes as many keys as fit.
        load_factor: how full the map may get.
    """

    first_dirty_offset: int
    dirty_bytes: int
    high_watermark: int
    last_records: dict[int, LastRecord]
    delete_retention_ms: int
    now_ms: int
    buffer_bytes: int
    load_factor: float


class CleanerJob(msgspec.Struct, frozen=True):
    """
    The input of a pass.

    Attributes:
        sources: all segments that may be cleaned.
        aborted: the aborted transactions of the log that begin below the end of the sources, in the order of their markers.
        bytes_per_second: the limit of bytes read and written; 0 for none.
    """

    directory: str
    sources: list[SourceSegment]
    terms: PassTerms
    aborted: list[AbortedTxn]
    config: LogConfig
    io_bytes: int
    bytes_per_second: float = 0.0


class SegmentGroup(msgspec.Struct, frozen=True, tag=True):
    """A complete cleaned segment with its `.swap` names, and the base offsets of the segments that it replaces."""

    base_offset: int
    replaces: list[int]
    size_bytes: int
    max_timestamp: tuple[int, int]
    rolling_timestamp_ms: int


class PassResult(msgspec.Struct, frozen=True, tag=True):
    """The result of a pass. Below `end_offset` the log is clean."""

    end_offset: int
    map_utilization: float
    bytes_read: int
    bytes_written: int
    invalid_records: int
    elapsed_s: float
