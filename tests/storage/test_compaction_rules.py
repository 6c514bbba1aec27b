"""The rules of compaction on single batches: horizons, markers, the last batch of a producer, the end of the cleanable part."""

from typing import Any

import pytest

from kohort.storage.cleaning.job import LastRecord, PassTerms
from kohort.storage.cleaning.rules import Compaction
from kohort.wire.batches import BatchRecord, build_batch, read_header, read_records, stamp
from tests.wire.control_batches import control_batch

NOW_MS = 1_000_000
RETENTION_MS = 1000


class Log:
    """Batches that are cleaned again and again."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end = 0
        self.last_records: dict[int, LastRecord] = {}
        self.aborted: list[Any] = []

    def put(self, *pairs: tuple[str, str | None], **header: Any) -> None:
        records = [BatchRecord(key.encode(), None if value is None else value.encode()) for key, value in pairs]
        self._add(build_batch(records, timestamp_ms=1, **header))

    def put_marker(self, producer_id: int) -> None:
        """A commit."""
        self._add(
            control_batch(
                producer_id=producer_id, producer_epoch=0, committed=True, coordinator_epoch=0, timestamp_ms=1
            )
        )

    def _add(self, data: bytes) -> None:
        batch = bytearray(data)
        stamp(batch, base_offset=self.end, leader_epoch=0)
        self.batches.append(bytes(batch))
        self.end = read_header(batch).next_offset

    def clean(self, now_ms: int = NOW_MS, *, dirty_to: int | None = None, high_watermark: int = 1 << 40) -> None:
        terms = PassTerms(
            first_dirty_offset=0,
            dirty_bytes=1000,
            high_watermark=high_watermark,
            last_records=self.last_records,
            delete_retention_ms=RETENTION_MS,
            now_ms=now_ms,
            buffer_bytes=1 << 20,
            load_factor=0.9,
        )
        rules = Compaction(terms, self.aborted)
        end = self.end if dirty_to is None else dirty_to
        assert rules.add(batch for batch in self.batches if read_header(batch).base_offset < end)
        assert rules.end_segment(end)
        self.batches = [batch for retained in rules.retain(self.batches) for batch in retained]

    def values(self) -> list[tuple[int, str | None]]:
        return [
            (record.offset, None if record.value is None else bytes(record.value).decode())
            for batch in self.batches
            if not read_header(batch).is_control
            for record in read_records(batch)
        ]


def test_a_tombstone_goes_once_its_horizon_is_reached_and_not_before() -> None:
    log = Log()
    log.put(("k", "old"), ("other", "stays"), ("k", None))
    log.clean()
    assert log.values() == [(1, "stays"), (2, None)]
    assert read_header(log.batches[0]).has_delete_horizon
    log.clean(NOW_MS + RETENTION_MS - 1)
    assert log.values() == [(1, "stays"), (2, None)]
    log.clean(NOW_MS + RETENTION_MS)
    assert log.values() == [(1, "stays")], "also at the last offset of the dirty part"


def test_records_behind_the_dirty_part_stay_as_they_are() -> None:
    log = Log()
    log.put(("k", "1"))
    log.put(("k", "2"), ("k", None))
    log.put(("k", "3"), ("k", "4"))
    log.clean(dirty_to=3)
    assert log.values() == [(2, None), (3, "3"), (4, "4")]


def test_a_marker_stays_while_data_of_its_transaction_does() -> None:
    log = Log()
    log.put(("k", "1"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    log.put_marker(5)
    for now_ms in (NOW_MS, NOW_MS + RETENTION_MS, NOW_MS + 3 * RETENTION_MS):
        log.clean(now_ms)
        marker = read_header(log.batches[1])
        assert marker.record_count == 1
        assert not marker.has_delete_horizon


def test_a_marker_goes_a_horizon_after_the_data_of_its_transaction() -> None:
    log = Log()
    log.put(("k", "1"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    log.put_marker(5)
    log.put(("k", "2"))
    log.clean()
    assert len(log.batches) == 2, "this pass has seen data of the transaction"
    log.clean()
    assert read_header(log.batches[0]).has_delete_horizon
    log.clean(NOW_MS + RETENTION_MS - 1)
    assert len(log.batches) == 2
    log.clean(NOW_MS + RETENTION_MS)
    assert log.values() == [(2, "2")]
    assert len(log.batches) == 1


def test_the_last_batch_of_a_producer_stays_without_its_records() -> None:
    log = Log()
    log.put(("k", "1"), producer_id=5, producer_epoch=0, base_sequence=0)
    log.put(("k", "2"), producer_id=6, producer_epoch=0, base_sequence=0)
    log.put(("k", "3"))
    log.last_records = {5: LastRecord(0, 0), 6: LastRecord(-1, 0)}
    log.clean()
    (emptied, kept) = [read_header(batch) for batch in log.batches]
    assert (emptied.producer_id, emptied.last_offset, emptied.record_count, emptied.base_sequence) == (5, 0, 0, 0)
    assert kept.base_offset == 2


def test_the_marker_of_a_producer_without_data_stays_without_its_record() -> None:
    log = Log()
    log.put_marker(5)
    log.put_marker(6)
    log.last_records = {5: LastRecord(-1, 0), 6: LastRecord(-1, 1)}
    log.clean()
    log.clean(NOW_MS + RETENTION_MS)
    (header,) = [read_header(batch) for batch in log.batches]
    assert (header.producer_id, header.is_control, header.record_count) == (5, True, 0)


@pytest.mark.parametrize(("high_watermark", "is_kept"), [(3, True), (4, False), (2, False)])
def test_the_last_batch_below_the_high_watermark_stays_without_its_records(high_watermark: int, is_kept: bool) -> None:
    """Others go, also where a pass ends. Source: a 4.4.0."""
    log = Log()
    log.put(("k", "1"))
    log.put(("k", "2"), ("k", None))
    log.clean()
    log.clean(NOW_MS + RETENTION_MS, high_watermark=high_watermark)
    headers = [read_header(batch) for batch in log.batches]
    assert [(each.base_offset, each.last_offset, each.record_count) for each in headers] == [(1, 2, 0)] * is_kept


def test_a_superseded_batch_at_the_high_watermark_stays_without_its_records() -> None:
    log = Log()
    log.put(("k", "1"))
    log.put(("k", "2"))
    log.clean(high_watermark=1)
    assert [read_header(batch).record_count for batch in log.batches] == [0, 1]
