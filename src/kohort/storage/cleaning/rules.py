"""
The rules of compaction, without files: what stays of the batches of a log.

A pass has two phases. First the dirty part is shown, and the newest offset of each key is noted (`add`, `end_segment`). Then
the log is shown from its beginning, and every batch is kept, rebuilt with fewer records, emptied or dropped (`retain`). The
cleaners on disk and in memory read and write the batches; both keep exactly what this class returns.

Source: Kafka Cleaner, MemoryRecords.filterTo; KIP-534 (delete horizon).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop
from typing import Final

from kohort.storage.cleaning.batches import empty, rebuild
from kohort.storage.cleaning.job import PassTerms
from kohort.storage.cleaning.offset_map import OffsetMap, make_offset_map
from kohort.storage.cleaning.simple_batches import SimpleBatch, read_simple
from kohort.storage.log import LONG_MAX, NO_TIMESTAMP
from kohort.storage.producer_states import AbortedTxn
from kohort.wire.batches import BatchHeader, LogRecord, read_header, read_marker, read_records

KEYS_AT_ONCE: Final = 16_384
"""How many keys are put into the map, or looked up in it, by one call."""
NO_KEY: Final = -2
"""Stands for the newest offset of a record without a key; -1 stands for a key that is not in the map."""
_UNPACKED_AT_ONCE: Final = 16 << 20
"""A few kB of a log may decompress to many times that: the bound on decompressed bytes held at a time, beside one batch."""
_RECORD_OBJECT_BYTES: Final = 100
_RECORD_BYTES_MIN: Final = 8
"""The size of the smallest record: a part of a log has as many of them at most."""


class _Decoded:
    """A batch that is not simple, its records, none if all of them go, and whether its transaction has no use for it."""

    def __init__(
        self, header: BatchHeader, batch: bytes, records: Sequence[LogRecord], *, can_discard: bool = False
    ) -> None:
        self.header: Final = header
        self.batch: Final = batch
        self.records: Final = records
        self.can_discard: Final = can_discard
        self.keys: Final = [record.key for record in records]

    @property
    def unpacked_bytes(self) -> int:
        """About how many bytes the decompressed records take; 0 for a batch whose own bytes are its records' bytes."""
        if not self.header.codec:
            return 0
        return sum(len(record.key or b"") + len(record.value or b"") + _RECORD_OBJECT_BYTES for record in self.records)


class Compaction:
    """
    One pass over one log.

    Args:
        aborted: the aborted transactions that begin in the part that the pass reads, in the order of their markers.
        offset_map: by default one that the terms allow.
        keys_at_once: how many keys one call of `add` or `retain` handles in one piece.

    Attributes:
        latest_offset: the last offset of the dirty part whose key is in the map.
        invalid_records: how many records had no key.
    """

    def __init__(
        self,
        terms: PassTerms,
        aborted: Sequence[AbortedTxn],
        *,
        offset_map: OffsetMap | None = None,
        keys_at_once: int = KEYS_AT_ONCE,
    ) -> None:
        self.latest_offset = terms.first_dirty_offset - 1
        self.invalid_records = 0
        self._first_dirty_offset = terms.first_dirty_offset
        self._high_watermark = terms.high_watermark
        self._last_records = terms.last_records
        self._delete_retention_ms = terms.delete_retention_ms
        self._now_ms = terms.now_ms
        self._map = offset_map or make_offset_map(
            buffer_bytes=terms.buffer_bytes,
            load_factor=terms.load_factor,
            records_max=terms.dirty_bytes // _RECORD_BYTES_MIN,
        )
        self._keys_at_once = keys_at_once
        self._dirty_transactions = CleanedTransactions(
            [entry for entry in aborted if entry.last_offset >= terms.first_dirty_offset]
        )
        self._transactions = CleanedTransactions(aborted)
        self._keys: list[bytes] = []
        self._offsets: list[int] = []
        self._keys_bytes = 0

    @property
    def map_utilization(self) -> float:
        """How full the offset map is."""
        return self._map.count / self._map.keys_max

    # First phase: the newest offset of each key

    def add(self, batches: Iterable[bytes]) -> bool:
        """
        Note the keys of whole batches of the dirty part, which come in the order of the log.

        Returns:
            False when the map is full: the pass ends before the first record that found no room.

        Source: Cleaner.buildOffsetMapForSegment.
        """
        for batch in batches:
            simple = read_simple(batch)
            if simple is not None and simple.offsets[0] >= self._first_dirty_offset:
                self._keys += simple.keys
                self._offsets += simple.offsets
                self._keys_bytes += len(batch)
            else:
                self._collect(read_header(batch), batch)
            is_much = len(self._keys) >= self._keys_at_once or self._keys_bytes >= _UNPACKED_AT_ONCE
            if is_much and not self._put():
                return False
        return True

    def end_segment(self, next_base_offset: int) -> bool:
        """Note that a segment was shown whole. Returns: as `add`."""
        if not self._put():
            return False
        self.latest_offset = next_base_offset - 1
        return True

    def _collect(self, header: BatchHeader, batch: bytes) -> None:
        if header.last_offset < self._first_dirty_offset:
            return
        before = len(self._keys)
        if header.is_control:
            self._dirty_transactions.on_control(header, read_records(batch, header=header))
        elif not self._dirty_transactions.on_data(header) and header.record_count:
            records = read_records(batch, header=header)
            found = [record.key for record in records], [record.offset for record in records]
            first = self._first_dirty_offset
            if header.base_offset < first or None in found[0]:
                found = _without(found, lambda key, offset: key is None or offset < first)
            self._keys += found[0]  # type: ignore[arg-type]  # no key is None here
            self._offsets += found[1]
        self._keys_bytes += sum(map(len, self._keys[before:]))

    def _put(self) -> bool:
        keys, offsets = self._keys, self._offsets
        for begin in range(0, len(keys), self._keys_at_once):
            part = keys[begin : begin + self._keys_at_once]
            taken = self._map.put(part, offsets[begin : begin + self._keys_at_once])
            if taken < len(part):
                self.latest_offset = offsets[begin + taken] - 1
                return False
        keys.clear()
        offsets.clear()
        self._keys_bytes = 0
        return True

    # Second phase: what stays

    def keep_aborted_in(self, keep: Callable[[AbortedTxn], None]) -> None:
        """Where the aborted transactions go whose markers stay, until this is called again."""
        self._transactions.keep_aborted = keep

    def retain(self, batches: Iterable[bytes]) -> Iterator[list[bytes]]:
        """
        What stays of whole batches, which come in the order of the log from its beginning.

        Yields:
            The retained batches, a bounded number of decompressed bytes at a time. A list may be empty. The offsets of a batch
            never change.

        Raises:
            CorruptError: a batch cannot be decoded.

        Source: Cleaner.cleanInto.
        """
        shown: list[SimpleBatch | _Decoded] = []
        unpacked_bytes = 0
        for batch in batches:
            simple = read_simple(batch)
            if simple is not None:
                shown.append(simple)
                continue
            decoded = self._decode(read_header(batch), batch)
            shown.append(decoded)
            unpacked_bytes += decoded.unpacked_bytes
            if unpacked_bytes >= _UNPACKED_AT_ONCE:
                yield self._filter_all(shown)
                shown, unpacked_bytes = [], 0
        yield self._filter_all(shown)

    def _decode(self, header: BatchHeader, batch: bytes) -> _Decoded:
        if header.is_control:
            records = read_records(batch, header=header)
            return _Decoded(header, batch, records, can_discard=self._transactions.on_control(header, records))
        if self._transactions.on_data(header):
            return _Decoded(header, batch, (), can_discard=True)
        return _Decoded(header, batch, read_records(batch, header=header) if header.record_count else ())

    def _filter_all(self, shown: list[SimpleBatch | _Decoded]) -> list[bytes]:
        # One lookup for a whole chunk: a call for each batch would cost more than its answer.
        newest = self._find([key for each in shown for key in each.keys])
        asked = 0
        retained: list[bytes] = []
        for each in shown:
            answers = newest[asked : asked + len(each.keys)]
            asked += len(answers)
            written = self._sift(each, answers) if isinstance(each, SimpleBatch) else self._filter(each, answers)
            if written:
                retained.append(written)
        return retained

    def _sift(self, simple: SimpleBatch, newest: list[int]) -> bytes:
        """As `_filter`, without the records, if all of them or none stay."""
        offsets = simple.offsets
        superseded = 0
        for place in range(len(offsets)):
            if offsets[place] < newest[place]:
                superseded += 1
        if not superseded:
            return simple.batch
        is_needed = simple.has_producer or simple.next_offset == self._high_watermark  # perhaps, without its records
        if superseded == len(offsets) and not is_needed:
            return b""
        header = read_header(simple.batch)
        return self._filter(_Decoded(header, simple.batch, read_records(simple.batch, header=header)), newest)

    def _find(self, keys: list[bytes | None]) -> list[int]:
        """The newest offset of each key, -1 for a key that is not in the map, `NO_KEY` for null."""
        found: list[int] = []
        asked: list[bytes] = [key for key in keys if key is not None]
        for begin in range(0, len(asked), self._keys_at_once):
            found += self._map.get(asked[begin : begin + self._keys_at_once])
        if len(asked) == len(keys):
            return found
        rest = iter(found)
        return [NO_KEY if key is None else next(rest) for key in keys]

    def _filter(self, decoded: _Decoded, newest: list[int]) -> bytes:
        """The batch, the batch with fewer records, or nothing. Source: MemoryRecords.filterTo."""
        header, records = decoded.header, decoded.records
        has_horizon = header.has_delete_horizon
        is_past_horizon = has_horizon and header.base_timestamp <= self._now_ms
        if header.is_control:
            kept: Sequence[LogRecord] = () if decoded.can_discard and is_past_horizon else records
            wants_horizon = decoded.can_discard
        else:
            kept = self._kept(records, newest, drops_tombstones=is_past_horizon)
            wants_horizon = any(record.value is None for record in kept)
        if not kept:
            is_needed = self._is_last_of_producer(header) or header.next_offset == self._high_watermark
            return empty(header) if is_needed else b""
        new_horizon_ms = self._now_ms + self._delete_retention_ms
        # A horizon beyond an int64 never comes: Kafka's sum turns negative there, which means none.
        if wants_horizon and not has_horizon and new_horizon_ms <= LONG_MAX:
            return rebuild(header, kept, delete_horizon_ms=new_horizon_ms)
        if len(kept) == len(records):
            return decoded.batch
        return rebuild(header, kept, delete_horizon_ms=header.base_timestamp if has_horizon else NO_TIMESTAMP)

    def _kept(self, records: Sequence[LogRecord], newest: list[int], *, drops_tombstones: bool) -> Sequence[LogRecord]:
        """Source: Cleaner.shouldRetainRecord."""
        latest = self.latest_offset
        if not drops_tombstones and records and records[-1].offset <= latest and NO_KEY not in newest:
            return [record for record, offset in zip(records, newest, strict=True) if record.offset >= offset]
        kept = []
        for record, newest_offset in zip(records, newest, strict=True):
            offset = record.offset
            if offset > latest:
                kept.append(record)
            elif newest_offset == NO_KEY:
                self.invalid_records += 1
            elif offset >= newest_offset and not (drops_tombstones and record.value is None):
                kept.append(record)
        return kept

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether the next batch of an active producer is checked against this one."""
        last = self._last_records.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.data_offset >= 0:
            return header.last_offset == last.data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch


class CleanedTransactions:
    """
    Transactions in the part of a log that a pass reads, whose batches are shown in order: aborted data, and markers without
    data before them.

    A marker is needed while a batch of its transaction is left, even an empty one: without it the transaction would count as
    open. So a marker may be removed only after a whole pass found no batch of its transaction.

    Args:
        aborted: the aborted transactions that reach into the part that is read.

    Attributes:
        keep_aborted: called with each transaction that has to stay in the transaction index, in the order of the markers.

    Source: Kafka CleanedTransactionMetadata; KAFKA-8351, KAFKA-13727.
    """

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self.keep_aborted: Callable[[AbortedTxn], None] = lambda _aborted: None
        self._coming = [(entry.first_offset, entry.last_offset, entry) for entry in aborted]
        heapify(self._coming)
        self._aborted: dict[int, AbortedTxn] = {}
        """Aborted transactions that have begun and not ended, by producer id."""
        self._observed: set[int] = set()
        """Producers of aborted transactions of which a batch was read."""
        self._committed: set[int] = set()
        """Producers of transactional data that was not aborted, and whose marker was not read yet."""

    def on_data(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to an aborted transaction."""
        self._begin(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._observed.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def on_control(self, header: BatchHeader, records: Iterable[LogRecord]) -> bool:
        """
        Whether the marker may be discarded.

        Raises:
            CorruptError: the control record is damaged.
        """
        self._begin(header.last_offset)
        record = next(iter(records), None)
        if record is None:  # an earlier pass removed the record
            return True
        marker = read_marker(record)
        if marker is None:
            return False
        producer_id = header.producer_id
        if marker.committed:
            was_read = producer_id in self._committed
            self._committed.discard(producer_id)
            return not was_read
        aborted = self._aborted.pop(producer_id, None)
        if producer_id not in self._observed or aborted is None:
            return True
        self._observed.discard(producer_id)
        self.keep_aborted(aborted)
        return False

    def _begin(self, offset: int) -> None:
        """Begin the aborted transactions whose first offset is not above this offset."""
        while self._coming and self._coming[0][0] <= offset:
            aborted = heappop(self._coming)[2]
            self._aborted.setdefault(aborted.producer_id, aborted)


def _without(
    found: tuple[list[bytes | None], list[int]], is_left_out: Callable[[bytes | None, int], bool]
) -> tuple[list[bytes | None], list[int]]:
    pairs = [(key, offset) for key, offset in zip(*found, strict=True) if not is_left_out(key, offset)]
    return [key for key, _ in pairs], [offset for _, offset in pairs]
