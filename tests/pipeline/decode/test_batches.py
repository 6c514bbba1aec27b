"""Batches in the bytes of a segment: damage of any kind loses no whole batch."""

import struct

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kohort.pipeline.decode.batches import (
    CRC_MISMATCH,
    DAMAGED_RANGE,
    INCOMPLETE_BATCH,
    OLD_FORMAT,
    ZERO_BYTES,
    scan,
    scans,
)
from tests.pipeline.logbytes import batch, sealed

ONE, TWO, THREE = (batch(10 * n, [(b"key", b"value %d" % n)] * n) for n in (1, 2, 3))
ALL = ONE + TWO + THREE


def flipped(raw: bytes, at: int) -> bytes:
    return raw[:at] + bytes([raw[at] ^ 0xFF]) + raw[at + 1 :]


def with_length(raw: bytes, length: int) -> bytes:
    return raw[:8] + struct.pack(">i", length) + raw[12:]


def old_format(raw: bytes) -> bytes:
    return raw[:16] + b"\x01" + raw[17:]


SECOND = len(ONE), len(TWO)
"""Where the second batch lies, and its size."""

# fmt: off
DAMAGE = {  #                 bytes                                       read        position, size, problem
    "none":                  (ALL,                                        [1, 2, 3],  None),
    "no bytes":              (b"",                                        [],         None),
    "torn in the records":   (ONE + TWO[:90],                             [1],        (len(ONE), 90, INCOMPLETE_BATCH)),
    "torn in the header":    (ONE + TWO[:30],                             [1],        (len(ONE), 30, INCOMPLETE_BATCH)),
    "torn in the length":    (ONE + TWO[:10],                             [1],        (len(ONE), 10, INCOMPLETE_BATCH)),
    "preallocated":          (ONE + bytes(4096),                          [1],        (len(ONE), 4096, ZERO_BYTES)),
    "a few zeros":           (ONE + bytes(5),                             [1],        (len(ONE), 5, ZERO_BYTES)),
    "a record changed":      (ONE + flipped(TWO, 70) + THREE,             [1, 3],     (*SECOND, CRC_MISMATCH)),
    "the last changed":      (ONE + flipped(TWO, 70),                     [1],        (*SECOND, CRC_MISMATCH)),
    "the CRC changed":       (flipped(ONE, 18) + TWO,                     [2],        (0, len(ONE), CRC_MISMATCH)),
    "a length too long":     (ONE + with_length(TWO, 1 << 30) + THREE,    [1, 3],     (*SECOND, DAMAGED_RANGE)),
    "a length too short":    (ONE + with_length(TWO, 20) + THREE,         [1, 3],     (*SECOND, DAMAGED_RANGE)),
    "a negative length":     (ONE + with_length(TWO, -1) + THREE,         [1, 3],     (*SECOND, DAMAGED_RANGE)),
    "a length a bit off":    (ONE + with_length(TWO, len(TWO)) + THREE,   [1, 3],     (*SECOND, DAMAGED_RANGE)),
    "zeros in between":      (ONE + bytes(200) + THREE,                   [1, 3],     (len(ONE), 200, DAMAGED_RANGE)),
    "noise in between":      (ONE + b"\x02noise" * 50 + THREE,            [1, 3],     (len(ONE), 300, DAMAGED_RANGE)),
    "noise in front":        (b"noise" + ONE,                             [1],        (0, 5, DAMAGED_RANGE)),
    "an older format":       (ONE + old_format(TWO) + THREE,              [1, 3],     (*SECOND, OLD_FORMAT)),
}
# fmt: on


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_left_out_and_reported(name: str) -> None:
    raw, read, damage = DAMAGE[name]
    found = scan(raw)
    assert found.headers["count"].tolist() == read
    assert [(one.position, one.size_bytes, one.problem) for one in found.damage] == ([] if damage is None else [damage])


def test_a_batch_says_where_the_next_one_goes() -> None:
    assert scan(ALL).next_offsets.tolist() == [11, 22, 33]


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(0, 2), st.data())
def test_noise_anywhere_costs_no_whole_batch(noise: bytes, after: int, data: st.DataObject) -> None:
    parts = [ONE, TWO, THREE]
    parts.insert(after, noise)
    found = scan(b"".join(parts))
    assert found.headers["base_offset"].tolist() == [10, 20, 30]
    assert sum(one.size_bytes for one in found.damage) == len(noise)


@settings(deadline=None)
@given(st.integers(0, len(ALL) - 1), st.integers(1, 255))
# A length that leads over the following batch: to the next one, to the end of the file, and just before it.
@example(11, (len(ONE) - 12) ^ (len(ONE + TWO) - 12))
@example(len(ONE) + 11, (len(TWO) - 12) ^ (len(TWO + THREE) - 12))
@example(len(ONE) + 11, (len(TWO) - 12) ^ (len(TWO + THREE) - 20))
def test_one_changed_byte_costs_one_batch_at_most(at: int, change: int) -> None:
    raw = ALL[:at] + bytes([ALL[at] ^ change]) + ALL[at + 1 :]
    found = scan(raw)
    # Base offset and leader epoch lie outside the CRC: there a change is not seen.
    assert len(found.positions) >= 2
    assert int((found.ends - found.positions).sum()) + sum(one.size_bytes for one in found.damage) == len(ALL)


def test_a_batch_in_a_value_of_a_damaged_batch_is_not_of_the_log() -> None:
    outer = batch(40, [(b"key", ONE), (b"key", b"value")])
    found = scan(flipped(outer, len(outer) - 2) + TWO)
    assert found.headers["base_offset"].tolist() == [20]
    assert [one.problem for one in found.damage] == [CRC_MISMATCH]


@settings(deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_accounted_for(raw: bytes) -> None:
    found = scan(raw)
    assert int((found.ends - found.positions).sum()) + sum(one.size_bytes for one in found.damage) == len(raw)


def test_a_header_that_promises_a_right_crc_is_believed() -> None:
    resealed = sealed(bytearray(flipped(TWO, 70)))
    assert scan(ONE + resealed + THREE).damage == []


@settings(deadline=None)
@given(st.lists(st.sampled_from([ONE, TWO, THREE, TWO[:90], flipped(ONE, 70), bytes(80), b"noise"])), st.integers(1, 4))
def test_some_at_a_time_are_the_same_batches_and_damage(parts: list[bytes], batches_max: int) -> None:
    raw = b"".join(parts)
    whole, some = scan(raw), list(scans(raw, batches_max=batches_max))
    assert max(len(found.positions) for found in some) <= batches_max
    assert np.concatenate([found.positions for found in some]).tolist() == whole.positions.tolist()
    assert np.concatenate([found.headers for found in some]).tolist() == whole.headers.tolist()
    assert [one for found in some for one in found.damage] == whole.damage
    # What is damaged comes with the batch behind it.
    for found in some[:-1]:
        assert all(one.position < found.positions[-1] for one in found.damage)
