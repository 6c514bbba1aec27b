"""Batches that compaction judges by their bytes: what is read is what the records say, and the same batches stay."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.model.limits import UNORDERED_RECORDS_MAX
from kohort.storage.cleaning import rules
from kohort.storage.cleaning.job import LastRecord, PassTerms
from kohort.storage.cleaning.offset_map import DictMap
from kohort.storage.cleaning.rules import Compaction
from kohort.storage.cleaning.simple_batches import read_simple
from kohort.storage.producer_states import AbortedTxn
from kohort.wire.batch_header import (
    ATTRIBUTES_AT,
    ATTRIBUTES_LOW_AT,
    DELETE_HORIZON,
    HEADER_BYTES,
    LAST_OFFSET_DELTA_AT,
    LOG_APPEND_TIME,
    MAGIC_AT,
)
from kohort.wire.batches import BatchRecord, build_batch, encode_batch, read_header, read_records, stamp
from kohort.wire.compression import Codec
from tests.conftest import LONG, watches_calls
from tests.storage.test_any_batch import change, strange_batch
from tests.wire.control_batches import control_batch
from tests.wire.sealed import sealed

K, V = b"key", b"value"


def of(*pairs: tuple[bytes | None, bytes | None], **header: Any) -> bytes:
    records = [BatchRecord(key, value, headers=(("h", b"x"),)) for key, value in pairs]
    return build_batch(records, timestamp_ms=5, **header)


def changed(batch: bytes, at: int, byte: int) -> bytes:
    data = bytearray(batch)
    data[at] = byte
    return sealed(data)


PRODUCER: Any = {"producer_id": 5, "producer_epoch": 0}
TWO = of((K, V), (K, b""), base_offset=7)
# fmt: off
IS_SIMPLE = {
    "one record":              (of((K, V)), True),
    "empty key and value":     (of((b"", b"")), True),
    "two records":             (TWO, True),
    "of a coordinator":        (encode_batch([(K, V)], 5), True),
    "of a producer":           (of((K, V), **PRODUCER, base_sequence=0), True),
    "time of the append":      (changed(TWO, ATTRIBUTES_LOW_AT, LOG_APPEND_TIME), True),
    "a last record removed":   (changed(TWO, LAST_OFFSET_DELTA_AT + 3, 4), True),
    "many records":            (encode_batch([(K, V)] * UNORDERED_RECORDS_MAX, 5), True),
    "too many records":        (encode_batch([(K, V)] * (UNORDERED_RECORDS_MAX + 1), 5), False),
    "no key":                  (of((K, V), (None, V)), False),
    "a tombstone":             (of((K, V), (K, None)), False),
    "compressed":              (of((K, V), compression=Codec.GZIP), False),
    "of a transaction":        (of((K, V), **PRODUCER, base_sequence=0, transactional=True), False),
    "a marker":                (control_batch(**PRODUCER, committed=True, coordinator_epoch=0, timestamp_ms=1), False),
    "a delete horizon":        (changed(TWO, ATTRIBUTES_LOW_AT, DELETE_HORIZON), False),
    "another magic":           (TWO[:MAGIC_AT] + b"\1" + TWO[MAGIC_AT + 1 :], False),
    "no record":               (changed(TWO, HEADER_BYTES - 1, 0), False),
    "fewer records":           (changed(TWO, HEADER_BYTES - 1, 3), False),
    "more records":            (changed(TWO, HEADER_BYTES - 1, 1), False),
    "an offset twice":         (changed(TWO, HEADER_BYTES + 3, 2), False),
    "a negative offset":       (changed(of((K, V)), HEADER_BYTES + 3, 1), False),
    "a wrong size":            (changed(TWO, HEADER_BYTES + 4, 60), False),
    "cut off":                 (TWO[:-1], False),
    "a byte too much":         (TWO + b"\0", False),
    "no whole header":         (TWO[:HEADER_BYTES - 1], False),
}
# fmt: on


@pytest.mark.parametrize("name", IS_SIMPLE)
def test_only_a_batch_that_needs_no_records_is_simple(name: str) -> None:
    batch, is_simple = IS_SIMPLE[name]
    assert (read_simple(batch) is not None) == is_simple
    if is_simple:
        check(batch)


def check(batch: bytes) -> bool:
    """Compare with the records. Returns whether the batch is simple."""
    simple = read_simple(batch)
    if simple is None:
        return False
    header = read_header(batch)
    records = read_records(batch)
    assert simple.batch is batch
    assert (simple.keys, simple.offsets) == ([each.key for each in records], [each.offset for each in records])
    assert all(each.value is not None for each in records)
    assert not header.codec
    assert not header.is_transactional
    assert not header.is_control
    assert not header.has_delete_horizon
    assert (simple.next_offset, simple.has_producer) == (header.next_offset, header.producer_id >= 0)
    return True


def test_what_is_read_of_any_batch_is_what_its_records_say(seed: int) -> None:
    chance = Random(seed)
    found = 0
    for _ in range(50_000 if LONG else 2000):
        check(strange_batch(chance))
        batch = bytearray(of(*[(chance.randbytes(chance.choice([1, 70, 200])), V)] * chance.randrange(1, 4)))
        change(batch, chance.randrange(ATTRIBUTES_AT, len(batch)), chance)
        found += check(sealed(batch))
    assert found > 100


batches = st.lists(
    st.tuples(
        st.lists(
            st.tuples(st.sampled_from([b"a", b"b", b"c", b"d" * 70, None]), st.booleans()), min_size=1, max_size=3
        ),
        st.sampled_from(["", "", "", "gzip", "idempotent", "transactional"]),
        st.integers(0, 2),
    ),
    max_size=12,
)


def log_of(chosen: list[tuple[list[tuple[bytes | None, bool]], str, int]]) -> tuple[list[bytes], int]:
    log: list[bytes] = []
    end = 0
    for pairs, kind, gap in chosen:
        producer = {**PRODUCER, "base_sequence": end}
        batch = bytearray(
            build_batch(
                [BatchRecord(key, b"%d" % end if has_value else None) for key, has_value in pairs],
                timestamp_ms=1000 + end,
                compression=Codec.GZIP if kind == "gzip" else Codec.NONE,
                transactional=kind == "transactional",
                **(producer if kind in {"idempotent", "transactional"} else {}),
            )
        )
        stamp(batch, base_offset=end, leader_epoch=0)
        log.append(bytes(batch))
        end = read_header(batch).next_offset + gap
    return log, end


@watches_calls
@settings(max_examples=3000 if LONG else 200)
@given(batches, st.integers(0, 20), st.integers(1, 5), st.integers(0, 30), st.integers(-1, 30), st.integers(1, 4))
def test_the_same_stays_as_if_no_batch_were_simple(
    chosen: list[tuple[list[tuple[bytes | None, bool]], str, int]],
    first_dirty: int,
    keys_max: int,
    high_watermark: int,
    last_of_producer: int,
    keys_at_once: int,
) -> None:
    log, end = log_of(chosen)
    terms = PassTerms(
        first_dirty_offset=first_dirty,
        dirty_bytes=1000,
        high_watermark=high_watermark,
        last_records={5: LastRecord(last_of_producer, 0)},
        delete_retention_ms=1000,
        now_ms=5000,
        buffer_bytes=1 << 20,
        load_factor=0.9,
    )
    aborted = [AbortedTxn(5, 3, 12, 13)] if end > 12 else []
    found = []
    for read in (read_simple, lambda _batch: None):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(rules, "read_simple", read)
            compaction = Compaction(terms, aborted, offset_map=DictMap(keys_max), keys_at_once=keys_at_once)
            is_whole = compaction.add(log) and compaction.end_segment(end)
            retained = [batch for some in compaction.retain(log) for batch in some]
            found.append((is_whole, retained, compaction.latest_offset, compaction.invalid_records))
    assert found[0] == found[1]
