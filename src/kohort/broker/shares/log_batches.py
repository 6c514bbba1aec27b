"""The batches among bytes that were read from a log, as share partitions need them: their offsets, and who wrote them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from struct import Struct
from typing import Final

from kohort.broker.shares.acquisition import LogBatches
from kohort.storage.producer_states import AbortedTxn
from kohort.wire.batch_header import (
    ATTRIBUTES_LOW_AT,
    CONTROL,
    HEADER_BYTES,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    LOG_OVERHEAD_BYTES,
    PRODUCER_ID_AT,
    TRANSACTIONAL,
)

_OFFSET: Final = Struct(">q")
_NUMBER: Final = Struct(">i")


class ReadBatches:
    """
    Batches in the order of the log.

    Args:
        offset, records_max: batches behind so many offsets from this one on are left out. Default: none are.

    Attributes:
        offsets: of each batch.
    """

    __slots__ = ("_data", "_ends", "offsets")

    def __init__(self, data: bytes, offset: int = 0, records_max: int = 0) -> None:
        self._data = data
        firsts: list[int] = []
        lasts: list[int] = []
        self._ends: list[int] = []
        position = 0
        while position + HEADER_BYTES <= len(data):
            (first,) = _OFFSET.unpack_from(data, position)
            (delta,) = _NUMBER.unpack_from(data, position + LAST_OFFSET_DELTA_AT)
            (length,) = _NUMBER.unpack_from(data, position + LENGTH_AT)
            position += LOG_OVERHEAD_BYTES + length
            if position > len(data):
                break
            firsts.append(first)
            lasts.append(first + delta)
            self._ends.append(position)
            if records_max and first + delta >= max(firsts[0], offset) + records_max - 1:
                break
        self.offsets = LogBatches(firsts, lasts)

    def between(self, first: int, last: int) -> bytes:
        """The batches from the one with the first offset to the one with the last one, whole."""
        firsts, lasts = self.offsets.firsts, self.offsets.lasts
        low = bisect_left(lasts, first)
        high = bisect_right(firsts, last)
        if low >= high:
            return b""
        start = self._ends[low - 1] if low else 0
        if not low and high == len(self._ends) and self._ends[-1] == len(self._data):
            return self._data
        return self._data[start : self._ends[high - 1]]

    def aborted(self, transactions: Sequence[AbortedTxn]) -> list[tuple[int, int]]:
        """
        First and last offsets of the batches of aborted transactions, without their markers.

        Source: SharePartition.fetchAbortedTransactionRecordBatches.
        """
        waiting = sorted(transactions, key=_first_offset, reverse=True)
        aborted: set[int] = set()
        found = []
        start = 0
        for first, last, end in zip(self.offsets.firsts, self.offsets.lasts, self._ends, strict=True):
            while waiting and waiting[-1].first_offset <= last:
                aborted.add(waiting.pop().producer_id)
            attributes = self._data[start + ATTRIBUTES_LOW_AT]
            if attributes & TRANSACTIONAL:
                (producer_id,) = _OFFSET.unpack_from(self._data, start + PRODUCER_ID_AT)
                if attributes & CONTROL:
                    aborted.discard(producer_id)
                elif producer_id in aborted:
                    found.append((first, last))
            start = end
        return found


def _first_offset(transaction: AbortedTxn) -> int:
    return transaction.first_offset


def reaches(data: bytes, offset: int) -> bool:
    """Whether whole batches among the bytes have an offset, or one behind it."""
    lasts = ReadBatches(data).offsets.lasts
    return bool(lasts) and lasts[-1] >= offset
