"""A batch with a right checksum may hold any bytes: each reader of a log reads its records, or refuses them as damaged."""

from collections.abc import Callable
from contextlib import suppress
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.model.errors import CorruptError
from kohort.storage.batchset import iter_spans
from kohort.storage.logs.timestamps import first_at_least
from kohort.storage.producers import ProducerStateManager
from kohort.storage.tools.dump import _batch, as_text
from kohort.wire.batch_header import ATTRIBUTES_AT, HEADER_BYTES
from kohort.wire.batches import BatchRecord, build_batch, read_header, read_records
from kohort.wire.columnar.layout import BatchBuffer
from kohort.wire.compression import Codec
from tests.conftest import LONG
from tests.wire.plain_records import RefusedError, plain_records
from tests.wire.sealed import drained, sealed

LONG_ATTRIBUTES = 1_588, 1_991
"""The seeds of batches with a record whose attributes are 128."""
LONG_VARINTS = [b"\xff" * 9 + b"\x01", b"\xff\xff\xff\xff\x0f", b"\xfe\xff\xff\xff\x0f", b"\xff" * 10]


def parse(batch: bytes) -> None:
    stretch = BatchBuffer()
    stretch.add(batch, bytes_max=1 << 20)
    layout = drained(stretch.parse())
    rows = np.arange(len(layout))
    layout.offsets(rows)
    layout.values(rows)


READERS: dict[str, Callable[[bytes], object]] = {
    "one by one": lambda batch: list(read_records(batch)),
    "all together": parse,
    "dump": lambda batch: _batch(0, batch, as_text),
    "by time": lambda batch: first_at_least(batch, 500, 0),
    "producers": lambda batch: ProducerStateManager().update(batch, next(iter_spans(batch))),
}


def strange_batch(chance: Random) -> bytes:
    """A batch of which some bytes were changed, behind the checksum's place, which is then set anew."""
    records = [
        BatchRecord(
            chance.choice([None, b"k", chance.randbytes(70)]),
            chance.choice([None, b"v", chance.randbytes(200)]),
            headers=chance.choice([(), (("h", b"x"), ("g", None))]),
            timestamp_ms=chance.choice([1, 1000, 1 << 41]),
        )
        for _ in range(chance.choice([1, 2, 5, 60]))
    ]
    batch = bytearray(
        build_batch(
            records,
            timestamp_ms=5,
            compression=chance.choice([Codec.NONE, Codec.NONE, Codec.NONE, *Codec]),
            control=chance.random() < 0.1,
            producer_id=chance.choice([-1, 5]),
            producer_epoch=0,
            base_sequence=0,
            transactional=chance.random() < 0.3,
        )
    )
    for _ in range(chance.choice([1, 1, 2, 5])):
        end = len(batch) if chance.random() < 0.5 else min(len(batch), HEADER_BYTES + 30)
        change(batch, chance.randrange(ATTRIBUTES_AT, end), chance)
    if chance.random() < 0.3:
        del batch[chance.randrange(HEADER_BYTES, len(batch) + 1) :]
    return sealed(batch)


def change(batch: bytearray, at: int, chance: Random) -> None:
    match chance.choice(["flip", "set", "put"]):
        case "flip":
            batch[at] ^= 1 << chance.randrange(8)
        case "set":
            batch[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF])
        case "put":
            some = chance.choice([*LONG_VARINTS, chance.randbytes(10)])[: len(batch) - at]
            batch[at : at + len(some)] = some


@settings(max_examples=10_000 if LONG else 200)
@given(seed=st.integers(0, 1 << 40))
def test_a_damaged_batch_is_read_or_refused(seed: int) -> None:
    batch = strange_batch(Random(seed))
    for read in READERS.values():
        with suppress(CorruptError):
            read(batch)


def test_a_batch_is_what_a_plain_decoder_reads() -> None:
    """Damage that leaves a well-formed batch is data like any other, and every reader takes it; both kinds occur."""
    well_formed = malformed = 0
    for seed in (*LONG_ATTRIBUTES, *range(20_000 if LONG else 1_000)):
        batch = strange_batch(Random(seed))
        try:
            expected = plain_records(batch)
        except RefusedError:
            malformed += 1
            continue
        if expected is None or not expected:
            continue
        well_formed += 1
        found = read_records(batch)
        assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in found] == expected, seed
        if not read_header(batch).is_control:
            assert rows(batch) == [(r.offset, r.key, r.value) for r in expected], seed
            READERS["producers"](batch)
        READERS["dump"](batch)
        READERS["by time"](batch)
    assert well_formed > 150
    assert malformed > 300


def rows(batch: bytes) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of every record, found for all records together."""
    buffer = BatchBuffer()
    buffer.add(batch, bytes_max=1 << 20)
    layout = drained(buffer.parse())
    every = np.arange(len(layout))
    value_at, value_bytes = layout.values(every)

    def piece(at: int, size: int) -> bytes | None:
        return None if size < 0 else layout.raw[at : at + size]

    keys = map(piece, layout.key_at.tolist(), layout.key_bytes.tolist())
    values = map(piece, value_at.tolist(), value_bytes.tolist())
    return list(zip(layout.offsets(every).tolist(), keys, values, strict=True))


@pytest.mark.parametrize("reader", ["one by one", "all together"])
@pytest.mark.parametrize("length", LONG_VARINTS)
def test_a_record_of_an_impossible_length_is_refused(reader: str, length: bytes) -> None:
    batch = bytearray(build_batch([BatchRecord(b"k", b"v" * 20)], timestamp_ms=1))
    batch[HEADER_BYTES : HEADER_BYTES + len(length)] = length
    with pytest.raises(RefusedError):
        plain_records(sealed(batch))
    with pytest.raises(CorruptError):
        READERS[reader](sealed(batch))


@pytest.mark.parametrize("reader", ["dump", "by time", "producers"])
@pytest.mark.parametrize("length", LONG_VARINTS)
def test_readers_of_headers_survive_a_record_of_an_impossible_length(reader: str, length: bytes) -> None:
    """They need no records, or show the batch with its problem."""
    batch = bytearray(build_batch([BatchRecord(b"k", b"v" * 20)], timestamp_ms=1))
    batch[HEADER_BYTES : HEADER_BYTES + len(length)] = length
    with suppress(CorruptError):
        READERS[reader](sealed(batch))
    if reader == "dump":
        row = _batch(0, sealed(batch), as_text)
        assert "problem" in row
        assert row["count"] == 1
