"""Records in lockstep: generated records are found again, and malformed records with a correct CRC are refused."""

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.pipeline.decode.batches import scan
from kohort.pipeline.decode.records import MALFORMED_RECORDS, parse, windows
from tests.pipeline.logbytes import TIMESTAMP_MS, Pair, batch, sealed

PAIRS = st.lists(
    st.tuples(st.none() | st.binary(max_size=200), st.none() | st.binary(max_size=200)), min_size=1, max_size=8
)


def read(raw: bytes, *, window_bytes: int = 1 << 20) -> tuple[list[tuple[int, int, Pair]], list[Any]]:
    """Offset, timestamp and pair of every record; and the damage."""
    rows: list[tuple[int, int, Pair]] = []
    damage: list[Any] = []
    for window in windows(scan(raw), window_bytes=window_bytes):
        found, data = parse(window), window.data.tobytes()
        damage += found.damage
        for row in range(len(found)):
            key = cut(data, int(found.key_at[row]), int(found.key_bytes[row]))
            value = cut(data, int(found.value_at[row]), int(found.value_bytes[row]))
            rows.append((int(found.offset[row]), int(found.timestamp_ms[row]), (key, value)))
    return rows, damage


def cut(data: bytes, at: int, size: int) -> bytes | None:
    return None if size < 0 else data[at : at + size]


@settings(deadline=None)
@given(st.lists(st.tuples(PAIRS, st.integers(0, 4)), max_size=6), st.sampled_from([1, 150, 1 << 20]))
def test_every_record_is_found_again(batches: list[tuple[list[Pair], int]], window_bytes: int) -> None:
    raw, expected, offset = b"", [], 0
    for pairs, codec in batches:
        raw += batch(offset, pairs, codec=codec)
        expected += [(offset + index, TIMESTAMP_MS + index, pair) for index, pair in enumerate(pairs)]
        offset += len(pairs)
    assert read(raw, window_bytes=window_bytes) == (expected, [])


def test_log_append_time_is_that_of_the_batch() -> None:
    rows, _ = read(batch(0, [(b"a", b"1"), (b"b", b"2")], attributes=0x08))
    assert [timestamp for _, timestamp, _ in rows] == [TIMESTAMP_MS + 1] * 2


GOOD = batch(0, [(b"key", b"value"), (b"other", b"more")])
RECORDS_AT = 61


def with_record_bytes(at: int, new: bytes) -> bytes:
    raw = bytearray(GOOD)
    raw[RECORDS_AT + at : RECORDS_AT + at + len(new)] = new
    return sealed(raw)


def with_count(count: int) -> bytes:
    raw = bytearray(GOOD)
    struct.pack_into(">i", raw, 57, count)
    return sealed(raw)


def with_last_length(change: int) -> bytes:
    at = 1 + (GOOD[RECORDS_AT] >> 1)
    return with_record_bytes(at, bytes([GOOD[RECORDS_AT + at] + change]))


NONSENSE = {
    "a record longer than its batch": with_record_bytes(0, b"\x7f"),
    "a last record longer than its batch": with_last_length(+2),
    "a negative record length": with_record_bytes(0, b"\x01"),
    "a negative record length of the right bytes": with_record_bytes(0, bytes([GOOD[RECORDS_AT] | 1])),
    "a record length without end": with_record_bytes(0, b"\xff" * 10),
    "a key longer than its record": with_record_bytes(4, b"\x7e"),
    "a key length without end": with_record_bytes(4, b"\xff" * 10),
    "a value longer than its record": with_record_bytes(8, b"\x7e"),
    "more records than bytes": with_count(1 << 30),
    "more records than there are": with_count(3),
    "fewer records than there are": with_count(1),
    "an offset behind its batch": with_record_bytes(3, b"\x7e"),
    "a negative offset": with_record_bytes(3, b"\x01"),
    "a negative count": with_count(-1),
}


@pytest.mark.parametrize("others", [1, 60])
@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_with_a_right_crc_is_refused(name: str, others: int) -> None:
    """Many batches are read in lockstep, few one by one."""
    good = b"".join(batch(offset, [(b"k", b"v"), (b"k", b"w")]) for offset in range(5, 5 + 2 * others, 2))
    rows, damage = read(NONSENSE[name] + good)
    assert [offset for offset, _, _ in rows] == list(range(5, 5 + 2 * others))
    assert [(one.position, one.problem, one.log_offset) for one in damage] == [(0, MALFORMED_RECORDS, 0)]


@settings(deadline=None)
@given(st.lists(PAIRS, min_size=1, max_size=4), st.data())
def test_mutated_batches_with_a_right_crc_are_read_or_refused(batches: list[list[Pair]], data: st.DataObject) -> None:
    raw = b""
    for pairs in batches:
        one = bytearray(batch(0, pairs))
        for _ in range(data.draw(st.integers(0, 3))):
            one[data.draw(st.integers(21, len(one) - 1))] = data.draw(st.integers(0, 255))
        raw += sealed(one)
    read(raw)


def test_what_does_not_decompress_is_refused() -> None:
    raw = bytearray(batch(0, [(b"key", b"value" * 100)], codec=1))
    raw[70:75] = b"xxxxx"
    rows, damage = read(sealed(raw) + batch(7, [(b"k", b"v")]))
    assert [offset for offset, _, _ in rows] == [7]
    assert "cannot be decompressed" in damage[0].problem


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_decompression_is_bounded(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kohort.pipeline.decode.records.RECORDS_BYTES_MAX", 50_000)
    rows, damage = read(batch(0, [(b"key", bytes(100_000))], codec=codec) + batch(1, [(b"k", b"v")]))
    assert [offset for offset, _, _ in rows] == [1]
    assert damage[0].problem == "records decompress to more than 50000 bytes"


def test_an_unknown_codec_is_refused() -> None:
    raw = bytearray(batch(0, [(b"k", b"v")]))
    raw[22] |= 7
    _, damage = read(sealed(raw))
    assert damage[0].problem == "unknown compression codec 7"
