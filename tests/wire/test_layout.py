"""Columnar reading finds the same records as reading one by one."""

import random

import numpy as np
import pytest

from kohort.model.errors import CorruptError
from kohort.wire.batches import BatchRecord, build_batch, iter_batches, read_records, stamp
from kohort.wire.columnar.layout import PADDING_BYTES, BatchBuffer
from kohort.wire.columnar.vectors import VARINT_BYTES_MAX, big_endian, first_equal, skip_varint, unsigned_varint
from kohort.wire.compression import Codec
from tests.wire.sealed import drained


def some_log(seed: int) -> bytes:
    """Batches of few and of many records, of short and of long ones, plain and compressed."""
    chance = random.Random(seed)
    log, offset = b"", chance.choice((0, 1 << 40))
    for _ in range(chance.choice((1, 3, 80))):
        many = [
            BatchRecord(
                chance.choice((None, b"", chance.randbytes(chance.choice((3, 60, 70, 200, 9000))))),
                chance.choice((None, b"", chance.randbytes(chance.choice((1, 63, 64, 65, 20_000))))),
                headers=chance.choice(((), (("name", b"x"), ("other", None)))),
                timestamp_ms=chance.choice((5, 5, 70, 1 << 41)),
            )
            for _ in range(chance.choice((1, 2, 30)))
        ]
        codec = chance.choice((Codec.NONE, Codec.NONE, Codec.GZIP, Codec.ZSTD))
        batch = bytearray(build_batch(many, timestamp_ms=5, compression=codec))
        stamp(batch, base_offset=offset, leader_epoch=0)
        offset += len(many) + chance.choice((0, 5))
        log += batch
    return log


@pytest.mark.parametrize("number", range(40))
def test_what_is_laid_out_is_what_is_read(number: int, seed: int) -> None:
    log = some_log(seed)
    wanted = [
        (record.offset, record.key, record.value)
        for position, header in iter_batches(log)
        for record in read_records(log[position:], header=header)
    ]
    found: list[tuple[int, bytes | None, bytes | None]] = []
    while log:
        buffer = BatchBuffer()
        assert buffer.add(log, bytes_max=random.Random(seed).choice((1, 50_000, 1 << 30)))
        taken = sum(header.size_bytes for _, header in list(iter_batches(log))[: len(buffer)])
        layout = drained(buffer.parse())
        rows = np.arange(len(layout))
        value_at, value_bytes = layout.values(rows)
        columns = (layout.offsets(rows), layout.key_at, layout.key_bytes, value_at, value_bytes)
        for offset, key_at, key_bytes, at, size in zip(*(column.tolist() for column in columns), strict=True):
            key = None if key_bytes < 0 else layout.raw[key_at : key_at + key_bytes]
            found.append((offset, key, None if size < 0 else layout.raw[at : at + size]))
        log = log[taken:]
    assert found == wanted


def test_a_batch_that_is_cut_off_is_not_taken() -> None:
    log = some_log(1)
    buffer = BatchBuffer()
    assert not buffer.add(log[:50], bytes_max=1 << 20)
    assert not buffer.add(log[: next(iter_batches(log))[1].size_bytes - 1], bytes_max=1 << 20)
    assert len(buffer) == 0


def test_what_is_no_batch_is_refused() -> None:
    with pytest.raises(CorruptError, match="no batch of magic 2"):
        BatchBuffer().add(bytes(200), bytes_max=1 << 20)


@pytest.mark.parametrize(("place", "byte"), [(60, 0xFF), (60, 0), (57, 0x7F), (61, 0xFF), (61, 0x01), (61, 0x00)])
def test_records_that_do_not_fill_their_batch_are_refused(place: int, byte: int) -> None:
    batch = bytearray(build_batch([BatchRecord(b"key", b"value"), BatchRecord(b"k", None)], timestamp_ms=5))
    batch[place] = byte
    buffer = BatchBuffer()
    buffer.add(bytes(batch), bytes_max=1 << 20)
    with pytest.raises(CorruptError, match="do not fit"):
        drained(buffer.parse())


def test_numbers_of_any_length_are_read() -> None:
    wanted = [0, 1, 127, 128, 16_383, 16_384, (1 << 21) - 1, 1 << 21, (1 << 35) - 1]
    raw, at = b"", []
    for number in wanted:
        at.append(len(raw))
        while number >= 0x80:
            raw += bytes([number & 0x7F | 0x80])
            number >>= 7
        raw += bytes([number])
    at.append(len(raw))
    data = np.frombuffer(raw + b"\xff" * 12 + bytes(PADDING_BYTES), np.uint8)
    values, after = unsigned_varint(data, np.array(at))
    assert values[:-1].tolist() == wanted
    assert values[-1] > 1 << 60, f"more than {VARINT_BYTES_MAX} bytes fit nowhere"
    assert after[:-1].tolist() == at[1:] == skip_varint(data, np.array(at[:-1])).tolist()
    assert big_endian(data, np.array([0, 1]), "i2").tolist() == [1, 0x17F]


@pytest.mark.parametrize("number", range(20))
def test_equal_strings_are_alike_and_others_never(number: int, rng: random.Random) -> None:
    pool = [rng.randbytes(rng.choice((0, 1, 8, 20, 64, 65, 300))) + b"\0" * rng.choice((0, 0, 1)) for _ in range(9)]
    pool.append(b"a string that is compared")  # the others may all be longer
    chosen = rng.choices(pool, k=300)
    at = np.cumsum([0, *(len(each) for each in chosen[:-1])])
    data = np.frombuffer(b"".join(chosen) + bytes(PADDING_BYTES), np.uint8)
    found = first_equal(data, at, np.array([len(each) for each in chosen])).tolist()
    assert all(chosen[index] == chosen[other] for index, other in enumerate(found))
    assert len(set(found)) < 300
