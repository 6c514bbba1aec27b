"""
Reads of share partitions for a ShareFetch: from memory or the page cache at once, or from the disk on another thread.

Source: Kafka DelayedShareFetch.readFromLog.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from kohort.broker.records.log_reads import LogRead
from kohort.broker.shares.led_share_partition import LedSharePartition
from kohort.broker.shares.log_batches import reaches
from kohort.broker.shares.share_sessions import TopicIdPartition
from kohort.storage.log import Log, ReadView
from kohort.storage.producer_states import AbortedTxn

FEW_BYTES: Final = 64 << 10
NOTHING: Final = b""

ReadData = tuple[bytes, Sequence[AbortedTxn]]


class ShareRead(NamedTuple):
    """A share partition that is read for a request: from where on, and how much."""

    where: TopicIdPartition
    led: LedSharePartition
    offset: int
    bytes_max: int
    few_bytes: int
    """Read first: mostly enough, where many short records are asked for."""
    last: int
    """No record behind this offset and the end of its batch can be acquired."""
    is_committed: bool
    """Whether records of open and of aborted transactions are left out."""

    @property
    def up_to(self) -> int:
        """The offset behind the records that the group may have."""
        log = self.led.partition.log
        return log.last_stable_offset if self.is_committed else log.high_watermark

    def _is_enough(self, records: bytes) -> bool:
        """Whether a longer read than the first one finds no more records that can be acquired."""
        return not records or self.few_bytes == self.bytes_max or reaches(records, self.last)

    def cached(self) -> ReadData | None:
        """
        Records in memory or in the page cache; None if the disk is needed.

        Raises:
            StorageError: the log refuses.
        """
        partition = self.led.partition
        partition.check()
        log, up_to = partition.log, self.up_to
        if not log.log_start_offset <= self.offset < up_to:
            return NOTHING, ()
        records = log.read_cached(self.offset, bytes_max=self.few_bytes, up_to=up_to)
        if records is not None and not self._is_enough(records):
            records = log.read_cached(self.offset, bytes_max=self.bytes_max, up_to=up_to)
        if records is None:
            return None
        if not self.is_committed or not records:
            return records, ()
        transactions = log.aborted_cached(self.offset, records)
        return None if transactions is None else (records, transactions)

    def log_read(self) -> LogRead[ReadData]:
        """The read of the disk."""
        return LogRead(self.led.partition.log, partial(self._read, self.up_to))

    def _read(self, up_to: int, view: ReadView | Log) -> ReadData:
        records = view.read(self.offset, bytes_max=self.few_bytes, up_to=up_to)
        if not self._is_enough(records):
            records = view.read(self.offset, bytes_max=self.bytes_max, up_to=up_to)
        return records, view.aborted_transactions(self.offset, records) if self.is_committed else ()


def may_have(led: LedSharePartition) -> bool:
    """Whether a fetch may find records of a share partition, or has to follow the start of the log."""
    if not led.is_ready or led.records is None:
        return False
    log = led.partition.log
    settings = led.settings.of_records
    offset = led.records.next_offset()
    up_to = log.last_stable_offset if settings.is_committed else log.high_watermark
    return (offset < up_to or offset < log.log_start_offset) and led.records.may_fetch(settings.locks_max)
