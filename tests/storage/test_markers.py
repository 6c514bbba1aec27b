"""The fast path of transaction markers gives what the general code for control batches gives."""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from kohort.machine.shard import EndTransaction
from kohort.model.errors import CorruptError
from kohort.storage.markers import StoredMarker, any_stored_marker, marker_batch, stored_marker
from kohort.wire.batch_header import HEADER_BYTES
from kohort.wire.batches import BatchRecord, build_batch, stamp
from tests.wire.control_batches import control_batch

INT64 = st.integers(-1, (1 << 63) - 1)
ENDS = st.builds(EndTransaction, INT64, st.integers(-1, 32767), st.integers(-1, (1 << 31) - 1), st.booleans())


def plain(end: EndTransaction, timestamp_ms: int) -> bytes:
    return control_batch(
        producer_id=end.producer_id,
        producer_epoch=end.producer_epoch,
        committed=end.committed,
        coordinator_epoch=end.coordinator_epoch,
        timestamp_ms=timestamp_ms,
    )


def read(batch: bytes, base_offset: int, *, before: bytes = b"") -> StoredMarker | None:
    """Read by the fast path, which has to agree with the general one."""
    fast = stored_marker(before + batch + b"behind", len(before), len(batch), base_offset)
    assert fast == any_stored_marker(batch)
    return fast


@given(ENDS, INT64, st.integers(0, (1 << 63) - 1), st.integers(-1, (1 << 31) - 1))
def test_encodes_as_the_general_code_does(
    end: EndTransaction, timestamp_ms: int, offset: int, leader_epoch: int
) -> None:
    expected = bytearray(plain(end, timestamp_ms))
    stamp(expected, base_offset=offset, leader_epoch=leader_epoch)
    assert marker_batch(end, timestamp_ms, offset, leader_epoch) == expected


@given(ENDS, INT64, st.integers(0, (1 << 63) - 1), st.binary(max_size=5))
def test_reads_what_was_written(end: EndTransaction, timestamp_ms: int, offset: int, before: bytes) -> None:
    batch = marker_batch(end, timestamp_ms, offset, 3)
    assert read(batch, offset, before=before) == (offset, timestamp_ms, end.coordinator_epoch, end.committed)


@given(ENDS, st.integers(21, 77), st.integers(0, 255))
def test_reads_a_changed_batch_as_the_general_code_does(end: EndTransaction, at: int, value: int) -> None:
    batch = bytearray(plain(end, 1_000))
    batch[at] = value
    with suppress(CorruptError):
        expected = any_stored_marker(bytes(batch))
        assert stored_marker(bytes(batch), 0, len(batch), 0) == expected


def test_other_control_batches_are_left_to_the_general_code() -> None:
    leader_change = build_batch(
        [BatchRecord(b"\0\0\0\2", b"\0" * 6)], timestamp_ms=1, producer_id=1, transactional=True, control=True
    )
    with_header = build_batch(
        [BatchRecord(b"\0\0\0\1", b"\0\0\0\0\0\7", [("h", b"v")])], timestamp_ms=1, producer_id=1, control=True
    )
    assert read(leader_change, 0) is None
    assert read(with_header, 0) == (0, 1, 7, True)
    assert len(leader_change) == HEADER_BYTES + 17, "the size of a marker"
